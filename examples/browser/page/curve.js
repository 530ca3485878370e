/** The loss curve, drawn anew from its numbers. */

const [HEIGHT, LEFT, BOTTOM, TOP] = [170, 34, 22, 10];
const SMOOTH = 8; // steps

/** Draw the losses of the last steps into `place`; `first` is the number of the first. */
export function drawCurve(place, losses, first) {
  const width = Math.max(place.clientWidth, 240);
  const most = Math.max(0.5, ...losses);
  const x = (i) => LEFT + ((width - LEFT - 6) * i) / Math.max(losses.length - 1, 1);
  const y = (loss) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / most);
  const path = (values) =>
    values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`);
  const ticks = [0, most / 2, most].map((value) => {
    return `<line class="grid" x1="${LEFT}" x2="${width}" y1="${y(value)}" y2="${y(value)}"/>
      <text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${value.toFixed(1)}</text>`;
  });
  const last = first + Math.max(losses.length - 1, 0);
  const [begin, end] = [losses[0], losses.at(-1)].map((loss) => loss?.toFixed(2));
  const told = begin
    ? `Loss, from ${begin} at step ${first} to ${end} at step ${last}`
    : "No steps yet";
  place.innerHTML = `
    <svg viewBox="0 0 ${width} ${HEIGHT}" role="img" aria-label="${told}">
      ${ticks.join("")}
      <path class="each" d="${path(losses).join("")}"/>
      <path class="smooth" d="${path(smoothed(losses)).join("")}"/>
      ${losses.length ? axis(first, last, width) : empty(width)}
    </svg>`;
}

function axis(first, last, width) {
  return `<text x="${LEFT}" y="${HEIGHT - 5}">step ${first}</text>
    <text x="${width - 6}" y="${HEIGHT - 5}" text-anchor="end">${last}</text>`;
}

function empty(width) {
  const told = "the loss of each step will be drawn here";
  return `<text x="${width / 2}" y="${HEIGHT / 2 - 22}" text-anchor="middle">${told}</text>`;
}

function smoothed(losses) {
  return losses.map((_, i) => {
    const near = losses.slice(Math.max(0, i - SMOOTH + 1), i + 1);
    return near.reduce((sum, loss) => sum + loss, 0) / near.length;
  });
}
