/** Predict with a model, or with a predict job of a bundle. */

import { Bundle } from "./bundle.js";
import { NDArray, element } from "./dtypes.js";
import { BundleError, FeedError } from "./errors.js";
import { MANIFEST } from "./manifest.js";
import { Program } from "./program.js";
import { Options, Queue, Runtime } from "./runtime.js";
import { dictionary } from "./safetensors.js";
import { reader } from "./sources.js";

/** @import {Progress} from "./bundle.js" */
/** @import {Feeds, Results} from "./program.js" */
/** @import {Ort} from "./runtime.js" */
/** @import {BundleSource} from "./sources.js" */
/** @import {State} from "./state.js" */

const BATCH = 256; // rows at a time where the model takes any number

/** A model that takes arrays and gives results by name. Calls take turns. */
export class Predictor {
  #program;
  #state;
  #queue = new Queue();

  /**
   * For `Predictor.open`.
   * @param {Program} program
   * @param {State | null} state
   */
  constructor(program, state) {
    this.#program = program;
    this.#state = state;
    this.feeds = program.feeds;
    this.results = program.results;
  }

  /**
   * A predictor. `source` is a bundle, of which `job` names the predict job (the first unless
   * named), or, with `model`, any place of files of which that is the .onnx file and `weights` the
   * file of its external data, such as what `Trainer.exportPredict` gives.
   * @param {BundleSource} source
   * @param {{ort: Ort, options?: Options, job?: string, model?: string, weights?: string,
   *   onProgress?: (progress: Progress) => void}} more
   * @returns {Promise<Predictor>}
   */
  static async open(source, { ort, options = new Options(), job, model, weights, onProgress }) {
    const runtime = new Runtime(ort, options);
    if (model === undefined && isExport(source)) {
      [model, weights] = exportedNames(/** @type {ReadonlyMap<string, Uint8Array>} */ (source));
    }
    if (model !== undefined) return fromModel(runtime, source, model, weights);
    const bundle = await Bundle.open(source, runtime, onProgress);
    const entry = bundle.predictJob(job);
    const state = entry.reads.length ? await bundle.firstState(runtime) : null;
    return new Predictor(await bundle.predict(entry, runtime, state), state);
  }

  /**
   * The results by name; throws `FeedError` for arrays that do not fit.
   * @param {Feeds} feeds
   * @returns {Promise<Results>}
   */
  async predict(feeds) {
    const given = this.#program.arrange(feeds);
    return this.#queue.run(async () => (await this.#program.run(given)).results);
  }

  /**
   * The results for any number of rows, computed in batches of the model's size. Rows are along
   * the first axis of every input and result. The last batch is filled up with its last row, whose
   * results are left out. `batch` chooses the size where the model leaves it open, 256 unless
   * given.
   * @param {{[name: string]: NDArray}} feeds
   * @param {{batch?: number}} [more]
   * @returns {Promise<Results>}
   */
  async many(feeds, { batch } = {}) {
    const rows = this.#rows(feeds);
    const size = this.#batchSize(batch);
    /** @type {Results[]} */
    const parts = [];
    for (let start = 0; start < rows; start += size) {
      const entries = Object.entries(feeds).map(([name, array]) => {
        return [name, chosenRows(array, start, size)];
      });
      const found = await this.predict(dictionary(entries));
      parts.push(this.#cut(found, size, Math.min(size, rows - start)));
    }
    return dictionary(this.results.map(({ name }) => [name, concat(parts.map((p) => p[name]))]));
  }

  /**
   * Give back what the model holds.
   * @returns {Promise<void>}
   */
  dispose() {
    return this.#queue.run(async () => {
      this.#state?.dispose();
      await this.#program.release();
    });
  }

  /** @param {{[name: string]: NDArray}} feeds */
  #rows(feeds) {
    const arrays = Object.values(feeds ?? {});
    const counts = new Set(
      arrays.map((array) => (array instanceof NDArray && array.shape[0]) || 0),
    );
    const [rows] = counts;
    if (counts.size !== 1 || !rows) {
      throw new FeedError(`${this.#program.name}: the arrays have no common rows`, {
        hint: "give NDArrays with the same number of rows, at least one, along the first axis",
      });
    }
    return rows;
  }

  /** @param {number | undefined} batch */
  #batchSize(batch) {
    const firsts = this.feeds.map((feed) => feed.shape[0]);
    const sizes = new Set(firsts.filter((size) => typeof size === "number"));
    const [size = batch ?? BATCH] = sizes;
    const isBad =
      batch !== undefined && !(Number.isSafeInteger(batch) && batch > 0 && batch === size);
    if (sizes.size > 1 || isBad) {
      const takes = sizes.size ? [...sizes].join(", ") : "any size";
      throw new FeedError(`${this.#program.name} takes batches of ${takes}, batch is ${batch}`, {
        hint: "leave batch out",
      });
    }
    return size;
  }

  /**
   * @param {Results} found
   * @param {number} size
   * @param {number} rows
   * @returns {Results}
   */
  #cut(found, size, rows) {
    const entries = Object.entries(found).map(([name, array]) => {
      if (array.shape[0] !== size) {
        const what = `a result of shape [${array.shape}] for ${size} rows is not one of rows`;
        throw new FeedError(`${this.#program.name}: ${what}`, {
          hint: "call predict batch by batch",
        });
      }
      return [name, chosenRows(array, 0, rows)];
    });
    return dictionary(entries);
  }
}

/**
 * @param {BundleSource} source
 * @returns {boolean}
 */
function isExport(source) {
  return source instanceof Map && !source.has(MANIFEST);
}

/**
 * @param {ReadonlyMap<string, Uint8Array>} files
 * @returns {[string, string | undefined]}
 */
function exportedNames(files) {
  const names = [...files.keys()];
  const models = names.filter((name) => name.endsWith(".onnx"));
  if (models.length !== 1) {
    throw new BundleError(`there are ${models.length} models among the files`, {
      hint: "name one with { model }",
    });
  }
  return [models[0], names.find((name) => name.endsWith(".safetensors"))];
}

/**
 * @param {Runtime} runtime
 * @param {BundleSource} source
 * @param {string} model
 * @param {string | undefined} weights
 */
async function fromModel(runtime, source, model, weights) {
  const read = reader(source);
  const external = weights === undefined ? [] : [{ path: weights, data: await read(weights) }];
  const program = await Program.open(runtime, model, await read(model), null, external);
  return new Predictor(program, null);
}

/**
 * Rows `start` to `start + size`; the last row stands for those behind the end.
 * @param {NDArray} array
 * @param {number} start
 * @param {number} size
 * @returns {NDArray}
 */
function chosenRows(array, start, size) {
  const [rows, ...rest] = array.shape;
  const width = array.size / rows;
  const data = new (element(array.dtype).array)(size * width);
  for (let i = 0; i < size; i++) {
    const row = Math.min(start + i, rows - 1) * width;
    data.set(/** @type {any} */ (array.data.subarray(row, row + width)), i * width);
  }
  return new NDArray(array.dtype, [size, ...rest], data);
}

/**
 * @param {readonly NDArray[]} parts
 * @returns {NDArray}
 */
function concat(parts) {
  const [{ dtype, shape }] = parts;
  const rows = parts.reduce((sum, part) => sum + part.shape[0], 0);
  const data = new (element(dtype).array)(parts.reduce((sum, part) => sum + part.size, 0));
  let place = 0;
  for (const part of parts) {
    data.set(/** @type {any} */ (part.data), place);
    place += part.size;
  }
  return new NDArray(dtype, [rows, ...shape.slice(1)], data);
}
