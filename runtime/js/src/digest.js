/** SHA-256, and files that begin with a key and the digest of all that follows it. */

import { BundleError, OptionsError } from "./errors.js";

const SIZE = 64; // digits of a SHA-256 in hexadecimal
export const NO_DIGEST = "0".repeat(SIZE); // keeps the place of a digest until `sign` knows it

/**
 * The SHA-256 of some bytes in lower-case hexadecimal.
 * @param {Uint8Array} bytes
 * @returns {Promise<string>}
 */
export async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) {
    throw new OptionsError("this page has no SHA-256, so no file can be checked", {
      hint: "serve it by https, or from localhost",
    });
  }
  const digest = await subtle.digest("SHA-256", /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The bytes of a text.
 * @param {string} text
 * @returns {Uint8Array}
 */
export function encode(text) {
  return new TextEncoder().encode(text);
}

/**
 * Write, at `start`, the digest of what lies behind it, in place.
 * @param {Uint8Array} content
 * @param {number} start
 */
export async function sign(content, start) {
  content.set(encode(await sha256(content.subarray(start + SIZE))), start);
}

/**
 * Throw `BundleError` unless, at `start`, `key` stands and the digest of all behind it.
 * @param {Uint8Array} content
 * @param {number} start
 * @param {string} key
 * @param {string} what
 */
export async function checkDigest(content, start, key, what) {
  const end = start + key.length + SIZE;
  const head = String.fromCharCode(...content.subarray(start, end));
  if (head !== key + (await sha256(content.subarray(end)))) {
    throw new BundleError(`${what}: its digest is not that of its content`, {
      hint: "the file was changed or cut off: restore it, or export or save it again",
    });
  }
}
