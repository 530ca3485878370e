/** Where a bundle's files come from: a folder, an address, or memory. */

import { BundleError, OptionsError, reason } from "./errors.js";

/**
 * A folder path (Node), the address of a folder (a URL, or in a page also a relative one), or the
 * files by name.
 * @typedef {string | URL | ReadonlyMap<string, Uint8Array | ArrayBuffer>
 *   | {readonly [name: string]: Uint8Array | ArrayBuffer}} BundleSource
 */
/** What reads one file of a bundle. @typedef {(name: string) => Promise<Uint8Array>} ReadFile */

/** Node's file functions, or undefined outside Node. */
export function nodeFiles() {
  const { process } = /** @type {{process?: NodeJS.Process}} */ (globalThis);
  // Found at run time: a bundler for the browser never sees the name of a module.
  if (!process?.versions?.node || !process.getBuiltinModule) return undefined;
  return {
    fs: process.getBuiltinModule("node:fs/promises"),
    path: process.getBuiltinModule("node:path"),
    url: process.getBuiltinModule("node:url"),
    process,
  };
}

/**
 * What reads the files of a source.
 * @param {BundleSource} source
 * @returns {ReadFile}
 */
export function reader(source) {
  if (typeof source === "string" || source instanceof URL) return fromPlace(source);
  if (!source || typeof source !== "object") {
    throw new OptionsError(`${String(source)} is no place of a bundle`, {
      hint: "give a folder, an address, or a map from file names to bytes",
    });
  }
  const files = source instanceof Map ? source : new Map(Object.entries(source));
  return async (name) => {
    const content = files.get(name);
    // Copies: what has been verified is not to change, and a Buffer's `slice` shares memory.
    if (content instanceof ArrayBuffer) return new Uint8Array(content.slice(0));
    if (content instanceof Uint8Array) return new Uint8Array(content);
    throw missing(name, "it is not among the files given");
  };
}

/**
 * @param {string | URL} place
 * @returns {ReadFile}
 */
function fromPlace(place) {
  const node = nodeFiles();
  const text = String(place);
  if (/^(https?|blob|data):/.test(text) || (!node && !/^file:/.test(text))) return fromWeb(text);
  if (!node)
    throw new OptionsError(`${text}: a page cannot read files`, { hint: "serve the folder" });
  const folder = text.startsWith("file:") ? node.url.fileURLToPath(text) : text;
  return async (name) => {
    const path = node.path.join(folder, name);
    try {
      return new Uint8Array(await node.fs.readFile(path));
    } catch (error) {
      throw missing(path, reason(error), error);
    }
  };
}

/**
 * @param {string} place
 * @returns {ReadFile}
 */
function fromWeb(place) {
  const base = new URL(place.endsWith("/") ? place : `${place}/`, globalThis.location?.href);
  return async (name) => {
    const address = new URL(encodeURIComponent(name), base);
    try {
      const response = await fetch(address);
      if (!response.ok) throw new Error(`the server says ${response.status}`);
      return new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      throw missing(address.href, reason(error), error);
    }
  };
}

/**
 * @param {string} name
 * @param {string} why
 * @param {unknown} [cause]
 */
function missing(name, why, cause) {
  return new BundleError(`${name}: cannot be read: ${why}`, {
    hint: "a bundle is a folder with manifest.json, init.onnx and step.onnx",
    cause,
  });
}
