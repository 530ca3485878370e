/**
 * Where a model says that its tensors lie in other files. onnxruntime reads what the model names,
 * from a file system where there is one, so a model may name the files given with it and no other.
 * It is read as far as its tensors, in protobuf's wire format; values are stepped over.
 */

import { BundleError, reason } from "./errors.js";

/**
 * The fields through which tensors are reached, by message.
 * @type {Readonly<Record<string, Readonly<Record<number, string>>>>}
 */
const INSIDE = {
  Model: { 7: "Graph", 20: "Training", 25: "Function" },
  Graph: { 1: "Node", 5: "Tensor", 15: "Sparse" },
  Node: { 5: "Attribute" },
  Attribute: { 5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse" },
  Function: { 7: "Node", 11: "Attribute" },
  Sparse: { 1: "Tensor", 2: "Tensor" },
  Training: { 1: "Graph", 2: "Graph" },
  Tensor: { 13: "Entry" },
};
const [VARINT, FIXED64, BYTES, FIXED32] = [0, 1, 2, 5];

/**
 * Throws `BundleError` for a model with values in a file that is not among those given.
 * @param {string} name of the model, in errors
 * @param {Uint8Array} model
 * @param {readonly {path: string}[]} externalData
 */
export function checkExternalData(name, model, externalData) {
  if (String.fromCharCode(...model.subarray(4, 8)) === "ORTM") return; // which has no such data
  const given = new Set(externalData.map((file) => file.path));
  for (const location of locations(name, model)) {
    if (given.has(location)) continue;
    const place = JSON.stringify(location);
    throw new BundleError(`${name} has values in another file, ${place}, that was not given`, {
      hint: "give that file with the model, under the name that the model has for it",
    });
  }
}

/**
 * @param {string} name
 * @param {Uint8Array} model
 */
function locations(name, model) {
  const found = new Set();
  try {
    const todo = [{ message: "Model", bytes: model }];
    for (let part = todo.pop(); part; part = todo.pop()) {
      for (const { number, bytes } of fields(part.bytes)) {
        const message = INSIDE[part.message][number];
        if (message === "Entry") found.add(locationIn(bytes));
        else if (message) todo.push({ message, bytes });
      }
    }
  } catch (error) {
    throw new BundleError(`${name} is no ONNX model: ${reason(error)}`, {
      hint: "it is damaged",
      cause: error,
    });
  }
  found.delete(undefined);
  return found;
}

/**
 * The location that an entry of external data holds; undefined if it holds something else.
 * @param {Uint8Array} entry
 */
function locationIn(entry) {
  /** @type {Record<number, string>} */
  const texts = {};
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (const { number, bytes } of fields(entry)) texts[number] = decoder.decode(bytes);
  return texts[1] === "location" ? (texts[2] ?? "") : undefined;
}

/**
 * The fields of a message that have a length.
 * @param {Uint8Array} message
 * @returns {Generator<{number: number, bytes: Uint8Array}>}
 */
function* fields(message) {
  const place = { at: 0 };
  while (place.at < message.length) {
    const tag = readNumber(message, place);
    // protobuf would take the lower half of a larger tag.
    if (tag >= 2 ** 32) throw new RangeError("a field without number");
    const kind = tag % 8;
    if (kind === BYTES) {
      const size = readNumber(message, place);
      const bytes = message.subarray(place.at, place.at + size);
      place.at += size;
      if (bytes.length === size) yield { number: Math.floor(tag / 8), bytes };
    } else if (kind === VARINT) readNumber(message, place);
    else if (kind === FIXED32) place.at += 4;
    else if (kind === FIXED64) place.at += 8;
    else throw new RangeError(`a field of wire type ${kind}`);
  }
  if (place.at !== message.length) throw new RangeError("a message ends within a field");
}

/**
 * A number of seven bits a byte; beyond 2^53 it is not exact, as no size or tag is.
 * @param {Uint8Array} bytes
 * @param {{at: number}} place
 */
function readNumber(bytes, place) {
  let value = 0;
  for (let i = 0; i < 10 && place.at < bytes.length; i++) {
    const byte = bytes[place.at++];
    value += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return value;
  }
  throw new RangeError("a number has no end");
}
