/** A bundle, opened: its manifest, its verified files, its first state, its models. */

import { BundleError, OptionsError } from "./errors.js";
import { MANIFEST, Manifest, SIZE_LIMIT } from "./manifest.js";
import { Program } from "./program.js";
import { fromSafetensors, replaceTensors, toSafetensors } from "./safetensors.js";
import { folderOf, hashFile, nodeFiles, reader } from "./sources.js";
import { State, some } from "./state.js";

/** @import {NDArray} from "./dtypes.js" */
/** @import {PredictJob, StateSpec, TensorSpec} from "./manifest.js" */
/** @import {External} from "./program.js" */
/** @import {Runtime, TensorInfo} from "./runtime.js" */
/** @import {BundleSource} from "./sources.js" */
/** @typedef {Record<string, NDArray>} Arrays */

/**
 * How far reading a bundle has come, in bytes of all its files; `file` is read now.
 * @typedef {{file: string, loaded: number, total: number}} Progress
 */

/**
 * A bundle whose manifest and files have been verified. It keeps the bytes that it verified, but
 * for files of frozen tensors that lie in a folder: those are mapped by onnxruntime.
 */
export class Bundle {
  #files;
  #data;
  #folder;

  /**
   * @param {Manifest} manifest
   * @param {ReadonlyMap<string, Uint8Array>} files
   * @param {readonly External[]} data files of frozen tensors
   * @param {string | null} folder
   */
  constructor(manifest, files, data, folder) {
    this.manifest = manifest;
    this.#files = files;
    this.#data = data;
    this.#folder = folder;
  }

  /**
   * @param {BundleSource} source
   * @param {Runtime} runtime
   * @param {(progress: Progress) => void} [onProgress]
   * @returns {Promise<Bundle>}
   */
  static async open(source, runtime, onProgress) {
    const read = reader(source);
    const folder = folderOf(source);
    const manifest = await Manifest.parse(await read(MANIFEST, SIZE_LIMIT));
    const total = checkRoom(manifest, runtime);
    const isData = new Set(manifest.dataFiles);
    const files = new Map();
    /** @type {External[]} */
    const data = [];
    let done = 0;
    for (const [file, { size }] of manifest.files) {
      const tell = (/** @type {number} */ count) =>
        onProgress?.({ file, loaded: done + count, total });
      if (folder !== null && isData.has(file)) {
        const found = await hashFile(folder, file, size);
        manifest.verifyDigest(file, found.size, found.digest);
        data.push({ path: file, data: () => read(file, size) });
      } else {
        const content = await read(file, size, tell);
        await manifest.verify(file, content);
        if (isData.has(file)) data.push({ path: file, data: kept(content) });
        else files.set(file, content);
      }
      tell(size);
      done += size;
    }
    return new Bundle(manifest, files, data, folder);
  }

  /**
   * The state that training begins with: the bundle's weights, or else what init computes.
   * @param {Runtime} runtime
   * @returns {Promise<State>}
   */
  async firstState(runtime) {
    const { state: specs, weights, init, counter, learningRate, accumulate } = this.manifest;
    const strange = specs.find((spec) => spec.dtype === "bfloat16");
    if (strange) {
      throw new OptionsError(
        `state ${strange.name} is bfloat16, which no JavaScript runtime passes`,
        {
          hint: "export the job with variables of float32",
        },
      );
    }
    const values = weights === null ? await this.#initial(runtime) : this.#weights(weights);
    this.checkState(values, weights ?? init);
    const state = new State(runtime, specs, [counter, learningRate, accumulate?.count]);
    state.fromDict(values);
    return state;
  }

  /**
   * Throw `BundleError` unless `values` are exactly the manifest's state tensors.
   * @param {Arrays} values
   * @param {string} where
   */
  checkState(values, where) {
    const specs = new Map(this.manifest.state.map((spec) => [spec.name, spec]));
    const missing = [...specs.keys()].filter((name) => !Object.hasOwn(values, name));
    const surplus = Object.keys(values).filter((name) => !specs.has(name));
    if (missing.length || surplus.length) {
      throw new BundleError(
        `${where}: lacks ${some(missing)}; has beyond the job's state ${some(surplus)}`,
        { hint: "it was written for another job, or another version of this one" },
      );
    }
    for (const { name, shape, dtype } of specs.values()) {
      const found = values[name];
      if (found.dtype !== dtype || String(found.shape) !== String(shape)) {
        throw new BundleError(
          `${where}: ${name} is ${found.dtype} [${found.shape}], ` +
            `the manifest says ${dtype} [${shape}]`,
        );
      }
    }
  }

  /**
   * The step model on `state`.
   * @param {Runtime} runtime
   * @param {State} state
   */
  step(runtime, state) {
    const { step, feeds, results } = this.manifest;
    return this.#program(runtime, step, state, feeds, results);
  }

  /**
   * The models that sum up gradients and that update by their mean.
   * @param {Runtime} runtime
   * @param {State} state
   * @returns {Promise<{gradients: Program, update: Program}>}
   */
  async halves(runtime, state) {
    const { accumulate, feeds, results } = this.manifest;
    if (!accumulate) {
      throw new BundleError("the bundle holds no step in two halves", {
        hint: "export it, or make it trainable, with accumulate=True",
      });
    }
    const gradients = await this.#program(runtime, accumulate.gradients, state, feeds, results);
    const update = await this.#program(runtime, accumulate.update, state, [], []);
    return { gradients, update };
  }

  /**
   * The predict job of that name; the first if undefined.
   * @param {string} [job]
   * @returns {PredictJob}
   */
  predictJob(job) {
    const { predict } = this.manifest;
    if (!predict.length) {
      throw new BundleError("the bundle holds no predict model", {
        hint: "name a predict job when exporting",
      });
    }
    const found = job === undefined ? predict[0] : predict.find((entry) => entry.job === job);
    if (found) return found;
    const hint = `it holds ${some(predict.map((entry) => entry.job))}`;
    throw new BundleError(`the bundle holds no predict job ${job}`, { hint });
  }

  /**
   * A predict model: inputs that `state` has are read from it; weights inside are `values`, or
   * those of the bundle.
   * @param {PredictJob} entry
   * @param {Runtime} runtime
   * @param {State | null} state
   * @param {Arrays} [values]
   */
  predict(entry, runtime, state, values) {
    const { weights } = this.manifest;
    /** @type {External[]} */
    const external = [];
    if (weights !== null && entry.holds.length) {
      const data = values ? this.#held(entry, weights, values) : this.#file(weights);
      external.push({ path: weights, data });
    }
    return this.#program(runtime, entry.file, state, entry.feeds, entry.results, external);
  }

  /**
   * The files of a predict model with `values` as its weights: the model's name is `entry.file`.
   * @param {PredictJob} entry
   * @param {Arrays} values
   * @returns {Map<string, Uint8Array>}
   */
  exportFiles(entry, values) {
    const { weights } = this.manifest;
    if (weights === null || !entry.holds.length) {
      throw new BundleError(`${entry.file} has no weights in a file of their own`, {
        hint: "export the job again with flow2onnx, which writes them so",
      });
    }
    const model = this.#file(entry.file).slice();
    return new Map([
      [entry.file, model],
      [weights, this.#held(entry, weights, values)],
    ]);
  }

  /**
   * @param {PredictJob} entry
   * @param {string} weights
   * @param {Arrays} values
   */
  #held(entry, weights, values) {
    return replaceTensors(this.#file(weights), values, entry.holds, weights);
  }

  /**
   * @param {Runtime} runtime
   * @param {string} file
   * @param {State | null} state
   * @param {readonly TensorSpec[]} feeds
   * @param {readonly TensorSpec[]} results
   * @param {readonly External[]} [external]
   * @returns {Promise<Program>}
   */
  async #program(runtime, file, state, feeds, results, external = []) {
    const given = [...external, ...this.#data];
    const path = this.#folder === null ? null : nodeFiles()?.path.join(this.#folder, file);
    const program = await Program.open(runtime, file, this.#file(file), state, given, path);
    try {
      checkSignature(file, "inputs", program.feeds, feeds);
      checkSignature(file, "outputs", program.results, results);
      program.feeds = feeds; // equal, and with the numbers that they may hold
    } catch (error) {
      await program.release();
      throw error;
    }
    return program;
  }

  /** @param {string} weights */
  #weights(weights) {
    return fromSafetensors(this.#file(weights), weights).tensors;
  }

  /** @param {Runtime} runtime */
  async #initial(runtime) {
    const { init } = this.manifest;
    const program = await Program.open(runtime, init, this.#file(init), null);
    try {
      if (program.feeds.length) {
        throw new BundleError(`${init} has inputs`, { hint: "an init model takes none" });
      }
      return (await program.run({})).results;
    } finally {
      await program.release();
    }
  }

  /**
   * @param {string} name
   * @returns {Uint8Array}
   */
  #file(name) {
    const content = this.#files.get(name);
    if (!content) throw new Error(`${name} was checked to be in files`);
    return content;
  }
}

/**
 * The bytes of all files; throws `BundleError` where a page has no room for its frozen tensors.
 * @param {Manifest} manifest
 * @param {Runtime} runtime
 */
function checkRoom(manifest, runtime) {
  const size = (/** @type {string} */ name) => manifest.files.get(name)?.size ?? 0;
  const needed = manifest.dataFiles.reduce((sum, name) => sum + size(name), 0);
  const { memory } = runtime.options;
  if (runtime.isWeb && needed >= memory) {
    throw new BundleError(
      `${manifest.dataFiles.join(", ")}: ${megabytes(needed)}, and WebAssembly has ` +
        `${megabytes(memory)} for all that it holds`,
      { hint: "train a smaller model, or one in 4 bits; Node and Python have no such limit" },
    );
  }
  return [...manifest.files.keys()].reduce((sum, name) => sum + size(name), 0);
}

/** @param {number} bytes */
function megabytes(bytes) {
  return `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 })} MB`;
}

/**
 * What is kept of a file of frozen tensors: in a page a Blob, which browsers put on the disk.
 * @param {Uint8Array} content
 */
function kept(content) {
  return nodeFiles() ? content : new Blob([/** @type {Uint8Array<ArrayBuffer>} */ (content)]);
}

/**
 * @param {string} file
 * @param {string} kind
 * @param {readonly TensorInfo[]} have
 * @param {readonly TensorSpec[]} asked
 */
function checkSignature(file, kind, have, asked) {
  const shown = (/** @type {readonly TensorSpec[]} */ specs) =>
    specs.map((s) => `${s.name} ${s.dtype} [${s.shape.join(", ")}]`).join("; ") || "none";
  if (shown(have) !== shown(asked)) {
    throw new BundleError(
      `${file}: its ${kind} are ${shown(have)}, the manifest says ${shown(asked)}`,
      {
        hint: "the bundle is inconsistent: export it again",
      },
    );
  }
}

/**
 * The variables among `values` as a safetensors file.
 * @param {readonly StateSpec[]} specs
 * @param {Arrays} values
 * @returns {Promise<Uint8Array>}
 */
export function weightsFile(specs, values) {
  const names = specs.filter((spec) => spec.role === "variable").map((spec) => spec.name);
  return toSafetensors(Object.fromEntries(names.map((name) => [name, values[name]])));
}
