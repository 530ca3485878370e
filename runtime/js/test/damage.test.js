import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm, symlink, truncate } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as ort from "onnxruntime-node";

import { BundleError, FlowError, Manifest, Options, Trainer } from "../src/index.js";
import { sha256 } from "../src/digest.js";
import { CONFORMANCE } from "./folders.js";
import { damages, resigned } from "./damages.js";

const FOLDER = `${CONFORMANCE}/mlp/bundle`;
const OPTIONS = new Options({ threads: 1 });
const FLIPS = 50;
const CUTS = 12; // of each file, beginning to end; three times as many of the state

async function bundle() {
  const names = (await readdir(FOLDER)).filter((name) => !/\.(md|config)$/.test(name));
  const entries = names.map(async (name) => [
    name,
    new Uint8Array(await readFile(`${FOLDER}/${name}`)),
  ]);
  return new Map(await Promise.all(entries));
}

const open = (files) => Trainer.open(files, { ort, options: OPTIONS });
let cases = 0;

for (const name of (await bundle()).keys()) {
  test(`damages of ${name}`, async () => {
    const files = await bundle();
    for (const { what, content } of damages(files.get(name), FLIPS, CUTS)) {
      const damaged = new Map(files).set(name, content);
      await assert.rejects(open(damaged), refusal(name), `${name}: ${what}`);
      cases += 1;
    }
    files.delete(name);
    await assert.rejects(open(files), refusal(name));
  });
}

test("damages of a saved state", async () => {
  const trainer = await open(FOLDER);
  const saved = await trainer.toBytes();
  for (const { what, content } of damages(saved, 3 * FLIPS, 3 * CUTS)) {
    await assert.rejects(trainer.load(content), refusal("saved state"), what);
    cases += 1;
  }
  assert.deepEqual(await trainer.toBytes(), saved);
});

test("there were 500 cases", () => assert.ok(cases >= 500, `${cases}`));

/** True for a BundleError that names what is damaged. */
function refusal(name) {
  return (error) => error instanceof BundleError && error.message.includes(name);
}

/** Every field in a JSON value: the keys that lead to it. */
function* paths(value, above = []) {
  if (typeof value !== "object" || value === null) return;
  for (const key of Object.keys(value)) {
    const path = [...above, key];
    if (!Array.isArray(value)) yield path;
    yield* paths(value[key], path);
  }
}

/** The value with another one in some place; undefined takes the field away. */
function changed(value, path, other) {
  const copy = structuredClone(value);
  const holder = path.slice(0, -1).reduce((inner, key) => inner[key], copy);
  if (other === undefined) delete holder[path.at(-1)];
  else holder[path.at(-1)] = other;
  return copy;
}

const OTHERS = [undefined, null, true, 1.5, -1, "", "nothing of the sort", [], {}, [[]]];

test("a signed manifest with any field missing or of another type is refused", async () => {
  const files = await bundle();
  const manifest = JSON.parse(new TextDecoder().decode(files.get("manifest.json")));
  let refused = 0;
  for (const path of paths(manifest)) {
    if (path[0] === "digest" || path[0] === "metadata") continue;
    for (const other of OTHERS) {
      const value = changed(manifest, path, other);
      if (isAllowed(path, other) || JSON.stringify(value) === JSON.stringify(manifest)) continue;
      const damaged = new Map(files).set("manifest.json", await resigned(value));
      // Arrays are compared with what the manifest says before a predict model is opened.
      const kind = path[0] === "predict" ? FlowError : BundleError;
      await assert.rejects(use(damaged), kind, `${path}: ${JSON.stringify(other)}`);
      refused += 1;
    }
  }
  assert.ok(refused > 1000, `${refused}`);
});

/** Open a bundle and predict, which opens its predict model too. */
async function use(files) {
  const trainer = await open(files);
  try {
    await trainer.predict([new Float32Array(160)]);
  } finally {
    await trainer.dispose();
  }
}

/** True if a field may have that value instead of its own. */
function isAllowed(path, other) {
  const [top, key] = [path[0], path.at(-1)];
  const isText = typeof other === "string" && other !== "";
  const isEmpty = other === undefined || other === null;
  if (["job", "producer"].includes(key)) return isText;
  if (["of", "learning_rate", "accumulate"].includes(key)) return isEmpty;
  if (key === "trainable") return typeof other === "boolean";
  return (top === "losses" || key === "reads") && JSON.stringify(other) === "[]";
}

/** A copy of the bundle's folder, which the end of the test removes. */
async function folder(t) {
  const copy = await mkdtemp(join(tmpdir(), "flow2onnx-"));
  t.after(() => rm(copy, { recursive: true }));
  await cp(FOLDER, copy, { recursive: true });
  return copy;
}

for (const name of ["manifest.json", "step.onnx", "weights.safetensors"]) {
  test(`a pipe or a device as ${name} is not waited for`, async (t) => {
    const copy = await folder(t);
    await rm(join(copy, name));
    execFileSync("mkfifo", [join(copy, name)]);
    await assert.rejects(open(copy), /it is no regular file/);
    await rm(join(copy, name));
    await symlink("/dev/zero", join(copy, name));
    await assert.rejects(open(copy), /it is no regular file/);
  });

  test(`a ${name} beyond its size is not read`, async (t) => {
    const copy = await folder(t);
    await truncate(join(copy, name), 2 ** 36); // takes no room on the disk
    await assert.rejects(open(copy), /it has more than \d+ bytes/);
  });
}

test("a pipe in place of a saved state is not waited for", async (t) => {
  const copy = await folder(t);
  execFileSync("mkfifo", [join(copy, "pipe")]);
  const trainer = await open(copy);
  await assert.rejects(trainer.load(join(copy, "pipe")), /it is no regular file/);
  await trainer.dispose();
});

test("an answer without end is not read to its end", async (t) => {
  const server = createServer(async (_, response) => {
    const part = Buffer.alloc(1 << 20);
    while (!response.destroyed) {
      if (!response.write(part)) await new Promise((next) => setTimeout(next, 1));
    }
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  t.after(() => server.close());
  await assert.rejects(open(`http://127.0.0.1:${server.address().port}/`), /more than 67108864 bytes/);
});

test("a file of another size is not hashed", async () => {
  const files = await bundle();
  const manifest = await Manifest.parse(files.get("manifest.json"));
  const longer = new Uint8Array(files.get("step.onnx").length + 1);
  await assert.rejects(manifest.verify("step.onnx", longer), /SHA-256 another…, the manifest says/);
});

test("a model that is not one, with the right hash, is refused or opened, no more", async () => {
  const files = await bundle();
  const manifest = JSON.parse(new TextDecoder().decode(files.get("manifest.json")));
  for (const { what, content } of damages(files.get("step.onnx"), 60, 20)) {
    const entry = { size: content.length, sha256: await sha256(content) };
    const value = changed(manifest, ["files", "step.onnx"], entry);
    const damaged = new Map(files).set("step.onnx", content);
    damaged.set("manifest.json", await resigned(value));
    // What a signed model computes is its own affair; it may not crash whoever opens it.
    const outcome = await open(damaged).then(
      () => null,
      (error) => error,
    );
    assert.ok(outcome === null || outcome instanceof BundleError, `${what}: ${outcome}`);
  }
});
