/**
 * Limits of what a model may hold, counted before onnxruntime expands or opens it. A model of a
 * thousand bytes can call functions that call functions until there are 10^30 nodes.
 */

import { BundleError, reason } from "./errors.js";
import { checkLocations, tensorLocations } from "./external_data.js";
import { CARRIERS, ListSteps } from "./list_growth.js";
import { fields } from "./wire.js";

/** The most that a model may hold; CONTRACT.md says of what. */
export const LIMITS = Object.freeze({
  nodes: 100_000,
  operands: 500_000,
  of_one_node: 16_384,
  entries: 80_000,
  nested: 8_000,
  depth: 32,
  copied: 1 << 26,
  lists: 1 << 18,
  equation: 1 << 10,
  text: 1 << 24,
});
const VARIABLE = "FLOW2ONNX_MOST_NODES";

// The numbers of the fields that are looked into, by message of onnx.proto.
const MODEL = { graph: 7, training: 20, function: 25 };
const GRAPH = { node: 1, tensor: 5, sparse: 15 };
const NODE = { input: 1, output: 2, operator: 4, attribute: 5, domain: 7, overload: 8 };
const ATTRIBUTE = { tensors: [5, 10], graphs: [6, 11], sparse: [22, 23] };
const FUNCTION = { name: 1, output: 5, node: 7, domain: 10, attribute: 11, overload: 13 };
const SPARSE_TENSORS = [1, 2];
const TRAINING_GRAPHS = [1, 2];

/** Counts of a graph or a function, and of its calls of functions. */
class Body {
  nodes = 0;
  operands = 0;
  bytes = 0;
  /** @type {Map<string, number>} */
  calls = new Map();
  lists = new ListSteps();

  /**
   * @param {Body} body
   * @param {number} times
   */
  add(body, times) {
    this.nodes += body.nodes * times;
    this.operands += body.operands * times;
    this.bytes += body.bytes * times;
  }
}

/**
 * Those of the files given that a model names; throws `BundleError` for one that holds more than
 * the limits, that names files not given with it, and for what is no model. Tensors are stepped
 * over, not read.
 * @template {{path: string}} File
 * @param {string} name of the model, in errors
 * @param {Uint8Array} model
 * @param {readonly File[]} externalData
 * @returns {File[]}
 */
export function checkModel(name, model, externalData) {
  if (String.fromCharCode(...model.subarray(4, 8)) === "ORTM") return []; // with all inside
  const counter = new Counter();
  try {
    counter.check(model);
  } catch (error) {
    if (error instanceof BundleError) {
      throw new BundleError(`${name} cannot be opened: ${error.message}`, { cause: error });
    }
    throw new BundleError(`${name} is no ONNX model: ${reason(error)}`, {
      hint: "it is damaged",
      cause: error,
    });
  }
  return checkLocations(name, counter.locations, externalData);
}

/** The counts of one model, and the locations that its tensors name. */
class Counter {
  /** @type {Set<string>} */
  locations = new Set();
  #mostNodes = mostNodes();
  #entries = 0;
  #nested = 0;
  #main = new Body();
  /** @type {Map<string, Body>} */
  #functions = new Map();
  /** @type {Map<string, {whole: Body, inside: number}>} */
  #expanded = new Map(); // with the calls inside each other

  /** @param {Uint8Array} model */
  check(model) {
    for (const { number, bytes } of fields(model)) {
      if (number === MODEL.graph && bytes) this.#graph(bytes, this.#main, 0);
      else if (number === MODEL.training && bytes) this.#training(bytes);
      else if (number === MODEL.function && bytes) this.#function(bytes);
      else this.#entry(bytes);
    }
    this.#checkExpanded();
    this.#checkLists();
  }

  /**
   * @param {Uint8Array} graph
   * @param {Body} body
   * @param {number} depth
   */
  #graph(graph, body, depth) {
    for (const { number, bytes } of fields(graph)) {
      if (number === GRAPH.node && bytes) this.#node(bytes, body, depth);
      else if (number === GRAPH.tensor && bytes) {
        this.#entry();
        this.#tensor(bytes);
      } else if (number === GRAPH.sparse && bytes) {
        this.#entry();
        this.#sparse(bytes);
      } else this.#entry(bytes);
    }
  }

  /** @param {Uint8Array} training */
  #training(training) {
    for (const { number, bytes } of fields(training)) {
      if (TRAINING_GRAPHS.includes(number) && bytes) this.#graph(bytes, this.#main, 0);
      else this.#entry(bytes);
    }
  }

  /** @param {Uint8Array} content */
  #function(content) {
    const body = new Body();
    let [domain, name, overload] = ["", "", ""];
    for (const { number, bytes } of fields(content)) {
      if (number === FUNCTION.node && bytes) {
        this.#node(bytes, body, 0);
        continue;
      }
      this.#entry(bytes);
      if (!bytes) continue;
      if (number === FUNCTION.attribute) this.#attribute(bytes, body, 0);
      else if (number === FUNCTION.output) body.lists.outputs.push(text(bytes));
      else if (number === FUNCTION.name) name = text(bytes);
      else if (number === FUNCTION.domain) domain = text(bytes);
      else if (number === FUNCTION.overload) overload = text(bytes);
    }
    const id = key(domain, name, overload);
    const known = this.#functions.get(id);
    if (known) known.add(body, 1); // the second of a name, which may be the one that counts
    else this.#functions.set(id, body);
  }

  /**
   * @param {Uint8Array} node
   * @param {Body} body
   * @param {number} depth
   */
  #node(node, body, depth) {
    body.nodes += 1;
    if (!depth) body.bytes += node.length; // the outer node has those of inner ones
    if (body.nodes > this.#mostNodes) throw tooManyNodes(body.nodes, this.#mostNodes);
    if (depth > 2) this.#nested += depth * (depth - 2);
    if (this.#nested > LIMITS.nested) {
      throw tooMuch("(weighed) nodes in graphs inside each other", this.#nested, LIMITS.nested);
    }
    /** @type {Uint8Array[]} */
    const reads = [];
    /** @type {Uint8Array[]} */
    const makes = [];
    let [domain, operator, overload, attributes, operands] = ["", "", "", 0, 0];
    for (const { number, bytes } of fields(node)) {
      if (number === NODE.attribute && bytes) {
        this.#attribute(bytes, body, depth);
        attributes += bytes.length;
        continue;
      }
      checkText(bytes);
      if (number === NODE.input || number === NODE.output) operands += 1;
      if (operands > LIMITS.of_one_node) {
        throw tooMuch("inputs and outputs of one node", operands, LIMITS.of_one_node);
      }
      if (!bytes) continue;
      if (number === NODE.input) reads.push(bytes);
      else if (number === NODE.output) makes.push(bytes);
      else if (number === NODE.operator) operator = text(bytes);
      else if (number === NODE.domain) domain = text(bytes);
      else if (number === NODE.overload) overload = text(bytes);
    }
    body.operands += operands;
    if (operator === "Einsum" && attributes > LIMITS.equation) {
      throw tooMuch("bytes of an Einsum's equation", attributes, LIMITS.equation);
    }
    const id = key(domain, operator, overload);
    body.calls.set(id, (body.calls.get(id) ?? 0) + 1);
    const isStandard = domain === "" || domain === "ai.onnx";
    if (isStandard && !CARRIERS.has(operator)) return;
    const step = { kind: isStandard ? operator : id, reads: reads.map(text) };
    for (const made of makes) body.lists.makers.set(text(made), step);
  }

  /**
   * @param {Uint8Array} attribute
   * @param {Body} body
   * @param {number} depth
   */
  #attribute(attribute, body, depth) {
    for (const { number, bytes } of fields(attribute)) {
      if (!bytes) continue;
      if (ATTRIBUTE.graphs.includes(number)) this.#graph(bytes, body, depth + 1);
      else if (ATTRIBUTE.tensors.includes(number)) this.#tensor(bytes);
      else if (ATTRIBUTE.sparse.includes(number)) this.#sparse(bytes);
    }
  }

  /** @param {Uint8Array} tensor */
  #tensor(tensor) {
    for (const location of tensorLocations(tensor)) this.locations.add(location);
  }

  /** @param {Uint8Array} sparse */
  #sparse(sparse) {
    for (const { number, bytes } of fields(sparse)) {
      if (SPARSE_TENSORS.includes(number) && bytes) this.#tensor(bytes);
    }
  }

  /** @param {Uint8Array} [content] */
  #entry(content) {
    checkText(content);
    this.#entries += 1;
    if (this.#entries > LIMITS.entries) {
      throw tooMuch("tensors, types and texts", this.#entries, LIMITS.entries);
    }
  }

  #checkExpanded() {
    const { whole } = this.#expand(this.#main, 0);
    let nodes = whole.nodes;
    for (const body of this.#functions.values()) nodes += body.nodes;
    if (nodes > this.#mostNodes) throw tooManyNodes(nodes, this.#mostNodes);
    if (whole.operands > LIMITS.operands) {
      throw tooMuch("inputs and outputs of nodes", whole.operands, LIMITS.operands);
    }
    const copied = whole.bytes - this.#main.bytes;
    if (copied > LIMITS.copied) throw tooMuch("bytes of expanded functions", copied, LIMITS.copied);
  }

  /**
   * A body with the functions that it calls in the place of the calls.
   * @param {Body} body
   * @param {number} depth
   */
  #expand(body, depth) {
    if (depth > LIMITS.depth) throw tooDeep(depth);
    const whole = new Body();
    let deepest = 0;
    whole.add(body, 1);
    for (const [id, count] of body.calls) {
      const callee = this.#functions.get(id);
      if (!callee) continue;
      const known = this.#expanded.get(id) ?? this.#expand(callee, depth + 1);
      this.#expanded.set(id, known);
      whole.add(known.whole, count);
      deepest = Math.max(deepest, known.inside + 1);
    }
    if (depth + deepest > LIMITS.depth) throw tooDeep(depth + deepest);
    return { whole, inside: deepest };
  }

  #checkLists() {
    /** @type {Map<string, number>} */
    const known = new Map();
    const growth = (/** @type {string} */ id) => {
      const found = known.get(id);
      if (found !== undefined) return found;
      known.set(id, 1);
      const made = this.#functions.get(id)?.lists.longest(growth) ?? 1;
      known.set(id, made);
      return made;
    };
    let total = this.#main.lists.total(growth);
    for (const body of this.#functions.values()) total += body.lists.total(growth);
    if (total > LIMITS.lists) {
      throw tooMuch("numbers in lists that are put together", total, LIMITS.lists);
    }
  }
}

/**
 * A name as text, of which each byte is a character: names are compared, not shown.
 * @param {Uint8Array} bytes
 */
function text(bytes) {
  checkText(bytes);
  let made = "";
  for (let at = 0; at < bytes.length; at += 4096) {
    made += String.fromCharCode(...bytes.subarray(at, at + 4096));
  }
  return made;
}

/**
 * @param {string} domain
 * @param {string} operator
 * @param {string} overload
 */
function key(domain, operator, overload) {
  return JSON.stringify([domain === "ai.onnx" ? "" : domain, operator, overload]);
}

/** The most nodes of a model: those of the limits, or those of the environment variable. */
function mostNodes() {
  const given = globalThis.process?.env?.[VARIABLE] ?? "";
  return /^\d+$/.test(given) ? Number(given) : LIMITS.nodes;
}

/** @param {Uint8Array} [content] */
function checkText(content) {
  if (content && content.length > LIMITS.text) {
    throw tooMuch("bytes of one text", content.length, LIMITS.text);
  }
}

/**
 * @param {number} count
 * @param {number} most
 */
function tooManyNodes(count, most) {
  const hint = `set ${VARIABLE} for a model that you trust`;
  return tooMuch("nodes, those of expanded functions counted", count, most, hint);
}

/** @param {number} count */
function tooDeep(count) {
  const hint = "a function that calls itself has no end";
  return tooMuch("functions that call each other", count, LIMITS.depth, hint);
}

/**
 * @param {string} what
 * @param {number} count
 * @param {number} most
 * @param {string} [hint]
 */
function tooMuch(what, count, most, hint) {
  const shown = count < 1e18 ? String(count) : count.toExponential(0);
  return new BundleError(`${shown} ${what}; ${most} are the most`, {
    hint: hint ?? "is the model damaged? if not, split it or export it in a simpler form",
  });
}
