/** Curves of numbers by step: axes from a stated value, round numbers on them, their units. */

const [TOP, RIGHT, BOTTOM, LEFT] = [26, 12, 38, 44];
const SMOOTH = 8; // steps
const ROUND = [1, 2, 5, 10];

/** Draw the losses of the last steps into `place`; `first` is the number of the first. */
export function drawCurve(place, losses, first) {
  drawChart(place, { values: losses, first, what: "loss", unit: "nats" });
}

/**
 * Draw `values`, one a step, from step `first` on; the vertical axis begins at 0, or at a round
 * number below a negative value, and reaches `most` at least. `marks` are {step, value} that are
 * drawn as dots. Numbers that are not finite leave a gap.
 */
export function drawChart(
  place,
  { values, first, what, unit, most = 0, marks = [], percent = false, height = 190 },
) {
  const width = Math.max(place.clientWidth, 240);
  const known = [...values, ...marks.map(({ value }) => value)].filter(Number.isFinite);
  const ys = ticks(Math.min(0, ...known), Math.max(most, ...known, 0), 4);
  const last = first + Math.max(values.length - 1, 0);
  const xs = ticks(first, last, Math.max(2, Math.floor(width / 120)), 1).filter(
    (step) => step >= first && step <= last,
  );
  const [low, high] = [ys[0], ys.at(-1)];
  const x = (step) => LEFT + ((width - LEFT - RIGHT) * (step - first)) / Math.max(last - first, 1);
  const y = (value) => TOP + ((height - TOP - BOTTOM) * (high - value)) / (high - low);
  const path = (numbers) => line(numbers, (i) => x(first + i), y);
  const written = text(ys, percent);
  const rows = ys.map((value, i) => {
    return `<line class="grid" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(value)}" y2="${y(value)}"/>
      <text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${written[i]}</text>`;
  });
  const columns = values.length ? xs.map((step) => column(x(step), step, width, height - BOTTOM)) : [];
  const dots = marks.map((mark) => `<circle class="mark" cx="${x(mark.step)}" cy="${y(mark.value)}" r="3.5"/>`);
  place.innerHTML = `
    <svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${told(values, first, what)}">
      <text x="0" y="12">${what}${unit ? ` (${unit})` : ""}</text>
      <text x="${width - RIGHT}" y="${height - 5}" text-anchor="end">step</text>
      ${rows.join("")}
      ${columns.join("")}
      <path class="each" d="${path(values)}"/>
      <path class="smooth" d="${path(smoothed(values))}"/>
      ${dots.join("")}
      ${values.length ? "" : empty(what, width, height)}
    </svg>`;
}

/** Round numbers from `least`, or just below, to `most`, or just above, about `count` parts. */
export function ticks(least, most, count, finest = 0) {
  const rough = Math.max((most - least) / count, finest) || 0.25;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ROUND.find((factor) => factor * power >= rough * (1 - 1e-9));
  const [low, high] = [Math.floor(least / step + 1e-9), Math.ceil(most / step - 1e-9)];
  const parts = Math.max(high - low, 1);
  return Array.from({ length: parts + 1 }, (_, i) => Number(((low + i) * step).toPrecision(12)));
}

/** Numbers of an axis as text, all with the digits that tell them apart. */
function text(numbers, percent) {
  const scale = percent ? 100 : 1;
  const step = (numbers[1] - numbers[0]) * scale;
  const digits = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 6);
  return numbers.map((number) => (number * scale).toFixed(digits));
}

function column(at, step, width, bottom) {
  const anchor = at > width - 40 ? "end" : "middle";
  return `<line class="grid" x1="${at}" x2="${at}" y1="${bottom}" y2="${bottom + 4}"/>
    <text x="${at}" y="${bottom + 16}" text-anchor="${anchor}">${step}</text>`;
}

function line(numbers, x, y) {
  let isOpen = false;
  const parts = numbers.map((value, i) => {
    if (!Number.isFinite(value)) return (isOpen = false) || "";
    const move = isOpen ? "L" : "M";
    isOpen = true;
    return `${move}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return parts.join("");
}

function told(values, first, what) {
  if (!values.length) return `${capital(what)}: no steps yet`;
  const [begin, end] = [values[0], values.at(-1)].map((value) => value.toFixed(2));
  return `${capital(what)}, from ${begin} at step ${first} to ${end} at step ${first + values.length - 1}`;
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

function empty(what, width, height) {
  const words = `the ${what} of each step will be drawn here`;
  return `<text x="${(width + LEFT) / 2}" y="${height / 2}" text-anchor="middle">${words}</text>`;
}

function smoothed(values) {
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - SMOOTH + 1), i + 1).filter(Number.isFinite);
    return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : NaN;
  });
}
