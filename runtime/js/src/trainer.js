/** Train a bundle: steps, evaluation, prediction, and a state that can be saved and resumed. */

import { fromAdapter, servedAdapter, toAdapter, trainedAdapter } from "./adapters.js";
import { Bundle, weightsFile } from "./bundle.js";
import { addDelta, difference, floatVariables } from "./deltas.js";
import { NDArray } from "./dtypes.js";
import { BundleError, NonFiniteError, StateError } from "./errors.js";
import { orderFeeds } from "./program.js";
import { Options, Queue, Runtime } from "./runtime.js";
import { checkSignature, fromSafetensors, readHeader, toSafetensors } from "./safetensors.js";
import { some } from "./state.js";
import { store, writeFolder } from "./stores.js";

/** @import {Progress} from "./bundle.js" */
/** @import {PredictJob} from "./manifest.js" */
/** @import {Feeds, Program, Results} from "./program.js" */
/** @import {Ort, OrtTensor} from "./runtime.js" */
/** @import {BundleSource} from "./sources.js" */
/** @import {State} from "./state.js" */
/** @import {Store} from "./stores.js" */
/** @typedef {Record<string, NDArray>} Arrays */

export const STATE_FORMAT = "flow2onnx-state";
export const STATE_VERSION = "2";
const LARGEST_RATE = 3.4e38;

/**
 * The training job of a bundle, with its state in the runtime's memory. The state begins with the
 * bundle's weights, or else with what its init model computes. Calls take turns in the order in
 * which they are made; arrays are copied when a call is made, results are the caller's. A call that
 * fails leaves the state as it was.
 */
export class Trainer {
  #runtime;
  #bundle;
  #program;
  #finiteLosses;
  #queue = new Queue();
  #steps = 0; // of use only where the state has no counter
  #batches = 0; // given since it was opened
  #changes = 0; // how often the state changed: tells whether baked weights are stale
  /** @type {Map<string, {openedAt: number, program: Program}>} */
  #predicts = new Map();
  /** @type {{gradients: Program, update: Program} | null} */
  #halves = null;
  /** @type {readonly string[]} */
  #frozen = [];
  /** @type {Set<string>} */
  #held = new Set(); // what is frozen, slots included
  #isDisposed = false;

  /**
   * For `Trainer.open`.
   * @param {Runtime} runtime
   * @param {Bundle} bundle
   * @param {State} state
   * @param {Program} program
   * @param {boolean} finiteLosses
   */
  constructor(runtime, bundle, state, program, finiteLosses) {
    this.#runtime = runtime;
    this.#bundle = bundle;
    this.#program = program;
    this.#finiteLosses = finiteLosses;
    this.manifest = bundle.manifest;
    this.state = state;
    this.feeds = program.feeds;
    this.results = program.results;
  }

  /**
   * A trainer of the bundle in a folder, at an address or in memory. `ort` is the onnxruntime
   * package to use. With `finiteLosses`, a step whose loss is not finite throws `NonFiniteError`
   * and changes nothing. `onProgress` is told how much of the bundle has been read. Throws
   * `BundleError` for a bundle that is incomplete, changed or of an unknown version.
   * @param {BundleSource} source
   * @param {{ort: Ort, options?: Options, finiteLosses?: boolean,
   *   onProgress?: (progress: Progress) => void}} more
   * @returns {Promise<Trainer>}
   */
  static async open(source, { ort, options = new Options(), finiteLosses = false, onProgress }) {
    const runtime = new Runtime(ort, options);
    const bundle = await Bundle.open(source, runtime, onProgress);
    const state = await bundle.firstState(runtime);
    try {
      const program = await bundle.step(runtime, state);
      return new Trainer(runtime, bundle, state, program, finiteLosses);
    } catch (error) {
      state.dispose();
      throw error;
    }
  }

  /** The number of steps done, those before a resumed save included. */
  get steps() {
    const { counter } = this.manifest;
    return counter === null ? this.#steps : this.state.number(counter);
  }

  /** The number of batches accumulated since the last update. */
  get accumulated() {
    const { accumulate } = this.manifest;
    return accumulate ? this.state.number(accumulate.count) : 0;
  }

  /** The rate that overrides the schedule, or null while the schedule holds. */
  get learningRate() {
    const name = this.manifest.learningRate;
    const rate = name === null ? -1 : this.state.number(name);
    return rate >= 0 ? rate : null;
  }

  /** The variables that training leaves as they are. */
  get frozen() {
    return this.#frozen;
  }

  /**
   * One training step: the results by name; the state has its next values.
   * @param {Feeds} feeds
   * @returns {Promise<Results>}
   */
  async step(feeds) {
    const given = this.#program.arrange(feeds);
    return this.#turn(async () => {
      const results = await this.#run(this.#program, given);
      this.#steps += 1;
      return results;
    });
  }

  /**
   * The results that `step` would give, without changing the state. This runs the step model
   * itself: for the network as it is used, see `predict`.
   * @param {Feeds} feeds
   * @returns {Promise<Results>}
   */
  async evaluate(feeds) {
    const given = this.#program.arrange(feeds);
    return this.#turn(async () => (await this.#program.run(given, { next: false })).results);
  }

  /**
   * The results of a batch whose gradients are added up for the next `update`.
   * @param {Feeds} feeds
   * @returns {Promise<Results>}
   */
  async accumulate(feeds) {
    const given = this.#program.arrange(feeds); // which has the same feeds
    return this.#turn(async () => this.#run((await this.#twoHalves()).gradients, given));
  }

  /**
   * One training step by the mean gradients of the batches accumulated since the last.
   * @returns {Promise<void>}
   */
  update() {
    return this.#turn(async () => {
      const { update } = await this.#twoHalves();
      if (!this.accumulated) {
        throw new StateError("no gradients to update by", { hint: "call accumulate() before" });
      }
      await this.#run(update, {});
      this.#steps += 1;
    });
  }

  /**
   * Override the schedule by a rate of at least 0, or give the rate back to it with null. The rate
   * is part of the state: saved and loaded.
   * @param {number | null} rate
   * @returns {Promise<void>}
   */
  setLearningRate(rate) {
    return this.#turn(async () => {
      const name = this.manifest.learningRate;
      if (name === null) {
        const hint = "export it for devices";
        throw new StateError("the rate of this bundle cannot be set", { hint });
      }
      const isRate = typeof rate === "number" && rate >= 0 && rate < LARGEST_RATE;
      if (rate !== null && !isRate) {
        const hint = "give a number of at least 0, or null";
        throw new StateError(`learning rate ${String(rate)}`, { hint });
      }
      this.state.write(name, new NDArray("float32", [1], Float32Array.of(rate ?? -1)));
    });
  }

  /**
   * Freeze the variables that the patterns match (`*` and `?` stand for any characters and any
   * character), and no others; gives their names. Their optimizer slots stay as they are too.
   * Without patterns, all are trained again.
   * @param {...string} patterns
   * @returns {Promise<readonly string[]>}
   */
  freeze(...patterns) {
    return this.#turn(async () => {
      const { state } = this.manifest;
      const names = state.filter((spec) => spec.role === "variable").map((spec) => spec.name);
      const chosen = new Set(patterns.flatMap((pattern) => matching(pattern, names)));
      if (this.accumulated) {
        const hint = "call update() before";
        throw new StateError("gradients are being accumulated", { hint });
      }
      const held = state.filter((s) => chosen.has(s.name) || (s.of !== null && chosen.has(s.of)));
      this.#held = new Set(held.map((spec) => spec.name));
      this.#frozen = Object.freeze(names.filter((name) => chosen.has(name)));
      return this.#frozen;
    });
  }

  /**
   * The results of a predict job (the bundle's first unless named) on the present state. A model
   * with weights inside is opened anew when the state has changed since its last use.
   * @param {Feeds} feeds
   * @param {{job?: string}} [more]
   * @returns {Promise<Results>}
   */
  async predict(feeds, { job } = {}) {
    const entry = this.#bundle.predictJob(job);
    const given = orderFeeds(this.#runtime, entry.file, entry.feeds, feeds);
    return this.#turn(async () => {
      const program = await this.#predictProgram(entry);
      return (await program.run(given)).results;
    });
  }

  /**
   * Copies of all state tensors by name: weights, optimizer slots, counter.
   * @returns {Promise<Arrays>}
   */
  stateDict() {
    return this.#turn(() => this.state.toDict());
  }

  /**
   * Replace the whole state; throws `StateError` and changes nothing if anything is off.
   * @param {Arrays} values
   * @returns {Promise<void>}
   */
  loadStateDict(values) {
    return this.#turn(async () => this.#replace(values));
  }

  /**
   * The changes by training since an earlier `stateDict()`: new minus old of each variable of a
   * float type; half precision as float32.
   * @param {Arrays} since
   * @returns {Promise<Arrays>}
   */
  async delta(since) {
    return difference(await this.stateDict(), since, floatVariables(this.manifest.state));
  }

  /**
   * Add `scale` times a delta, or a mean of deltas, to the variables; slots stay.
   * @param {Arrays} delta
   * @param {number} [scale]
   * @returns {Promise<void>}
   */
  applyDelta(delta, scale = 1) {
    return this.#turn(async () => {
      const values = await this.state.toDict();
      const moved = addDelta(values, delta, scale, floatVariables(this.manifest.state));
      this.#replace(Object.assign(values, moved));
    });
  }

  /**
   * The saved state as the bytes of a safetensors file.
   * @returns {Promise<Uint8Array>}
   */
  toBytes() {
    return this.#turn(() => this.#saved());
  }

  /**
   * Save the state to a file (a path, in Node) or another store, whole or not at all.
   * @param {string | Store} place
   * @returns {Promise<void>}
   */
  save(place) {
    const target = store(place);
    return this.#turn(async () => target.write(await this.#saved()));
  }

  /**
   * Replace the state by a saved one: a path, a store, or bytes. Throws `BundleError` and changes
   * nothing if it is damaged or of another job. Gives false for a store that holds nothing yet.
   * @param {string | Store | Uint8Array} place
   * @returns {Promise<boolean>}
   */
  load(place) {
    const source = place instanceof Uint8Array ? null : store(place);
    const what = (source && source.name) || "the saved state";
    return this.#turn(async () => {
      const content = source ? await source.read() : /** @type {Uint8Array} */ (place);
      if (content === undefined && typeof place !== "string") return false;
      if (!content) throw new BundleError(`${what}: cannot be read: there is no such file`);
      await this.#restore(new Uint8Array(content), what);
      return true;
    });
  }

  /**
   * The adapter that a bundle of adapters trains, as the bytes of ONNX Runtime's file
   * `.onnx_adapter`; with `file` (Node) it is written there, whole or not at all.
   * @param {{file?: string}} [more]
   * @returns {Promise<Uint8Array>}
   */
  async exportAdapter({ file } = {}) {
    const content = toAdapter(servedAdapter(this.manifest, await this.stateDict()));
    if (file !== undefined) await store(file).write(content);
    return content;
  }

  /**
   * Go on from an adapter: a path (Node), a store, or the bytes of a file `.onnx_adapter`. Its
   * modules and ranks are those of the bundle; the optimizer's slots stay. Throws and changes
   * nothing for another one.
   * @param {string | Store | Uint8Array} place
   * @returns {Promise<void>}
   */
  loadAdapter(place) {
    const source = place instanceof Uint8Array ? null : store(place);
    const what = (source && source.name) || "the adapter";
    return this.#turn(async () => {
      const content = source ? await source.read() : /** @type {Uint8Array} */ (place);
      if (!content) throw new BundleError(`${what}: cannot be read: there is no such file`);
      const values = trainedAdapter(this.manifest, fromAdapter(new Uint8Array(content), what));
      this.#replace(Object.assign(await this.state.toDict(), values));
    });
  }

  /**
   * The present weights as the bytes of a safetensors file: variables only, by name.
   * @returns {Promise<Uint8Array>}
   */
  async exportWeights() {
    return weightsFile(this.manifest.state, await this.stateDict());
  }

  /**
   * A predict model (the bundle's first unless named) with the present weights beside it: the
   * files by name, which `Predictor.open` takes. With `folder` (Node) they are written there too:
   * it may be missing or empty, or hold an earlier export.
   * @param {{job?: string, folder?: string}} [more]
   * @returns {Promise<Map<string, Uint8Array>>}
   */
  async exportPredict({ job, folder } = {}) {
    const entry = this.#bundle.predictJob(job);
    const files = this.#bundle.exportFiles(entry, await this.stateDict());
    if (folder !== undefined) await writeFolder(folder, files, this.manifest.weights ?? "");
    return files;
  }

  /**
   * Give back all memory, that of a GPU too. Calls made afterwards are refused.
   * @returns {Promise<void>}
   */
  dispose() {
    return this.#turn(async () => {
      this.#isDisposed = true;
      this.state.dispose();
      const open = [this.#program, ...[...this.#predicts.values()].map((p) => p.program)];
      if (this.#halves) open.push(this.#halves.gradients, this.#halves.update);
      for (const program of open) await program.release();
    });
  }

  /**
   * Do something with the state when all calls made before are done.
   * @template T
   * @param {() => Promise<T>} act
   * @returns {Promise<T>}
   */
  #turn(act) {
    return this.#queue.run(async () => {
      if (this.#isDisposed) {
        throw new StateError("this trainer has been disposed of", { hint: "open another" });
      }
      return act();
    });
  }

  /**
   * Run and commit, but for what is frozen.
   * @param {Program} program
   * @param {Record<string, OrtTensor>} feeds
   * @returns {Promise<Results>}
   */
  async #run(program, feeds) {
    if (program.results.length) this.#batches += 1;
    const { results, next } = await program.run(feeds);
    try {
      if (this.#finiteLosses && program.results.length) this.#checkLosses(results);
    } catch (error) {
      for (const tensor of next.values()) tensor.dispose();
      throw error;
    }
    for (const name of [...next.keys()].filter((n) => this.#held.has(n))) {
      next.get(name)?.dispose();
      next.delete(name);
    }
    this.state.exchange(next);
    this.#changes += 1;
    return results;
  }

  /** @param {Results} results */
  #checkLosses(results) {
    for (const loss of this.manifest.losses) {
      if (!results[loss].toNumbers().every(Number.isFinite)) {
        const where = `of batch ${this.#batches} is not finite at step ${this.steps}`;
        throw new NonFiniteError(`the loss ${loss} ${where}`, {
          hint: "the state is kept: lower the learning rate, or look at this batch",
        });
      }
    }
  }

  async #twoHalves() {
    this.#halves ??= await this.#bundle.halves(this.#runtime, this.state);
    return this.#halves;
  }

  /**
   * @param {PredictJob} entry
   * @returns {Promise<Program>}
   */
  async #predictProgram(entry) {
    const known = this.#predicts.get(entry.job);
    const isStale = known && entry.holds.length > 0 && known.openedAt !== this.#changes;
    if (known && !isStale) return known.program;
    /** @type {Arrays} */
    const values = {};
    // All that lies before the last of them in the file of weights, held or not, is written too.
    if (entry.holds.length) Object.assign(values, await this.state.toDict());
    const program = await this.#bundle.predict(entry, this.#runtime, this.state, values);
    this.#predicts.set(entry.job, { openedAt: this.#changes, program });
    await known?.program.release();
    return program;
  }

  /** @param {Arrays} values */
  #replace(values) {
    this.state.fromDict(values);
    this.#changes += 1;
  }

  async #saved() {
    const metadata = {
      format: STATE_FORMAT,
      version: STATE_VERSION,
      job: this.manifest.job,
      state_id: await this.manifest.stateId(),
      steps: String(this.steps),
    };
    return toSafetensors(await this.state.toDict(), metadata, { signs: true });
  }

  /**
   * @param {Uint8Array} content
   * @param {string} what
   */
  async #restore(content, what) {
    const steps = await this.#checkedSteps(readHeader(content, what).metadata, what);
    await checkSignature(content, what);
    const { tensors } = fromSafetensors(content, what);
    this.#bundle.checkState(tensors, what);
    const { counter } = this.manifest;
    if (counter !== null && BigInt(tensors[counter].data[0]) !== BigInt(steps)) {
      throw new BundleError(`${what}: steps is ${steps}, ${counter} ${tensors[counter].data[0]}`);
    }
    this.#replace(tensors);
    this.#steps = Number(steps);
  }

  /**
   * The `steps` of a saved state whose metadata fit this trainer.
   * @param {ReadonlyMap<string, string>} metadata
   * @param {string} what
   * @returns {Promise<string>}
   */
  async #checkedSteps(metadata, what) {
    const wanted = {
      format: STATE_FORMAT,
      version: STATE_VERSION,
      job: this.manifest.job,
      state_id: await this.manifest.stateId(),
    };
    for (const [key, value] of Object.entries(wanted)) {
      if (metadata.get(key) !== value) {
        throw new BundleError(
          `${what}: ${key} is ${metadata.get(key)}, this trainer needs ${value}`,
          { hint: "load what a trainer saved for the same job" },
        );
      }
    }
    const steps = metadata.get("steps") ?? "";
    if (!/^[0-9]{1,19}$/.test(steps)) {
      throw new BundleError(`${what}: steps is ${JSON.stringify(steps)}, not a number`);
    }
    return steps;
  }
}

/**
 * @param {string} pattern
 * @param {readonly string[]} names
 * @returns {string[]}
 */
function matching(pattern, names) {
  const escaped = String(pattern).replace(/[.+^${}()|[\]\\]/g, "\\$&");
  const expression = escaped.replaceAll("*", ".*").replaceAll("?", ".");
  const found = names.filter((name) => new RegExp(`^${expression}$`, "su").test(name));
  if (!found.length) {
    throw new StateError(`no variable matches ${pattern}`, { hint: `there are ${some(names)}` });
  }
  return found;
}
