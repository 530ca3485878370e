/**
 * A model of digits that learns the hand of the device's owner, in a page, in Electron and in React
 * Native: what differs between them is given to `open`.
 */

import { NDArray, Trainer, fromSafetensors, toSafetensors } from "flow2onnx-runtime";

const BATCH = 16;
const PIXELS = 8 * 8;
const MOST = 1024; // examples that are kept, the latest

export class PersonalDigits {
  #trainer;
  #shown; // where the examples are kept
  #state; // where what was learnt is kept
  #images = [];
  #labels = [];

  constructor(trainer, shown, state) {
    this.#trainer = trainer;
    this.#shown = shown;
    this.#state = state;
  }

  /**
   * `bundle`: a folder, an address, or a map of files; `ort`: the onnxruntime package; `shown` and
   * `state`: places with read() and write(bytes), such as fileStore and indexedDBStore make.
   */
  static async open({ bundle, ort, shown, state }) {
    const digits = new PersonalDigits(await Trainer.open(bundle, { ort }), shown, state);
    await digits.#trainer.load(state);
    const earlier = await shown.read();
    if (earlier) digits.#remember(fromSafetensors(earlier).tensors);
    return digits;
  }

  #remember({ images, labels }) {
    this.#labels = [...labels.data];
    this.#images = this.#labels.map((_, i) => images.data.slice(PIXELS * i, PIXELS * (i + 1)));
  }

  /** The steps made so far. */
  get steps() {
    return this.#trainer.steps;
  }

  /** Remember an image, 64 numbers from 0 to 1 row by row, and the digit that it shows. */
  collect(pixels, digit) {
    this.#images.push(Float32Array.from(pixels));
    this.#labels.push(digit);
    const surplus = Math.max(0, this.#labels.length - MOST);
    this.#images.splice(0, surplus);
    this.#labels.splice(0, surplus);
  }

  /**
   * Learn all examples so often, and save; the mean loss of the last time, or undefined without a
   * full batch. `signal` ends it between two steps, and what was learnt until then is kept.
   */
  async train(times, signal) {
    let loss;
    const batches = Math.floor(this.#labels.length / BATCH);
    for (let time = 0; time < times && batches > 0 && !signal?.aborted; time++) {
      loss = 0;
      for (let batch = 0; batch < batches && !signal?.aborted; batch++) {
        loss += (await this.#step(BATCH * batch)) / batches;
      }
    }
    await this.#keep();
    return loss;
  }

  async #step(first) {
    const chosen = this.#images.slice(first, first + BATCH).flatMap((image) => [...image]);
    const images = new NDArray("float32", [BATCH, 1, 8, 8], Float32Array.from(chosen));
    const labels = Int32Array.from(this.#labels.slice(first, first + BATCH));
    const [loss] = Object.values(await this.#trainer.step({ images, labels }));
    return loss.toNumbers().reduce((sum, one) => sum + one, 0) / BATCH;
  }

  /** Write what was shown and what was learnt, each whole or not at all. */
  async #keep() {
    const pixels = Float32Array.from(this.#images.flatMap((image) => [...image]));
    const count = this.#labels.length;
    const tensors = {
      images: new NDArray("float32", [count, PIXELS], pixels),
      labels: new NDArray("int32", [count], Int32Array.from(this.#labels)),
    };
    await this.#shown.write(await toSafetensors(tensors));
    await this.#trainer.save(this.#state);
  }

  /** The digit that an image shows. */
  async predict(pixels) {
    const image = new NDArray("float32", [1, 1, 8, 8], Float32Array.from(pixels));
    const [chances] = Object.values(await this.#trainer.predict({ image }));
    const numbers = chances.toNumbers();
    return numbers.indexOf(Math.max(...numbers));
  }

  /** Give back the memory. */
  async dispose() {
    await this.#trainer.dispose();
  }
}
