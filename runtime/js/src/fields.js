/** JSON objects whose fields have types: each defect is a BundleError that names the field. */

import { BundleError, reason } from "./errors.js";

const LONE_SURROGATE = /\p{Surrogate}/u;
const TEXT = /"[^"\\]*(?:\\.[^"\\]*)*"/g;

/**
 * The JSON object in `bytes`; `what` names the file in errors.
 * @param {Uint8Array} bytes
 * @param {string} what
 * @returns {Fields}
 */
export function parseObject(bytes, what) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return new Fields(what, parse(text));
  } catch (error) {
    if (error instanceof BundleError) throw error;
    throw new BundleError(`${what}: not valid JSON: ${reason(error)}`, { cause: error });
  }
}

/**
 * A JSON value, of which no object has a key twice and no text ends within a character.
 * @param {string} text
 */
function parse(text) {
  let keys = 0;
  const value = JSON.parse(text, function (key, inner) {
    if (LONE_SURROGATE.test(key) || (typeof inner === "string" && LONE_SURROGATE.test(inner))) {
      throw new SyntaxError("a text holds half a character");
    }
    if (!Array.isArray(this)) keys += 1;
    return inner;
  });
  // JSON.parse keeps the last of equal keys. It visits the value itself like that of a key.
  const colons = text.replace(TEXT, "").split(":").length - 1;
  if (colons !== keys - 1) throw new SyntaxError("a key appears twice");
  return value;
}

/**
 * In words, what a value is.
 * @param {unknown} value
 * @returns {string}
 */
function kind(value) {
  if (value === null) return "nothing";
  if (Array.isArray(value)) return "a list";
  /** @type {Record<string, string>} */
  const names = { string: "text", boolean: "a truth value", number: "a number" };
  return names[typeof value] ?? "an object";
}

/**
 * Returns true for a whole number that a double holds exactly, from `least` on.
 * @param {unknown} value
 * @param {number} [least]
 * @returns {value is number}
 */
export function isWhole(value, least = 0) {
  const isSafe = Number.isSafeInteger(value) && !Object.is(value, -0);
  return isSafe && /** @type {number} */ (value) >= least;
}

/** The fields of one JSON object, each read with the type it must have; `place` names it. */
export class Fields {
  /**
   * @param {string} place
   * @param {any} value as JSON.parse gives it
   */
  constructor(place, value) {
    if (kind(value) !== "an object") {
      throw new BundleError(`${place}: is ${kind(value)}, not an object`);
    }
    this.place = place;
    this.value = value;
  }

  /**
   * Returns true for a field that is there and not null.
   * @param {string} key
   */
  has(key) {
    return Object.hasOwn(this.value, key) && this.value[key] !== null;
  }

  /**
   * A field of text that is not empty.
   * @param {string} key
   * @returns {string}
   */
  text(key) {
    const value = this.#typed(key, "text");
    if (!value) throw this.error(key, "is empty");
    return value;
  }

  /**
   * A field of text that may be missing.
   * @param {string} key
   * @returns {string | null}
   */
  optional(key) {
    return this.has(key) ? this.text(key) : null;
  }

  /**
   * A field that is true or false.
   * @param {string} key
   * @returns {boolean}
   */
  flag(key) {
    return this.#typed(key, "a truth value");
  }

  /**
   * A field that is a whole number of at least `least`.
   * @param {string} key
   * @param {number} [least]
   * @returns {number}
   */
  number(key, least = 0) {
    const value = this.#typed(key, "a number");
    if (!isWhole(value, least)) {
      throw this.error(key, `is ${value}, not a whole number of at least ${least}`);
    }
    return value;
  }

  /**
   * A field that is a list.
   * @param {string} key
   * @returns {any[]}
   */
  items(key) {
    return this.#typed(key, "a list");
  }

  /**
   * A field that is a list of objects, each read by `read`.
   * @template T
   * @param {string} key
   * @param {(fields: Fields) => T} read
   * @returns {T[]}
   */
  each(key, read) {
    return this.items(key).map((item, i) => read(new Fields(`${this.place}: ${key}[${i}]`, item)));
  }

  /**
   * A field that is an object, as its keys and values.
   * @param {string} key
   * @returns {[string, any][]}
   */
  entries(key) {
    return Object.entries(this.#typed(key, "an object"));
  }

  /**
   * The error that the field `key` deserves.
   * @param {string} key
   * @param {string} why
   */
  error(key, why) {
    return new BundleError(`${this.place}: ${key} ${why}`);
  }

  /**
   * @param {string} key
   * @param {string} asked
   */
  #typed(key, asked) {
    if (!Object.hasOwn(this.value, key)) throw this.error(key, "is missing");
    const value = this.value[key];
    if (kind(value) !== asked) throw this.error(key, `is ${kind(value)}, not ${asked}`);
    return value;
  }
}
