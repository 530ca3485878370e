/**
 * How long the lists of sizes become that a model puts together. Runtimes carry the content of
 * shapes and other short lists from node to node while they open a model; a list that is put together with
 * itself 40 times has 10^12 numbers.
 */

const CONCAT = "Concat";
/** The operators that runtimes compute on lists that they know. */
export const CARRIERS = new Set([
  CONCAT, "Add", "Cast", "Div", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze",
]); // prettier-ignore

/** The nodes of a body that put lists together or carry them, by the names of what they make. */
export class ListSteps {
  /** @type {Map<string, {kind: string, reads: readonly string[]}>} */
  makers = new Map();
  /** @type {string[]} of a function */
  outputs = [];

  /**
   * The length of the longest output, where what is not made here is 1 long.
   * @param {(kind: string) => number} growth of a function: how many times longer its outputs are
   */
  longest(growth) {
    const found = this.#lengths(growth);
    return this.outputs.reduce((most, name) => Math.max(most, found.get(name) ?? 1), 1);
  }

  /**
   * The length of all lists that are put together here, or made longer by functions.
   * @param {(kind: string) => number} growth
   */
  total(growth) {
    let total = 0;
    for (const [name, length] of this.#lengths(growth)) {
      const kind = this.makers.get(name)?.kind ?? "";
      if (kind === CONCAT || growth(kind) > 1) total += length;
    }
    return total;
  }

  /** @param {(kind: string) => number} growth */
  #lengths(growth) {
    /** @type {Map<string, number>} */
    const found = new Map();
    for (const name of this.makers.keys()) {
      const todo = [name];
      while (todo.length) {
        const last = todo[todo.length - 1];
        const { kind, reads } = /** @type {{kind: string, reads: readonly string[]}} */ (
          this.makers.get(last)
        );
        if (!found.has(last)) found.set(last, 0); // while it is worked on: a circle ends here
        const missing = reads.filter((read) => this.makers.has(read) && !found.has(read));
        if (missing.length) {
          todo.push(...missing);
          continue;
        }
        const sizes = reads.map((read) => found.get(read) ?? 1);
        const sum = sizes.reduce((a, b) => a + b, 0);
        const most = sizes.reduce((a, b) => Math.max(a, b), sizes.length ? 0 : 1);
        found.set(last, Math.max(kind === CONCAT ? sum : most * growth(kind), 1));
        todo.pop();
      }
    }
    return found;
  }
}
