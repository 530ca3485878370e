/** The model, in a thread of its own: opens, trains, answers, and gives the adapter back. */

import { NDArray, Options, Predictor, Trainer } from "./flow2onnx-runtime/index.js";
import { actThenEnd, answerBy, loadRuntime, threads } from "./answers.js";
import { limitMemory, memoryTaken } from "./memory.js";
import { Texts } from "./texts.js";

const KEPT = 10_000; // milliseconds between two copies of the adapter that the page keeps
const TOLERANCE = 1e-3; // of a loss on WebGPU beside that on the processor
const BUNDLE = new URL("bundle/", self.location.href);

let [trainer, options, texts, first, stopped, isSure] = [null, null, null, null, false, false];

const calls = {
  /** Open the bundle on a provider, to go on from an adapter; gives the facts that the page shows. */
  async open({ provider, memory, adapter }, tell) {
    limitMemory(memory);
    isSure = provider !== "webgpu";
    const ort = await loadRuntime(provider);
    texts = new Texts(await (await fetch("texts.json")).json());
    options = new Options({ provider, memory });
    const onProgress = (progress) => tell({ progress });
    trainer = await Trainer.open(BUNDLE, { ort, options, finiteLosses: true, onProgress });
    first = await trainer.stateDict();
    if (adapter) await trainer.loadAdapter(adapter);
    const trained = trainer.manifest.state.filter(({ role }) => role === "variable");
    const numbers = trained.reduce((sum, { shape }) => sum + shape[0] * shape[1], 0);
    const isIsolated = self.crossOriginIsolated;
    return { threads: threads(), numbers, isIsolated, memory: memoryTaken() };
  },

  /**
   * Train rounds of the lines; tells each step's loss, tokens a second and the memory, and now and
   * then, also where a step fails, the adapter so far.
   */
  async train({ lines, rounds, rate, longest }, tell) {
    stopped = false;
    const rows = texts.rows(lines, longest);
    const steps = rounds * rows.length;
    tell({ steps, cut: rows.filter(({ isCut }) => isCut).length, rows: rows.length });
    if (!isSure) await compare(rows);
    await trainer.setLearningRate(rate);
    const tellAdapter = async () => tell({ adapter: await trainer.exportAdapter() });
    await actThenEnd(() => takeSteps(rows, steps, tell, tellAdapter), tellAdapter);
    return { isStopped: stopped };
  },

  stop: async () => void (stopped = true),

  /** Answer a question by the model as it was at first or as it is now; tells the text so far. */
  async ask({ question, most, isFirst }, tell) {
    stopped = false;
    if (!isFirst) return answer(question, most, tell);
    return atFirst(() => answer(question, most, tell));
  },

  adapter: () => trainer.exportAdapter(),
};

/** Steps over the rows in turn, until all are done or stop comes in. */
async function takeSteps(rows, steps, tell, tellAdapter) {
  let [tokens, seconds, kept] = [0, 0, performance.now()];
  for (let i = 0; i < steps && !stopped; i++) {
    const { feeds, tokens: count } = rows[i % rows.length];
    const began = performance.now();
    const { loss } = await trainer.step(named(feeds));
    const spent = (performance.now() - began) / 1000;
    if (i > 0 || steps === 1) [tokens, seconds] = [tokens + count, seconds + spent];
    const speed = seconds ? tokens / seconds : count / spent;
    tell({ step: i + 1, steps, loss: loss.toNumbers()[0], speed, memory: memoryTaken() });
    if (performance.now() - kept > KEPT) {
      await tellAdapter();
      kept = performance.now();
    }
    await heard();
  }
}

/** Let a call of stop come in. */
function heard() {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Do something with the state that training began with. */
async function atFirst(act) {
  const now = await trainer.stateDict();
  await trainer.loadStateDict(first);
  return actThenEnd(act, () => trainer.loadStateDict(now));
}

/**
 * Throw where a GPU gives the longest row another loss than the processor: kernels and drivers have
 * faults, and an adapter that was trained by them is worth nothing.
 */
async function compare(rows) {
  const { feeds } = rows.reduce((a, b) => (b.tokens > a.tokens ? b : a));
  const predictor = await Predictor.open(BUNDLE, {
    ort: await loadRuntime("wasm"),
    options: new Options({ memory: options.memory }),
    job: "eval",
  });
  const act = () => predictor.predict(named(feeds));
  const [wanted] = (await actThenEnd(act, () => predictor.dispose())).loss.toNumbers();
  const [found] = (await atFirst(() => trainer.evaluate(named(feeds)))).loss.toNumbers();
  if (!(Math.abs(found - wanted) <= TOLERANCE * Math.abs(wanted))) {
    const [gpu, processor] = [found, wanted].map((loss) => loss.toFixed(4));
    throw new Error(
      `WebGPU gives a loss of ${gpu}, the processor ${processor}: a kernel of this browser, driver ` +
        "or onnxruntime-web is faulty. Compute on the processor",
    );
  }
  isSure = true;
}

async function answer(question, most, tell) {
  const job = trainer.manifest.predict.find((entry) => entry.job === "answer");
  const asked = texts.question(question);
  const ends = new Set(texts.ends);
  let past = {};
  for (const { name, shape, dtype } of job.feeds.filter(({ name }) => name.startsWith("past"))) {
    past[name] = none(dtype, [1, shape[1], 0, shape[3]]);
  }
  let ids = asked;
  const made = [];
  const began = performance.now();
  while (made.length < most && !stopped) {
    const length = asked.length + made.length;
    const found = await trainer.predict(
      { input_ids: whole(ids), attention_mask: whole(Array(length).fill(1)), ...past },
      { job: "answer" },
    );
    const next = best(found.logits);
    if (ends.has(next)) break;
    made.push(next);
    ids = [next];
    past = Object.fromEntries(
      Object.keys(past).map((name) => [name, found[name.replace("past_key_values", "present")]]),
    );
    tell({ text: texts.decode(made) });
    await heard();
  }
  const seconds = (performance.now() - began) / 1000;
  return { text: texts.decode(made), tokens: made.length, seconds, memory: memoryTaken() };
}

function none(dtype, shape) {
  return new NDArray(dtype, shape, new (dtype === "float16" ? Uint16Array : Float32Array)(0));
}

function whole(ids) {
  return new NDArray("int64", [1, ids.length], BigInt64Array.from(ids, BigInt));
}

function named(feeds) {
  const entries = Object.entries(feeds).map(([name, { dtype, shape, data }]) => {
    return [name, new NDArray(dtype, shape, data)];
  });
  return Object.fromEntries(entries);
}

/** The word with the highest score behind the last token. */
function best(logits) {
  const width = logits.shape[2];
  const numbers = logits.dtype === "float32" ? logits.data : logits.toNumbers();
  const scores = numbers.slice(-width);
  let at = 0;
  for (let i = 1; i < width; i++) if (scores[i] > scores[at]) at = i;
  return at;
}

answerBy(calls);
