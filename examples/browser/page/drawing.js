/** The pad: strokes by pointer, and the small image that the network sees of them. */

const SIDE = 8; // pixels of the network's image, each the mean of many of the pad's
const WIDTH = 0.075; // of a stroke, as a share of the pad
const PEN = 0.2; // of a stroke in the network's image, as a share of it
const BREADTH = 0.85; // no digit is broader than this, measured by its height

/** A canvas to draw on; calls `changed` when a stroke has ended. */
export class Pad {
  #strokes = [];
  #pointer = null;

  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => this.#end(event));
    }
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", () => this.#paint());
  }

  get isEmpty() {
    return this.#strokes.length === 0;
  }

  clear() {
    this.#strokes = [];
    this.#pointer = null;
    this.#paint();
    this.changed();
  }

  /** The drawing as the digits were made that the network knows: as high as the image; 0 to 1. */
  image() {
    const points = this.#strokes.flat();
    const [xs, ys] = [points.map((p) => p.x), points.map((p) => p.y)];
    const [left, right, top, bottom] = [...ends(xs), ...ends(ys)];
    const size = Math.max(bottom - top, (right - left) / BREADTH, WIDTH) / (1 - PEN);
    const fine = 4 * SIDE;
    const context = new OffscreenCanvas(fine, fine).getContext("2d", { willReadFrequently: true });
    context.scale(fine / size, fine / size);
    context.translate(size / 2 - (left + right) / 2, size / 2 - (top + bottom) / 2);
    draw(context, this.#strokes, "#000", PEN * size);
    return means(context.getImageData(0, 0, fine, fine).data, fine);
  }

  #begin(event) {
    if (this.#pointer !== null || event.button > 0) return;
    this.#pointer = event.pointerId;
    this.canvas.setPointerCapture(event.pointerId);
    this.#strokes.push([this.#place(event)]);
    this.#paint();
  }

  #move(event) {
    if (event.pointerId !== this.#pointer) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const e of events.length ? events : [event]) this.#strokes.at(-1).push(this.#place(e));
    this.#paint();
  }

  #end(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#pointer = null;
    this.changed();
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    return { x: Math.min(Math.max(x, 0), 1), y: Math.min(Math.max(y, 0), 1) };
  }

  #paint() {
    const context = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.scale(width, height);
    const color = getComputedStyle(this.canvas).getPropertyValue("--stroke");
    draw(context, this.#strokes, color, WIDTH);
    this.canvas.parentElement.classList.toggle("has-ink", !this.isEmpty);
  }
}

function ends(values) {
  return [Math.min(...values), Math.max(...values)];
}

function draw(context, strokes, color, width) {
  Object.assign(context, {
    strokeStyle: color,
    lineWidth: width,
    lineCap: "round",
    lineJoin: "round",
  });
  for (const [first, ...rest] of strokes) {
    context.beginPath();
    context.moveTo(first.x, first.y);
    for (const point of rest.length ? rest : [first]) context.lineTo(point.x, point.y);
    context.stroke();
  }
}

/** How much of each square is covered. */
function means(rgba, fine) {
  const [image, step] = [new Float32Array(SIDE * SIDE), fine / SIDE];
  for (let y = 0; y < fine; y++) {
    for (let x = 0; x < fine; x++) {
      const pixel = SIDE * Math.floor(y / step) + Math.floor(x / step);
      image[pixel] += rgba[4 * (fine * y + x) + 3] / 255 / step ** 2;
    }
  }
  return image;
}

/** Show an image of the network on a canvas of its size. */
export function show(image, canvas) {
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(SIDE, SIDE);
  image.forEach((ink, i) => pixels.data.set([...Array(3).fill(255 * (1 - ink)), 255], 4 * i));
  context.putImageData(pixels, 0, 0);
}
