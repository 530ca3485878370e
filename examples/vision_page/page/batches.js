/** Batches of pictures for the network: which are held back, how they vary, how they are laid out. */

const HELD = 5; // one picture in so many of a class is held back
const SHIFT = 1 / 12; // of the side, that a picture moves by at most
const LIGHT = 0.15; // that it is brighter or darker by at most

/** The places of the pictures to learn from and of those held back to be judged by. */
export function divide(labels) {
  const seen = new Map();
  const [learnt, held] = [[], []];
  labels.forEach((label, i) => {
    const count = (seen.get(label) ?? 0) + 1;
    seen.set(label, count);
    (count % HELD === 0 ? held : learnt).push(i);
  });
  return { learnt, held };
}

/** The numbers in random order. */
export function shuffled(numbers) {
  const order = [...numbers];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/**
 * The feeds of a step for the pictures at `places`, at most a batch; rows beyond them count for
 * nothing. With `varied` each is moved, mirrored and lit a little otherwise each time.
 */
export function feeds(settings, pictures, labels, places, count, varied) {
  const { size, batch, classes, channelsFirst, mean, std, input } = settings;
  const area = size * size;
  const images = new Float32Array(batch * 3 * area);
  const targets = new Float32Array(batch * classes);
  places.forEach((place, row) => {
    const picture = pictures.subarray(place * 3 * area, (place + 1) * 3 * area);
    const { dx, dy, isMirrored, light } = varied ? variation(size) : STILL;
    for (let y = 0; y < size; y++) {
      for (let x = 0; x < size; x++) {
        const from = 3 * (size * within(y + dy, size) + within((isMirrored ? size - 1 - x : x) + dx, size));
        const pixel = size * y + x;
        for (let c = 0; c < 3; c++) {
          const at = channelsFirst ? c * area + pixel : 3 * pixel + c;
          const value = Math.min((picture[from + c] / 255) * light, 1);
          images[row * 3 * area + at] = (value - mean[c]) / std[c];
        }
      }
    }
    if (labels) targets[row * classes + labels[place]] = 1;
  });
  const used = Float32Array.from({ length: classes }, (_, i) => (i < count ? 1 : 0));
  return { [input]: images, targets, used };
}

/** The place of the largest of `count` scores of a row. */
export function best(scores, row, width, count) {
  let at = 0;
  for (let i = 1; i < count; i++) if (scores[row * width + i] > scores[row * width + at]) at = i;
  return at;
}

/** The share of each of the first `count` scores. */
export function softmax(scores, count) {
  const most = Math.max(...scores.slice(0, count));
  const parts = Array.from({ length: count }, (_, i) => Math.exp(scores[i] - most));
  const sum = parts.reduce((a, b) => a + b, 0);
  return parts.map((part) => part / sum);
}

const STILL = { dx: 0, dy: 0, isMirrored: false, light: 1 };

function variation(size) {
  const draw = () => 2 * Math.random() - 1;
  return {
    dx: Math.round(draw() * SHIFT * size),
    dy: Math.round(draw() * SHIFT * size),
    isMirrored: Math.random() < 0.5,
    light: 1 + LIGHT * draw(),
  };
}

function within(place, size) {
  return Math.min(Math.max(place, 0), size - 1);
}
