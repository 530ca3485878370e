/** The page that trains adapters, on a tiny model; LORA_SHAPE=smollm2 takes one of that shape. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { fromAdapter } from "../../src/index.js";
import { ROOT } from "../folders.js";
import { PROGRAM, SOFTWARE_GPU, served, skip } from "./chromium.js";

const PICTURES = process.env.SCREENSHOTS;
const SHAPE = process.env.LORA_SHAPE ?? "tiny";
const LENGTH = process.env.LORA_LENGTH ?? "24";
const PATIENCE = 3_000_000;

let server, browser, folder, address;

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), "lora-"));
  const python = process.env.PYTHON ?? "python3";
  const words = ["-m", "tests.runtimes.lora_site", folder, "--shape", SHAPE, "--length", LENGTH];
  server = spawn(python, words, { cwd: ROOT });
  address = await served(server);
  const args = ["--no-sandbox", "--disable-dev-shm-usage", ...SOFTWARE_GPU];
  browser = await chromium.launch({ executablePath: PROGRAM, args });
});

after(async () => {
  await browser?.close();
  server?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function opened(size) {
  const page = await browser.newPage({ viewport: size });
  page.setDefaultTimeout(PATIENCE);
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  await page.goto(address);
  return page;
}

const said = (page, words) =>
  page.waitForFunction(
    (w) => new RegExp(`${w}|did not work`).test(document.getElementById("status").textContent),
    words,
  );
const text = (page, id) => page.locator(`#${id}`).textContent();

async function picture(page, name) {
  if (PICTURES) await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true });
}

/** The losses of steps on the stored batch, and the seconds of each step. */
function replayed(page, provider, file, steps) {
  return page.evaluate(
    async ({ provider, file, steps }) => {
      const { Options, Trainer, fromSafetensors } = await import("/flow2onnx-runtime/index.js");
      const ort = await import(`/ort/${file}`);
      ort.env.wasm.numThreads = Math.min(navigator.hardwareConcurrency, 8);
      const answer = await fetch("/feeds.safetensors");
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
    { provider, file, steps },
  );
}

for (const [provider, file] of [
  ["wasm", "ort.wasm.min.mjs"],
  ["webgpu", "ort.webgpu.min.mjs"],
]) {
  // onnxruntime-web 1.30 on a GPU in software is wrong from 32 tokens on: the page refuses it below.
  const isKnown = provider === "webgpu" && Number(LENGTH) >= 32 && "wrong kernels in software";
  test(`losses on ${provider} are those of Python`, { skip: skip || isKnown, timeout: PATIENCE }, async (t) => {
    const page = await opened({ width: 1200, height: 800 });
    const wanted = JSON.parse(await readFile(join(folder, "site", "losses.json"), "utf-8"));
    const steps = provider === "wasm" || SHAPE === "tiny" ? wanted.losses.length : 2;
    const { losses, seconds } = await replayed(page, provider, file, steps);
    const worst = Math.max(...losses.map((loss, i) => Math.abs(loss / wanted.losses[i] - 1)));
    const speed = Number(LENGTH) / Math.min(...seconds);
    t.diagnostic(`${provider}: worst ${worst.toExponential(1)}, ${speed.toFixed(1)} tokens/s`);
    const python = Number(LENGTH) / Math.min(...wanted.seconds);
    t.diagnostic(`Python: ${python.toFixed(1)} tokens/s`);
    assert.ok(worst <= 1e-3, `${losses} ${wanted.losses}`);
    await page.close();
  });
}

test("a GPU that gives other losses is refused", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  const page = await opened({ width: 1200, height: 800 });
  await page.locator("#webgpu").check();
  await page.getByRole("button", { name: "Load the model" }).click();
  await said(page, "ready");
  await page.locator("#rounds").fill("1");
  await page.getByRole("button", { name: "Train" }).click();
  await said(page, "trained");
  // Either it says so, or a later release has kernels that are right.
  assert.match(await text(page, "status"), /^trained: 3 steps|WebGPU gives a loss of .*, the processor/);
  assert.deepEqual(page.trouble, []);
  await page.close();
});

test("paste, train, compare, download", { skip: skip || SHAPE !== "tiny", timeout: PATIENCE }, async () => {
  const page = await opened({ width: 1200, height: 800 });
  await picture(page, "1-begin");
  await page.getByRole("button", { name: "Load the model" }).click();
  await said(page, "ready");
  assert.match(await text(page, "status"), /ready/);
  await page.locator("#rounds").fill("40");
  await page.locator("#rate").fill("0.005");
  await page.getByRole("button", { name: "Train" }).click();
  await said(page, "trained: 120 steps");
  assert.match(await text(page, "status"), /trained/);
  assert.ok(Number(await text(page, "loss")) < 0.5, await text(page, "loss"));
  assert.ok(Number(await text(page, "speed-wasm")) > 0);
  await page.getByRole("button", { name: "Ask both" }).click();
  await said(page, "answered");
  assert.match(await text(page, "after"), /^the key is under the third stone/);
  assert.notEqual(await text(page, "before"), await text(page, "after"));
  await picture(page, "2-answered");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download the adapter" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "adapter.onnx_adapter");
  const tensors = fromAdapter(new Uint8Array(await readFile(await download.path())));
  assert.ok("model.layers.0.attn.q_proj.lora_A.weight" in tensors);

  await page.locator("#lines").fill('{"messages": []}');
  await page.getByRole("button", { name: "Train" }).click();
  await said(page, "did not work");
  assert.match(await text(page, "status"), /line 1: messages is a list/);
  await page.setViewportSize({ width: 390, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} pixels wide`);
  await picture(page, "3-telephone");
  assert.deepEqual(page.trouble, []);
  await page.close();
});
