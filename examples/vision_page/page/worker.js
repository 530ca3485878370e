/** The network, in a thread of its own: opens, trains, judges, and gives back what it has learnt. */

import { Options, Predictor, Trainer } from "./flow2onnx-runtime/index.js";
import { actThenEnd, answerBy, loadRuntime, threads } from "./answers.js";
import { best, divide, feeds, shuffled, softmax } from "./batches.js";

const TOLERANCE = 1e-2; // of scores on WebGPU beside those on the processor
const FORMAT = "flow2onnx-vision";
// A session is refused if one of its nodes would be left to the processor.
const ON_GPU_ALONE = { extra: { session: { disable_cpu_ep_fallback: "1" } } };

let [settings, trainer, first, opened, stopped] = [null, null, null, null, false];

const calls = {
  /** What the site was built for; throws for a site of another kind. */
  async settings() {
    const answer = await fetch("vision.json");
    settings = answer.ok ? await answer.json().catch(() => null) : null;
    if (settings?.format !== FORMAT) {
      throw new Error("vision.json is missing or of something else: build the site again");
    }
    return settings;
  },

  /** Open a bundle on a provider, with what was learnt so far; gives facts to be shown. */
  async open({ provider, depth }, tell) {
    if (opened?.provider === provider && opened.depth === depth) return opened;
    const ort = await loadRuntime(provider);
    const onProgress = (progress) => tell({ progress });
    const { made, isOnGpuAlone } = await openTrainer(ort, provider, depth, onProgress);
    try {
      checkFeeds(made);
      const start = await made.stateDict();
      if (provider === "webgpu") await compare(made, depth);
      await carryOver(made, start);
      await trainer?.dispose();
      [trainer, first] = [made, start];
    } catch (error) {
      await made.dispose().catch(() => {}); // what failed first is what the page shows
      throw error;
    }
    opened = { provider, depth, threads: threads(), isOnGpuAlone };
    return opened;
  },

  /** Train for some rounds; tells the loss, accuracy and speed of each step, and what is held back. */
  async train({ pictures, labels, count, rounds, rate }, tell) {
    stopped = false;
    await trainer.setLearningRate(rate);
    const { learnt, held } = divide(labels);
    const { batch } = settings;
    const perRound = Math.ceil(learnt.length / batch);
    const steps = rounds * perRound;
    const clock = { steps: 0, seconds: 0 };
    for (let step = 1, places = []; step <= steps && !stopped; step++) {
      if (places.length < batch) places.push(...filled(learnt, batch));
      const now = places.splice(0, batch);
      const given = feeds(settings, pictures, labels, now, count, true);
      const { loss, scores, seconds } = await timed(() => trainer.step(given));
      if (step > 1 || steps === 1) Object.assign(clock, add(clock, seconds));
      const right = rightOf(scores, labels, now, count);
      tell({ step, steps, loss, accuracy: right / now.length, speed: clock.steps / clock.seconds });
      if (step % perRound === 0 && held.length) {
        tell({ step, held: await judge(pictures, labels, held, count) });
      }
      await new Promise((resolve) => setTimeout(resolve)); // let a stop come in
    }
    return { steps: trainer.steps };
  },

  stop: async () => void (stopped = true),

  /** The share of each class that a picture has. */
  async judge({ picture, count }) {
    const given = feeds(settings, picture, null, [0], count, false);
    if (opened.provider === "webgpu") {
      // The step is open on the GPU with its state; another model would take its memory again.
      given.targets[0] = 1;
      return softmax((await trainer.evaluate(given))[settings.scores].toNumbers(), count);
    }
    const image = given[settings.input].subarray(0, picture.length);
    const found = await trainer.predict({ [settings.input]: image });
    return softmax(found[settings.output].toNumbers(), count);
  },

  state: () => trainer.toBytes(),
  weights: () => trainer.exportWeights(),
  model: () => trainer.exportPredict(),
  reset: async () => trainer?.loadStateDict(first),

  /** Go on from a saved state; throws and changes nothing for one of another network. */
  restore: ({ state }) => trainer.load(state),
};

/** A trainer on the provider, and whether a GPU computes every node of its step. */
async function openTrainer(ort, provider, depth, onProgress) {
  const open = (session) => {
    const options = new Options({ provider, session });
    const bundle = new URL(`${depth}/`, self.location.href);
    return Trainer.open(bundle, { ort, options, finiteLosses: true, onProgress });
  };
  if (provider !== "webgpu") return { made: await open({}), isOnGpuAlone: false };
  try {
    return { made: await open(ON_GPU_ALONE), isOnGpuAlone: true };
  } catch (error) {
    if (!/fallback to CPU EP/.test(error.message)) throw error;
    return { made: await open({}), isOnGpuAlone: false };
  }
}

function checkFeeds({ feeds: have, results, manifest }) {
  const names = new Set(have.map(({ name }) => name));
  const wanted = [settings.input, "targets", "used"];
  const isOurs = wanted.every((name) => names.has(name)) && names.size === wanted.length;
  if (!isOurs || !results.some(({ name }) => name === settings.scores) || !manifest.predict.length) {
    throw new Error(
      `the bundle takes ${[...names].join(", ")}: it is not one for this page. Build the site by ` +
        "python -m examples.vision_page",
    );
  }
}

/** Give a trainer the weights that the one before has learnt, where both have them. */
async function carryOver(made, start) {
  if (!trainer) return;
  const learnt = await trainer.stateDict();
  const isSame = (name) => learnt[name] && String(learnt[name].shape) === String(start[name].shape);
  const variables = made.manifest.state.filter(({ role, name }) => role === "variable" && isSame(name));
  const values = Object.fromEntries(variables.map(({ name }) => [name, learnt[name]]));
  await made.loadStateDict({ ...start, ...values });
}

/**
 * Throw where a GPU gives other scores than the processor: kernels and drivers have faults, and
 * what was learnt by them is worth nothing.
 */
async function compare(made, depth) {
  const { size, input, output, classes } = settings;
  const picture = Uint8Array.from({ length: size * size * 3 }, (_, i) => 127 + 120 * Math.sin(i * 0.37));
  const given = feeds(settings, picture, [0], [0], classes, false);
  const found = (await made.evaluate(given))[settings.scores].toNumbers().slice(0, classes);
  const ort = await loadRuntime("wasm");
  const predictor = await Predictor.open(new URL(`${depth}/`, self.location.href), { ort });
  const image = given[input].subarray(0, picture.length);
  const act = () => predictor.predict({ [input]: image });
  const wanted = (await actThenEnd(act, () => predictor.dispose()))[output].toNumbers();
  const scale = Math.max(...wanted.map(Math.abs), 1e-3);
  const worst = Math.max(...wanted.map((value, i) => Math.abs(value - found[i])));
  if (!(worst <= TOLERANCE * scale)) {
    throw new Error(
      `WebGPU gives scores ${worst.toPrecision(2)} off the processor's: a kernel of this browser, ` +
        "driver or onnxruntime-web is faulty. Compute on the processor",
    );
  }
}

/** The places in random order, again and again until there is a batch. */
function filled(places, batch) {
  const all = shuffled(places);
  while (all.length < batch) all.push(...shuffled(places));
  return all;
}

async function timed(act) {
  const began = performance.now();
  const { loss, [settings.scores]: scores } = await act();
  const seconds = (performance.now() - began) / 1000;
  return { loss: loss.toNumbers()[0], scores: scores.toNumbers(), seconds };
}

function add(clock, seconds) {
  return { steps: clock.steps + 1, seconds: clock.seconds + seconds };
}

function rightOf(scores, labels, places, count) {
  const { classes } = settings;
  return places.filter((place, row) => best(scores, row, classes, count) === labels[place]).length;
}

/** The share of the pictures at `places` that are given their class. */
async function judge(pictures, labels, places, count) {
  let right = 0;
  for (let start = 0; start < places.length; start += settings.batch) {
    const now = places.slice(start, start + settings.batch);
    const found = await trainer.evaluate(feeds(settings, pictures, labels, now, count, false));
    right += rightOf(found[settings.scores].toNumbers(), labels, now, count);
  }
  return right / places.length;
}

answerBy(calls);
