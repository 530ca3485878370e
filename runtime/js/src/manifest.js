/** manifest.json: what a bundle holds, checked when it is read. */

import { BY_NAME } from "./dtypes.js";
import { checkDigest, encode, sha256 } from "./digest.js";
import { BundleError } from "./errors.js";
import { Fields, isWhole, parseObject } from "./fields.js";
import { readRange } from "./index_range.js";
import { byCharacters } from "./safetensors.js";

/** @import {IndexRange} from "./index_range.js" */
/** @typedef {{size: number, sha256: string}} FileEntry a file as it was written */
/**
 * A feed or result: a free dimension is its name. `range`: the numbers that a feed of whole numbers
 * may hold, where something is known of them.
 * @typedef {{name: string, shape: readonly (number | string)[], dtype: string,
 *   range?: IndexRange | null}} TensorSpec
 */
/**
 * A tensor of the state. `trainable`: a step changes it. `of`: the variable of a slot.
 * @typedef {{name: string, shape: readonly number[], dtype: string,
 *   role: "variable" | "slot" | "counter", trainable: boolean, of: string | null}} StateSpec
 */
/**
 * A predict model and the state tensors it uses: as inputs, or as initializers.
 * @typedef {{job: string, file: string, feeds: readonly TensorSpec[],
 *   results: readonly TensorSpec[], reads: readonly string[], holds: readonly string[]}} PredictJob
 */
/**
 * A step in two halves: two models, and the state tensor that counts the batches summed up.
 * @typedef {{gradients: string, update: string, count: string}} Accumulation
 */

export const MANIFEST = "manifest.json";
export const FORMAT = "flow2onnx-bundle";
export const VERSION = 2;
export const SIZE_LIMIT = 64 * 2 ** 20; // a manifest of a million tensors is smaller

const DIGEST_KEY = '{\n "digest": "'; // begins the file
const ROLES = ["variable", "slot", "counter"];

/** The content of a bundle's manifest. */
export class Manifest {
  /** @param {Fields} fields */
  constructor(fields) {
    this.job = fields.text("job");
    this.producer = fields.text("producer");
    this.opset = fields.number("opset", 1);
    /** @type {ReadonlyMap<string, FileEntry>} */
    this.files = files(fields);
    /** @type {readonly StateSpec[]} */
    this.state = fields.each("state", stateSpec);
    /** @type {readonly TensorSpec[]} */
    this.feeds = fields.each("feeds", tensorSpec);
    /** @type {readonly TensorSpec[]} */
    this.results = fields.each("results", tensorSpec);
    /** @type {readonly string[]} */
    this.losses = texts(fields, "losses");
    this.init = fields.text("init");
    this.step = fields.text("step");
    /** @type {readonly PredictJob[]} */
    this.predict = fields.each("predict", predictJob);
    this.weights = fields.optional("weights");
    this.learningRate = fields.optional("learning_rate");
    /** @type {Accumulation | null} */
    this.accumulate = accumulation(fields);
    /** @type {ReadonlyMap<string, string>} */
    this.metadata = metadata(fields);
    check(this);
    Object.freeze(this);
  }

  /**
   * The manifest in the bytes of manifest.json; its files are for `verify` to check.
   * @param {Uint8Array} content
   * @param {string} [what] names the file in errors
   * @returns {Promise<Manifest>}
   */
  static async parse(content, what = MANIFEST) {
    if (content.length > SIZE_LIMIT) {
      throw new BundleError(`${what}: ${content.length} bytes are no manifest`);
    }
    await checkDigest(content, 0, DIGEST_KEY, what);
    const fields = parseObject(content, what);
    checkVersion(fields);
    return new Manifest(fields);
  }

  /**
   * Throw `BundleError` unless `content` is the file `name` as it was written.
   * @param {string} name
   * @param {Uint8Array} content
   */
  async verify(name, content) {
    const isSized = content.length === this.files.get(name)?.size;
    this.verifyDigest(name, content.length, isSized ? await sha256(content) : "another");
  }

  /**
   * Throw `BundleError` unless the file `name` has, as it was written, this size and SHA-256.
   * @param {string} name
   * @param {number} size
   * @param {string} found
   */
  verifyDigest(name, size, found) {
    const entry = this.files.get(name);
    if (size !== entry?.size || found !== entry.sha256) {
      throw new BundleError(
        `${name}: has ${size} bytes and SHA-256 ${found.slice(0, 12)}…, ` +
          `the manifest says ${entry?.size} and ${entry?.sha256.slice(0, 12)}…`,
        { hint: "the file was changed or cut off: export the bundle again" },
      );
    }
  }

  /** The files that no field names: those in which frozen tensors of models lie. */
  get dataFiles() {
    const named = new Set(namedFiles(this).map(([, name]) => name));
    return [...this.files.keys()].filter((name) => !named.has(name));
  }

  /** The name of the state tensor that counts the steps, or null. */
  get counter() {
    return this.state.find((spec) => spec.role === "counter")?.name ?? null;
  }

  /**
   * A hash of the job's name and its state's names, shapes and dtypes, in any order.
   * @returns {Promise<string>}
   */
  async stateId() {
    const tensors = [...this.state]
      .sort((a, b) => byCharacters(a.name, b.name))
      .map((s) => `[${ascii(s.name)}, [${s.shape.join(", ")}], ${ascii(s.dtype)}]`);
    return sha256(encode(`[${ascii(this.job)}, [${tensors.join(", ")}]]`));
  }
}

/**
 * A text as JSON in ASCII.
 * @param {string} text
 */
function ascii(text) {
  const escaped = (/** @type {string} */ c) =>
    `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, escaped);
}

/** @param {Fields} fields */
function checkVersion(fields) {
  const [format, version] = [fields.text("format"), fields.number("version")];
  if (format !== FORMAT) throw fields.error("format", `is ${format}, not ${FORMAT}`);
  if (version !== VERSION) {
    throw fields.error("version", `is ${version}; this runtime reads version ${VERSION}`);
  }
}

/** @param {Fields} fields */
function files(fields) {
  const entries = fields.entries("files").map(([name, value]) => {
    const entry = new Fields(`${fields.place}: files[${JSON.stringify(name)}]`, value);
    return /** @type {const} */ ([
      name,
      { size: entry.number("size"), sha256: entry.text("sha256") },
    ]);
  });
  return new Map(entries);
}

/**
 * @param {Fields} fields
 * @returns {TensorSpec}
 */
function tensorSpec(fields) {
  const shape = fields.items("shape").map((size) => dimension(fields, size));
  const [name, dtype] = [fields.text("name"), fields.text("dtype")];
  return { name, shape, dtype, range: readRange(fields, dtype) };
}

/**
 * @param {Fields} fields
 * @param {unknown} size
 * @returns {number | string}
 */
function dimension(fields, size) {
  if ((typeof size === "string" && size) || isWhole(size)) return size;
  throw fields.error("shape", `holds ${String(size)}, neither a size nor the name of one`);
}

/**
 * @param {Fields} fields
 * @returns {StateSpec}
 */
function stateSpec(fields) {
  const { name, shape, dtype } = tensorSpec(fields);
  if (shape.some((size) => typeof size === "string")) {
    throw fields.error("shape", `is [${shape}]: state has no free dimensions`);
  }
  const role = fields.text("role");
  if (!ROLES.includes(role)) throw fields.error("role", `is ${role}, not one of ${ROLES}`);
  return {
    name,
    shape: /** @type {number[]} */ (shape),
    dtype,
    role: /** @type {StateSpec["role"]} */ (role),
    trainable: fields.flag("trainable"),
    of: fields.optional("of"),
  };
}

/**
 * @param {Fields} fields
 * @returns {PredictJob}
 */
function predictJob(fields) {
  return {
    job: fields.text("job"),
    file: fields.text("file"),
    feeds: fields.each("feeds", tensorSpec),
    results: fields.each("results", tensorSpec),
    reads: texts(fields, "reads"),
    holds: texts(fields, "holds"),
  };
}

/**
 * @param {Fields} fields
 * @returns {Accumulation | null}
 */
function accumulation(fields) {
  if (!fields.has("accumulate")) return null;
  const inner = new Fields(`${fields.place}: accumulate`, fields.value.accumulate);
  const [gradients, update, count] = ["gradients", "update", "count"].map((key) => inner.text(key));
  return { gradients, update, count };
}

/**
 * @param {Fields} fields
 * @param {string} key
 * @returns {string[]}
 */
function texts(fields, key) {
  const items = fields.items(key);
  if (!items.every((item) => typeof item === "string")) {
    throw fields.error(key, "is not a list of names");
  }
  return /** @type {string[]} */ (items);
}

/**
 * @param {Fields} fields
 * @returns {Map<string, string>}
 */
function metadata(fields) {
  const entries = fields.has("metadata") ? fields.entries("metadata") : [];
  if (!entries.every(([, text]) => typeof text === "string")) {
    throw fields.error("metadata", "holds values that are not text");
  }
  return new Map(entries);
}

/** @param {string} why */
function wrong(why) {
  return new BundleError(`${MANIFEST}: ${why}`);
}

/**
 * Throw `BundleError` for fields that contradict one another.
 * @param {Manifest} manifest
 */
function check(manifest) {
  for (const name of manifest.files.keys()) checkFileName(name);
  for (const [role, name] of namedFiles(manifest)) {
    if (!manifest.files.has(name)) throw wrong(`${role} is ${name}, which is not in files`);
  }
  for (const [key, specs] of specLists(manifest)) checkSpecs(key, specs);
  checkState(manifest);
  checkPredict(manifest);
  for (const loss of manifest.losses) {
    if (!manifest.results.some((spec) => spec.name === loss)) {
      throw wrong(`losses names ${loss}, which is not a result`);
    }
  }
}

/** @param {string} name */
function checkFileName(name) {
  if (!name || [".", "..", MANIFEST].includes(name) || /[/\\:\0]/.test(name)) {
    throw wrong(`files names ${JSON.stringify(name)}, which is not a plain file name`);
  }
}

/**
 * @param {Manifest} manifest
 * @returns {[string, string][]}
 */
function namedFiles({ init, step, weights, accumulate, predict }) {
  /** @type {[string, string][]} */
  const named = [
    ["init", init],
    ["step", step],
  ];
  if (weights !== null) named.push(["weights", weights]);
  if (accumulate) {
    named.push(["accumulate.gradients", accumulate.gradients]);
    named.push(["accumulate.update", accumulate.update]);
  }
  for (const { job, file } of predict) named.push([`the file of predict job ${job}`, file]);
  return named;
}

/**
 * @param {Manifest} manifest
 * @returns {[string, readonly TensorSpec[]][]}
 */
function specLists({ state, feeds, results, predict }) {
  /** @type {[string, readonly TensorSpec[]][]} */
  const lists = [
    ["state", state],
    ["feeds", feeds],
    ["results", results],
  ];
  for (const entry of predict) {
    lists.push([`feeds of ${entry.job}`, entry.feeds], [`results of ${entry.job}`, entry.results]);
  }
  return lists;
}

/**
 * @param {string} key
 * @param {readonly TensorSpec[]} specs
 */
function checkSpecs(key, specs) {
  const seen = new Set();
  for (const { name, dtype } of specs) {
    if (seen.has(name)) throw wrong(`${key} names ${name} twice`);
    if (!BY_NAME.has(dtype)) throw wrong(`${key}: ${name} has the unknown dtype ${dtype}`);
    seen.add(name);
  }
}

/** @param {Manifest} manifest */
function checkState({ state, learningRate, accumulate }) {
  const counters = state.filter((spec) => spec.role === "counter");
  const single = (/** @type {StateSpec} */ { shape }) => shape.every((n) => n === 1) && !shape[1];
  if (counters.length > 1 || !counters.every(single)) {
    throw wrong("state: there is one counter at most, and it is a single number");
  }
  if (!counters.every(({ dtype }) => /^u?int/.test(dtype))) {
    throw wrong("state: the counter is not an integer");
  }
  const tensors = new Map(state.map((spec) => [spec.name, spec]));
  for (const { name, of } of state) {
    if (of !== null && tensors.get(of)?.role !== "variable") {
      throw wrong(`state: ${name} is of ${of}, which is no variable`);
    }
  }
  if (learningRate !== null) checkSingle("learning_rate", tensors.get(learningRate), "float32");
  if (accumulate) checkSingle("accumulate.count", tensors.get(accumulate.count), "int64");
}

/**
 * @param {string} key
 * @param {StateSpec | undefined} spec
 * @param {string} dtype
 */
function checkSingle(key, spec, dtype) {
  if (!spec || spec.shape.length !== 1 || spec.shape[0] !== 1 || spec.dtype !== dtype) {
    throw wrong(`${key} is not the name of a state tensor of ${dtype} and shape [1]`);
  }
}

/** @param {Manifest} manifest */
function checkPredict({ predict, state, weights }) {
  const names = new Set(state.map((spec) => spec.name));
  const jobs = predict.map((entry) => entry.job);
  if (new Set(jobs).size < jobs.length)
    throw wrong(`predict names a job twice: ${jobs.join(", ")}`);
  for (const { job, reads, holds } of predict) {
    for (const name of [...reads, ...holds]) {
      if (!names.has(name)) throw wrong(`predict job ${job} uses ${name}, which is not in state`);
    }
    if (holds.length && weights === null) {
      throw wrong(`predict job ${job} holds weights, and no file of weights is named`);
    }
  }
}
