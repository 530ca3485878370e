/** The state of training: named tensors in the runtime's memory, exchanged by each step. */

import { NDArray, element } from "./dtypes.js";
import { StateError } from "./errors.js";
import { copyTensor } from "./program.js";
import { dictionary } from "./safetensors.js";

/** @import {Runtime, OrtTensor} from "./runtime.js" */
/** @import {StateSpec} from "./manifest.js" */

const ON_GPU = ["float32", "float16"];

/**
 * Named tensors. A step reads those here and makes new ones, which take their places when it has
 * succeeded: no memory is ever both read and written. With WebGPU, tensors of a float type stay in
 * the GPU's memory; those replaced are given back at once.
 */
export class State {
  #runtime;
  /** @type {Map<string, StateSpec>} */
  #specs;
  /** @type {Set<string>} */
  #small;
  /** @type {Map<string, OrtTensor>} */
  #tensors = new Map();

  /**
   * @param {Runtime} runtime
   * @param {readonly StateSpec[]} specs
   * @param {readonly (string | null | undefined)[]} small what is looked at between steps
   */
  constructor(runtime, specs, small) {
    this.#runtime = runtime;
    this.#specs = new Map(specs.map((spec) => [spec.name, spec]));
    this.#small = new Set(small.filter((name) => typeof name === "string"));
  }

  /** The tensors' names. */
  get names() {
    return [...this.#specs.keys()];
  }

  /** @param {string} name */
  has(name) {
    return this.#specs.has(name);
  }

  /** @param {string} name */
  spec(name) {
    return this.#specs.get(name);
  }

  /**
   * True if a tensor stays in the memory of a GPU.
   * @param {string} name
   */
  isOnGpu(name) {
    const spec = this.#specs.get(name);
    return this.#runtime.keepsOnGpu && ON_GPU.includes(spec?.dtype ?? "") && !this.#small.has(name);
  }

  /**
   * The runtime's tensor of the present value.
   * @param {string} name
   * @returns {OrtTensor}
   */
  tensor(name) {
    const found = this.#tensors.get(name);
    if (!found) throw this.#unknown(name);
    return found;
  }

  /**
   * The single number that a tensor kept on the CPU holds.
   * @param {string} name
   * @returns {number}
   */
  number(name) {
    return Number(this.tensor(name).data[0]);
  }

  /**
   * A copy of the present value.
   * @param {string} name
   * @returns {Promise<NDArray>}
   */
  read(name) {
    return copyTensor(this.tensor(name));
  }

  /**
   * Copies of all present values.
   * @returns {Promise<Record<string, NDArray>>}
   */
  async toDict() {
    const entries = [];
    for (const name of this.names) entries.push([name, await this.read(name)]);
    return dictionary(entries);
  }

  /**
   * Replace all values. All are checked before any is replaced: all or nothing.
   * @param {Record<string, NDArray>} values
   */
  fromDict(values) {
    const missing = this.names.filter((name) => !Object.hasOwn(values, name));
    const surplus = Object.keys(values).filter((name) => !this.has(name));
    if (missing.length || surplus.length) {
      const parts = [missing.length && `lacks ${some(missing)}`];
      parts.push(surplus.length && `has ${some(surplus)} that the state has not`);
      const what = parts.filter(Boolean).join(" and ");
      throw new StateError(`the values are not of this state: the given set ${what}`, {
        hint: "give exactly the names of the state",
      });
    }
    const checked = this.names.map((name) => this.#checked(name, values[name]));
    this.exchange(new Map(checked.map(({ name, array }) => [name, this.#made(array)])));
  }

  /**
   * Replace one value.
   * @param {string} name
   * @param {NDArray} value
   */
  write(name, value) {
    const { array } = this.#checked(name, value);
    this.exchange(new Map([[name, this.#made(array)]]));
  }

  /**
   * Put tensors in the places of others, which are given back.
   * @param {ReadonlyMap<string, OrtTensor>} next
   */
  exchange(next) {
    for (const [name, tensor] of next) {
      const old = this.#tensors.get(name);
      this.#tensors.set(name, tensor);
      old?.dispose();
    }
  }

  /** Give all memory back. */
  dispose() {
    for (const tensor of this.#tensors.values()) tensor.dispose();
    this.#tensors.clear();
  }

  /** @param {NDArray} array */
  #made(array) {
    return new this.#runtime.ort.Tensor(array.dtype, array.data, array.shape);
  }

  /**
   * @param {string} name
   * @param {NDArray} value
   */
  #checked(name, value) {
    const spec = this.#specs.get(name);
    if (!spec) throw this.#unknown(name);
    if (!(value instanceof NDArray)) {
      throw new StateError(`state ${name}: the given value is no NDArray`, {
        hint: `new NDArray("${spec.dtype}", [${spec.shape}], data)`,
      });
    }
    if (value.dtype !== spec.dtype || String(value.shape) !== String(spec.shape)) {
      throw new StateError(
        `state ${name} is ${spec.dtype} [${spec.shape}], ` +
          `the given value ${value.dtype} [${value.shape}]`,
        { hint: "a tensor's shape and dtype are fixed" },
      );
    }
    const { array } = element(value.dtype);
    return { name, array: new NDArray(value.dtype, value.shape, copy(value.data, array)) };
  }

  /** @param {string} name */
  #unknown(name) {
    return new StateError(`the state has no tensor ${name}`, {
      hint: `it has ${some(this.names)}`,
    });
  }
}

/**
 * @param {import("./dtypes.js").Data} data
 * @param {import("./dtypes.js").DataType} array
 */
function copy(data, array) {
  const bytes = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  return new array(bytes, 0, data.length);
}

/**
 * @param {readonly string[]} names
 * @param {number} [limit]
 */
export function some(names, limit = 5) {
  const shown = names.slice(0, limit).join(", ") || "none";
  return names.length > limit ? `${shown} and ${names.length - limit} more` : shown;
}
