/** A client of a federated round in a page of Chromium, with WebAssembly.
 *
 * node browser.mjs FEEDS FIRST COUNT BUNDLE GIVEN LEARNT: loads a state, trains on so many batches
 * of a file of stacked feeds, saves the state. All paths are in the repository but the last two.
 */

import { readFile, writeFile } from "node:fs/promises";
import { relative } from "node:path";

import { withPage } from "../../../runtime/js/test/browser/chromium.js";
import { ROOT } from "../../../runtime/js/test/folders.js";

const [feeds, first, count, bundle, given, learnt] = process.argv.slice(2);

/** In the page: from the bytes of a state to those of the next, with the number of rows. */
async function learn({ feeds, first, count, bundle, state }) {
  const { NDArray, Options, Trainer, fromSafetensors } = await import("/runtime/js/src/index.js");
  const ort = await import("/runtime/js/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
  const content = await (await fetch(feeds)).arrayBuffer();
  const { tensors } = fromSafetensors(new Uint8Array(content));
  const trainer = await Trainer.open(bundle, { ort, options: new Options({ provider: "wasm" }) });
  await trainer.load(Uint8Array.from(state));
  let rows = 0;
  for (let number = first; number < first + count; number += 1) {
    const batch = trainer.feeds.map(({ name }) => {
      const { dtype, shape, size, data } = tensors[name];
      const each = size / shape[0];
      const part = data.slice(number * each, (number + 1) * each);
      return [name, new NDArray(dtype, shape.slice(1), part)];
    });
    await trainer.step(Object.fromEntries(batch));
    rows += batch[0][1].shape[0];
  }
  return { state: Array.from(await trainer.toBytes()), rows };
}

const found = await withPage(async (page) =>
  page.evaluate(learn, {
    feeds: `/${relative(ROOT, feeds)}`,
    bundle: `/${relative(ROOT, bundle)}`,
    first: Number(first),
    count: Number(count),
    state: Array.from(await readFile(given)),
  }),
);
await writeFile(learnt, Uint8Array.from(found.state));
console.log(JSON.stringify({ examples: found.rows }));
