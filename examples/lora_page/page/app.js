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
const page = { losses: [], provider: null, isTraining: false };
const worker = new Calls("worker.js", say);

async function open() {
  const provider = new FormData(at("model")).get("provider");
  busy(true);
  say("loading the model …");
  try {
    const facts = await worker.ask("open", { provider }, ({ progress }) => showProgress(progress));
    page.provider = provider;
    at("progress").hidden = true;
    at("trained").textContent = `${(facts.numbers / 1e6).toFixed(2)} million`;
    at("threads").textContent = provider === "webgpu" ? "WebGPU" : facts.threads;
    at("isolation").hidden = facts.isIsolated;
    for (const id of ["train", "ask", "download"]) at(id).disabled = false;
    say("ready: paste examples, and train");
  } finally {
    busy(false);
  }
}

async function train() {
  page.isTraining = true;
  busy(true);
  at("stop").disabled = false;
  say("training …");
  const given = {
    lines: at("lines").value,
    rounds: Number(at("rounds").value),
    rate: Number(at("rate").value),
  };
  const began = performance.now();
  try {
    await worker.ask("train", given, (news) => showStep(news, began));
    say(`trained: ${page.losses.length} steps`);
  } finally {
    page.isTraining = false;
    at("stop").disabled = true;
    busy(false);
  }
}

async function ask() {
  const question = at("question").value.trim();
  if (!question) return say("write a question");
  busy(true);
  try {
    for (const [place, isFirst] of [
      ["before", true],
      ["after", false],
    ]) {
      at(place).textContent = "…";
      say(isFirst ? "the model as it was answers …" : "the model with your adapter answers …");
      const hear = ({ text }) => (at(place).textContent = text);
      const { text, tokens, seconds } = await worker.ask("ask", { question, most: MOST, isFirst }, hear);
      at(place).textContent = text.trim() || "(nothing)";
      at(`${place}-speed`).textContent = `${(tokens / seconds).toFixed(1)} tokens/s`;
    }
    say("answered");
  } finally {
    busy(false);
  }
}

async function takeAway() {
  download(await worker.ask("adapter"), "adapter.onnx_adapter");
  say("load it by RunOptions.add_active_adapter, or in onnxruntime-genai");
}

function showProgress({ loaded, total }) {
  at("progress").hidden = false;
  at("progress").max = total;
  at("progress").value = loaded;
  say(`loading the model: ${(loaded / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB`);
}

function showStep({ step, steps, loss, speed }, began) {
  page.losses.push(loss);
  const left = ((performance.now() - began) / step) * (steps - step);
  at("steps").textContent = `${step} of ${steps}`;
  at("loss").textContent = loss.toFixed(3);
  at(`speed-${page.provider}`).textContent = speed.toFixed(1);
  at("left").textContent = left < 1000 ? "–" : `${Math.round(left / 1000)} s`;
  showCurve();
}

function showCurve() {
  const shown = page.losses.slice(-SHOWN);
  drawCurve(at("curve"), shown, page.losses.length - shown.length + 1);
}

function busy(isBusy) {
  for (const id of ["open", "train", "ask", "download"]) {
    at(id).disabled = isBusy || (id !== "open" && !page.provider);
  }
  document.body.setAttribute("aria-busy", isBusy);
}

function say(text) {
  at("status").textContent = text;
}

function report(error) {
  say(`that did not work: ${error.message}`);
}

const on = (id, act) =>
  at(id).addEventListener("submit", (event) => {
    event.preventDefault();
    act().catch(report);
  });
on("model", open);
on("examples", train);
on("compare", ask);
at("stop").addEventListener("click", () => worker.ask("stop"));
at("download").addEventListener("click", () => takeAway().catch(report));
addEventListener("resize", showCurve);

at("lines").value = SAMPLE;
at("webgpu").disabled = !navigator.gpu;
at("isolation").hidden = crossOriginIsolated;
showCurve();
