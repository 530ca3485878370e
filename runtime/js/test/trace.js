/** Does the actions of a conformance trace and compares what comes of them; runs anywhere. */

import { fromSafetensors, NDArray, Trainer } from "../src/index.js";

/** One batch of feeds that were stacked along a new first axis. */
function batch(stacked, number) {
  const [batches, ...shape] = stacked.shape;
  const size = stacked.size / batches;
  const data = stacked.data.slice(number * size, (number + 1) * size);
  return new NDArray(stacked.dtype, shape, data);
}

class Runner {
  constructor(trainer, feeds) {
    this.trainer = trainer;
    this.stacked = feeds;
  }

  feeds(action, specs) {
    return Object.fromEntries(
      specs.map(({ name }) => [name, batch(this.stacked[name], action.batch)]),
    );
  }

  step(action) {
    return this.trainer.step(this.feeds(action, this.trainer.feeds));
  }

  evaluate(action) {
    return this.trainer.evaluate(this.feeds(action, this.trainer.feeds));
  }

  accumulate(action) {
    return this.trainer.accumulate(this.feeds(action, this.trainer.feeds));
  }

  predict(action) {
    return this.trainer.predict(this.feeds(action, this.trainer.manifest.predict[0].feeds));
  }

  update() {
    return this.trainer.update();
  }

  rate({ value }) {
    return this.trainer.setLearningRate(value);
  }

  async freeze({ names }) {
    await this.trainer.freeze(...names);
  }

  async save() {
    this.saved = await this.trainer.toBytes();
  }

  async load() {
    await this.trainer.load(this.saved);
  }
}

/** The largest |a - b| / (1 + |a|) of what was recorded and what was found. */
function distance(wanted, found) {
  if (found.length < wanted.length) throw new Error(`${found.length} numbers are too few`);
  const errors = wanted.map((a, i) => Math.abs(a - found[i]) / (1 + Math.abs(a)));
  if (errors.some(Number.isNaN)) throw new Error("a result is not a number");
  return Math.max(0, ...errors);
}

/**
 * The worst error over a trace. `load(path)` gives the bytes of a file of the bundle's folder;
 * `limit` ends the trace after so many steps, without comparing the final state.
 */
export async function replay(name, source, load, { ort, options, limit = Infinity }) {
  const trace = JSON.parse(new TextDecoder().decode(await load("trace.json")));
  if (trace.format !== "flow2onnx-trace" || trace.version !== 1) throw new Error("no trace");
  const trainer = await Trainer.open(source, { ort, options });
  const feeds = fromSafetensors(await load("feeds.safetensors")).tensors;
  const runner = new Runner(trainer, feeds);
  let [worst, steps] = [0, 0];
  for (const action of trace.actions) {
    if (action.do === "step" && steps++ === limit) break;
    const results = (await runner[action.do](action)) ?? {};
    const names = Object.keys(action.results ?? {});
    if (String(Object.keys(results)) !== String(names)) throw new Error(`other results: ${names}`);
    for (const key of names) {
      worst = Math.max(worst, distance(action.results[key], results[key].toNumbers()));
    }
  }
  if (steps <= limit) worst = Math.max(worst, await stateDistance(trainer, load));
  const done = trainer.steps;
  await trainer.dispose();
  return { name, worst, steps: done, tolerance: trace.tolerance };
}

async function stateDistance(trainer, load) {
  const { tensors, metadata } = fromSafetensors(await load("state.safetensors"));
  if (metadata.steps !== String(trainer.steps)) throw new Error(`${trainer.steps} steps`);
  const state = await trainer.stateDict();
  if (String(Object.keys(state).sort()) !== String(Object.keys(tensors).sort())) {
    throw new Error("another state");
  }
  const errors = Object.entries(tensors).map(([name, wanted]) =>
    wanted.dtype.includes("int")
      ? Number(String(wanted.data) !== String(state[name].data))
      : distance(wanted.toNumbers(), state[name].toNumbers()),
  );
  return Math.max(...errors);
}
