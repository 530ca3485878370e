/** Pictures as the network takes them: squares of RGB bytes, from files and from the camera. */

const LARGEST_FILE = 100e6; // bytes
const LARGEST_PICTURE = 100e6; // numbers of height × width; beyond it pages run out of memory

/** The middle square of a picture file, `size` × `size` × 3 bytes; throws for what is no picture. */
export async function readPicture(file, size) {
  if (file.size > LARGEST_FILE) {
    throw new Error(`${file.name} has ${mega(file.size)} MB: give one of ${mega(LARGEST_FILE)} MB at most`);
  }
  const address = URL.createObjectURL(file);
  try {
    const image = await loaded(address, file.name);
    const { naturalWidth: width, naturalHeight: height } = image;
    if (width * height > LARGEST_PICTURE) {
      throw new Error(
        `${file.name} has ${width} × ${height} pixels: give one of ${mega(LARGEST_PICTURE)} million at most`,
      );
    }
    return square(image, width, height, size);
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** What the camera sees now, as `readPicture` gives it. */
export function frame(video, size) {
  return square(video, video.videoWidth, video.videoHeight, size);
}

/** Show a picture on a canvas. */
export function paint(canvas, picture, size) {
  Object.assign(canvas, { width: size, height: size });
  const rgba = new Uint8ClampedArray(4 * size * size).fill(255);
  for (let i = 0; i < size * size; i++) rgba.set(picture.subarray(3 * i, 3 * i + 3), 4 * i);
  canvas.getContext("2d").putImageData(new ImageData(rgba, size, size), 0, 0);
}

function loaded(address, name) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error(`${name} is no picture that this browser can read`));
    image.src = address;
  });
}

function square(source, width, height, size) {
  const side = Math.min(width, height);
  if (!side) throw new Error("there is nothing to see in it: it has no pixels");
  const context = new OffscreenCanvas(size, size).getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff"; // under what is transparent
  context.fillRect(0, 0, size, size);
  const [left, top] = [(width - side) / 2, (height - side) / 2];
  context.drawImage(source, left, top, side, side, 0, 0, size, size);
  const { data } = context.getImageData(0, 0, size, size);
  const picture = new Uint8Array(3 * size * size);
  for (let i = 0; i < size * size; i++) picture.set(data.subarray(4 * i, 4 * i + 3), 3 * i);
  return picture;
}

function mega(count) {
  return Math.ceil(count / 1e6);
}
