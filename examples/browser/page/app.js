/** The page: draws, reads, learns, and keeps what it has learnt in the browser. */

import * as ort from "./ort/ort.wasm.min.mjs";
import {
  NDArray,
  Trainer,
  fromSafetensors,
  indexedDBStore,
  toSafetensors,
} from "./flow2onnx-runtime/index.js";
import { drawCurve } from "./curve.js";
import { Pad, show } from "./drawing.js";

const PIXELS = 64;
const STEPS = 25; // for each drawing
const SHOWN = 200; // steps of the curve
const stateStore = indexedDBStore("digits/state");
const memoryStore = indexedDBStore("digits/drawings");
const at = (id) => document.getElementById(id);

/** What the page knows: the trainer, the person's drawings, the digits it goes on practising. */
const page = { trainer: null, digits: null, drawings: [], losses: [], firstSteps: 0, isBusy: true };

const pad = new Pad(at("pad"), () => read().catch(report));

async function start() {
  const load = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  page.trainer = await Trainer.open("bundle", { ort, finiteLosses: true });
  page.firstSteps = page.trainer.steps;
  page.digits = fromSafetensors(await load("digits.safetensors")).tensors;
  const isBack = await page.trainer.load(stateStore);
  const memory = await memoryStore.read();
  if (memory) remember(fromSafetensors(memory).tensors);
  buildLabels();
  buildBars();
  showFacts();
  busy(false);
  const again = `welcome back: ${page.drawings.length} of your drawings are remembered`;
  say(isBack ? again : "ready: it has seen other people's digits, none of yours");
}

function remember({ images, labels, losses }) {
  page.drawings = Array.from(labels.data, (label, i) => {
    return { label, image: images.data.slice(PIXELS * i, PIXELS * (i + 1)) };
  });
  page.losses = [...losses.data];
}

/** Keep the state and the drawings; each is whole or as it was. */
async function keep() {
  await page.trainer.save(stateStore);
  const count = page.drawings.length;
  const images = Float32Array.from(page.drawings.flatMap(({ image }) => [...image]));
  const labels = Int32Array.from(page.drawings, ({ label }) => label);
  const tensors = {
    images: new NDArray("float32", [count, PIXELS], images),
    labels: new NDArray("int32", [count], labels),
    losses: new NDArray("float32", [page.losses.length], Float32Array.from(page.losses)),
  };
  await memoryStore.write(await toSafetensors(tensors));
}

/** Read what is drawn, and show the probability of each digit. */
async function read() {
  at("teach").disabled = pad.isEmpty || page.isBusy;
  if (pad.isEmpty) return showAnswer(null);
  const image = pad.image();
  show(image, at("seen"));
  if (!page.trainer) return;
  const found = await page.trainer.predict({ image });
  showAnswer(Object.values(found)[0].toNumbers());
}

/** Learn that what is drawn is a `label`. */
async function teach(label) {
  if (pad.isEmpty || page.isBusy) return;
  page.drawings.push({ image: pad.image(), label });
  await practise(`learning that this is a ${label} …`);
  say(`learnt: this is a ${label}`);
}

async function practise(why) {
  busy(true);
  say(why);
  try {
    let spent = 0;
    for (let i = 0; i < STEPS; i++) spent += await oneStep();
    at("time").textContent = `${(spent / STEPS).toFixed(1)} ms`;
    await read();
    await keep();
  } finally {
    showFacts();
    busy(false);
  }
}

/** One step; the milliseconds it took. */
async function oneStep() {
  const began = performance.now();
  const results = await page.trainer.step(batch());
  const spent = performance.now() - began;
  const losses = Object.values(results)[0].toNumbers();
  page.losses.push(losses.reduce((sum, loss) => sum + loss, 0) / losses.length);
  page.losses = page.losses.slice(-SHOWN);
  showFacts();
  await new Promise(requestAnimationFrame); // let the page draw
  return spent;
}

/** Half of it the person's drawings, the last one first, half digits of others. */
function batch() {
  const [feed] = page.trainer.feeds;
  const size = feed.shape[0];
  const images = new Float32Array(size * PIXELS);
  const labels = new Int32Array(size);
  for (let i = 0; i < size; i++) {
    const own = page.drawings.length > 0 && i < size / 2;
    const { image, label } = own ? drawing(i) : digit();
    images.set(image, i * PIXELS);
    labels[i] = label;
  }
  return { images, labels };
}

function drawing(i) {
  const { drawings } = page;
  return i < 2 ? drawings.at(-1) : drawings[Math.floor(Math.random() * drawings.length)];
}

function digit() {
  const { images, labels } = page.digits;
  const i = Math.floor(Math.random() * labels.size);
  const pixels = images.data.subarray(PIXELS * i, PIXELS * (i + 1));
  return { image: Float32Array.from(pixels, (ink) => ink / 16), label: labels.data[i] };
}

async function forget() {
  busy(true);
  await stateStore.remove();
  await memoryStore.remove();
  location.reload();
}

async function download() {
  const content = await page.trainer.exportWeights();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = "digits.safetensors";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function buildLabels() {
  for (let label = 0; label < 10; label++) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.textContent = label;
    button.addEventListener("click", () => teach(label).catch(report));
    at("labels").append(button);
  }
}

function buildBars() {
  for (let label = 0; label < 10; label++) {
    const item = document.createElement("li");
    item.innerHTML = `<span aria-hidden="true">${label}</span>
      <span class="track"><span class="fill" style="display: block"></span></span>
      <span class="percent">–</span>`;
    at("bars").append(item);
  }
}

/** Show probabilities, or that there are none. */
function showAnswer(probabilities) {
  const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
  const percent = (p) => (p >= 0.9995 ? "100 %" : `${(100 * p).toFixed(1)} %`);
  at("digit").textContent = probabilities ? best : "?";
  at("digit").classList.toggle("none", !probabilities);
  at("sureness").textContent = probabilities
    ? `${percent(probabilities[best])} sure`
    : "nothing drawn yet";
  [...at("bars").children].forEach((item, i) => {
    item.classList.toggle("best", i === best);
    item.querySelector(".fill").style.width = probabilities ? `${100 * probabilities[i]}%` : "0";
    item.querySelector(".percent").textContent = probabilities ? percent(probabilities[i]) : "–";
  });
  if (!probabilities) at("seen").getContext("2d").clearRect(0, 0, 8, 8);
}

function showFacts() {
  const { losses, trainer, drawings, firstSteps } = page;
  const steps = trainer.steps - firstSteps;
  at("steps").textContent = steps;
  at("drawings").textContent = drawings.length;
  at("loss").textContent = losses.length ? losses.at(-1).toFixed(3) : "–";
  drawCurve(at("curve"), losses, Math.max(steps - losses.length + 1, 1));
}

function busy(isBusy) {
  page.isBusy = isBusy;
  at("teach").disabled = isBusy || pad.isEmpty;
  for (const id of ["practise", "download", "forget"]) at(id).disabled = isBusy;
  document.body.setAttribute("aria-busy", isBusy);
}

function say(text) {
  at("status").textContent = text;
}

function report(error) {
  console.error(error);
  say(`that did not work: ${error.message}`);
}

at("clear").addEventListener("click", () => pad.clear());
at("practise").addEventListener("click", () =>
  practise("practising …").then(() => say("practised"), report),
);
at("download").addEventListener("click", () => download().catch(report));
at("forget").addEventListener("click", () => forget().catch(report));
addEventListener("resize", () => page.trainer && showFacts());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape") pad.clear();
  if (/^[0-9]$/.test(event.key)) teach(Number(event.key)).catch(report);
});

start().catch(report);
