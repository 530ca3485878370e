/** Safetensors files, read with distrust and written whole. */

import { BY_STORED, NDArray, bytesOf, count, element } from "./dtypes.js";
import { NO_DIGEST, checkDigest, encode, sign } from "./digest.js";
import { BundleError } from "./errors.js";
import { Fields, isWhole, parseObject } from "./fields.js";

/**
 * Where a tensor lies: bytes `start` to `end`, counted from the file's beginning.
 * @typedef {{dtype: string, shape: number[], start: number, end: number}} StoredTensor
 */
/** @typedef {{tensors: Map<string, StoredTensor>, metadata: Map<string, string>}} Header */

const HEADER_LIMIT = 100_000_000; // the format's own
const RANK_LIMIT = 64;
const METADATA = "__metadata__";
const DIGEST_KEY = '{"__metadata__":{"digest":"';
const LITTLE = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

/**
 * Compare texts by their characters, as UTF-8 and Python sort them; UTF-16 sorts otherwise.
 * @param {string} a
 * @param {string} b
 */
export function byCharacters(a, b) {
  const [x, y] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(x.length, y.length); i++) {
    const difference = (x[i].codePointAt(0) ?? 0) - (y[i].codePointAt(0) ?? 0);
    if (difference) return difference;
  }
  return x.length - y.length;
}

/**
 * A file of tensors; equal content, equal bytes. With `signs`, the metadata begin with a `digest`.
 * @param {Record<string, NDArray>} tensors
 * @param {Record<string, string>} [metadata]
 * @param {{signs?: boolean}} [more]
 * @returns {Promise<Uint8Array>}
 */
export async function toSafetensors(tensors, metadata = {}, { signs = false } = {}) {
  if (METADATA in tensors) throw new BundleError(`no tensor can be named ${METADATA}`);
  // Widest elements first: then every tensor is aligned to its element.
  const width = (/** @type {string} */ name) => element(tensors[name].dtype).size;
  const names = Object.keys(tensors).sort((a, b) => width(b) - width(a) || byCharacters(a, b));
  const texts = signs ? { digest: NO_DIGEST, ...metadata } : metadata;
  const arrays = names.map((name) => tensors[name]);
  const content = file(headerText(names, arrays, texts), arrays);
  if (signs) await sign(content, 8 + DIGEST_KEY.length);
  return content;
}

/**
 * The tensors `names` of new values at the places that they have in `source`, as a new file. It
 * holds whatever lies before the last of them too; its header is as long as the old one.
 * @param {Uint8Array} source
 * @param {Record<string, NDArray>} values
 * @param {readonly string[]} names
 * @param {string} what
 * @returns {Uint8Array}
 */
export function replaceTensors(source, values, names, what) {
  const header = readHeader(source, what);
  const place = (/** @type {string} */ name) => {
    const found = header.tensors.get(name);
    if (!found) throw new BundleError(`${what}: holds no ${name}`);
    return found;
  };
  const end = Math.max(...names.map((name) => place(name).end));
  const chosen = [...header.tensors.keys()]
    .filter((name) => place(name).end <= end)
    .sort((a, b) => place(a).start - place(b).start || place(a).end - place(b).end);
  const size = Math.min(...[...header.tensors.values()].map((tensor) => tensor.start)) - 8;
  const arrays = chosen.map((name) => values[name]);
  const text = headerText(chosen, arrays, Object.fromEntries(header.metadata));
  if (text.length > size) throw new BundleError(`${what}: its header has no room`);
  return file(text, arrays, size);
}

/**
 * @param {readonly string[]} names
 * @param {readonly NDArray[]} arrays
 * @param {Record<string, string>} metadata
 * @returns {Uint8Array}
 */
function headerText(names, arrays, metadata) {
  let start = 0;
  const entries = names.map((name, i) => {
    const { dtype, shape, nbytes } = arrays[i];
    const offsets = [start, (start += nbytes)];
    const entry = { dtype: element(dtype).stored, shape, data_offsets: offsets };
    return `${JSON.stringify(name)}:${JSON.stringify(entry)}`;
  });
  const texts = Object.entries(metadata).map((pair) =>
    pair.map((t) => JSON.stringify(t)).join(":"),
  );
  if (texts.length) entries.unshift(`"${METADATA}":{${texts.join(",")}}`);
  return encode(`{${entries.join(",")}}`);
}

/**
 * @param {Uint8Array} text
 * @param {readonly NDArray[]} arrays
 * @param {number} [size] of the header; else the next multiple of eight
 * @returns {Uint8Array}
 */
function file(text, arrays, size = Math.ceil(text.length / 8) * 8) {
  if (!LITTLE) throw new BundleError("this machine stores numbers in an order of its own");
  const total = arrays.reduce((sum, array) => sum + array.nbytes, 8 + size);
  const content = new Uint8Array(total).fill(0x20, 8, 8 + size);
  new DataView(content.buffer).setBigUint64(0, BigInt(size), true);
  content.set(text, 8);
  let place = 8 + size;
  for (const array of arrays) {
    content.set(bytesOf(array.data), place);
    place += array.nbytes;
  }
  return content;
}

/**
 * The tensors and the metadata of a file. Throws `BundleError` for whatever the format forbids.
 * @param {Uint8Array} content
 * @param {string} [what] names the file in errors
 * @returns {{tensors: Record<string, NDArray>, metadata: Record<string, string>}}
 */
export function fromSafetensors(content, what = "safetensors") {
  const bytes = bytesOf(content); // a Buffer's `slice` would share memory
  const header = readHeader(bytes, what);
  const entries = [...header.tensors].map(([name, t]) => [name, read(bytes, what, t)]);
  return { tensors: dictionary(entries), metadata: dictionary([...header.metadata]) };
}

/**
 * An object without a prototype: a name such as `__proto__` is a name.
 * @param {any[][]} entries names with values
 * @returns {any} an object of these
 */
export function dictionary(entries) {
  return Object.assign(Object.create(null), Object.fromEntries(entries));
}

/**
 * Throw `BundleError` unless the file has the digest that `toSafetensors` gave it.
 * @param {Uint8Array} content
 * @param {string} what
 */
export async function checkSignature(content, what) {
  // The header's length, before it, is what the places of the tensors give too.
  await checkDigest(content, 8, DIGEST_KEY, what);
}

/**
 * The header of a file, checked against its size.
 * @param {Uint8Array} content
 * @param {string} what
 * @returns {Header}
 */
export function readHeader(content, what) {
  const text = headerOf(content, what);
  const { [METADATA]: texts = {}, ...entries } = parseObject(text, `${what}: header`).value;
  const metadata = metadataOf(what, texts);
  const tensors = Object.entries(entries).map(([name, entry]) => readEntry(what, name, entry));
  const begin = 8 + text.length;
  checkLayout(what, tensors, content.length - begin);
  const placed = tensors.map(([name, t]) => {
    return /** @type {const} */ ([name, { ...t, start: t.start + begin, end: t.end + begin }]);
  });
  return { tensors: new Map(placed), metadata };
}

/**
 * @param {Uint8Array} content
 * @param {string} what
 */
function headerOf(content, what) {
  if (content.length < 8) {
    throw new BundleError(`${what}: ${content.length} bytes are no safetensors file`, {
      hint: "it is cut off",
    });
  }
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const length = view.getBigUint64(0, true);
  if (length > HEADER_LIMIT || length > content.length - 8) {
    throw new BundleError(
      `${what}: the header should be ${length} bytes long, the file has ${content.length}`,
      { hint: "it is cut off, or no safetensors file" },
    );
  }
  const text = content.subarray(8, 8 + Number(length));
  if (text[0] !== 0x7b) throw new BundleError(`${what}: the header does not begin with an object`);
  return text;
}

/**
 * @param {string} what
 * @param {any} value
 * @returns {Map<string, string>}
 */
function metadataOf(what, value) {
  const entries = new Fields(what, { [METADATA]: value }).entries(METADATA);
  if (!entries.every(([, text]) => typeof text === "string")) {
    throw new BundleError(`${what}: ${METADATA} is not an object of texts`);
  }
  return new Map(entries);
}

/**
 * @param {string} what
 * @param {string} name
 * @param {unknown} value
 * @returns {[string, StoredTensor]}
 */
function readEntry(what, name, value) {
  const fields = new Fields(`${what}: tensor ${JSON.stringify(name)}`, value);
  const kind = BY_STORED.get(fields.text("dtype"));
  if (!kind) {
    const known = [...BY_STORED.keys()].join(", ");
    throw fields.error("dtype", `is ${fields.text("dtype")}; known are ${known}`);
  }
  const shape = fields.items("shape").map((size) => whole(fields, "shape", size));
  const offsets = fields.items("data_offsets").map((size) => whole(fields, "data_offsets", size));
  if (shape.length > RANK_LIMIT || offsets.length !== 2) {
    const counts = `${shape.length} sizes and data_offsets ${offsets.length}`;
    throw fields.error("shape", `has ${counts}`);
  }
  const [start, end] = offsets;
  const size = shape.includes(0) ? 0 : count(shape) * kind.size;
  if (end - start !== size) {
    throw fields.error("data_offsets", `is [${offsets}]: not the size of ${kind.name} [${shape}]`);
  }
  return [name, { dtype: kind.name, shape, start, end }];
}

/**
 * @param {Fields} fields
 * @param {string} key
 * @param {unknown} value
 * @returns {number}
 */
function whole(fields, key, value) {
  if (!isWhole(value)) throw fields.error(key, `holds ${String(value)}, not a size`);
  return value;
}

/**
 * Tensors lie one behind the other and fill the file: no gap, no overlap, nothing behind.
 * @param {string} what
 * @param {[string, StoredTensor][]} tensors
 * @param {number} size
 */
function checkLayout(what, tensors, size) {
  let position = 0;
  const order = [...tensors].sort(([, a], [, b]) => a.start - b.start || a.end - b.end);
  for (const [name, tensor] of order) {
    if (tensor.start !== position) {
      const where = `starts at byte ${tensor.start}, expected ${position}`;
      throw new BundleError(`${what}: tensor ${JSON.stringify(name)} ${where}`);
    }
    position = tensor.end;
  }
  if (position !== size) {
    throw new BundleError(`${what}: the tensors take ${position} bytes, the file holds ${size}`, {
      hint: "it is cut off, or something was appended",
    });
  }
}

/**
 * @param {Uint8Array} content
 * @param {string} what
 * @param {StoredTensor} tensor
 * @returns {NDArray}
 */
function read(content, what, tensor) {
  if (!LITTLE) throw new BundleError("this machine stores numbers in an order of its own");
  const bytes = content.slice(tensor.start, tensor.end); // aligned, and the reader's own
  if (tensor.dtype === "bool" && bytes.some((byte) => byte > 1)) {
    throw new BundleError(`${what}: a bool tensor holds bytes other than 0 and 1`);
  }
  const { array, size } = element(tensor.dtype);
  return new NDArray(tensor.dtype, tensor.shape, new array(bytes.buffer, 0, bytes.length / size));
}
