/** One model, open: checks what goes in, runs, and tells results from next values. */

import { BY_NAME, NDArray, count, element } from "./dtypes.js";
import { BundleError, FeedError, OptionsError, ProviderError } from "./errors.js";
import { checkRange } from "./index_range.js";
import { checkModel } from "./model_limits.js";
import { dictionary } from "./safetensors.js";

/** @import {Data} from "./dtypes.js" */
/** @import {Runtime, OrtTensor, TensorInfo} from "./runtime.js" */
/** @import {State} from "./state.js" */
/** @import {TensorSpec} from "./manifest.js" */
/**
 * An array as a user gives it. One without a shape has the feed's.
 * @typedef {NDArray | Data | {data: Data, shape?: readonly number[], dims?: readonly number[],
 *   dtype?: string, type?: string}} ArrayLike
 */
/**
 * Arrays by name, or in the order of the feeds.
 * @typedef {{[name: string]: ArrayLike} | ArrayLike[]} Feeds
 */
/** @typedef {{[name: string]: NDArray}} Results */

/**
 * A file in which values of a model lie: its content, or for a file beside the model what reads it.
 * The latter is mapped by onnxruntime, so that all sessions share it, where the model opens by path.
 * @typedef {{path: string, data: Uint8Array | Blob | (() => Promise<Uint8Array>)}} External
 */

export const NEXT = "next/"; // an output of this prefix is the next value of the state it names

/**
 * A model whose state lives in `state`. Inputs named like a tensor of the state read it, an output
 * `next/v` is the next value of `v`; all others are `feeds` and `results`, in the model's order.
 */
export class Program {
  #runtime;
  #session;

  /**
   * @param {Runtime} runtime
   * @param {string} name
   * @param {any} session
   * @param {State | null} state
   */
  constructor(runtime, name, session, state) {
    this.#runtime = runtime;
    this.#session = session;
    this.name = name;
    this.state = state;
    const inputs = infos(name, session.inputMetadata);
    const outputs = infos(name, session.outputMetadata);
    /** @type {readonly TensorSpec[]} */
    this.feeds = inputs.filter((info) => !state?.has(info.name));
    this.results = outputs.filter((info) => !isNext(info.name, state));
    this.reads = inputs.filter((info) => state?.has(info.name)).map((info) => info.name);
    this.writes = outputs
      .filter((info) => isNext(info.name, state))
      .map((info) => info.name.slice(NEXT.length));
    for (const info of [...inputs, ...outputs]) checkState(name, info, state);
  }

  /**
   * A model's program. `path` is where the model lies, for files of values beside it.
   * @param {Runtime} runtime
   * @param {string} name
   * @param {Uint8Array} model
   * @param {State | null} state
   * @param {readonly External[]} [externalData]
   * @param {string | null} [path]
   * @returns {Promise<Program>}
   */
  static async open(runtime, name, model, state, externalData = [], path = null) {
    const used = checkModel(name, model, externalData);
    const isBeside = path !== null && used.every((file) => typeof file.data === "function");
    /** @type {Record<string, unknown>} */
    const more = isBeside || !used.length ? {} : { externalData: await read(used) };
    const whole = isBeside && used.length ? path : model;
    const onGpu = runtime.keepsOnGpu && state ? state.names.filter((n) => state.isOnGpu(n)) : [];
    if (onGpu.length) {
      more.preferredOutputLocation = Object.fromEntries(onGpu.map((n) => [NEXT + n, "gpu-buffer"]));
    }
    const session = await runtime.open(name, whole, more);
    try {
      return new Program(runtime, name, session, state);
    } catch (error) {
      await runtime.release(session);
      throw error;
    }
  }

  /**
   * The tensors that `given` are, copied; `FeedError` for what does not fit.
   * @param {Feeds} given
   * @returns {Record<string, OrtTensor>}
   */
  arrange(given) {
    return orderFeeds(this.#runtime, this.name, this.feeds, given);
  }

  /**
   * Run once: the results as copies, and the next values, which are the caller's to dispose of.
   * @param {Record<string, OrtTensor>} feeds
   * @param {{next?: boolean}} [wanted]
   * @returns {Promise<{results: Results, next: Map<string, OrtTensor>}>}
   */
  async run(feeds, { next = true } = {}) {
    const given = { ...feeds };
    for (const name of this.reads) given[name] = /** @type {State} */ (this.state).tensor(name);
    const asked = this.results.map((info) => info.name);
    if (next) asked.push(...this.writes.map((name) => NEXT + name));
    const found = await this.#runtime.run(this.name, this.#session, given, asked);
    try {
      return { results: await this.#results(found), next: this.#next(found, next) };
    } catch (error) {
      for (const tensor of Object.values(found)) tensor.dispose();
      throw error;
    }
  }

  /** Give back what the session holds. */
  release() {
    return this.#runtime.release(this.#session);
  }

  /**
   * @param {Record<string, OrtTensor>} found
   * @returns {Promise<Results>}
   */
  async #results(found) {
    const entries = [];
    for (const { name } of this.results) {
      entries.push([name, await copyTensor(found[name])]);
      found[name].dispose();
    }
    return dictionary(entries);
  }

  /**
   * @param {Record<string, OrtTensor>} found
   * @param {boolean} wanted
   */
  #next(found, wanted) {
    const next = new Map(wanted ? this.writes.map((name) => [name, found[NEXT + name]]) : []);
    for (const [name, tensor] of next) {
      if (this.state?.isOnGpu(name) && tensor.location !== "gpu-buffer") {
        throw new ProviderError(`${this.name}: ${NEXT}${name} is not on the GPU`, {
          hint: "use the provider wasm",
        });
      }
    }
    return next;
  }
}

/**
 * The tensors of `feeds` that `given` are, copied; `FeedError` for what does not fit.
 * @param {Runtime} runtime
 * @param {string} model
 * @param {readonly TensorSpec[]} feeds
 * @param {Feeds} given
 * @returns {Record<string, OrtTensor>}
 */
export function orderFeeds(runtime, model, feeds, given) {
  const arrays = byName(model, feeds, given);
  /** @type {Map<string, number>} */
  const sizes = new Map();
  const entries = feeds.map((feed) => {
    const array = fitFeed(model, feed, arrays.get(feed.name), sizes);
    if (feed.range) checkRange(model, feed.name, feed.range, array);
    return [feed.name, new runtime.ort.Tensor(array.dtype, array.data, array.shape)];
  });
  return dictionary(entries);
}

/**
 * @param {string} model
 * @param {readonly TensorSpec[]} feeds
 * @param {Feeds} given
 * @returns {Map<string, ArrayLike>}
 */
function byName(model, feeds, given) {
  const names = feeds.map((feed) => feed.name);
  const isList = Array.isArray(given);
  const isFit = isList || isDictionary(given);
  const keys = isList ? [...given.keys()].map((i) => names[i]) : Object.keys(isFit ? given : {});
  if (!isFit || keys.length !== names.length) {
    const got = isFit ? `got ${keys.length}` : "got something else";
    const asked = `${names.length} arrays (${names.join(", ") || "none"})`;
    throw new FeedError(`${model} takes ${asked}, ${got}`, {
      hint: "give an object of arrays by name, or a list in this order",
    });
  }
  const surplus = keys.find((key) => !names.includes(key));
  if (surplus !== undefined) {
    throw new FeedError(`${model} has no input ${surplus}`, {
      hint: `inputs: ${names.join(", ")}`,
    });
  }
  return new Map(keys.map((key, i) => [key, isList ? given[i] : given[key]]));
}

/**
 * A copy of what a tensor holds.
 * @param {OrtTensor} tensor
 * @returns {Promise<NDArray>}
 */
export async function copyTensor(tensor) {
  const data = tensor.location === "cpu" ? tensor.data : await tensor.getData();
  const { array } = element(tensor.type);
  // A copy in the array type that we promise: newer engines have one for float16.
  const bytes = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  return new NDArray(tensor.type, tensor.dims, new array(bytes, 0, data.length));
}

/**
 * Files with their content: onnxruntime takes none from beside the model if one is given to it.
 * @param {readonly External[]} files
 */
function read(files) {
  const found = files.map(async ({ path, data }) => {
    return { path, data: typeof data === "function" ? await data() : data };
  });
  return Promise.all(found);
}

/**
 * @param {string} name
 * @param {State | null} state
 */
function isNext(name, state) {
  return name.startsWith(NEXT) && Boolean(state?.has(name.slice(NEXT.length)));
}

/**
 * @param {string} model
 * @param {any} metadata
 * @returns {TensorInfo[]}
 */
function infos(model, metadata) {
  if (!Array.isArray(metadata)) {
    throw new OptionsError("this onnxruntime does not tell the types of a model's inputs", {
      hint: "install version 1.22 or later",
    });
  }
  return metadata.map((/** @type {any} */ { name, isTensor, type, shape }) => {
    if (!isTensor || !BY_NAME.has(type)) {
      throw new BundleError(`${model}: ${name} is ${type ?? "no tensor"}, which cannot be passed`, {
        hint: "only tensors of numbers and booleans can be inputs and outputs",
      });
    }
    return { name, shape: Array.from(shape, (/** @type {any} */ n) => sizeOrName(n)), dtype: type };
  });
}

/**
 * @param {number | string | undefined} size
 * @returns {number | string}
 */
function sizeOrName(size) {
  return typeof size === "number" && size >= 0 ? size : (typeof size === "string" && size) || "?";
}

/**
 * @param {string} model
 * @param {TensorInfo} info
 * @param {State | null} state
 */
function checkState(model, info, state) {
  const name = isNext(info.name, state) ? info.name.slice(NEXT.length) : info.name;
  const spec = state?.spec(name);
  if (!spec) return;
  if (spec.dtype !== info.dtype || !fits(info.shape, spec.shape, new Map())) {
    throw new BundleError(
      `${model}: ${info.name} is ${info.dtype} [${info.shape}], ` +
        `the state's ${name} is ${spec.dtype} [${spec.shape}]`,
      { hint: "the model and the state come from different jobs" },
    );
  }
}

/**
 * True if a value of `shape` may stand where `asked` is; `sizes` collects the free dimensions'.
 * @param {readonly (number | string)[]} asked
 * @param {readonly number[]} shape
 * @param {Map<string, number>} sizes
 */
function fits(asked, shape, sizes) {
  if (asked.length !== shape.length) return false;
  return asked.every((size, i) => {
    if (typeof size === "number") return size === shape[i];
    if (size === "?") return true;
    if (!sizes.has(size)) sizes.set(size, shape[i]);
    return sizes.get(size) === shape[i];
  });
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, any>}
 */
function isDictionary(value) {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

/**
 * @param {string} model
 * @param {TensorSpec} feed
 * @param {ArrayLike | undefined} value
 * @param {Map<string, number>} sizes
 * @returns {NDArray}
 */
function fitFeed(model, feed, value, sizes) {
  const wanted = element(feed.dtype);
  const { data, dtype, shape } = parts(value);
  if (!data || (dtype !== undefined && dtype !== feed.dtype) || !holds(wanted, data)) {
    const got = dtype ?? (data ? data.constructor.name : typeof value);
    throw new FeedError(`${model}: ${feed.name} is ${feed.dtype}, got ${got}`, {
      hint: `give a ${wanted.array.name}, or an NDArray of ${feed.dtype}`,
    });
  }
  const found = shape ?? inferSize(feed, data.length, sizes);
  if (
    !found.every((/** @type {number} */ n) => Number.isSafeInteger(n) && n >= 0) ||
    count(found) !== data.length
  ) {
    throw new FeedError(
      `${model}: ${feed.name} has shape [${feed.shape}], got ${data.length} elements`,
      {
        hint: shape
          ? `its shape [${shape}] does not have them`
          : "give their number, or an NDArray",
      },
    );
  }
  if (!fits(feed.shape, found, sizes)) {
    const others = Array.from(sizes, ([symbol, size]) => `${symbol}=${size}`).join(", ");
    const where = others && ` where ${others}`;
    throw new FeedError(
      `${model}: ${feed.name} has shape [${feed.shape}], got [${found}]${where}`,
      {
        hint: "the number of dimensions and every fixed or repeated size must match",
      },
    );
  }
  return new NDArray(feed.dtype, found, checkedCopy(model, feed, wanted.array, data));
}

/** @param {ArrayLike | undefined} value */
function parts(value) {
  if (ArrayBuffer.isView(value)) return { data: /** @type {any} */ (value) };
  const { data, dtype, type, shape, dims } = /** @type {any} */ (value ?? {});
  return {
    data: ArrayBuffer.isView(data) ? data : undefined,
    dtype: dtype ?? type,
    shape: shape ?? dims,
  };
}

/**
 * @param {import("./dtypes.js").Element} kind
 * @param {any} data
 */
function holds(kind, data) {
  const isHalf = kind.name === "float16" && data.constructor.name === "Float16Array";
  return data instanceof kind.array || isHalf;
}

/**
 * The shape of so many elements, where it has one free dimension at most.
 * @param {TensorSpec} feed
 * @param {number} size
 * @param {Map<string, number>} sizes
 * @returns {number[]}
 */
function inferSize(feed, size, sizes) {
  const shape = feed.shape.map((n) => (typeof n === "number" ? n : (sizes.get(n) ?? n)));
  const free = shape.filter((n) => typeof n === "string");
  const rest = count(/** @type {number[]} */ (shape.filter((n) => typeof n === "number")));
  const open = free.length === 1 && rest ? size / rest : NaN;
  return shape.map((n) => (typeof n === "number" ? n : open));
}

/**
 * @param {string} model
 * @param {TensorSpec} feed
 * @param {import("./dtypes.js").DataType} array
 * @param {any} data
 * @returns {Data}
 */
function checkedCopy(model, feed, array, data) {
  const bytes = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  const copy = new array(bytes, 0, data.length);
  if (feed.dtype === "bool" && /** @type {Uint8Array} */ (copy).some((byte) => byte > 1)) {
    throw new FeedError(`${model}: ${feed.name} is bool, got bytes other than 0 and 1`);
  }
  return copy;
}
