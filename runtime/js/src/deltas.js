/** Differences between weights: what a device sends, and what the mean of many adds. */

import { NDArray, narrow, widen } from "./dtypes.js";
import { StateError } from "./errors.js";
import { dictionary } from "./safetensors.js";

/** @import {StateSpec} from "./manifest.js" */
/** @typedef {Record<string, NDArray>} Arrays */

const FLOATS = ["float16", "bfloat16", "float32", "float64"];

/**
 * The tensors that a delta is of: variables of a float type.
 * @param {readonly StateSpec[]} specs
 * @returns {StateSpec[]}
 */
export function floatVariables(specs) {
  return specs.filter((spec) => spec.role === "variable" && FLOATS.includes(spec.dtype));
}

/**
 * New minus old of the tensors of `specs`, in float32 or float64.
 * @param {Arrays} now
 * @param {Arrays} since
 * @param {readonly StateSpec[]} specs
 * @returns {Arrays}
 */
export function difference(now, since, specs) {
  const entries = specs.map((spec) => {
    checkArray(since[spec.name], spec, spec.dtype);
    const [a, b] = [widen(now[spec.name]), widen(since[spec.name])];
    return [
      spec.name,
      wide(
        spec,
        a.map((value, i) => value - b[i]),
      ),
    ];
  });
  return dictionary(entries);
}

/**
 * The values of the tensors of `specs` plus `scale` times their delta.
 * @param {Arrays} values
 * @param {Arrays} delta
 * @param {number} scale
 * @param {readonly StateSpec[]} specs
 * @returns {Arrays}
 */
export function addDelta(values, delta, scale, specs) {
  const surplus = Object.keys(delta).find((name) => !specs.some((spec) => spec.name === name));
  if (surplus !== undefined) {
    throw new StateError(`the delta holds ${surplus}, which is no variable of a float type`, {
      hint: "a delta is what Trainer.delta gives, or a mean of such",
    });
  }
  if (!Number.isFinite(scale)) throw new StateError(`scale is ${scale}`, { hint: "give a number" });
  const entries = specs.map((spec) => {
    const change = delta[spec.name];
    checkArray(change, spec, wideType(spec.dtype));
    const sum = widen(values[spec.name]);
    const by = widen(change);
    const factor = sum instanceof Float32Array ? Math.fround(scale) : scale;
    by.forEach((_, i) => (by[i] *= factor)); // rounded to the delta's own precision
    by.forEach((step, i) => (sum[i] += step));
    return [spec.name, narrow(spec.dtype, spec.shape, sum)];
  });
  return dictionary(entries);
}

/** @param {string} dtype */
function wideType(dtype) {
  return dtype === "float64" ? "float64" : "float32";
}

/**
 * @param {StateSpec} spec
 * @param {Float32Array | Float64Array} data
 */
function wide(spec, data) {
  return new NDArray(wideType(spec.dtype), spec.shape, data);
}

/**
 * @param {NDArray | undefined} array
 * @param {StateSpec} spec
 * @param {string} dtype
 */
function checkArray(array, { name, shape }, dtype) {
  if (!array)
    throw new StateError(`${name} is missing`, { hint: "give all variables of a float type" });
  if (array.dtype !== dtype || String(array.shape) !== String(shape)) {
    throw new StateError(
      `${name} is ${array.dtype} [${array.shape}], expected ${dtype} [${shape}]`,
    );
  }
}
