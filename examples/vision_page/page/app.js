/** The page: pictures go to the worker that has the network, what comes back is shown. */

import { Calls, download } from "./calls.js";
import { Camera } from "./camera.js";
import { Classes } from "./classes.js";
import { drawChart } from "./curve.js";
import { indexedDBStore } from "./flow2onnx-runtime/index.js";
import { frame, paint, readPicture } from "./pictures.js";
import { packed, unpacked } from "./project.js";
import { archive } from "./tar.js";

const SHOWN = 400; // steps of the curves
const HEIGHT = 150; // of the curves, in pixels
const RECORDED = 125; // milliseconds between pictures of the camera
const KEPT = 1000; // milliseconds after the last change
const LARGEST_PROJECT = 2e9; // bytes, which a page can read at once
const store = indexedDBStore("vision/project");
const at = (id) => document.getElementById(id);
const worker = new Calls("worker.js", say);
const camera = new Camera(at("video"));
const page = { settings: null, classes: null, state: null, isTrained: false, isBusy: true };
const curves = { losses: [], accuracies: [], held: [] };
let [recording, keeping, isLive] = [null, null, false];

async function start() {
  page.settings = await worker.ask("settings");
  const { size, classes: most, bundles } = page.settings;
  for (const option of at("depth").options) option.disabled = !bundles.includes(option.value);
  const acts = { changed, say, files: tried(addFiles), record: tried(record), rest };
  page.classes = new Classes(at("classes"), { size, most, acts });
  Object.assign(at("seen"), { width: size, height: size });
  const isBack = await restoreKept();
  if (!isBack) for (let i = 0; i < 2; i++) page.classes.add();
  await showMachine();
  busy(false);
  say(isBack ? "welcome back: your pictures are still here" : "ready: name the classes, and show pictures");
}

/** Say what this browser computes on, and what it lacks. */
async function showMachine() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  at("provider").querySelector("[value=webgpu]").disabled = !adapter;
  if (adapter) at("provider").value = "webgpu";
  const notes = [
    adapter ? "" : "This browser has no WebGPU here: the processor computes.",
    crossOriginIsolated
      ? ""
      : "One thread only: serve the page with Cross-Origin-Opener-Policy: same-origin and " +
        "Cross-Origin-Embedder-Policy: require-corp for more.",
  ];
  at("compute-note").textContent = notes.join(" ").trim();
}

async function addFiles(index, files) {
  const troubles = [];
  let count = 0;
  for (const file of files) {
    try {
      if (!page.classes.show(index, await readPicture(file, page.settings.size))) return;
      count += 1;
    } catch (error) {
      troubles.push(error.message);
    }
  }
  const more = troubles.length > 1 ? ` (and ${troubles.length - 1} more)` : "";
  const added = count === 1 ? "1 picture added" : `${count} pictures added`;
  say(troubles.length ? `${added}; ${troubles[0]}${more}` : added);
}

async function turnCamera() {
  if (camera.isOn) {
    isLive = false;
    camera.close();
  } else {
    await camera.open();
  }
  showCamera();
}

function showCamera() {
  at("view").hidden = !camera.isOn;
  at("camera").textContent = camera.isOn ? "Turn the camera off" : "Turn the camera on";
  at("camera").setAttribute("aria-pressed", camera.isOn);
  at("live").setAttribute("aria-pressed", isLive);
}

/** Take pictures of a class until `rest`. */
async function record(index) {
  if (recording) return;
  recording = { index, timer: setInterval(() => take(index), RECORDED) };
  await camera.open().catch((error) => {
    rest(index);
    throw error;
  });
  showCamera();
  take(index);
}

function take(index) {
  if (!recording || !camera.isOn || !at("video").videoWidth) return;
  if (!page.classes.show(index, frame(at("video"), page.settings.size))) rest(index);
}

/** End what `record` began with this class; another button's end is not its own. */
function rest(index) {
  if (recording?.index !== index) return;
  clearInterval(recording.timer);
  recording = null;
}

/** Open the network as it is asked for; what was learnt so far goes on. */
async function open() {
  const given = { provider: at("provider").value, depth: at("depth").value };
  const hear = ({ progress: { loaded, total } }) => {
    Object.assign(at("progress"), { hidden: false, max: total, value: loaded });
    say(`loading the network: ${(loaded / 1e6).toFixed(0)} of ${(total / 1e6).toFixed(0)} MB`);
  };
  try {
    const { provider, threads, isOnGpuAlone } = await worker.ask("open", given, hear);
    const gpu = isOnGpuAlone ? "the GPU alone" : "GPU and processor";
    const wasm = threads === 1 ? "the processor" : `the processor, ${threads} threads`;
    at("where").textContent = provider === "webgpu" ? gpu : wasm;
  } finally {
    at("progress").hidden = true;
  }
  if (page.state) {
    await worker.ask("restore", { state: page.state });
    page.state = null;
  }
}

async function train() {
  const { classes } = page;
  if (classes.trouble) return say(classes.trouble);
  busy(true);
  say("opening the network …");
  try {
    await open();
    at("stop").disabled = false;
    say("training …");
    const count = classes.names.length;
    const given = { ...classes.data, count, rounds: numberOf("rounds"), rate: numberOf("rate") };
    await worker.ask("train", given, showNews);
    page.isTrained = true;
    say(`trained: ${curves.losses.length} steps. Try it on the right pictures, and on wrong ones`);
    await keep();
  } finally {
    at("stop").disabled = true;
    busy(false);
  }
}

function numberOf(id) {
  return Number(at(id).value);
}

function showNews({ step, steps, loss, accuracy, speed, held }) {
  if (held !== undefined) {
    curves.held.push({ step: curves.losses.length, value: held });
    at("held").textContent = percent(held);
  } else {
    curves.losses.push(loss);
    curves.accuracies.push(accuracy);
    at("steps").textContent = `${step} of ${steps}`;
    at("loss").textContent = loss.toFixed(3);
    at("speed").textContent = Number.isFinite(speed) ? speed.toPrecision(3) : "–";
  }
  showCurves();
}

function showCurves() {
  const first = Math.max(curves.losses.length - SHOWN, 0) + 1;
  const losses = { values: curves.losses.slice(first - 1), what: "loss", unit: "nats" };
  drawChart(at("loss-curve"), { ...losses, first, height: HEIGHT });
  const marks = curves.held.filter(({ step }) => step >= first);
  const values = curves.accuracies.slice(first - 1);
  const chart = { values, first, marks, height: HEIGHT, what: "accuracy", unit: "%, dots: held back", most: 1 };
  drawChart(at("accuracy-curve"), { ...chart, percent: true });
}

/** Show the share of each class in a picture. */
async function judge(picture) {
  await open();
  paint(at("seen"), picture, page.settings.size);
  const { names } = page.classes;
  const shares = await worker.ask("judge", { picture, count: names.length });
  const best = shares.indexOf(Math.max(...shares));
  at("answer").textContent = names[best];
  at("shares").replaceChildren(...names.map((name, i) => row(name, shares[i])));
}

function row(name, share) {
  const item = document.createElement("li");
  item.innerHTML = `<span class="name"></span><meter max="1"></meter><span class="percent"></span>`;
  item.children[0].textContent = name;
  item.children[1].value = share;
  item.children[2].textContent = percent(share);
  return item;
}

function percent(share) {
  return `${(100 * share).toFixed(share > 0.9995 || share === 0 ? 0 : 1)} %`;
}

/** Judge what the camera sees, picture after picture, until it is turned off. */
async function live() {
  isLive = !isLive;
  if (isLive) await camera.open().catch((error) => ((isLive = false), Promise.reject(error)));
  showCamera();
  while (isLive && camera.isOn && !page.isBusy) {
    await judge(frame(at("video"), page.settings.size));
    await new Promise(requestAnimationFrame);
  }
  isLive = false;
  showCamera();
}

async function probe() {
  const [file] = at("probe").files;
  at("probe").value = "";
  if (file) await judge(await readPicture(file, page.settings.size));
}

async function project() {
  const { size } = page.settings;
  const state = page.isTrained && !page.state ? await worker.ask("state") : page.state;
  const { names, data } = page.classes;
  return packed({ names, size, depth: at("depth").value, ...data, state });
}

/** Keep the project in the browser; what does not fit there is said. */
async function keep() {
  try {
    await store.write(await project());
  } catch (error) {
    say(`this browser does not keep the pictures (${error.message}): save the project`);
  }
}

async function restoreKept() {
  try {
    const content = await store.read();
    if (content) use(unpacked(content, "what the browser kept", page.settings));
    return Boolean(content);
  } catch (error) {
    at("compute-note").textContent = error.message;
    return false;
  }
}

/** Show a project's classes and pictures; its state is read when the network is opened. */
function use({ names, depth, pictures, labels, state }) {
  page.classes.replace(names, { pictures, labels });
  at("depth").value = depth;
  page.state = state;
  page.isTrained = state !== null;
}

async function openProject() {
  const [file] = at("open").files;
  at("open").value = "";
  if (!file) return;
  if (file.size > LARGEST_PROJECT) throw new Error(`${file.name} is too large for a page`);
  const found = unpacked(new Uint8Array(await file.arrayBuffer()), file.name, page.settings);
  const before = { depth: at("depth").value, state: page.state };
  busy(true);
  try {
    if (found.state) {
      [at("depth").value, page.state] = [found.depth, found.state];
      await open(); // before anything is replaced: it may be the state of another network
    }
    use({ ...found, state: null });
    page.isTrained = found.state !== null;
    await keep();
    say(`opened ${file.name}: ${page.classes.count} pictures${found.state ? ", and what was learnt" : ""}`);
  } catch (error) {
    [at("depth").value, page.state] = [before.depth, before.state];
    throw error;
  } finally {
    busy(false);
  }
}

async function reset() {
  page.state = null;
  await worker.ask("reset");
  Object.assign(curves, { losses: [], accuracies: [], held: [] });
  for (const id of ["steps", "loss", "held", "speed"]) at(id).textContent = "–";
  at("shares").replaceChildren();
  at("answer").textContent = "train it first";
  page.isTrained = false;
  showCurves();
  busy(false);
  await keep();
  say("the network is as it was at first; your pictures are still here");
}

async function downloadModel() {
  await open();
  const labels = new TextEncoder().encode(`${page.classes.names.join("\n")}\n`);
  download(archive([...(await worker.ask("model")), ["labels.txt", labels]]), "model.tar");
  say("predict.onnx in it runs on any ONNX Runtime, labels.txt has the classes");
}

async function downloadWeights() {
  await open();
  download(await worker.ask("weights"), "weights.safetensors");
}

/** The classes or pictures are others now. */
function changed({ isOtherwise = false } = {}) {
  if (!page.classes) return;
  if (isOtherwise && page.isTrained) tried(reset)(); // outputs have the classes by number
  at("start").disabled = page.isBusy;
  clearTimeout(keeping);
  keeping = setTimeout(() => !page.isBusy && keep(), KEPT);
}

function busy(isBusy) {
  page.isBusy = isBusy;
  at("start").disabled = isBusy;
  for (const id of ["add", "save", "open", "depth", "provider"]) at(id).disabled = isBusy;
  for (const id of ["live", "probe", "weights", "model", "reset"]) {
    at(id).disabled = isBusy || !page.isTrained;
  }
  document.body.setAttribute("aria-busy", isBusy);
}

function say(text) {
  at("status").textContent = text;
}

/** The act, with what goes wrong in it said on the page. */
function tried(act) {
  return (...given) => act(...given).catch((error) => say(`that did not work: ${error.message}`));
}

at("train").addEventListener("submit", (event) => {
  event.preventDefault();
  tried(train)();
});
at("camera").addEventListener("click", tried(turnCamera));
at("add").addEventListener("click", () => page.classes.add());
at("save").addEventListener(
  "click",
  tried(async () => download(await project(), "project.safetensors")),
);
at("open").addEventListener("change", tried(openProject));
at("stop").addEventListener("click", () => worker.ask("stop"));
at("reset").addEventListener("click", tried(reset));
at("live").addEventListener("click", tried(live));
at("probe").addEventListener("change", tried(probe));
at("weights").addEventListener("click", tried(downloadWeights));
at("model").addEventListener("click", tried(downloadModel));
addEventListener("resize", showCurves);
for (const kind of ["dragover", "drop"]) {
  addEventListener(kind, (event) => event.preventDefault()); // beside a class: no other page
}

showCurves();
tried(start)();
