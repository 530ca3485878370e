/**
 * A process of its own that trains and answers, so that neither window nor main process waits. Each
 * message is a number, a method and what it is given; the answer has the same number.
 */

import * as ort from "onnxruntime-node";
import { fileStore } from "flow2onnx-runtime";
import { join } from "node:path";
import { PersonalDigits } from "../web/personal_digits.js";

const METHODS = ["collect", "train", "predict", "steps"];
const [bundle, folder] = process.argv.slice(2);
const opening = PersonalDigits.open({
  bundle,
  ort,
  shown: fileStore(join(folder, "shown.safetensors")),
  state: fileStore(join(folder, "state.safetensors")),
});

async function answer({ method, given = [] }) {
  if (!METHODS.includes(method)) throw new Error(`there is no method ${method}`);
  const digits = await opening;
  return method === "steps" ? digits.steps : digits[method](...given);
}

async function receive({ number, ...request }, send) {
  try {
    send({ number, result: await answer(request) });
  } catch (error) {
    send({ number, error: String(error.message) });
  }
}

// Electron's utility processes have a parent port; a plain child process of Node has itself.
const port = process.parentPort;
if (port) port.on("message", ({ data }) => receive(data, (message) => port.postMessage(message)));
else process.on("message", (data) => receive(data, (message) => process.send(message)));
