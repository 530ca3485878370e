import assert from "node:assert/strict";
import { test } from "node:test";

import { BundleError, FeedError, NDArray, fromSafetensors, toSafetensors } from "../src/index.js";
import { ELEMENTS, halfToNumber, numberToBfloat, numberToHalf } from "../src/dtypes.js";
import { orderFeeds } from "../src/program.js";
import { parseObject } from "../src/fields.js";
import { byCharacters } from "../src/safetensors.js";

const encode = (text) => new TextEncoder().encode(text);
const parse = (text) => parseObject(encode(text), "x.json");

test("fields are read with their types", () => {
  const fields = parse(
    '{"a": [true, null, "\\u00e9\\n😀:\\":"], "n": 9007199254740991, "__proto__": {"b": "c"}}',
  );
  assert.deepEqual(fields.items("a"), [true, null, 'é\n😀:":']);
  assert.equal(fields.number("n"), Number.MAX_SAFE_INTEGER);
  assert.deepEqual(fields.entries("__proto__"), [["b", "c"]]);
  assert.throws(() => fields.text("constructor"), /x\.json: constructor is missing/);
  assert.ok(!fields.has("toString"));
});

test("numbers that no double holds are refused", () => {
  for (const number of ["9007199254740992", "9".repeat(5000), "-1", "1.5", "1e400", '"1"', "null"]) {
    assert.throws(() => parse(`{"n":${number}}`).number("n"), BundleError, number);
  }
});

test("what is no JSON is refused", () => {
  const wrong = [
    "",
    "{",
    "[]",
    "1",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    "{a:1}",
    '{"a":01}',
    '{"a":1.}',
    '{"a":.5}',
    '{"a":+1}',
    '{"a":NaN}',
    '{"a":Infinity}',
    '{"a":"\n"}',
    '{"a":"\\x"}',
    '{"a":1}}',
    '{"a":1} x',
    '{"a":1,"a":2}',
    '{"a":tru}',
    "{'a':1}",
    '{"a":"\\ud800"}',
    '\ufeff{"a":1}',
    '{"a":1 "b":2}',
    '{"a":1,"b":{"c":[{"d":1,"d":2}]}}',
    '{"\\udfff":1}',
    `{"a":${"[".repeat(100000)}${"]".repeat(100000)}}`,
    '{"a":"',
    `{"a":"${"x".repeat(5_000_000)}`,
  ];
  for (const text of wrong) {
    assert.throws(
      () => parse(text),
      (e) => e instanceof BundleError && /x\.json/.test(e.message),
      text.slice(0, 40),
    );
  }
  assert.throws(() => parseObject(Uint8Array.of(123, 34, 0xff, 34, 125), "x"), BundleError);
});

test("minus zero is no whole number", () => {
  for (const digits of ["-0", "-0.0", "1.5", "9007199254740992", "-1"]) {
    assert.throws(() => parse(`{"a":${digits}}`).number("a"), BundleError, digits);
  }
  assert.equal(parse('{"a":0}').number("a"), 0);
});

test("every element type goes in and comes out", async () => {
  const tensors = Object.fromEntries(
    ELEMENTS.map(({ name, array, size }) => {
      const bytes = Uint8Array.from({ length: 6 * size }, (_, i) =>
        name === "bool" ? i % 2 : 37 * i,
      );
      return [`${name} é`, new NDArray(name, [2, 3], new array(bytes.buffer, 0, 6))];
    }),
  );
  tensors.scalar = new NDArray("int64", [], BigInt64Array.of(-(2n ** 63n)));
  tensors.empty = new NDArray("float32", [0, 4], new Float32Array(0));
  const content = await toSafetensors(tensors, { note: "“x”" });
  const shifted = Buffer.concat([Buffer.from("abc"), content]).subarray(3);
  for (const bytes of [content, shifted]) {
    const found = fromSafetensors(bytes);
    assert.deepEqual({ ...found.tensors }, tensors);
    assert.deepEqual({ ...found.metadata }, { note: "“x”" });
  }
});

function safetensors(header, size = 0) {
  const text = encode(typeof header === "string" ? header : JSON.stringify(header));
  const content = new Uint8Array(8 + text.length + size);
  new DataView(content.buffer).setBigUint64(0, BigInt(text.length), true);
  content.set(text, 8);
  return content;
}

test("what safetensors forbids is refused", () => {
  const entry = (more) => ({ a: { dtype: "F32", shape: [2], data_offsets: [0, 8], ...more } });
  assert.equal(fromSafetensors(safetensors(entry({}), 8)).tensors.a.size, 2);
  const wrong = [
    [safetensors(entry({}), 7)],
    [safetensors(entry({}), 9)],
    [safetensors(entry({ dtype: "F8" }), 8)],
    [safetensors(entry({ shape: [3] }), 8)],
    [safetensors(entry({ shape: [-2] }), 8)],
    [safetensors(entry({ shape: [2.5] }), 8)],
    [safetensors(entry({ shape: Array(65).fill(1) }), 8)],
    [safetensors(entry({ shape: ["2"] }), 8)],
    [safetensors(entry({ data_offsets: [8, 0] }), 8)],
    [safetensors(entry({ data_offsets: [0, 8, 8] }), 8)],
    [safetensors(entry({ data_offsets: [1, 9] }), 9)],
    [safetensors(entry({ shape: undefined }), 8)],
    [safetensors({ ...entry({}), b: { dtype: "F32", shape: [1], data_offsets: [4, 8] } }, 8)],
    [safetensors({ ...entry({}), b: { dtype: "F32", shape: [1], data_offsets: [12, 16] } }, 16)],
    [safetensors({ ...entry({}), __metadata__: { a: 1 } }, 8)],
    [safetensors({ ...entry({}), __metadata__: [] }, 8)],
    [safetensors({ ...entry({}), __metadata__: null }, 8)],
    [safetensors('{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}')],
    [safetensors('{"a":{"dtype":"F32","shape":[9007199254740993],"data_offsets":[0,8]}}', 8)],
    [safetensors(" {}")],
    [safetensors("[]")],
    [safetensors({ a: { dtype: "BOOL", shape: [1], data_offsets: [0, 1] } }, 0)],
    [new Uint8Array(7)],
    [Uint8Array.of(255, 255, 255, 255, 255, 255, 255, 255, 123)],
  ];
  for (const [content] of wrong) {
    const text = new TextDecoder().decode(content.slice(8));
    assert.throws(() => fromSafetensors(content), BundleError, text);
  }
  const two = safetensors({ a: { dtype: "BOOL", shape: [1], data_offsets: [0, 1] } }, 1);
  two[two.length - 1] = 2;
  assert.throws(() => fromSafetensors(two), /other than 0 and 1/);
});

test("half precision, all of its values and the places between", () => {
  for (let bits = 0; bits < 0x10000; bits++) {
    const value = halfToNumber(bits);
    if (Number.isNaN(value)) assert.equal(numberToHalf(value), 0x7e00);
    else assert.equal(numberToHalf(value), bits);
    const next = halfToNumber(bits + 1);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    // Half way between two goes to the even one, a little beyond it to the nearer.
    assert.equal(numberToHalf((value + next) / 2), bits + (bits & 1));
    assert.equal(numberToHalf(value + (next - value) * 0.51), bits + 1);
    assert.equal(numberToHalf(value + (next - value) * 0.49), bits);
  }
  assert.equal(numberToHalf(65519.9), 0x7bff);
  assert.equal(numberToHalf(65520), 0x7c00);
  assert.equal(numberToHalf(-Infinity), 0xfc00);
  assert.equal(numberToHalf(1e-9), 0);
  assert.equal(numberToBfloat(1), 0x3f80);
  assert.equal(numberToBfloat(1 + 2 ** -8), 0x3f80);
  assert.equal(numberToBfloat(1 + 3 * 2 ** -8), 0x3f82);
  assert.equal(numberToBfloat(-Infinity), 0xff80);
});

test("arrays say what they cannot be", () => {
  assert.throws(() => new NDArray("complex", [1], new Float32Array(1)), TypeError);
  assert.throws(() => new NDArray("float32", [1], new Float64Array(1)), TypeError);
  assert.throws(() => new NDArray("float32", [2], new Float32Array(1)), TypeError);
  assert.throws(() => new NDArray("float32", [-1, -1], new Float32Array(1)), TypeError);
});

test("texts are sorted by characters", () => {
  assert.deepEqual(["\u{1F600}", "\uFFFD", "b", "a", ""].sort(byCharacters), [
    "",
    "a",
    "b",
    "\uFFFD",
    "\u{1F600}",
  ]);
});

class Tensor {
  constructor(type, data, dims) {
    Object.assign(this, { type, data, dims });
  }
}

const given = (specs, feeds) => orderFeeds({ ort: { Tensor } }, "model", specs, feeds);

test("free dimensions have one size each, and are found where one is open", () => {
  const specs = [
    { name: "x", shape: ["n", 3], dtype: "float32" },
    { name: "y", shape: ["n", "?"], dtype: "int64" },
  ];
  const y = (rows) => new NDArray("int64", [rows, 1], new BigInt64Array(rows));
  const { x } = given(specs, { x: new Float32Array(6), y: y(2) });
  assert.deepEqual(x.dims, [2, 3]);
  for (const feeds of [
    { x: new Float32Array(6), y: y(3) },
    { x: new Float32Array(7), y: y(2) },
    { x: new NDArray("float32", [6], new Float32Array(6)), y: y(6) },
    { x: new NDArray("float32", [1, 2, 3], new Float32Array(6)), y: y(1) },
  ]) {
    assert.throws(() => given(specs, feeds), FeedError);
  }
});

test("feeds of truth values and of half precision", () => {
  const specs = [
    { name: "mask", shape: [2], dtype: "bool" },
    { name: "half", shape: [2], dtype: "float16" },
  ];
  const half = Uint16Array.of(0x3c00, 0);
  const { mask } = given(specs, { mask: Uint8Array.of(0, 1), half });
  assert.deepEqual(mask.data, Uint8Array.of(0, 1));
  assert.throws(() => given(specs, { mask: Uint8Array.of(0, 2), half }), /other than 0 and 1/);
  assert.throws(() => given(specs, { mask: [true, false], half }), FeedError);
  assert.throws(
    () => given(specs, { mask: Uint8Array.of(0, 1), half: new Int16Array(2) }),
    FeedError,
  );
});
