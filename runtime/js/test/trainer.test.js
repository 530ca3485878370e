import assert from "node:assert/strict";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import * as ort from "onnxruntime-node";

import {
  BundleError,
  FeedError,
  NDArray,
  NonFiniteError,
  Options,
  OptionsError,
  Predictor,
  ProviderError,
  RunError,
  StateError,
  Trainer,
  fromSafetensors,
  toSafetensors,
} from "../src/index.js";
import { resigned } from "./damages.js";
import { CONFORMANCE, files } from "./folders.js";

const MLP = `${CONFORMANCE}/mlp/bundle`;
const options = new Options({ threads: 1 });
const WIDTH = 20;
let folder, feeds;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "trainer-"));
  const { images, labels } = fromSafetensors(await files("mlp")("feeds.safetensors")).tensors;
  feeds = { images: images.data.slice(0, 8 * WIDTH), labels: labels.data.slice(0, 8) };
});
after(() => rm(folder, { recursive: true }));

const open = (more) => Trainer.open(MLP, { ort, options, ...more });

async function steps(trainer, count) {
  for (let i = 0; i < count; i++) await trainer.step(feeds);
}

test("a bundle from a path, an address of a file, and memory", async () => {
  const names = await readdir(MLP);
  const contents = await Promise.all(names.map((name) => readFile(join(MLP, name))));
  const object = Object.fromEntries(names.map((name, i) => [name, contents[i]]));
  for (const source of [MLP, pathToFileURL(`${MLP}/`), object]) {
    const trainer = await Trainer.open(source, { ort });
    assert.equal(trainer.steps, 0);
  }
});

test("without a file of weights, the init model makes the first state", async () => {
  const names = await readdir(MLP);
  const contents = await Promise.all(names.map((name) => readFile(join(MLP, name))));
  const bundle = Object.fromEntries(names.map((name, i) => [name, contents[i]]));
  const value = JSON.parse(new TextDecoder().decode(bundle["manifest.json"]));
  bundle["manifest.json"] = await resigned({ ...value, weights: null, predict: [] });
  const trainer = await Trainer.open(bundle, { ort, options });
  await steps(trainer, 2);
  assert.equal(trainer.steps, 2);
  const { "hidden-weight": weight } = await trainer.stateDict();
  assert.ok(new Set(weight.data).size > 300);
  await assert.rejects(trainer.predict({ images: feeds.images }), /no predict model/);
  await assert.rejects(trainer.exportPredict(), BundleError);
});

test("feeds by name, by position, as arrays with a shape, as tensors of the runtime", async () => {
  const trainer = await open();
  const expected = await trainer.evaluate(feeds);
  const shaped = { images: new NDArray("float32", [8, WIDTH], feeds.images), labels: feeds.labels };
  const tensors = {
    images: new ort.Tensor("float32", feeds.images, [8, WIDTH]),
    labels: new ort.Tensor("int32", feeds.labels, [8]),
  };
  for (const given of [[feeds.images, feeds.labels], shaped, tensors]) {
    assert.deepEqual(await trainer.evaluate(given), expected);
  }
  assert.equal(trainer.steps, 0);
});

test("feeds that do not fit are refused and change nothing", async () => {
  const trainer = await open();
  const first = await trainer.toBytes();
  const { images, labels } = feeds;
  const wrong = [
    [/takes 2 arrays/, { images }],
    [/takes 2 arrays/, [images, labels, labels]],
    [/takes 2 arrays/, images],
    [/takes 2 arrays/, undefined],
    [/no input pictures/, { pictures: images, labels }],
    [/got Float64Array/, { images: Float64Array.from(images), labels }],
    [/got number/, { images: 3, labels }],
    [/got int64/, { images, labels: new NDArray("int64", [8], new BigInt64Array(8)) }],
    [/got 159 elements/, { images: images.slice(1), labels }],
    [/got \[20,8\]/, { images: new NDArray("float32", [WIDTH, 8], images), labels }],
    [/got \[4,40\]/, { images: { data: images, shape: [4, 40] }, labels }],
    [/got 160 elements/, { images: { data: images, shape: [8, 8] }, labels }],
  ];
  for (const [message, given] of wrong) {
    for (const act of ["step", "evaluate", "accumulate"]) {
      await assert.rejects(
        trainer[act](given),
        (e) => e instanceof FeedError && message.test(e.message),
      );
    }
  }
  await assert.rejects(trainer.predict({ images: labels }), FeedError);
  assert.deepEqual(await trainer.toBytes(), first);
});

test("arrays are copied when a call is made, results are the caller's", async () => {
  const trainer = await open();
  const images = feeds.images.slice();
  const running = trainer.evaluate({ images, labels: feeds.labels });
  images.fill(0);
  const { "out/0": first } = await running;
  const kept = [...first.data];
  await steps(trainer, 3);
  assert.deepEqual([...first.data], kept);
  const { "out/0": expected } = await (await open()).evaluate(feeds);
  assert.deepEqual(expected.data, first.data);
});

test("calls take turns", async () => {
  const [a, b] = [await open(), await open()];
  await Promise.all([...Array(6)].map(() => a.step(feeds)));
  const [, saved] = await Promise.all([b.step(feeds), b.toBytes(), b.step(feeds), steps(b, 4)]);
  assert.equal(fromSafetensors(saved).metadata.steps, "1");
  assert.equal(a.steps, 6);
  assert.deepEqual(await a.toBytes(), await b.toBytes());
});

test("saved and loaded, training goes on bit for bit", async () => {
  const trainer = await open();
  await trainer.setLearningRate(0.03);
  await steps(trainer, 5);
  const path = join(folder, "state.safetensors");
  await trainer.save(path);
  await steps(trainer, 5);
  const other = await open();
  assert.equal(await other.load(path), true);
  assert.equal(other.steps, 5);
  assert.equal(other.learningRate, Math.fround(0.03));
  await steps(other, 5);
  assert.deepEqual(await other.toBytes(), await trainer.toBytes());
  assert.deepEqual(await readdir(folder), ["state.safetensors"]);
});

test("a save that fails leaves the file, and a killed one is swept up", async () => {
  const trainer = await open();
  const path = join(folder, "kept.safetensors");
  await trainer.save(path);
  const content = await readFile(path);
  await writeFile(join(folder, ".kept.safetensors.999999999-1.tmp"), "half");
  await trainer.step(feeds);
  await trainer.save(path);
  assert.notDeepEqual(await readFile(path), content);
  assert.ok(!(await readdir(folder)).some((name) => name.endsWith(".tmp")));
  await assert.rejects(trainer.save(join(folder, "no", "such", "folder")), BundleError);
  await assert.rejects(trainer.load(join(folder, "missing")), /no such file/);
  await assert.rejects(trainer.load(folder), BundleError);
});

test("a store that holds nothing yet, and one that does", async () => {
  const trainer = await open();
  let held;
  const store = { read: async () => held, write: async (content) => void (held = content) };
  assert.equal(await trainer.load(store), false);
  await trainer.step(feeds);
  await trainer.save(store);
  const other = await open();
  assert.equal(await other.load(store), true);
  assert.equal(other.steps, 1);
  await assert.rejects(async () => trainer.save(17), OptionsError);
});

test("states of other jobs, versions and counts are refused", async () => {
  const trainer = await open();
  await trainer.step(feeds);
  const { tensors, metadata } = fromSafetensors(await trainer.toBytes());
  const { digest, ...texts } = metadata;
  assert.equal(digest.length, 64);
  const signed = (values, more) => toSafetensors(values, { ...texts, ...more }, { signs: true });
  assert.equal(await trainer.load(await signed(tensors, {})), true);
  const before = await trainer.toBytes();
  for (const more of [
    { format: "other" },
    { version: "1" },
    { job: "other" },
    { state_id: "0" },
    { steps: "2" },
    { steps: "-1" },
    { steps: "" },
    { steps: "9".repeat(19) },
  ]) {
    const content = await signed(tensors, more);
    await assert.rejects(trainer.load(content), BundleError, JSON.stringify(more));
  }
  const { "hidden-bias": bias, ...rest } = tensors;
  const flat = { ...rest, "hidden-bias": new NDArray("float32", [4, 4], bias.data) };
  for (const values of [rest, { ...tensors, more: bias }, flat]) {
    await assert.rejects(trainer.load(await signed(values, {})), BundleError);
  }
  await assert.rejects(trainer.load(await toSafetensors(tensors, texts)), /digest/);
  assert.deepEqual(await trainer.toBytes(), before);
});

test("state dictionaries are copies, and are checked whole", async () => {
  const trainer = await open();
  const values = await trainer.stateDict();
  values["hidden-bias"].data.fill(1);
  assert.equal((await trainer.stateDict())["hidden-bias"].data[0], 0);
  await trainer.loadStateDict(values);
  values["hidden-bias"].data.fill(2);
  assert.equal((await trainer.stateDict())["hidden-bias"].data[0], 1);
  const { "hidden-bias": bias, ...rest } = values;
  const wrong = [
    rest,
    { ...values, more: bias },
    { ...values, "hidden-bias": new NDArray("float64", [16], new Float64Array(16)) },
    { ...values, "hidden-bias": new NDArray("float32", [1, 16], bias.data) },
    { ...values, "hidden-bias": bias.data },
  ];
  for (const given of wrong) await assert.rejects(trainer.loadStateDict(given), StateError);
  assert.equal((await trainer.stateDict())["hidden-bias"].data[0], 1);
});

test("the rate", async () => {
  const trainer = await open();
  assert.equal(trainer.learningRate, null);
  for (const rate of [-1, NaN, Infinity, 1e39, "1", undefined, true]) {
    await assert.rejects(trainer.setLearningRate(rate), StateError, String(rate));
  }
  await trainer.setLearningRate(0);
  const { "output-bias": before } = await trainer.stateDict();
  await trainer.step(feeds);
  const { "output-bias": after } = await trainer.stateDict();
  assert.deepEqual(after, before);
  await trainer.setLearningRate(null);
  assert.equal(trainer.learningRate, null);
  const lenet = await Trainer.open(`${CONFORMANCE}/lenet/bundle`, { ort });
  if (lenet.manifest.learningRate === null)
    await assert.rejects(lenet.setLearningRate(1), StateError);
  await assert.rejects(lenet.update(), BundleError);
});

test("frozen variables and their slots stay", async () => {
  const trainer = await open();
  await steps(trainer, 2);
  const before = await trainer.stateDict();
  assert.deepEqual(await trainer.freeze("hidden-*"), ["hidden-weight", "hidden-bias"]);
  await steps(trainer, 2);
  const after = await trainer.stateDict();
  const stayed = Object.keys(before).filter(
    (n) => String(before[n].data) === String(after[n].data),
  );
  assert.ok(["hidden-weight", "hidden-bias-momentum"].every((name) => stayed.includes(name)));
  assert.ok(!stayed.some((name) => /^output-(weight|bias)/.test(name) && !/gradients/.test(name)));
  await assert.rejects(trainer.freeze("hidden-weight", "no*"), /no variable matches no\*/);
  await assert.rejects(trainer.freeze("hidden-weight-momentum"), StateError);
  assert.deepEqual(trainer.frozen, ["hidden-weight", "hidden-bias"]);
  await trainer.accumulate(feeds);
  await assert.rejects(trainer.freeze(), /being accumulated/);
  await trainer.update();
  assert.deepEqual(await trainer.freeze(), []);
});

test("one batch summed up is a step of it", async () => {
  const [a, b] = [await open(), await open()];
  await assert.rejects(a.update(), /no gradients/);
  assert.deepEqual(await a.accumulate(feeds), await b.step(feeds));
  assert.equal(a.accumulated, 1);
  assert.equal(a.steps, 0);
  await a.update();
  assert.equal(a.accumulated, 0);
  assert.equal(a.steps, 1);
  const [x, y] = [await a.stateDict(), await b.stateDict()];
  for (const name of ["hidden-weight", "output-bias"]) {
    x[name].data.forEach((value, i) => assert.ok(Math.abs(value - y[name].data[i]) < 1e-6));
  }
});

test("a loss that is not finite keeps the state", async () => {
  const trainer = await open({ finiteLosses: true });
  const before = await trainer.toBytes();
  const bad = { ...feeds, images: new Float32Array(160).fill(NaN) };
  await assert.rejects(trainer.step(bad), NonFiniteError);
  await assert.rejects(trainer.accumulate(bad), {
    name: "NonFiniteError",
    message: /of batch 2 is not finite at step 0/,
  });
  assert.deepEqual(await trainer.toBytes(), before);
  await trainer.step(feeds);
  assert.equal(trainer.steps, 1);
});

test("a step that fails leaves the state, and the next one works", async () => {
  const failing = { fail: false };
  const unreliable = {
    ...ort,
    env: ort.env,
    Tensor: ort.Tensor,
    InferenceSession: {
      create: async (...given) => {
        const session = await ort.InferenceSession.create(...given);
        const run = session.run.bind(session);
        session.run = async (...more) => {
          if (failing.fail) throw new Error("out of memory");
          return run(...more);
        };
        return session;
      },
    },
  };
  const trainer = await Trainer.open(MLP, { ort: unreliable, options });
  await trainer.step(feeds);
  const before = await trainer.toBytes();
  failing.fail = true;
  await assert.rejects(
    trainer.step(feeds),
    (e) => e instanceof RunError && /out of memory/.test(e),
  );
  failing.fail = false;
  assert.deepEqual(await trainer.toBytes(), before);
  await trainer.step(feeds);
  assert.equal(trainer.steps, 2);
});

test("what one device changed can be added elsewhere", async () => {
  const [a, b] = [await open(), await open()];
  const since = await a.stateDict();
  await steps(a, 3);
  const delta = await a.delta(since);
  assert.deepEqual(Object.keys(delta).sort(), [
    "hidden-bias",
    "hidden-weight",
    "output-bias",
    "output-weight",
  ]);
  await b.applyDelta(delta, 0.5);
  await b.applyDelta(delta, 0.5);
  const [x, y] = [await a.stateDict(), await b.stateDict()];
  for (const name of Object.keys(delta)) {
    x[name].data.forEach((value, i) => assert.ok(Math.abs(value - y[name].data[i]) < 1e-6));
  }
  assert.equal(b.steps, 0);
  const before = await b.toBytes();
  const { "hidden-bias": bias, ...rest } = delta;
  for (const wrong of [
    rest,
    { ...delta, more: bias },
    { ...delta, "hidden-bias": delta["output-bias"] },
  ]) {
    await assert.rejects(b.applyDelta(wrong), StateError);
  }
  await assert.rejects(b.applyDelta(delta, NaN), StateError);
  await assert.rejects(a.delta(rest), StateError);
  assert.deepEqual(await b.toBytes(), before);
});

test("predicting follows the state, and so do exports", async () => {
  const trainer = await open();
  const given = { images: feeds.images };
  const first = await trainer.predict(given);
  await steps(trainer, 10);
  const second = await trainer.predict(given);
  assert.notDeepEqual(second, first);
  assert.deepEqual(await trainer.predict(given, { job: "predict_job" }), second);
  await assert.rejects(trainer.predict(given, { job: "other" }), BundleError);
  const target = join(folder, "export");
  const exported = await trainer.exportPredict({ folder: target });
  assert.deepEqual(await (await Predictor.open(exported, { ort, options })).predict(given), second);
  const places = { ort, options, model: "predict.onnx", weights: "weights.safetensors" };
  assert.deepEqual(await (await Predictor.open(target, places)).predict(given), second);
  const plain = await ort.InferenceSession.create(join(target, "predict.onnx"));
  const found = await plain.run({ images: new ort.Tensor("float32", feeds.images, [8, WIDTH]) });
  assert.deepEqual(found["out/0"].data, second["out/0"].data);
  await trainer.step(feeds);
  await trainer.exportPredict({ folder: target });
  assert.deepEqual((await readdir(target)).sort(), ["predict.onnx", "weights.safetensors"]);
  assert.notDeepEqual(await (await Predictor.open(target, places)).predict(given), second);
  await assert.rejects(trainer.exportPredict({ folder }), /which would be lost/);
  const original = await Predictor.open(MLP, { ort, options });
  assert.deepEqual(await original.predict(given), first);
});

test("the weights alone", async () => {
  const trainer = await open();
  const { tensors } = fromSafetensors(await trainer.exportWeights());
  assert.deepEqual(tensors["hidden-weight"], (await trainer.stateDict())["hidden-weight"]);
  assert.equal(Object.keys(tensors).length, 4);
});

test("any number of rows", async () => {
  const predictor = await Predictor.open(MLP, { ort, options });
  const rows = new Float32Array(11 * WIDTH).map((_, i) => Math.sin(i));
  const all = await predictor.many({ images: new NDArray("float32", [11, WIDTH], rows) });
  assert.deepEqual(all["out/0"].shape, [11, 10]);
  const last = rows.slice(3 * WIDTH);
  const { "out/0": part } = await predictor.predict({ images: last });
  assert.deepEqual(all["out/0"].data.slice(-30), part.data.slice(-30));
  await assert.rejects(predictor.many({ images: rows }), FeedError);
  await assert.rejects(predictor.many({}), FeedError);
  const images = new NDArray("float32", [11, WIDTH], rows);
  await assert.rejects(predictor.many({ images }, { batch: 4 }), FeedError);
});

test("options and providers that are not there are refused", async () => {
  assert.throws(() => new Options({ speed: 3 }), OptionsError);
  assert.throws(() => new Options({ threads: 0 }), OptionsError);
  assert.throws(() => new Options({ optimization: "much" }), OptionsError);
  for (const memory of [0, -1, 2 ** 33, "all", "5", null]) {
    assert.throws(() => new Options({ memory }), OptionsError);
  }
  await assert.rejects(open({ options: new Options({ provider: "abacus" }) }), ProviderError);
  await assert.rejects(open({ options: { threads: 1 } }), OptionsError);
  await assert.rejects(open({ ort: {} }), OptionsError);
  await assert.rejects(Trainer.open(17, { ort }), OptionsError);
  await assert.rejects(Trainer.open(folder, { ort }), BundleError);
});

test("a model that only the CPU can open is the provider's fault", async () => {
  const partial = {
    ...ort,
    listSupportedBackends: undefined,
    InferenceSession: {
      create: async (model, more) => {
        if (more.executionProviders[0] === "cpu") return ort.InferenceSession.create(model, more);
        throw new Error("no kernel for Abs");
      },
    },
  };
  const given = { ort: partial, options: new Options({ provider: "abacus" }) };
  const told = (e) =>
    e instanceof ProviderError && /abacus .* step\.onnx: no kernel/.test(e.message);
  await assert.rejects(Trainer.open(MLP, given), told);
});

test("a trainer that was disposed of says so", async () => {
  const trainer = await open();
  await trainer.predict({ images: feeds.images });
  await trainer.dispose();
  await assert.rejects(trainer.step(feeds), /disposed/);
  await assert.rejects(trainer.toBytes(), /disposed/);
});
