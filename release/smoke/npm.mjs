/** The npm package: a bundle trains as recorded. `node npm.mjs VERSION CONFORMANCE WORK` */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import { NDArray, Trainer, fromSafetensors } from "flow2onnx-runtime";
import * as ort from "onnxruntime-node";

const [version, conformance, work] = process.argv.slice(2);
const own = createRequire(import.meta.url)("flow2onnx-runtime/package.json");
assert.equal(own.version, version);

const folder = `${conformance}/mlp`;
const trace = JSON.parse(await readFile(`${folder}/trace.json`, "utf8"));
const content = new Uint8Array(await readFile(`${folder}/feeds.safetensors`));
const { tensors: stacked } = fromSafetensors(content);
const trainer = await Trainer.open(`${folder}/bundle`, { ort });

function batch({ dtype, shape: [batches, ...shape], size, data }, number) {
  const each = size / batches;
  return new NDArray(dtype, shape, data.slice(number * each, (number + 1) * each));
}

let worst = 0;
for (const action of trace.actions.slice(0, 10)) {
  const given = trainer.feeds.map(({ name }) => [name, batch(stacked[name], action.batch)]);
  const results = await trainer.step(Object.fromEntries(given));
  for (const [name, wanted] of Object.entries(action.results)) {
    const found = results[name].toNumbers();
    wanted.forEach((value, i) => {
      worst = Math.max(worst, Math.abs(found[i] - value) / (1 + Math.abs(value)));
    });
  }
}
assert.ok(worst <= trace.tolerance, `losses are ${worst} from the recorded ones`);
await trainer.save(`${work}/state.safetensors`);
console.log(`10 steps within ${worst.toExponential(0)} of the trace, saved`);
