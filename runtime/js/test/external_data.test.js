/** A model may have values in the files given with it, and in no other. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as ort from "onnxruntime-node";

import { Predictor } from "../src/index.js";
import { checkModel } from "../src/model_limits.js";

const text = (value) => [...new TextEncoder().encode(value)];
const field = (number, bytes) => [...length(number * 8 + 2), ...length(bytes.length), ...bytes];
const length = (size) => (size < 128 ? [size] : [(size & 127) | 128, size >> 7]);
const whole = (number, value) => [number * 8, value];

/** A tensor of two float32 that lies at a location. */
function tensor(location) {
  const entry = [...field(1, text("location")), ...field(2, text(location))];
  return [...whole(1, 2), ...whole(2, 1), ...field(8, text("a")), ...field(13, entry),
    ...whole(14, 1)]; // prettier-ignore
}

/** y = x + a of two float32, or with the tensor in an attribute, a branch or a function. */
function model(location, place = "initializer") {
  const value = (name) => {
    const shape = field(2, field(1, whole(1, 2)));
    return [...field(1, text(name)), ...field(2, field(1, [...whole(1, 1), ...shape]))];
  };
  const node = [...field(1, text("x")), ...field(1, text("a")), ...field(2, text("y")),
    ...field(4, text("Add"))]; // prettier-ignore
  const held = tensor(location);
  const attribute = {
    attribute: field(5, held),
    branch: field(6, field(5, held)),
    branches: field(11, field(5, held)),
    sparse: field(22, field(1, held)),
  }[place];
  const graph = [
    ...field(1, attribute ? [...node, ...field(5, attribute)] : node),
    ...field(2, text("g")),
    ...(place === "initializer" ? field(5, held) : []),
    ...field(11, value("x")),
    ...field(12, value("y")),
  ];
  const body = place === "function" ? field(7, field(5, field(5, held))) : [];
  const functions = body.length ? field(25, body) : [];
  return new Uint8Array([...whole(1, 10), ...field(7, graph), ...functions,
    ...field(8, [...field(1, []), ...whole(2, 21)])]); // prettier-ignore
}

for (const place of ["initializer", "attribute", "branch", "branches", "sparse", "function"]) {
  test(`values in a file, of a tensor in: ${place}`, () => {
    checkModel("m", model("a.bin", place), [{ path: "a.bin" }]);
    for (const location of ["../a.bin", "/etc/passwd", "b.bin", ""]) {
      assert.throws(
        () => checkModel("m", model(location, place), [{ path: "a.bin" }]),
        /values in another file/,
      );
    }
  });
}

test("what was not given is not read from the file system", async () => {
  const folder = await mkdtemp(join(tmpdir(), "f2o-"));
  const before = process.cwd();
  try {
    await writeFile(join(folder, "a.bin"), new Float32Array([3, 8]));
    process.chdir(folder);
    const files = new Map([["m.onnx", model("a.bin")]]);
    await assert.rejects(Predictor.open(files, { ort, model: "m.onnx" }), {
      name: "BundleError",
      message: /"a\.bin", that was not given/,
    });
    files.set("a.bin", new Uint8Array(new Float32Array([3, 8]).buffer));
    const predictor = await Predictor.open(files, { ort, model: "m.onnx", weights: "a.bin" });
    const { y } = await predictor.predict({ x: new Float32Array(2) });
    assert.deepEqual([...y.data], [3, 8]);
    await predictor.dispose();
  } finally {
    process.chdir(before);
    await rm(folder, { recursive: true });
  }
});

test("what is no model is refused", () => {
  for (const damaged of [[0x3a, 9, 1], [0x3b], [8, ...Array(12).fill(255)],
    [0xba, 0x80, 0x80, 0x80, 0x10, 0], [0x80]]) { // prettier-ignore
    assert.throws(() => checkModel("m", new Uint8Array(damaged), []), /no ONNX model/);
  }
});
