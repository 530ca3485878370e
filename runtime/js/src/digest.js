/** SHA-256, and files that tell their own, computed with zeros in the place of its digits. */

import { BundleError, OptionsError } from "./errors.js";

export const DIGEST_SIZE = 64;
export const ZEROS = "0".repeat(DIGEST_SIZE);

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
export function encoded(text) {
  return new TextEncoder().encode(text);
}

/**
 * Write the digest of `content` over the zeros at `start`, in place.
 * @param {Uint8Array} content
 * @param {number} start
 */
export async function sign(content, start) {
  content.set(encoded(await sha256(content)), start);
}

/**
 * Throw `BundleError` unless the digits at `start` are the digest of `content`.
 * @param {Uint8Array} content
 * @param {number} start below 0 where there is none
 * @param {string} what
 */
export async function checkDigest(content, start, what) {
  const blank = new Uint8Array(content); // a Buffer's `slice` would share memory
  const found = String.fromCharCode(...content.subarray(Math.max(start, 0), start + DIGEST_SIZE));
  const fits = start >= 0 && start + DIGEST_SIZE <= content.length;
  if (fits) blank.set(encoded(ZEROS), start);
  if (!fits || (await sha256(blank)) !== found) {
    throw new BundleError(`${what}: its digest is not that of its content`, {
      hint: "the file was changed or cut off: restore it, or export or save it again",
    });
  }
}
