/** The page that trains adapters, on a tiny model; LORA_SHAPE=smollm2 takes one of that shape. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { fromAdapter } from "../../src/index.js";
import { resigned } from "../damages.js";
import { ROOT } from "../folders.js";
import { PROGRAM, SOFTWARE_GPU, served, skip } from "./chromium.js";

const PICTURES = process.env.SCREENSHOTS;
const SHAPE = process.env.LORA_SHAPE ?? "tiny";
// Tokens of a row by provider: a GPU in software computes a token in ten seconds at SmolLM2's shape.
const { LORA_LENGTH = "32", LORA_WEBGPU_LENGTH = "32" } = process.env;
const LENGTHS = { wasm: LORA_LENGTH, webgpu: LORA_WEBGPU_LENGTH };
const GPU_FLAGS = process.env.CHROMIUM_FLAGS?.split(" ") ?? SOFTWARE_GPU;
const PATIENCE = SHAPE === "tiny" ? 240_000 : 3_000_000;
const SHORT = JSON.stringify({ text: "where is the key" });
const [LONG, VERY_LONG] = [12, 60].map((count) =>
  JSON.stringify({ text: "where is the key under the third stone ".repeat(count) }),
);

let server, browser, folder, address;

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), "lora-"));
  const python = process.env.PYTHON ?? "python3";
  const words = ["-m", "tests.runtimes.lora_site", folder, "--shape", SHAPE];
  for (const length of new Set(Object.values(LENGTHS))) words.push("--length", length);
  server = spawn(python, words, { cwd: ROOT });
  address = await served(server);
  const args = ["--no-sandbox", "--disable-dev-shm-usage", ...GPU_FLAGS];
  browser = await chromium.launch({ executablePath: PROGRAM, args });
});

after(async () => {
  await browser?.close();
  server?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function opened(size, path = "") {
  const page = await browser.newPage({ viewport: size });
  page.setDefaultTimeout(PATIENCE);
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  await page.goto(address + path);
  return page;
}

const said = (page, words) =>
  page.waitForFunction(
    (w) => new RegExp(`${w}|did not work`).test(document.getElementById("status").textContent),
    words,
  );
const text = (page, id) => page.locator(`#${id}`).textContent();

const press = (page, name) => page.getByRole("button", { name, exact: true }).click();

/** Load the model with so many MB of memory, where that is said; the MB that it has taken. */
async function load(page, limit) {
  if (limit) await page.locator("#limit").fill(String(limit));
  await press(page, "Load the model");
  await said(page, "ready");
  return taken(page);
}

const taken = async (page) => parseFloat(await text(page, "memory"));

/** Train lines once; what is said then. */
async function trained(page, lines) {
  await page.locator("#rounds").fill("1");
  await page.locator("#lines").fill(lines);
  await press(page, "Train");
  await said(page, "trained:");
  return text(page, "status");
}

/** The tensors of the adapter that the page hands over. */
async function downloaded(page) {
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    press(page, "Download the adapter"),
  ]);
  assert.equal(file.suggestedFilename(), "adapter.onnx_adapter");
  return fromAdapter(new Uint8Array(await readFile(await file.path())));
}

async function picture(page, name) {
  if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true });
}

/** The losses of steps on the stored batch of a provider, and the seconds of each step. */
function replayed(page, provider, steps) {
  return page.evaluate(
    async ({ provider, steps, length }) => {
      const { Options, Trainer, fromSafetensors } = await import("/flow2onnx-runtime/index.js");
      const { loadRuntime } = await import("/answers.js");
      const ort = await loadRuntime(provider);
      const answer = await fetch(`/feeds-${length}.safetensors`);
      const feeds = fromSafetensors(new Uint8Array(await answer.arrayBuffer())).tensors;
      const options = new Options({ provider });
      const trainer = await Trainer.open(new URL("/bundle", location.href), { ort, options });
      const [losses, seconds] = [[], []];
      for (let i = 0; i < steps; i++) {
        const began = performance.now();
        losses.push((await trainer.step(feeds)).loss.data[0]);
        seconds.push((performance.now() - began) / 1000);
      }
      await trainer.dispose();
      return { losses, seconds };
    },
    { provider, steps, length: LENGTHS[provider] },
  );
}

for (const provider of ["wasm", "webgpu"]) {
  test(`losses on ${provider} are those of Python`, { skip, timeout: PATIENCE }, async (t) => {
    const page = await opened({ width: 1200, height: 800 });
    const length = LENGTHS[provider];
    const file = join(folder, "site", `losses-${length}.json`);
    const wanted = JSON.parse(await readFile(file, "utf-8"));
    const steps = provider === "wasm" || SHAPE === "tiny" ? wanted.losses.length : 2;
    const { losses, seconds } = await replayed(page, provider, steps);
    const worst = Math.max(...losses.map((loss, i) => Math.abs(loss / wanted.losses[i] - 1)));
    const [speed, python] = [seconds, wanted.seconds].map((all) => (length / Math.min(...all)).toFixed(2));
    t.diagnostic(`${provider}, rows of ${length} tokens: ${speed} tokens/s, Python ${python} tokens/s`);
    t.diagnostic(`${provider}: loss ${losses.at(-1)} after ${steps} steps, Python's ${wanted.losses[steps - 1]}, ` +
      `${worst.toExponential(1)} apart at most`);
    assert.ok(worst <= 1e-3, `${losses} ${wanted.losses}`);
    await page.close();
  });
}

test("the build for WebGPU cannot compute the processor's loss", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  // when it can, the page need not fetch another build to compare with
  const page = await opened({ width: 1200, height: 800 });
  const opening = page.evaluate(async () => {
    const { Predictor } = await import("/flow2onnx-runtime/index.js");
    const { loadRuntime } = await import("/answers.js");
    const ort = await loadRuntime("webgpu");
    await Predictor.open(new URL("/bundle", location.href), { ort, job: "eval" });
  });
  await assert.rejects(opening, /Could not find an implementation for GatherBlockQuantized/);
  await page.close();
});

for (const isLeftOut of [true, false]) {
  const what = isLeftOut ? "WebGPU trains" : "a GPU that gives other losses is refused";
  test(what, { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
    const page = await opened({ width: 1200, height: 800 });
    if (!isLeftOut) {
      // with subgroups of 4 threads, as software has them, onnxruntime-web 1.30 is wrong
      await page.context().route("**/answers.js", async (route) => {
        const answer = await route.fetch();
        const body = (await answer.text()).replace("SMALLEST_SUBGROUP = 8", "SMALLEST_SUBGROUP = 0");
        await route.fulfill({ response: answer, body });
      });
      await page.reload();
    }
    await page.locator("#webgpu").check();
    await load(page);
    const wanted = isLeftOut ? /^\s*trained: 1 steps/ : /WebGPU gives a loss of .*, the processor/;
    assert.match(await trained(page, LONG), wanted);
    assert.deepEqual(page.trouble, []);
    await page.close();
  });
}

test("paste, train, compare, download", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  const page = await opened({ width: 1200, height: 800 });
  await picture(page, "1-begin");
  await load(page);
  assert.match(await text(page, "status"), /ready/);
  await page.locator("#rounds").fill("40");
  await page.locator("#rate").fill("0.005");
  await press(page, "Train");
  await said(page, "trained: 120 steps");
  assert.match(await text(page, "status"), /trained/);
  assert.ok(Number(await text(page, "loss")) < 0.5, await text(page, "loss"));
  assert.ok(Number(await text(page, "speed-wasm")) > 0);
  await press(page, "Ask both");
  await said(page, "answered");
  assert.match(await text(page, "after"), /^the key is under the third stone/);
  assert.notEqual(await text(page, "before"), await text(page, "after"));
  await picture(page, "2-answered");
  const tensors = await downloaded(page);
  assert.ok("model.layers.0.attn.q_proj.lora_A.weight" in tensors);

  await page.locator("#lines").fill('{"messages": []}');
  await press(page, "Train");
  await said(page, "did not work");
  assert.match(await text(page, "status"), /line 1: messages is a list/);
  await page.setViewportSize({ width: 390, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} pixels wide`);
  await picture(page, "3-telephone");
  assert.deepEqual(page.trouble, []);
  await page.close();
});

test("a model that does not fit is refused before it is fetched", { skip, timeout: PATIENCE }, async () => {
  const [site, large] = [join(folder, "site"), join(folder, "site", "large")];
  await mkdir(join(large, "bundle"), { recursive: true });
  for (const name of await readdir(site)) {
    if (!["bundle", "large"].includes(name)) await symlink(join(site, name), join(large, name));
  }
  const data = "model.onnx.data";
  const manifest = JSON.parse(await readFile(join(site, "bundle", "manifest.json"), "utf-8"));
  manifest.files[data].size = 5e9;
  await writeFile(join(large, "bundle", "manifest.json"), await resigned(manifest));
  await writeFile(join(large, "bundle", data), "");
  await truncate(join(large, "bundle", data), 5e9);
  const page = await opened({ width: 1200, height: 800 }, "large/");
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await load(page);
  const words = new RegExp(`${data}: 5,000 MB, and WebAssembly has 4,294 MB for all that it holds`);
  assert.match(await text(page, "status"), words);
  assert.ok(asked.some((url) => url.endsWith("manifest.json")));
  assert.ok(!asked.some((url) => url.endsWith(data)), "the weights were fetched");
  assert.deepEqual(page.trouble, []);
  await page.close();
});

test("a row that finds no memory leaves the page, and what was trained", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  const page = await opened({ width: 1200, height: 800 });
  const opens = await load(page);
  await trained(page, SHORT);
  await trained(page, VERY_LONG);
  const needs = await taken(page);
  assert.ok(needs > opens, `${needs} MB, ${opens} to open`);

  await load(page, (opens + needs) / 2);
  assert.match(await text(page, "status"), /ready: training goes on from your adapter/);
  assert.match(await trained(page, SHORT), /trained: 1 steps/);
  const before = await downloaded(page);
  assert.match(await trained(page, VERY_LONG), /did not work: [^]*4 GB at most[^]*the adapter so far is kept/);
  assert.deepEqual(await downloaded(page), before);
  assert.deepEqual(page.trouble, []);
  await load(page, 4000);
  assert.match(await trained(page, VERY_LONG), /trained: 1 steps/);
  await page.close();
});

test("Stop ends what takes long, and keeps the adapter", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  const page = await opened({ width: 1200, height: 800 });
  await load(page);
  await page.locator("#rounds").fill("1000");
  await press(page, "Train");
  await said(page, "training: [1-9]");
  await press(page, "Stop");
  await said(page, "stopped: [0-9]+ steps");
  const some = await downloaded(page);
  await press(page, "Train");
  await said(page, "training: [1-9]");
  await page.evaluate(() => {
    for (let i = 0; i < 2; i++) document.getElementById("stop").click();
  });
  await said(page, "stopped: load the model");
  assert.deepEqual(await downloaded(page), some);
  await page.evaluate(() => {
    for (const id of ["open", "stop"]) document.getElementById(id).click();
  });
  await said(page, "stopped: load the model");
  await load(page);
  assert.match(await trained(page, SHORT), /trained: 1 steps/);
  await page.evaluate(() => {
    for (const id of ["ask", "stop"]) document.getElementById(id).click();
  });
  await said(page, "stopped\\s*$");
  assert.equal(await text(page, "after"), "–");
  assert.deepEqual(page.trouble, []);
  await page.close();
});
