/** Calls of a page on its worker: one message asks, others tell news, the last has the result. */

/** A worker that answers calls by name; `ended` is told when it can answer no more. */
export class Calls {
  #worker;
  #waiting = new Map();
  #count = 0;

  constructor(file, ended) {
    this.#worker = new Worker(file, { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#hear(data);
    this.#worker.onerror = (event) => {
      const error = new Error(`the worker ended: ${event.message ?? "load the page again"}`);
      this.#refuse(error);
      ended(error.message);
    };
  }

  /** End the worker at once, whatever it does: its calls fail with `message`. */
  end(message) {
    this.#worker.terminate();
    this.#refuse(new Error(message));
  }

  /** Ask the worker; `hear` gets what it tells before it is done. */
  ask(name, given = {}, hear = () => {}) {
    this.#count += 1;
    this.#worker.postMessage({ id: this.#count, name, given });
    return new Promise((resolve, reject) => this.#waiting.set(this.#count, { resolve, reject, hear }));
  }

  #refuse(error) {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  #hear({ id, news, result, error }) {
    const call = this.#waiting.get(id);
    if (!call) return;
    if (news) return call.hear(news);
    this.#waiting.delete(id);
    if (error === undefined) call.resolve(result);
    else call.reject(new Error(error));
  }
}

/** Hand a file to the person: bytes or a Blob, under a name. */
export function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
