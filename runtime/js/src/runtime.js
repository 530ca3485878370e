/** The onnxruntime package of the user's choice, and how this package uses it. */

import { BundleError, OptionsError, ProviderError, RunError, reason } from "./errors.js";

/**
 * The part used of onnxruntime: `onnxruntime-node`, `onnxruntime-web` or another package
 * with the same interface.
 * @typedef {{
 *   InferenceSession: {create(model: any, options?: any): Promise<any>},
 *   Tensor: new (type: any, data: any, dims: readonly number[]) => any,
 *   env: any,
 *   listSupportedBackends?: () => {name: string}[],
 * }} Ort its classes differ between versions: whatever is used is checked where it is used
 */
/**
 * A tensor of onnxruntime.
 * @typedef {{readonly type: string, readonly dims: readonly number[], readonly data: any,
 *   readonly location: string, getData(releaseData?: boolean): Promise<any>,
 *   dispose(): void}} OrtTensor
 */
/** @typedef {{name: string, shape: readonly (number | string)[], dtype: string}} TensorInfo */

/** Bytes of all memory that WebAssembly has, with addresses of 32 bits. */
const HEAP = 2 ** 32;
// In the words of C++, of browsers and of onnxruntime.
const NO_ROOM = /bad_alloc|out of memory|allocation fail|failed to allocate|out of bounds|\bOOM\b/i;
const LEVELS = ["disabled", "basic", "extended", "layout", "all"];

/** How sessions are opened. An unknown name or value is an `OptionsError`. */
export class Options {
  /**
   * @param {{provider?: string | {name: string}, threads?: number, optimization?: string,
   *   memory?: number, session?: Record<string, unknown>}} [values]
   *   `provider`: such as "cpu", "wasm", "webgpu", by default the CPU; the only one that is asked.
   *   `threads`: within an operator. `optimization`: disabled, basic, extended, layout or all.
   *   `memory`: bytes that WebAssembly has in a page, 4 GiB at most: a bundle whose frozen tensors
   *   do not fit is refused before they are fetched. `session`: further options of
   *   `InferenceSession.create`.
   */
  constructor(values = {}) {
    const { provider, threads, optimization = "all", memory = HEAP, session = {} } = values;
    const known = ["provider", "threads", "optimization", "memory", "session"];
    const surplus = Object.keys(values).find((name) => !known.includes(name));
    if (surplus) {
      const hint = `there are ${known.join(", ")}`;
      throw new OptionsError(`there is no option ${surplus}`, { hint });
    }
    if (threads !== undefined && !(Number.isSafeInteger(threads) && threads > 0)) {
      throw new OptionsError(`threads is ${threads}`, {
        hint: "give a whole number of at least 1",
      });
    }
    if (!(typeof memory === "number" && memory > 0 && memory <= HEAP)) {
      throw new OptionsError(`memory is ${memory}`, { hint: `give bytes, ${HEAP} at most` });
    }
    if (!LEVELS.includes(optimization)) {
      throw new OptionsError(`optimization is ${optimization}`, { hint: `give one of ${LEVELS}` });
    }
    this.provider = provider;
    this.threads = threads;
    this.optimization = optimization;
    this.memory = memory;
    this.session = Object.freeze({ ...session });
    Object.freeze(this);
  }
}

/** Tasks that run one after the other. */
export class Queue {
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /**
   * @template T
   * @param {() => Promise<T>} task
   * @returns {Promise<T>}
   */
  run(task) {
    const result = this.#last.then(task);
    this.#last = result.catch(() => {});
    return result;
  }
}

// onnxruntime-web opens and runs one session at a time, and fails where two meet.
/** @type {WeakMap<object, Queue>} */
const QUEUES = new WeakMap();

/** An onnxruntime with the options to open its sessions with. */
export class Runtime {
  #queue;

  /**
   * @param {Ort} ort
   * @param {Options} options
   */
  constructor(ort, options) {
    if (typeof ort?.InferenceSession?.create !== "function" || typeof ort?.Tensor !== "function") {
      throw new OptionsError("ort is not an onnxruntime package", {
        hint: 'import * as ort from "onnxruntime-node" (or -web), and give { ort }',
      });
    }
    if (!(options instanceof Options)) {
      throw new OptionsError("options is none of our Options", { hint: "new Options({ … })" });
    }
    this.ort = ort;
    this.options = options;
    this.isWeb = !ort.env?.versions?.node;
    this.provider = options.provider ?? (this.isWeb ? "wasm" : "cpu");
    this.providerName = typeof this.provider === "string" ? this.provider : this.provider.name;
    this.#queue = QUEUES.get(ort.InferenceSession) ?? new Queue();
    QUEUES.set(ort.InferenceSession, this.#queue);
  }

  /** True if the state stays in the memory of a GPU between steps. */
  get keepsOnGpu() {
    return this.isWeb && this.providerName === "webgpu";
  }

  /**
   * An open session of a model's bytes, or of one at a path in Node.
   * @param {string} name of the model, in errors
   * @param {Uint8Array | string} model
   * @param {Record<string, unknown>} more options that the model needs
   * @returns {Promise<any>}
   */
  async open(name, model, more) {
    await this.#checkProvider();
    return this.#queue.run(async () => {
      try {
        return await this.#create(model, this.provider, more);
      } catch (error) {
        throw await this.#blamed(name, model, more, error);
      }
    });
  }

  /**
   * @param {Uint8Array | string} model
   * @param {unknown} provider
   * @param {Record<string, unknown>} more
   * @returns {Promise<any>}
   */
  #create(model, provider, more) {
    const { threads, optimization, session } = this.options;
    // A copy: a worker of onnxruntime-web takes the memory it is given.
    const own = typeof model === "string" ? model : model.slice();
    return this.ort.InferenceSession.create(own, {
      executionProviders: [provider],
      graphOptimizationLevel: optimization,
      ...(threads === undefined ? {} : { intraOpNumThreads: threads }),
      ...session,
      ...more,
    });
  }

  /**
   * The error for a model that does not open: the provider's fault if the CPU can open it.
   * @param {string} name
   * @param {Uint8Array | string} model
   * @param {Record<string, unknown>} more
   * @param {unknown} error
   */
  async #blamed(name, model, { preferredOutputLocation: _, ...more }, error) {
    const cpu = this.isWeb ? "wasm" : "cpu";
    const why = reason(error);
    const other = "if it opens elsewhere, this build of onnxruntime lacks an operator: try another";
    const hint = this.#memoryHint(why) ?? other;
    const broken = new BundleError(`${name} cannot be opened: ${why}`, { hint, cause: error });
    if (this.providerName === cpu) return broken;
    try {
      await (await this.#create(model, cpu, more)).release();
    } catch {
      return broken;
    }
    return new ProviderError(`${this.providerName} cannot be used for ${name}: ${why}`, {
      hint: `use the provider ${cpu}, or a machine or a build of onnxruntime that has what is missing`,
      cause: error,
    });
  }

  /**
   * Run a session once.
   * @param {string} name
   * @param {any} session
   * @param {Record<string, OrtTensor>} feeds
   * @param {readonly string[]} fetches
   * @returns {Promise<Record<string, OrtTensor>>}
   */
  run(name, session, feeds, fetches) {
    return this.#queue.run(async () => {
      try {
        return await session.run(feeds, fetches);
      } catch (error) {
        const why = reason(error);
        const hint = this.#memoryHint(why) ?? "the state is as it was";
        throw new RunError(`${name} failed: ${why}`, { hint, cause: error });
      }
    });
  }

  /**
   * What to do where an error in a page is one of memory; else undefined.
   * @param {string} why
   */
  #memoryHint(why) {
    if (!this.isWeb || !NO_ROOM.test(why)) return undefined;
    return (
      "a page has 4 GB at most for all its models, and a phone less: give shorter or fewer rows, " +
      "or make the bundle with recompute; if other calls fail from now on, load the page again"
    );
  }

  /**
   * Give back what a session holds.
   * @param {any} session
   * @returns {Promise<void>}
   */
  release(session) {
    return this.#queue.run(async () => session.release?.());
  }

  async #checkProvider() {
    const listed = this.ort.listSupportedBackends?.().map((backend) => backend.name);
    if (listed && !listed.includes(this.providerName)) {
      throw new ProviderError(`this onnxruntime has no provider ${this.providerName}`, {
        hint: `it has ${listed.join(", ")}`,
      });
    }
    if (this.keepsOnGpu) {
      const gpu = /** @type {any} */ (globalThis.navigator)?.gpu; // not in all sets of types
      if (!(await gpu?.requestAdapter())) {
        throw new ProviderError("WebGPU cannot be used: there is no adapter", {
          hint: "use the provider wasm, or a browser and a machine with WebGPU",
        });
      }
    }
  }
}
