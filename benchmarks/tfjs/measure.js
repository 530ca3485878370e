/** Blocks of steps of both sides by turns, in the page: losses first, then times. */

import { Options, Trainer, fromSafetensors } from "../../runtime/js/src/index.js";
import { networkOf } from "./network.js";

const RUNTIME = "../../runtime/js/node_modules/onnxruntime-web/dist/";
const MODULES = "./node_modules/@tensorflow/";
const TOLERANCE = 1e-3; // of a loss, before a peer is timed
const CHECKED = 3;

/**
 * Milliseconds of each step of both, in blocks; or, for a peer that cannot do it, its own words.
 * `provider` is ours, `backend` that of TensorFlow.js; `depth` says what is trained.
 */
export async function measured({ folder, depth, provider, backend, blocks, steps, threads }) {
  const load = async (name) => (await fetch(`${folder}/${name}`)).arrayBuffer();
  const decode = (content) => JSON.parse(new TextDecoder().decode(content));
  const network = decode(await load("network.json"));
  const { tensors } = fromSafetensors(new Uint8Array(await load("network.safetensors")));
  const feeds = given(network);
  const ours = await ourSide(`${folder}/${depth}`, provider, threads);
  const found = { ours: [], theirs: [], losses: [], problem: null };
  const timed = async (side, count) => {
    const spent = [];
    for (let i = 0; i < count; i++) {
      const began = performance.now();
      await side.step(feeds);
      spent.push(performance.now() - began);
    }
    return spent;
  };
  let theirs = null;
  try {
    theirs = await theirSide(network, tensors, backend, network.trained[depth], threads);
    for (let i = 0; i < CHECKED; i++) {
      const losses = [await ours.step(feeds), await theirs.step(feeds)];
      found.losses.push(losses);
      if (!(Math.abs(losses[0] - losses[1]) <= TOLERANCE * Math.abs(losses[0]))) {
        throw new Error(`its loss is ${losses[1]}, ours ${losses[0]}, in step ${i + 1}`);
      }
    }
  } catch (error) {
    found.problem = error.message;
    theirs = null;
    await timed(ours, 1);
  }
  for (let block = 0; block < blocks; block++) {
    found.ours.push(await timed(ours, steps));
    if (theirs) found.theirs.push(await timed(theirs, steps));
  }
  return found;
}

async function ourSide(bundle, provider, threads) {
  const ort = await import(`${RUNTIME}ort.${provider}.min.mjs`);
  ort.env.wasm.numThreads = threads;
  const session =
    provider === "webgpu" ? { extra: { session: { disable_cpu_ep_fallback: "1" } } } : {};
  const options = new Options({ provider, session });
  const trainer = await Trainer.open(new URL(bundle, location.href), { ort, options });
  return { step: async (feeds) => (await trainer.step(feeds)).loss.data[0] };
}

async function theirSide(network, tensors, backend, trained, threads) {
  const { tf } = globalThis;
  if (backend === "wasm") {
    tf.wasm.setWasmPaths(new URL(`${MODULES}tfjs-backend-wasm/dist/`, import.meta.url).href);
    tf.wasm.setThreadsCount(threads);
  }
  if (!(await tf.setBackend(backend))) throw new Error(`backend ${backend} does not start`);
  await tf.ready();
  return networkOf(tf, network, tensors, trained);
}

/** One batch, the same for both: waves, and classes in turn. */
function given({ shape, classes }) {
  const size = shape.reduce((a, b) => a * b, 1);
  const targets = new Float32Array(shape[0] * classes);
  for (let i = 0; i < shape[0]; i++) targets[i * classes + (i % 3)] = 1;
  return {
    images: Float32Array.from({ length: size }, (_, i) => 0.5 + 0.5 * Math.sin(i * 0.37)),
    targets,
    used: Float32Array.from({ length: classes }, (_, i) => Number(i < 3)),
  };
}
