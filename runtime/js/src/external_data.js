/**
 * Where a tensor of a model says that its values lie in another file. onnxruntime reads what the
 * model names, from a file system where there is one, so a model may name the files given with it
 * and no other.
 */

import { BundleError } from "./errors.js";
import { fields } from "./wire.js";

const ENTRY = 13; // the field of a tensor in onnx.proto

/**
 * The locations that a tensor names.
 * @param {Uint8Array} tensor
 * @returns {Generator<string>}
 */
export function* tensorLocations(tensor) {
  for (const { number, bytes } of fields(tensor)) {
    const location = number === ENTRY && bytes ? locationIn(bytes) : undefined;
    if (location !== undefined) yield location;
  }
}

/**
 * Those of the files given that are among the locations; throws `BundleError` for a location that
 * is none of them.
 * @template {{path: string}} File
 * @param {string} name of the model, in errors
 * @param {Iterable<string>} locations
 * @param {readonly File[]} externalData
 * @returns {File[]}
 */
export function checkLocations(name, locations, externalData) {
  const given = new Map(externalData.map((file) => [file.path, file]));
  const used = [];
  for (const location of locations) {
    const file = given.get(location);
    if (file) {
      used.push(file);
      continue;
    }
    const place = JSON.stringify(location);
    throw new BundleError(`${name} has values in another file, ${place}, that was not given`, {
      hint: "give that file with the model, under the name that the model has for it",
    });
  }
  return used;
}

/**
 * The location that an entry of external data holds; undefined if it holds something else.
 * @param {Uint8Array} entry
 */
function locationIn(entry) {
  /** @type {Record<number, string>} */
  const texts = {};
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  for (const { number, bytes } of fields(entry)) {
    if (bytes) texts[number] = decoder.decode(bytes);
  }
  return texts[1] === "location" ? (texts[2] ?? "") : undefined;
}
