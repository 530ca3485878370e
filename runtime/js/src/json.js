/** JSON read strictly: every defect is a BundleError that names the file and the field. */

import { BundleError, reason } from "./errors.js";

/**
 * A value as read. A number written as a whole number is a bigint, so that none is rounded and
 * `1.0` is not taken for `1`; objects are maps, so that no key has a meaning to JavaScript.
 * What lists and maps hold is Json too, but a type in a comment cannot name itself.
 * @typedef {null | boolean | number | bigint | string | any[] | Map<string, any>} Json
 */

const DEPTH = 500;
const DIGITS = 4300;
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
// JSON strings may hold anything but control characters, quotes and backslashes.
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const LONE_SURROGATE = /\p{Surrogate}/u;
const WORDS = /** @type {const} */ ({ true: true, false: false, null: null });

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.place = 0;
  }

  /** @returns {Json} */
  whole() {
    const value = this.value(0);
    if (this.place < this.text.length) throw this.error("more follows");
    return value;
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  value(depth) {
    if (depth > DEPTH) throw this.error("it is nested too deeply");
    this.match(SPACE);
    const value = this.bare(depth);
    this.match(SPACE);
    return value;
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  bare(depth) {
    const first = this.text[this.place];
    if (first === "{") return this.object(depth);
    if (first === "[") return this.list(depth);
    if (first === '"') return this.string();
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.place)) {
        this.place += word.length;
        return value;
      }
    }
    return this.number();
  }

  /**
   * @param {number} depth
   * @returns {Map<string, Json>}
   */
  object(depth) {
    /** @type {Map<string, Json>} */
    const found = new Map();
    this.sequence("}", () => {
      this.match(SPACE);
      const key = this.string();
      if (found.has(key)) throw this.error(`the key ${JSON.stringify(key)} appears twice`);
      this.match(SPACE);
      this.expect(":");
      found.set(key, this.value(depth + 1));
    });
    return found;
  }

  /**
   * @param {number} depth
   * @returns {Json[]}
   */
  list(depth) {
    /** @type {Json[]} */
    const found = [];
    this.sequence("]", () => void found.push(this.value(depth + 1)));
    return found;
  }

  /**
   * @param {string} end
   * @param {() => void} item
   */
  sequence(end, item) {
    this.place += 1;
    this.match(SPACE);
    if (this.text[this.place] === end) {
      this.place += 1;
      return;
    }
    for (;;) {
      item();
      if (this.text[this.place] === end) break;
      this.expect(",");
    }
    this.place += 1;
  }

  /** @returns {string} */
  string() {
    const found = this.match(TEXT);
    if (!found) throw this.error("expected text in quotes");
    const text = JSON.parse(found[0]);
    if (LONE_SURROGATE.test(text)) throw this.error("text holds half a character");
    return text;
  }

  /** @returns {number | bigint} */
  number() {
    const found = this.match(NUMBER);
    if (!found) throw this.error("expected a value");
    if (found[0].length > DIGITS) throw this.error("a number has too many digits");
    return found[1] || found[2] ? Number(found[0]) : BigInt(found[0]);
  }

  /** @param {RegExp} pattern */
  match(pattern) {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text);
    if (found) this.place += found[0].length;
    return found;
  }

  /** @param {string} character */
  expect(character) {
    if (this.text[this.place] !== character) throw this.error(`expected ${character}`);
    this.place += 1;
  }

  /** @param {string} why */
  error(why) {
    return new SyntaxError(`${why} at character ${this.place}`);
  }
}

/**
 * The JSON object in `bytes`; `what` names the file in errors.
 * @param {Uint8Array} bytes
 * @param {string} what
 * @returns {Map<string, Json>}
 */
export function parseObject(bytes, what) {
  /** @type {Json} */
  let value;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = new Reader(text).whole();
  } catch (error) {
    throw new BundleError(`${what}: not valid JSON: ${reason(error)}`, { cause: error });
  }
  if (!(value instanceof Map))
    throw new BundleError(`${what}: holds ${kind(value)}, not an object`);
  return value;
}

/**
 * @param {Json} value
 * @returns {string}
 */
function kind(value) {
  if (value === null) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Map) return "an object";
  /** @type {Record<string, string>} */
  const names = { string: "text", boolean: "a truth value", bigint: "a number" };
  return names[typeof value] ?? "a number with a fraction";
}

/** The fields of one JSON object, each read with the type it must have; `place` names it. */
export class Fields {
  /**
   * @param {string} place
   * @param {Json} value
   */
  constructor(place, value) {
    if (!(value instanceof Map))
      throw new BundleError(`${place}: is ${kind(value)}, not an object`);
    this.place = place;
    this.value = value;
  }

  /**
   * Whether a field is there and not null.
   * @param {string} key
   */
  has(key) {
    return (this.value.get(key) ?? null) !== null;
  }

  /**
   * A field of text that is not empty.
   * @param {string} key
   * @returns {string}
   */
  text(key) {
    const value = this.get(key);
    if (typeof value !== "string") throw this.mistyped(key, value, "text");
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
    const value = this.get(key);
    if (typeof value !== "boolean") throw this.mistyped(key, value, "true or false");
    return value;
  }

  /**
   * A field that is a whole number of at least `least`.
   * @param {string} key
   * @param {number} [least]
   * @returns {number}
   */
  number(key, least = 0) {
    const value = this.get(key);
    if (typeof value !== "bigint") throw this.mistyped(key, value, "a whole number");
    if (value < least || value > Number.MAX_SAFE_INTEGER) {
      throw this.error(key, `is ${value}, not a whole number of at least ${least}`);
    }
    return Number(value);
  }

  /**
   * A field that is a list.
   * @param {string} key
   * @returns {Json[]}
   */
  items(key) {
    const value = this.get(key);
    if (!Array.isArray(value)) throw this.mistyped(key, value, "a list");
    return value;
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
   * A field that is an object.
   * @param {string} key
   * @returns {Map<string, Json>}
   */
  mapping(key) {
    const value = this.get(key);
    if (!(value instanceof Map)) throw this.mistyped(key, value, "an object");
    return value;
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
   * @param {Json} value
   * @param {string} asked
   */
  mistyped(key, value, asked) {
    return this.error(key, `is ${kind(value)}, not ${asked}`);
  }

  /**
   * @param {string} key
   * @returns {Json}
   */
  get(key) {
    const value = this.value.get(key);
    if (value === undefined) throw this.error(key, "is missing");
    return value;
  }
}
