/** Where a bundle's files come from: a folder, an address, or memory. */

import { BundleError, OptionsError, reason } from "./errors.js";

/**
 * A folder path (Node), the address of a folder (a URL, or in a page also a relative one), or the
 * files by name.
 * @typedef {string | URL | ReadonlyMap<string, Uint8Array | ArrayBuffer>
 *   | {readonly [name: string]: Uint8Array | ArrayBuffer}} BundleSource
 */
/**
 * Reads one file of a bundle; one of more than `most` bytes is refused, and not read to its end.
 * `onBytes` is told how many bytes have come, now and then.
 * @typedef {(name: string, most?: number, onBytes?: (count: number) => void)
 *   => Promise<Uint8Array>} ReadFile
 */

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
 * A function that reads the files of a source.
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
  return async (name, most = Infinity) => {
    const content = files.get(name);
    if (!(content instanceof ArrayBuffer || content instanceof Uint8Array)) {
      throw missing(name, "it is not among the files given");
    }
    if (content.byteLength > most) throw missing(name, tooLarge(most));
    // A copy: what has been verified is not to change, and a Buffer's `slice` shares memory.
    return new Uint8Array(content instanceof ArrayBuffer ? content.slice(0) : content);
  };
}

/**
 * The folder of a source, where it is one of this machine and this is Node; else null.
 * @param {BundleSource} source
 * @returns {string | null}
 */
export function folderOf(source) {
  const node = nodeFiles();
  if (!node || !(typeof source === "string" || source instanceof URL)) return null;
  const text = String(source);
  if (/^(https?|blob|data):/.test(text)) return null;
  return text.startsWith("file:") ? node.url.fileURLToPath(text) : text;
}

/**
 * The size and the SHA-256 of a regular file of a folder, which is read in parts and not kept; of
 * a larger one than `most` bytes nothing is read. A link may not lead out of the folder.
 * @param {string} folder
 * @param {string} name
 * @param {number} most
 * @returns {Promise<{size: number, digest: string}>}
 */
export async function hashFile(folder, name, most) {
  const { fs, path: paths, process } = /** @type {NonNullable<ReturnType<typeof nodeFiles>>} */ (
    nodeFiles()
  );
  const { createHash } = process.getBuiltinModule("node:crypto");
  const path = paths.join(folder, name);
  try {
    const real = await fs.realpath(path);
    if (paths.dirname(real) !== (await fs.realpath(folder))) {
      throw new Error("it is a link to another folder");
    }
    const { O_RDONLY, O_NONBLOCK = 0 } = fs.constants;
    const file = await fs.open(real, O_RDONLY | O_NONBLOCK);
    try {
      const about = await file.stat();
      if (!about.isFile()) throw new Error("it is no regular file");
      if (about.size > most) throw new Error(tooLarge(most));
      const hash = createHash("sha256");
      for await (const part of file.createReadStream({ autoClose: false })) hash.update(part);
      return { size: about.size, digest: hash.digest("hex") };
    } finally {
      await file.close();
    }
  } catch (error) {
    throw missing(path, reason(error), error);
  }
}

/**
 * @param {string | URL} place
 * @returns {ReadFile}
 */
function fromPlace(place) {
  const node = nodeFiles();
  const folder = folderOf(place);
  if (!node || folder === null) {
    if (!/^file:/.test(String(place))) return fromWeb(String(place));
    throw new OptionsError(`${place}: a page cannot read files`, { hint: "serve the folder" });
  }
  return async (name, most = Infinity) => {
    const path = node.path.join(folder, name);
    try {
      return await readRegular(node.fs, path, most);
    } catch (error) {
      throw missing(path, reason(error), error);
    }
  };
}

/**
 * The content of a regular file of at most `most` bytes; whatever else it is, is not waited for.
 * @param {typeof import("node:fs/promises")} fs
 * @param {string} path
 * @param {number} [most]
 */
export async function readRegular(fs, path, most = Infinity) {
  // Without O_NONBLOCK, a pipe would wait for somebody who writes to it.
  const { O_RDONLY, O_NONBLOCK = 0 } = fs.constants;
  const file = await fs.open(path, O_RDONLY | O_NONBLOCK);
  try {
    const about = await file.stat();
    if (!about.isFile()) throw new Error("it is no regular file");
    if (about.size > most) throw new Error(tooLarge(most));
    return new Uint8Array(await file.readFile());
  } finally {
    await file.close();
  }
}

/**
 * @param {string} place
 * @returns {ReadFile}
 */
function fromWeb(place) {
  const base = new URL(place.endsWith("/") ? place : `${place}/`, globalThis.location?.href);
  return async (name, most = Infinity, onBytes) => {
    const address = new URL(encodeURIComponent(name), base);
    try {
      const response = await fetch(address);
      if (!response.ok) throw new Error(`the server says ${response.status}`);
      return await readBody(response, most, onBytes);
    } catch (error) {
      throw missing(address.href, reason(error), error);
    }
  };
}

/**
 * @param {Response} response
 * @param {number} most
 * @param {((count: number) => void) | undefined} onBytes
 */
async function readBody(response, most, onBytes) {
  const reader = response.body?.getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > most) {
      await reader?.cancel();
      throw new Error(tooLarge(most));
    }
    onBytes?.(size);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** @param {number} most */
function tooLarge(most) {
  return `it has more than ${most} bytes`;
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
