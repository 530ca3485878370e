/** The page that fine-tunes a vision model: pictures, camera, training, files, what goes wrong. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { fromSafetensors } from "../../src/index.js";
import { ROOT } from "../folders.js";
import { PROGRAM, SOFTWARE_GPU, served, skip } from "./chromium.js";

const PICTURES = process.env.SCREENSHOTS;
const PATIENCE = 900_000;
const CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"];
const FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"];
const DESK = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
const SEEDED = `let seed = 1;
Math.random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
`;
const CHANCE = Math.LN2; // the loss of a network that knows nothing of two classes
const KNOWN = { skip, timeout: PATIENCE };

let server, browser, folder, address;

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), "vision-"));
  const python = process.env.PYTHON ?? "python3";
  const size = ["--size", "48", "--width", "0.25", "--steps", "60"];
  const words = ["-m", "examples.vision_page", ...size, "--port", "0", "--out", join(folder, "site")];
  if (process.env.VISION_SITE) words.splice(0, words.length, "-c", SERVE, process.env.VISION_SITE);
  server = spawn(python, words, { cwd: ROOT });
  address = await served(server);
  browser = await chromium.launch({ executablePath: PROGRAM, args: [...FLAGS, ...CAMERA] });
});

// A site that is built already, for whoever works on the page.
const SERVE = `
import sys, pathlib
from examples.browser.__main__ import serve
serve(pathlib.Path(sys.argv[1]), 0)
`;

after(async () => {
  await browser?.close();
  server?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function opened(settings = DESK, from = browser) {
  const context = await from.newContext(settings);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  page.on("dialog", (dialog) => dialog.accept());
  await page.route("**/worker.js", async (route) => {
    const answer = await route.fetch(); // pictures vary at random: here, the same way each time
    await route.fulfill({ response: answer, body: SEEDED + (await answer.text()) });
  });
  await page.goto(address);
  await ready(page);
  return page;
}

const ready = (page) =>
  page.waitForFunction(() => document.body.getAttribute("aria-busy") === "false");
const said = (page, words) =>
  page.waitForFunction(
    (w) => new RegExp(`${w}|did not work`).test(document.getElementById("status").textContent),
    words,
  );
const text = (page, id) => page.locator(`#${id}`).textContent();
const card = (page, i) => page.locator(".class").nth(i);
const counts = (page) => page.locator(".count").allTextContents();

async function picture(page, name) {
  if (!PICTURES) return;
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(PICTURES, `vision-${name}.png`), fullPage: true });
}

/** Files of pictures made in the page: circles on warm grounds, or squares on cold ones. */
async function drawn(page, kind, count) {
  const made = await page.evaluate(
    async ({ kind, count }) => {
      const files = [];
      for (let i = 0; i < count; i++) {
        const canvas = new OffscreenCanvas(120, 90);
        const context = canvas.getContext("2d");
        const hue = (kind === "circle" ? 10 : 200) + 4 * (i % 8);
        context.fillStyle = `hsl(${hue} 60% ${40 + ((7 * i) % 10) * 3}%)`;
        context.fillRect(0, 0, 120, 90);
        context.fillStyle = "#fff";
        const [x, y] = [50 + (i % 3) * 10, 35 + (i % 4) * 6];
        context.beginPath();
        if (kind === "circle") context.arc(x, y, 22, 0, 7);
        else context.rect(x - 20, y - 20, 40, 40);
        context.fill();
        const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
        files.push(btoa(String.fromCharCode(...bytes)));
      }
      return files;
    },
    { kind, count },
  );
  return made.map((content, i) => {
    return { name: `${kind}${i}.png`, mimeType: "image/png", buffer: Buffer.from(content, "base64") };
  });
}

async function taught(page, count = 10) {
  for (const [i, kind] of ["circle", "square"].entries()) {
    await card(page, i).locator("input[type=text]").fill(kind);
    await card(page, i).locator("input[type=file]").setInputFiles(await drawn(page, kind, count));
    await said(page, `${count} pictures added`);
  }
}

async function shares(page) {
  const texts = await page.locator("#shares .percent").allTextContents();
  return texts.map((share) => parseFloat(share) / 100);
}

async function downloaded(page, name) {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name }).click(),
  ]);
  const content = await readFile(await download.path());
  return { name: download.suggestedFilename(), content: new Uint8Array(content) };
}

/** What stands outside the window or is wider than its box. */
function clipped(page) {
  return page.evaluate(() => {
    const shown = [...document.querySelectorAll("button, select, .button")].filter((e) => e.offsetParent);
    const inStrip = (e) => e.closest(".pictures"); // which scrolls
    return shown
      .filter((e) => !inStrip(e))
      .filter((e) => {
        const box = e.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth || e.scrollWidth > e.clientWidth + 1;
      })
      .map((e) => e.textContent.trim());
  });
}

test("pictures, training, trying, files, a reload", KNOWN, async () => {
  const page = await opened();
  await picture(page, "1-begin");
  await taught(page);
  await page.locator("#provider").selectOption("wasm");
  await page.locator("#rounds").fill("60");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await said(page, "trained");
  assert.match(await text(page, "status"), /^trained: 60 steps/);
  assert.ok(Number(await text(page, "loss")) < 0.8 * CHANCE, await text(page, "loss"));
  assert.match(await text(page, "held"), /^(50\.0|75\.0|100) %$/);
  assert.match(await text(page, "where"), /the processor(, \d threads)?$/);
  assert.ok(Number(await text(page, "speed")) > 0);
  const [axis, accuracy] = await page.locator(".curve svg").allTextContents();
  assert.match(axis, /loss \(nats\)/);
  assert.match(accuracy, /accuracy \(%/);

  const [probe] = await drawn(page, "square", 1);
  await page.locator("#probe").setInputFiles(probe);
  await page.waitForFunction(() => document.getElementById("answer").textContent === "square");
  const before = await shares(page);
  assert.ok(before[1] > 0.5 && Math.abs(before[0] + before[1] - 1) < 0.01, `${before}`);
  assert.deepEqual(await clipped(page), []);
  await picture(page, "2-trained");

  const weights = await downloaded(page, "Download weights");
  assert.deepEqual(fromSafetensors(weights.content).tensors["head.bias"].shape, [8]);
  const model = await downloaded(page, "Download the model");
  assert.equal(model.name, "model.tar");
  const names = new TextDecoder("latin1").decode(model.content);
  for (const name of ["predict.onnx", "weights.safetensors", "labels.txt", "circle\nsquare\n"]) {
    assert.ok(names.includes(name), name);
  }
  const project = await downloaded(page, "Save the project");

  await page.getByRole("button", { name: "Begin anew" }).click();
  await said(page, "as it was at first");
  assert.ok(await page.locator("#probe").isDisabled());
  const file = { name: "project.safetensors", mimeType: "", buffer: Buffer.from(project.content) };
  await page.locator("#open").setInputFiles(file);
  await said(page, "opened project.safetensors: 20 pictures, and what was learnt");
  await page.locator("#probe").setInputFiles(probe);
  await page.waitForFunction(() => document.querySelectorAll("#shares li").length === 2);
  assert.deepEqual(await shares(page), before);

  await page.reload();
  await ready(page);
  assert.match(await text(page, "status"), /still here/);
  assert.deepEqual(await counts(page), ["10 pictures", "10 pictures"]);
  await page.locator("#provider").selectOption("wasm");
  await page.locator("#probe").setInputFiles(probe);
  await page.waitForFunction(() => document.querySelectorAll("#shares li").length === 2);
  assert.deepEqual(await shares(page), before);

  await page.locator("#depth").selectOption("blocks");
  for (const [rounds, done, most] of [[1, 1, 0.9 * CHANCE], [3, 4, Infinity]]) {
    await page.locator("#rounds").fill(`${rounds}`);
    await page.getByRole("button", { name: "Train", exact: true }).click();
    await said(page, `trained: ${done} steps`);
    const loss = Number(await text(page, "loss"));
    // of one step it is that of the weights before; rounding decides where three steps lead
    assert.ok(loss < most, `the head goes on from what it had learnt: ${loss}`);
  }
  assert.deepEqual(page.trouble, []);
  await page.context().close();
});

test("what goes wrong is said, and nothing is lost", KNOWN, async () => {
  const page = await opened();
  const file = (name, content, mimeType = "image/png") => {
    return { name, mimeType, buffer: Buffer.from(content) };
  };
  const train = async (words) => {
    await page.getByRole("button", { name: "Train", exact: true }).click();
    await said(page, words);
    assert.match(await text(page, "status"), new RegExp(words));
  };
  await train("there is no picture of class 1: show at least one");
  const upload = card(page, 0).locator("input[type=file]");
  const good = await drawn(page, "circle", 2);
  const huge = `<svg xmlns="http://www.w3.org/2000/svg" width="20000" height="20000"/>`;
  await upload.setInputFiles([good[0], file("notes.txt", "hello", "text/plain"), good[1]]);
  await said(page, "2 pictures added; notes.txt is no picture that this browser can read");
  await upload.setInputFiles([file("huge.svg", huge, "image/svg+xml"), file("empty.png", "")]);
  await said(page, "0 pictures added; huge.svg has 20000 × 20000 pixels.*and 1 more");
  assert.match(await text(page, "status"), /100 million at most/);
  await train("there is no picture of class 2");
  await card(page, 1).locator("input[type=text]").fill("class 1");
  await train("two classes are called class 1");
  await card(page, 1).locator("input[type=text]").fill(" ");
  await train("a class has no name");
  await card(page, 1).getByRole("button", { name: "Remove", exact: true }).click();
  await train("one class alone");
  for (let i = 1; i < 9; i++) await page.getByRole("button", { name: "Add a class" }).click();
  await said(page, "tells 8 classes apart at most");
  assert.equal(await page.locator(".class").count(), 8);

  const foreign = await readFile(join(ROOT, "runtime/conformance/mlp/feeds.safetensors"));
  for (const content of [foreign, "no safetensors", ""]) {
    await page.locator("#open").setInputFiles(file("other.safetensors", content, ""));
    await said(page, "other.safetensors is no project of this page");
    await page.getByRole("button", { name: "Add a class" }).click(); // says something else
    await said(page, "tells 8 classes");
  }
  assert.deepEqual((await counts(page)).slice(0, 2), ["2 pictures", "0 pictures"]);
  await page.locator(".pictures button").first().click();
  assert.equal((await counts(page))[0], "1 picture");
  assert.deepEqual(page.trouble, []);
  await page.context().close();
});

test("a bundle of something else is refused", KNOWN, async () => {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.route("**/head/**", async (route) => {
    const name = new URL(route.request().url()).pathname.split("/").at(-1);
    const path = join(ROOT, "runtime/conformance/lenet/bundle", name);
    await route.fulfill({ body: await readFile(path), status: 200 });
  });
  await page.goto(address);
  await ready(page);
  await taught(page, 2);
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await said(page, "it is not one for this page");
  assert.match(await text(page, "status"), /the bundle takes images, labels/);
  assert.deepEqual(await counts(page), ["2 pictures", "2 pictures"]);
  await page.unroute("**/head/**");
  await page.route("**/vision.json", (route) => route.fulfill({ body: "{}" }));
  await page.goto(address);
  await said(page, "vision.json is missing or of something else");
  await page.close();
});

test("pictures of the camera, and trying it live", KNOWN, async () => {
  const page = await opened();
  for (const i of [0, 1]) {
    await card(page, i).getByRole("button", { name: "Hold to record" }).hover();
    await page.mouse.down();
    await page.waitForFunction(
      (n) => parseInt(document.querySelectorAll(".count")[n].textContent) >= 4,
      i,
    );
    await page.mouse.up();
  }
  const shown = await counts(page);
  await page.waitForTimeout(500);
  assert.deepEqual(await counts(page), shown, "it records while the button is held");
  await page.locator("#provider").selectOption("wasm");
  await page.locator("#rounds").fill("2");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await said(page, "trained");
  await page.getByRole("button", { name: "Try the camera" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#shares li").length === 2);
  await picture(page, "3-camera");
  await page.getByRole("button", { name: "Turn the camera off" }).click();
  assert.ok(!(await page.locator("#video").isVisible()));
  assert.deepEqual(page.trouble, []);
  await page.context().close();
});

test("without a camera, without WebGPU, on a telephone", KNOWN, async () => {
  const bare = await chromium.launch({ executablePath: PROGRAM, args: FLAGS });
  const page = await opened(PHONE, bare);
  assert.match(await text(page, "compute-note"), /no WebGPU here: the processor computes/);
  assert.ok(await page.locator("#provider option[value=webgpu]").isDisabled());
  await page.getByRole("button", { name: "Turn the camera on" }).tap();
  await said(page, "give pictures as files");
  assert.match(await text(page, "status"), /camera/);
  assert.doesNotMatch(await page.locator("main").innerText(), /click|drop/);
  await taught(page, 6);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} pixels wide`);
  assert.deepEqual(await clipped(page), []);
  await picture(page, "4-telephone");
  assert.deepEqual(page.trouble, []);
  await bare.close();
});

test("on a GPU in software no node is left to the processor", KNOWN, async (t) => {
  const args = [...FLAGS, ...SOFTWARE_GPU];
  const gpu = await chromium.launch({ executablePath: PROGRAM, args });
  const page = await opened(DESK, gpu);
  const lines = [];
  page.on("console", (message) => lines.push(message.text()));
  const losses = {};
  for (const provider of ["wasm", "webgpu"]) {
    losses[provider] = await page.evaluate(replayed, { provider, steps: 3 });
  }
  const placed = lines.map((line) => /placed on \[(\w+)\]\. Number of nodes: (\d+)/.exec(line));
  const found = placed.filter(Boolean).map(([, name, count]) => [name, Number(count)]);
  t.diagnostic(JSON.stringify(found));
  assert.deepEqual(found.map(([name]) => name), ["WebGpuExecutionProvider"]);
  assert.ok(found[0][1] > 300, `${found}`);
  const worst = Math.max(...losses.wasm.map((loss, i) => Math.abs(losses.webgpu[i] / loss - 1)));
  t.diagnostic(`losses within ${worst.toExponential(1)} of those of wasm`);
  assert.ok(worst < 1e-3, JSON.stringify(losses));

  await taught(page, 3);
  assert.equal(await page.locator("#provider").inputValue(), "webgpu");
  await page.locator("#rounds").fill("2");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await said(page, "trained");
  assert.match(await text(page, "status"), /^trained: 2 steps/);
  assert.equal(await text(page, "where"), "the GPU alone");
  assert.deepEqual(page.trouble, []);
  await gpu.close();
});

/** The losses of steps of the last blocks on numbers of a sine; on a GPU with what runs where. */
async function replayed({ provider, steps }) {
  const { Options, Trainer } = await import("/flow2onnx-runtime/index.js");
  const ort = await import(`/ort/ort.${provider}.min.mjs`);
  const isGpu = provider === "webgpu";
  if (isGpu) ort.env.logLevel = "verbose";
  const extra = { session: { disable_cpu_ep_fallback: "1" } };
  const session = isGpu ? { logSeverityLevel: 0, logVerbosityLevel: 0, extra } : {};
  const options = new Options({ provider, session });
  const trainer = await Trainer.open(new URL("/blocks", location.href), { ort, options });
  const numbers = (name) => trainer.feeds.find((feed) => feed.name === name).shape;
  const [batch, classes] = numbers("targets");
  const size = numbers("images").reduce((a, b) => a * b, 1);
  const images = Float32Array.from({ length: size }, (_, i) => 0.5 + 0.5 * Math.sin(i * 0.37));
  const targets = new Float32Array(batch * classes);
  for (let i = 0; i < batch; i++) targets[i * classes + (i % 2)] = 1;
  const used = Float32Array.from({ length: classes }, (_, i) => Number(i < 2));
  const losses = [];
  for (let i = 0; i < steps; i++) {
    losses.push((await trainer.step({ images, targets, used })).loss.data[0]);
  }
  await trainer.dispose();
  return losses;
}
