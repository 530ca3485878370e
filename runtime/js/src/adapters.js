/**
 * Low-rank adapters in ONNX Runtime's own file, `.onnx_adapter`: a flatbuffer with the identifier
 * TORT that holds tensors by name, which the runtime feeds to inputs of these names. In the state
 * of a bundle of adapters B is without its scale; in the file B times the scale stands.
 */

import { BY_NAME, NDArray, bytesOf, count, narrow, widen } from "./dtypes.js";
import { encode } from "./digest.js";
import { BundleError, StateError, reason } from "./errors.js";
import { dictionary } from "./safetensors.js";
import { some } from "./state.js";

/** @import {Manifest} from "./manifest.js" */
/** @typedef {Record<string, NDArray>} Arrays */

const SCALES = "flow2onnx.lora_scales"; // in a manifest: MODULE=SCALE;MODULE=SCALE
const DTYPE = "flow2onnx.lora_dtype"; // in a manifest: of the inputs that are fed, where not float32
const [DOWN, UP] = [".lora_A.weight", ".lora_B.weight"];
const IDENTIFIER = "TORT";
const FORMAT_VERSION = 1;
const LARGEST = 2 ** 31 - 1; // bytes of a flatbuffer
const RANK_LIMIT = 64;

/** The numbers that ONNX has for element types. */
const CODES = new Map(
  Object.entries({
    float32: 1,
    uint8: 2,
    int8: 3,
    uint16: 4,
    int16: 5,
    int32: 6,
    int64: 7,
    bool: 9,
    float16: 10,
    float64: 11,
    uint32: 12,
    uint64: 13,
    bfloat16: 16,
  }),
);
const NAMES = new Map(Array.from(CODES, ([name, code]) => [code, name]));

// Where things stand that are the same in each file: tables of fields, and the root.
const [ROOT_FIELDS, ENTRY_FIELDS, ROOT, LIST] = [8, 20, 32, 52];
const TABLE = 20; // bytes of either table: five words

/**
 * The bytes of a file `.onnx_adapter` with these tensors.
 * @param {Arrays} tensors
 * @returns {Uint8Array}
 */
export function toAdapter(tensors) {
  const entries = Object.entries(tensors).map(([name, array]) => ({ name: encode(name), array }));
  let end = LIST + 4 + 4 * entries.length;
  const places = entries.map(({ name, array }) => {
    const table = end;
    const text = table + TABLE;
    const dims = beforeEight(text + 4 + name.length + 1);
    const data = beforeEight(dims + 4 + 8 * array.shape.length);
    end = roundUp(data + 4 + array.nbytes, 4);
    return { table, text, dims, data };
  });
  if (end > LARGEST) {
    throw new StateError(`an adapter of ${end} bytes is more than such a file holds`, {
      hint: "train fewer modules, or a lower rank",
    });
  }
  const content = new Uint8Array(end);
  const view = new DataView(content.buffer);
  writeRoot(content, view, places);
  entries.forEach((entry, i) => writeEntry(content, view, entry, places[i]));
  return content;
}

/**
 * The tensors in the bytes of a file `.onnx_adapter`; throws `BundleError` for what is none.
 * @param {Uint8Array} content
 * @param {string} [what] names the file in errors
 * @returns {Arrays}
 */
export function fromAdapter(content, what = "the adapter") {
  try {
    return readTensors(content);
  } catch (error) {
    throw new BundleError(`${what} is no adapter: ${reason(error)}`, {
      hint: "it was cut off or changed: write it again",
      cause: error,
    });
  }
}

/**
 * The tensors that the runtime feeds, of the state of a bundle of adapters: the scales are
 * multiplied into B.
 * @param {Manifest} manifest
 * @param {Arrays} values
 * @returns {Arrays}
 */
export function servedAdapter(manifest, values) {
  const dtype = manifest.metadata.get(DTYPE) ?? "float32";
  const entries = [...scalesOf(manifest)].flatMap(([module, scale]) => {
    const [a, b] = [values[module + DOWN], values[module + UP]];
    return [
      [module + DOWN, narrow(dtype, a.shape, widen(a))],
      [module + UP, narrow(dtype, b.shape, times(b, Math.fround(scale)))],
    ];
  });
  return dictionary(entries);
}

/**
 * The values that the state of a bundle of adapters has after an adapter was read into it: the
 * reverse of `servedAdapter`. Throws `StateError` for an adapter of other modules or ranks.
 * @param {Manifest} manifest
 * @param {Arrays} tensors
 * @returns {Arrays}
 */
export function trainedAdapter(manifest, tensors) {
  const scales = scalesOf(manifest);
  const wanted = [...scales.keys()].flatMap((module) => [module + DOWN, module + UP]);
  const missing = wanted.filter((name) => !Object.hasOwn(tensors, name));
  const surplus = Object.keys(tensors).filter((name) => !wanted.includes(name));
  if (missing.length || surplus.length) {
    throw new StateError(
      `the adapter is of other modules: it lacks ${some(missing)}; it has beyond the bundle's ` +
        `${some(surplus)}`,
      { hint: "make the bundle for these modules, with targets=" },
    );
  }
  const specs = new Map(manifest.state.map((spec) => [spec.name, spec]));
  const entries = wanted.map((name) => {
    const [found, spec] = [tensors[name], specs.get(name)];
    if (!spec || String(found.shape) !== String(spec.shape)) {
      throw new StateError(`${name} is [${found.shape}], the bundle trains [${spec?.shape}]`, {
        hint: "make the bundle with the rank of this adapter",
      });
    }
    const isUp = name.endsWith(UP);
    const scale = isUp ? Math.fround(scales.get(name.slice(0, -UP.length)) ?? 1) : 1;
    const numbers = Float32Array.from(widen(found), (value) => value / scale);
    return [name, new NDArray("float32", found.shape, numbers)];
  });
  return dictionary(entries);
}

/**
 * The scale of each module's product.
 * @param {Manifest} manifest
 * @returns {Map<string, number>}
 */
function scalesOf(manifest) {
  const text = manifest.metadata.get(SCALES);
  if (text === undefined) {
    throw new StateError("the bundle trains no adapter", { hint: "make one with flow.lora" });
  }
  const pairs = text.split(";").map((part) => {
    const at = part.lastIndexOf("=");
    const [module, scale] = [part.slice(0, at), Number(part.slice(at + 1))];
    if (at < 1 || !Number.isFinite(scale) || scale === 0) {
      throw new BundleError(`manifest.json: ${SCALES} has ${part}, which is no scale of a module`);
    }
    return /** @type {const} */ ([module, scale]);
  });
  return new Map(pairs);
}

/**
 * @param {NDArray} array
 * @param {number} scale
 * @returns {Float32Array}
 */
function times(array, scale) {
  return Float32Array.from(widen(array), (value) => value * scale);
}

/**
 * @param {number} at
 * @param {number} size
 */
function roundUp(at, size) {
  return Math.ceil(at / size) * size;
}

/**
 * The next place of a length behind which a multiple of eight stands.
 * @param {number} at
 */
function beforeEight(at) {
  return roundUp(at + 4, 8) - 4;
}

/**
 * @param {Uint8Array} content
 * @param {DataView} view
 * @param {readonly {table: number}[]} places
 */
function writeRoot(content, view, places) {
  view.setUint32(0, ROOT, true);
  content.set(encode(IDENTIFIER), 4);
  for (const at of [ROOT_FIELDS, ENTRY_FIELDS]) {
    [4 + 2 * 4, TABLE, 4, 8, 12, 16].forEach((value, i) => view.setUint16(at + 2 * i, value, true));
  }
  const versions = [FORMAT_VERSION, 1, 1]; // of the format, the adapter, the model
  const root = [ROOT - ROOT_FIELDS, ...versions, LIST - (ROOT + 16)];
  root.forEach((value, i) => view.setInt32(ROOT + 4 * i, value, true));
  view.setUint32(LIST, places.length, true);
  places.forEach(({ table }, i) => {
    const at = LIST + 4 + 4 * i;
    view.setUint32(at, table - at, true);
  });
}

/**
 * @param {Uint8Array} content
 * @param {DataView} view
 * @param {{name: Uint8Array, array: NDArray}} entry
 * @param {{table: number, text: number, dims: number, data: number}} place
 */
function writeEntry(content, view, { name, array }, { table, text, dims, data }) {
  const code = CODES.get(array.dtype) ?? 0;
  const words = [table - ENTRY_FIELDS, text - (table + 4), dims - (table + 8), code];
  [...words, data - (table + 16)].forEach((word, i) => view.setInt32(table + 4 * i, word, true));
  view.setUint32(text, name.length, true);
  content.set(name, text + 4);
  view.setUint32(dims, array.shape.length, true);
  array.shape.forEach((size, i) => view.setBigInt64(dims + 4 + 8 * i, BigInt(size), true));
  view.setUint32(data, array.nbytes, true);
  content.set(bytesOf(array.data), data + 4);
}

/**
 * @param {Uint8Array} content
 * @returns {Arrays}
 */
function readTensors(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  if (String.fromCharCode(...content.subarray(4, 8)) !== IDENTIFIER) {
    throw new RangeError(`it does not begin with ${IDENTIFIER}`);
  }
  const root = view.getUint32(0, true);
  const version = word(view, field(view, root, 0));
  if (version !== FORMAT_VERSION) throw new RangeError(`its format is ${version}, not 1`);
  const list = vector(view, field(view, root, 3), 4);
  const found = new Map();
  let size = 0;
  for (let i = 0; i < list.count; i++) {
    const at = list.at + 4 * i;
    const [name, array] = readEntry(content, view, at + view.getUint32(at, true));
    if (found.has(name)) throw new RangeError(`it has ${name} twice`);
    size += array.nbytes + name.length;
    if (size > content.length) throw new RangeError("its tensors share their bytes");
    found.set(name, array);
  }
  return dictionary([...found]);
}

/**
 * @param {Uint8Array} content
 * @param {DataView} view
 * @param {number} table
 * @returns {[string, NDArray]}
 */
function readEntry(content, view, table) {
  const text = vector(view, field(view, table, 0), 1);
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const name = decoder.decode(content.subarray(text.at, text.at + text.count));
  const sizes = vector(view, field(view, table, 1), 8);
  if (sizes.count > RANK_LIMIT) throw new RangeError(`${name} has ${sizes.count} sizes`);
  const shape = Array.from({ length: sizes.count }, (_, i) =>
    Number(view.getBigInt64(sizes.at + 8 * i, true)),
  );
  const code = word(view, field(view, table, 2));
  const kind = BY_NAME.get(NAMES.get(code) ?? "");
  if (!kind) throw new RangeError(`${name} is of the unknown type ${code}`);
  const data = vector(view, field(view, table, 3), 1);
  const isSize = shape.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (!isSize || count(shape) * kind.size !== data.count) {
    throw new RangeError(`${name} is [${shape}], and has ${data.count} bytes`);
  }
  const bytes = content.slice(data.at, data.at + data.count);
  return [name, new NDArray(kind.name, shape, new kind.array(bytes.buffer, 0, count(shape)))];
}

/**
 * The place of a field of a table; 0 where the table does not have it.
 * @param {DataView} view
 * @param {number} table
 * @param {number} index
 */
function field(view, table, index) {
  const fields = table - view.getInt32(table, true);
  const at = 4 + 2 * index;
  const offset = at < view.getUint16(fields, true) ? view.getUint16(fields + at, true) : 0;
  return offset && table + offset;
}

/**
 * The number at a place; 0, which no file writes out, where there is none.
 * @param {DataView} view
 * @param {number} at
 */
function word(view, at) {
  return at && view.getInt32(at, true);
}

/**
 * Where the items of a vector begin, and how many there are; none where there is no vector.
 * @param {DataView} view
 * @param {number} at the place that says where it is
 * @param {number} width bytes of an item
 */
function vector(view, at, width) {
  if (!at) return { at: 0, count: 0 };
  const place = at + view.getUint32(at, true);
  const items = view.getUint32(place, true);
  if (place + 4 + items * width > view.byteLength) throw new RangeError("it is cut off");
  return { at: place + 4, count: items };
}
