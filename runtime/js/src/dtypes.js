/** Element types: one row each, with the name every format gives it; and arrays of them. */

/**
 * @typedef {Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
 *   | BigInt64Array | BigUint64Array | Float32Array | Float64Array} Data
 */
/**
 * @typedef {{new (buffer: ArrayBufferLike, start: number, length: number): Data,
 *   new (length: number): Data, readonly BYTES_PER_ELEMENT: number,
 *   readonly name: string}} DataType
 */
/**
 * An element type. JavaScript has no array of truth values, bfloat16 or (everywhere) float16: these
 * travel as bytes 0 and 1, and as the Uint16Array of their bits.
 * @typedef {{name: string, stored: string, array: DataType, size: number}} Element
 */

/**
 * @param {string} name
 * @param {string} stored
 * @param {any} array a constructor of typed arrays: they have no common type
 * @returns {Element}
 */
function row(name, stored, array) {
  return { name, stored, array, size: array.BYTES_PER_ELEMENT };
}

/** @type {readonly Element[]} */
export const ELEMENTS = [
  row("float32", "F32", Float32Array),
  row("uint8", "U8", Uint8Array),
  row("int8", "I8", Int8Array),
  row("uint16", "U16", Uint16Array),
  row("int16", "I16", Int16Array),
  row("int32", "I32", Int32Array),
  row("int64", "I64", BigInt64Array),
  row("bool", "BOOL", Uint8Array),
  row("float16", "F16", Uint16Array),
  row("float64", "F64", Float64Array),
  row("uint32", "U32", Uint32Array),
  row("uint64", "U64", BigUint64Array),
  row("bfloat16", "BF16", Uint16Array),
];

/** @type {ReadonlyMap<string, Element>} */
export const BY_NAME = new Map(ELEMENTS.map((element) => [element.name, element]));
/** @type {ReadonlyMap<string, Element>} */
export const BY_STORED = new Map(ELEMENTS.map((element) => [element.stored, element]));

/**
 * The element type of a name that has been checked.
 * @param {string} name
 * @returns {Element}
 */
export function element(name) {
  const found = BY_NAME.get(name);
  if (!found) throw new Error(`${name} was checked to be an element type`);
  return found;
}

/**
 * The number of elements of a shape.
 * @param {readonly number[]} shape
 * @returns {number}
 */
export function count(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/** Numbers with an element type and a shape, in C order. */
export class NDArray {
  /**
   * @param {string} dtype such as "float32"
   * @param {readonly number[]} shape
   * @param {Data} data
   */
  constructor(dtype, shape, data) {
    const kind = BY_NAME.get(dtype);
    if (!kind) throw new TypeError(`dtype ${dtype} is none of ${[...BY_NAME.keys()].join(", ")}`);
    if (!(data instanceof kind.array)) {
      throw new TypeError(`${dtype} elements are held by ${kind.array.name}`);
    }
    if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0)) {
      throw new TypeError(`[${shape}] is no shape`);
    }
    if (count(shape) !== data.length) {
      throw new TypeError(`shape [${shape}] does not have ${data.length} elements`);
    }
    this.dtype = dtype;
    /** @type {readonly number[]} */
    this.shape = Object.freeze([...shape]);
    this.data = data;
  }

  /** The number of elements. */
  get size() {
    return this.data.length;
  }

  /**
   * The elements as ordinary numbers; float16 and bfloat16 are decoded.
   * @returns {number[]}
   */
  toNumbers() {
    if (this.dtype === "float16" || this.dtype === "bfloat16") return Array.from(widen(this));
    return Array.from(/** @type {ArrayLike<number | bigint>} */ (this.data), Number);
  }

  /** Bytes of memory. */
  get nbytes() {
    return this.data.byteLength;
  }
}

/**
 * The bytes of a typed array; the same memory.
 * @param {ArrayBufferView} data
 * @returns {Uint8Array}
 */
export function bytesOf(data) {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

const WORD = new DataView(new ArrayBuffer(4));

/**
 * The value of sixteen bits of IEEE half precision.
 * @param {number} bits
 * @returns {number}
 */
export function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent
    ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024)
    : sign * 2 ** -24 * fraction;
}

/**
 * The bits of the half nearest to a number, ties to even.
 * @param {number} value
 * @returns {number}
 */
export function numberToHalf(value) {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size >= 65520) return sign | 0x7c00;
  // In units of the last place, a half is a whole number below 2048: round to the even one.
  const exponent = size < 2 ** -14 ? -14 : exponentOf(size);
  const units = nearestEven(size / 2 ** (exponent - 10));
  return sign | (((exponent + 14) << 10) + units);
}

/**
 * @param {number} size a positive float64 between 2**-14 and 65520
 * @returns {number}
 */
function exponentOf(size) {
  WORD.setFloat32(0, size); // which may round up to the next power of two
  const exponent = ((WORD.getUint32(0) >>> 23) & 255) - 127;
  return 2 ** exponent > size ? exponent - 1 : exponent;
}

/**
 * @param {number} value
 * @returns {number}
 */
function nearestEven(value) {
  const below = Math.floor(value);
  const rest = value - below;
  return rest > 0.5 || (rest === 0.5 && below % 2) ? below + 1 : below;
}

/**
 * The bits of the bfloat16 nearest to a float32, ties to even.
 * @param {number} value
 * @returns {number}
 */
export function numberToBfloat(value) {
  if (Number.isNaN(value)) return 0x7fc0;
  WORD.setFloat32(0, value);
  const bits = WORD.getUint32(0);
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/**
 * @param {number} bits
 * @returns {number}
 */
function bfloatToNumber(bits) {
  WORD.setUint32(0, bits << 16);
  return WORD.getFloat32(0);
}

/**
 * The elements of an array of a float type as float32, or float64 where it is that; a copy.
 * @param {NDArray} array
 * @returns {Float32Array | Float64Array}
 */
export function widen(array) {
  const data = /** @type {Exclude<Data, BigInt64Array | BigUint64Array>} */ (array.data);
  if (array.dtype === "float64") return Float64Array.from(data);
  if (array.dtype === "float16") return Float32Array.from(data, halfToNumber);
  if (array.dtype === "bfloat16") return Float32Array.from(data, bfloatToNumber);
  return Float32Array.from(data);
}

/**
 * The reverse of `widened`: an array of the float type `dtype`.
 * @param {string} dtype
 * @param {readonly number[]} shape
 * @param {Float32Array | Float64Array} wide
 * @returns {NDArray}
 */
export function narrow(dtype, shape, wide) {
  if (dtype === "float16") return new NDArray(dtype, shape, Uint16Array.from(wide, numberToHalf));
  if (dtype === "bfloat16") {
    return new NDArray(dtype, shape, Uint16Array.from(wide, numberToBfloat));
  }
  return new NDArray(dtype, shape, wide);
}
