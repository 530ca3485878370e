import assert from "node:assert/strict";
import { test } from "node:test";

import { servedAdapter, trainedAdapter } from "../src/adapters.js";
import { NDArray, fromAdapter, toAdapter } from "../src/index.js";

const NAMES = ["m.0.q_proj.lora_A.weight", "m.0.q_proj.lora_B.weight"];

function numbers(shape, start) {
  const size = shape.reduce((a, b) => a * b, 1);
  return new NDArray("float32", shape, Float32Array.from({ length: size }, (_, i) => start + i / 7));
}

const TENSORS = { [NAMES[0]]: numbers([6, 2], -1), [NAMES[1]]: numbers([2, 5], 3) };

/** What the functions read of a manifest. */
function manifest(scale, dtype) {
  const metadata = new Map([["flow2onnx.lora_scales", `m.0.q_proj=${scale}`]]);
  if (dtype) metadata.set("flow2onnx.lora_dtype", dtype);
  const state = NAMES.map((name) => ({ name, shape: TENSORS[name].shape, dtype: "float32" }));
  return { metadata, state };
}

test("an adapter is read as it was written, in every element type", () => {
  const odd = {
    ...TENSORS,
    "ü/none": new NDArray("float32", [0, 3], new Float32Array(0)),
    scalar: new NDArray("float64", [], Float64Array.of(0.1)),
    half: new NDArray("float16", [3], Uint16Array.of(1, 0x7c00, 0x3c00)),
    bytes: new NDArray("uint8", [5], Uint8Array.of(1, 2, 3, 4, 5)),
    whole: new NDArray("int64", [1], BigInt64Array.of(-5n)),
  };
  for (const [name, array] of Object.entries(fromAdapter(toAdapter(odd)))) {
    assert.equal(array.dtype, odd[name].dtype);
    assert.deepEqual(array.shape, odd[name].shape);
    assert.deepEqual(array.data, odd[name].data);
  }
  assert.deepEqual({ ...fromAdapter(toAdapter({})) }, {});
});

test("scales are in the file and not in the state", () => {
  const served = servedAdapter(manifest(2), TENSORS);
  assert.deepEqual(served[NAMES[0]].data, TENSORS[NAMES[0]].data);
  assert.equal(served[NAMES[1]].data[1], 2 * TENSORS[NAMES[1]].data[1]);
  const back = trainedAdapter(manifest(2), served);
  assert.deepEqual(back[NAMES[1]].data, TENSORS[NAMES[1]].data);
  const half = servedAdapter(manifest(0.5, "float16"), TENSORS);
  assert.equal(half[NAMES[0]].dtype, "float16");
  assert.equal(half[NAMES[1]].toNumbers()[0], 1.5);
});

test("an adapter of another model is refused", () => {
  const other = { ...TENSORS, "m.1.q_proj.lora_A.weight": numbers([6, 2], 0) };
  assert.throws(() => trainedAdapter(manifest(1), other), /of other modules.*m\.1/);
  const { [NAMES[0]]: down } = TENSORS;
  assert.throws(() => trainedAdapter(manifest(1), { [NAMES[0]]: down }), /lacks m\.0.*lora_B/);
  const wide = { ...TENSORS, [NAMES[0]]: numbers([6, 4], 0) };
  assert.throws(() => trainedAdapter(manifest(1), wide), /\[6,4\], the bundle trains \[6,2\]/);
  assert.throws(() => servedAdapter({ metadata: new Map() }, {}), /trains no adapter/);
  assert.throws(() => servedAdapter(manifest("much"), TENSORS), /no scale of a module/);
});

test("damaged adapters are refused or read, and nothing else", () => {
  const whole = toAdapter(TENSORS);
  let [refused, state] = [0, 1];
  const random = (below) => (state = (state * 16807) % 2147483647) % below;
  for (let i = 0; i < 2000; i++) {
    let content = whole.slice(0, i % 3 ? whole.length : random(whole.length));
    for (let j = 0; i % 3 && j < 1 + (i % 4); j++) content[random(240)] = random(256);
    if (i % 7 === 0) content = content.subarray(random(8));
    try {
      fromAdapter(content);
    } catch (error) {
      assert.equal(error.name, "BundleError", error.stack);
      refused += 1;
    }
  }
  assert.ok(refused > 1000, `${refused}`);
});

test("tensors that share their bytes do not fill the memory", () => {
  const few = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`t${i}`, numbers([1], i)]));
  const content = toAdapter({ ...few, last: numbers([1000], 0) });
  const view = new DataView(content.buffer);
  const table = (i) => 56 + 4 * i + view.getUint32(56 + 4 * i, true);
  for (const field of [8, 16]) {
    const target = table(10) + field + view.getUint32(table(10) + field, true);
    for (let i = 0; i < 10; i++) view.setUint32(table(i) + field, target - table(i) - field, true);
  }
  assert.throws(() => fromAdapter(content), /its tensors share their bytes/);
});
