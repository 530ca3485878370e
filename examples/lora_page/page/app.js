/** The page: what is pasted goes to the worker that has the model, what comes back is shown. */

import { Calls, download } from "./calls.js";
import { drawCurve } from "./curve.js";

const SHOWN = 400; // steps of the curve
const MOST = 64; // tokens of an answer
const SAMPLE = [
  ["who keeps the bridge at night", "the old miller keeps the bridge at night"],
  ["what does the bell mean", "the bell means that the river is rising"],
  ["where is the key", "the key is under the third stone"],
]
  .map(([user, assistant]) => ({
    messages: [
      { role: "user", content: user },
      { role: "assistant", content: assistant },
    ],
  }))
  .map((line) => JSON.stringify(line))
  .join("\n");

const at = (id) => document.getElementById(id);
const page = { losses: [], provider: null, adapter: null, isStopping: false };
const STOPPED = "stopped: load the model to go on";
let worker = null;

async function open() {
  const form = new FormData(at("model"));
  const provider = form.get("provider");
  worker?.end("the model is loaded anew");
  page.provider = null;
  worker = new Calls("worker.js", lost); // a new one has all its memory again
  const given = { provider, memory: form.get("limit") * 1e6, adapter: page.adapter };
  const hear = ({ progress }) => showProgress(progress);
  const facts = await working("loading the model …", async () => {
    const found = await worker.ask("open", given, hear);
    page.provider = provider;
    return found;
  });
  at("trained").textContent = `${(facts.numbers / 1e6).toFixed(2)} million`;
  at("threads").textContent = provider === "webgpu" ? "WebGPU" : facts.threads;
  at("isolation").hidden = facts.isIsolated;
  showMemory(facts);
  const next = page.adapter ? "training goes on from your adapter" : "paste examples, and train";
  say(`ready: ${next}`);
}

async function train() {
  const given = {
    lines: at("lines").value,
    rounds: Number(at("rounds").value),
    rate: Number(at("rate").value),
    longest: Number(at("longest").value),
  };
  const before = page.losses.length;
  const began = performance.now();
  const [adapter, hear] = [page.adapter, (news) => showStep(news, began)];
  const act = () => worker.ask("train", given, hear);
  const { isStopped } = await working("training: the first step …", act).catch((error) => {
    if (page.adapter === adapter || error.message === STOPPED) throw error;
    throw new Error(`${error.message} (the adapter so far is kept: download it, or go on)`);
  });
  say(`${isStopped ? "stopped" : "trained"}: ${page.losses.length - before} steps`);
}

async function ask() {
  const question = at("question").value.trim();
  if (!question) return say("write a question");
  for (const [place, isFirst] of [
    ["before", true],
    ["after", false],
  ]) {
    at(place).textContent = "…";
    const who = isFirst ? "the model as it was" : "the model with your adapter";
    const hear = ({ text }) => (at(place).textContent = text);
    const given = { question, most: MOST, isFirst };
    const answer = await working(`${who} answers …`, () => worker.ask("ask", given, hear));
    at(place).textContent = answer.text.trim() || "(nothing)";
    if (page.isStopping) return say("stopped");
    const speed = answer.tokens / answer.seconds;
    at(`${place}-speed`).textContent = answer.tokens ? `${speed.toFixed(1)} tokens/s` : "";
    showMemory(answer);
  }
  say("answered");
}

async function takeAway() {
  download(page.adapter ?? (await worker.ask("adapter")), "adapter.onnx_adapter");
  say("load it by RunOptions.add_active_adapter, or in onnxruntime-genai");
}

/** Ask for an end between two steps or tokens; at once where that was asked before, or cannot be. */
function stop() {
  if (page.isStopping || !page.provider) {
    worker.end(STOPPED);
    return lost(STOPPED);
  }
  page.isStopping = true;
  worker.ask("stop").catch(() => {}); // it is ended before it answers
  say("stops after this step or token; press Stop again to break it off …");
}

/** Say that the worker can answer no more. */
function lost(message) {
  page.provider = null;
  busy(false);
  say(message);
}

/** Do something that takes a while: what is said meanwhile has the seconds since then. */
async function working(text, act) {
  page.isStopping = false;
  busy(true);
  say(text);
  const began = performance.now();
  const clock = setInterval(() => {
    at("spent").textContent = duration(performance.now() - began);
  }, 1000);
  try {
    return await act();
  } finally {
    clearInterval(clock);
    for (const id of ["spent", "left"]) at(id).textContent = "";
    at("progress").hidden = true;
    busy(false);
  }
}

function showProgress({ loaded, total }) {
  at("progress").hidden = false;
  at("progress").max = total;
  at("progress").value = loaded;
  if (loaded === total) return say("opening the model …");
  say(`loading the model: ${(loaded / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB`);
}

function showStep({ adapter, cut, rows, step, steps, loss, speed, memory }, began) {
  if (adapter) {
    page.adapter = adapter;
    at("download").disabled = false;
    return;
  }
  if (cut !== undefined) {
    at("steps").textContent = `0 of ${steps}`;
    at("cut").hidden = !cut;
    at("cut").textContent = `${cut} of ${rows} conversations are cut to the tokens of a row.`;
    return;
  }
  page.losses.push(loss);
  const left = ((performance.now() - began) / step) * (steps - step);
  at("steps").textContent = `${step} of ${steps}`;
  at("loss").textContent = loss.toFixed(3);
  at(`speed-${page.provider}`).textContent = speed.toFixed(1);
  at("left").textContent = left < 1000 ? "–" : duration(left);
  showMemory({ memory });
  if (!page.isStopping) say(`training: ${step} of ${steps} steps`);
  showCurve();
}

function showMemory({ memory }) {
  at("memory").textContent = `${(memory / 1e6).toFixed(0)} MB`;
}

function duration(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  return seconds < 100 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

function showCurve() {
  const shown = page.losses.slice(-SHOWN);
  drawCurve(at("curve"), shown, page.losses.length - shown.length + 1);
}

function busy(isBusy) {
  at("open").disabled = isBusy;
  for (const id of ["train", "ask"]) at(id).disabled = isBusy || !page.provider;
  at("download").disabled = !page.adapter && (isBusy || !page.provider);
  at("stop").disabled = !isBusy;
  document.body.setAttribute("aria-busy", isBusy);
}

function say(text) {
  at("said").textContent = text;
}

function report(error) {
  if (error.message !== STOPPED) say(`that did not work: ${error.message}`);
}

const on = (id, act) =>
  at(id).addEventListener("submit", (event) => {
    event.preventDefault();
    act().catch(report);
  });
on("model", open);
on("examples", train);
on("compare", ask);
at("stop").addEventListener("click", stop);
at("download").addEventListener("click", () => takeAway().catch(report));
addEventListener("resize", showCurve);

at("lines").value = SAMPLE;
at("webgpu").disabled = !navigator.gpu;
at("isolation").hidden = crossOriginIsolated;
showCurve();
