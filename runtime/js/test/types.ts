/** Uses of the package that have to be well typed, with both onnxruntime packages. */

import * as node from "onnxruntime-node";
import * as web from "onnxruntime-web";

import { NDArray, Options, Predictor, Trainer, fileStore, indexedDBStore } from "../src/index.js";
import type { Feeds, Ort, Results, Store } from "../src/index.js";

export async function uses(): Promise<void> {
  const packages: Ort[] = [node, web];
  const trainer = await Trainer.open("bundle", { ort: node, options: new Options({ threads: 1 }) });
  const feeds: Feeds = { images: new Float32Array(8), labels: new Int32Array(1) };
  const results: Results = await trainer.step(feeds);
  const loss: number = results["loss"].toNumbers()[0];
  await trainer.evaluate([new Float32Array(8), new NDArray("int64", [1], BigInt64Array.of(1n))]);
  await trainer.setLearningRate(loss > 0 ? 0.1 : null);
  const frozen: readonly string[] = await trainer.freeze("conv*");
  const stores: (string | Store)[] = ["file", fileStore("file"), indexedDBStore("key")];
  for (const store of stores) await trainer.save(store);
  const isLoaded: boolean = await trainer.load(await trainer.toBytes());
  const files: Map<string, Uint8Array> = await trainer.exportPredict({ folder: "out" });
  const predictor = await Predictor.open(files, { ort: web });
  const delta = await trainer.delta(await trainer.stateDict());
  await trainer.applyDelta(delta, 0.5);
  await predictor.many(
    { images: new NDArray("float32", [1, 8], new Float32Array(8)) },
    { batch: 1 },
  );
  // @ts-expect-error no array
  await trainer.step({ images: "picture" });
  // @ts-expect-error no runtime
  await Trainer.open("bundle", {});
  // @ts-expect-error no such option
  new Options({ speed: 1 });
  console.log(packages, frozen, isLoaded, trainer.steps + 1, trainer.learningRate ?? 0);
}
