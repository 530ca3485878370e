/**
 * The whole numbers that a feed may hold: class numbers, rows of a table. A runtime reads -1 as the
 * last class, and throws its own text for a number that is too large.
 */

import { FeedError } from "./errors.js";
import { Fields } from "./fields.js";

/** @import {NDArray} from "./dtypes.js" */
/**
 * Numbers from `least` on and below `below`, and `ignored` where there is such a number; `layer` is
 * what reads them.
 * @typedef {{least: number, below: number, layer: string, ignored: number | null}} IndexRange
 */

const SMALLEST = -Number.MAX_SAFE_INTEGER;

/**
 * The range of a tensor in the manifest, or null.
 * @param {Fields} fields of the tensor
 * @param {string} dtype
 * @returns {IndexRange | null}
 */
export function readRange(fields, dtype) {
  if (!fields.has("range")) return null;
  const inner = new Fields(`${fields.place}: range`, fields.value.range);
  const [least, below] = [inner.number("least", SMALLEST), inner.number("below", SMALLEST)];
  if (least >= below || !dtype.includes("int")) {
    throw fields.error("range", `is ${least} to ${below}, of ${dtype}`);
  }
  const ignored = inner.has("ignored") ? inner.number("ignored", SMALLEST) : null;
  return { least, below, layer: inner.optional("layer") ?? "", ignored };
}

/**
 * Throw `FeedError` for a number outside the range.
 * @param {string} model
 * @param {string} name of the feed
 * @param {IndexRange} range
 * @param {NDArray} array
 */
export function checkRange(model, name, range, array) {
  const { least, below, layer, ignored } = range;
  /** @param {number | bigint} n */
  const isWrong = (n) => (n < least || n >= below) && (ignored === null || Number(n) !== ignored);
  const numbers = /** @type {ArrayLike<number | bigint>} */ (/** @type {unknown} */ (array.data));
  let [count, first] = [0, -1];
  for (let i = 0; i < numbers.length; i++) {
    if (!isWrong(numbers[i])) continue;
    if (!count) first = i;
    count += 1;
  }
  if (!count) return;
  const [noun, kind] = least < 0 ? ["index", "rows"] : ["label", "classes"];
  const allowed = ignored === null ? "" : ` (or ${ignored})`;
  throw new FeedError(
    `${model}: argument ${name}: the ${noun} ${numbers[first]} at ` +
      `[${place(first, array.shape).join(", ")}] is none of the ${below} ${kind}, ` +
      `${least} to ${below - 1}${allowed}${layer && `, in ${layer}`}`,
    { hint: `${count} of ${numbers.length} are outside` },
  );
}

/**
 * The indices of the element at a position.
 * @param {number} position
 * @param {readonly number[]} shape
 */
function place(position, shape) {
  const found = [];
  for (const size of [...shape].reverse()) {
    found.unshift(position % size);
    position = Math.floor(position / size);
  }
  return found;
}
