import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { ROOT } from "../folders.js";
import { PROGRAM, served, skip } from "./chromium.js";
import { HOUSE, ONE, draw, ready } from "./strokes.js";

const PHONE = { viewport: { width: 390, height: 800 } };
const HOUSE_IS = 4;
const PICTURES = process.env.SCREENSHOTS;

let server, browser, context, folder, address;

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), "digits-"));
  const python = process.env.PYTHON ?? "python3";
  const flags = ["--port", "0", "--out", join(folder, "site"), "--epochs", "8"];
  server = spawn(python, ["-m", "examples.browser", ...flags], { cwd: ROOT });
  address = await served(server);
  const args = ["--no-sandbox", "--disable-dev-shm-usage"];
  browser = await chromium.launch({ executablePath: PROGRAM, args });
  context = await browser.newContext({ viewport: { width: 1200, height: 800 } });
  await context.addInitScript(() => {
    let seed = 1; // the page practises at random: here, the same way each time
    Math.random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  });
});

after(async () => {
  await browser?.close();
  server?.kill();
  if (folder) await rm(folder, { recursive: true, force: true });
});

async function opened() {
  const page = await context.newPage();
  page.trouble = [];
  page.on("pageerror", (error) => page.trouble.push(String(error)));
  page.on("console", (m) => m.type() === "error" && page.trouble.push(m.text()));
  await page.goto(address);
  await ready(page);
  return page;
}

async function reading(page) {
  const texts = await page.locator(".percent").allTextContents();
  const digit = Number(await page.locator("#digit").textContent());
  return { digit, probabilities: texts.map((text) => parseFloat(text) / 100) };
}

async function picture(page, name, more) {
  if (!PICTURES) return;
  await page.waitForTimeout(300); // the bars move
  await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage: true, ...more });
}

/** The buttons that stand, if only in part, outside the window. */
function clipped(page, height) {
  return page.evaluate((height) => {
    const isOut = (box) => box.left < 0 || box.right > innerWidth || box.bottom > height;
    const shown = [...document.querySelectorAll("button")].filter((b) => b.offsetParent);
    const out = shown.filter((button) => {
      return isOut(button.getBoundingClientRect()) || button.scrollWidth > button.clientWidth + 1;
    });
    return out.map((button) => button.textContent.trim());
  }, height);
}

const text = (page, id) => page.locator(`#${id}`).textContent();

test("draw, train, predict, reload, predict again", { skip, timeout: 180_000 }, async () => {
  const page = await opened();
  await picture(page, "1-empty");
  await draw(page, ONE);
  assert.equal((await reading(page)).digit, 1);
  await picture(page, "2-read");

  await draw(page, HOUSE);
  const before = await reading(page);
  await page.getByRole("button", { name: String(HOUSE_IS), exact: true }).click();
  await ready(page);
  await page.keyboard.press(String(HOUSE_IS));
  await ready(page);
  const learnt = await reading(page);
  assert.equal(learnt.digit, HOUSE_IS);
  assert.ok(learnt.probabilities[HOUSE_IS] > Math.max(0.5, before.probabilities[HOUSE_IS]));
  assert.equal(await text(page, "steps"), "50");
  assert.equal(await text(page, "drawings"), "2");
  assert.match(
    await page.locator("#curve svg").getAttribute("aria-label"),
    /at step 1 .*at step 50/,
  );
  const axis = await page.locator("#curve text").allTextContents();
  assert.ok(axis.includes("loss (nats)") && axis.includes("step"), `${axis}`);
  assert.ok(axis.some((label) => Number(label) === 0), `the axis begins at 0: ${axis}`);
  assert.deepEqual(await clipped(page, 800), []);
  await picture(page, "3-learnt");

  await page.reload();
  await ready(page);
  assert.match(await text(page, "status"), /2 of your drawings are remembered/);
  assert.equal(await text(page, "steps"), "50");
  await draw(page, HOUSE);
  const again = await reading(page);
  assert.equal(again.digit, HOUSE_IS);
  const moved = again.probabilities.map((p, i) => Math.abs(p - learnt.probabilities[i]));
  assert.ok(Math.max(...moved) < 0.002, `${moved}`); // shown to a tenth of a percent
  await draw(page, ONE);
  assert.equal((await reading(page)).digit, 1, "it still reads what it knew");
  await picture(page, "4-reloaded");
  assert.deepEqual(page.trouble, []);
});

test("the weights can be taken away, and what was learnt be forgotten", { skip }, async () => {
  const page = await opened();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download weights" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "digits.safetensors");
  await Promise.all([
    page.waitForEvent("load"),
    page.getByRole("button", { name: "Forget my hand" }).click(),
  ]);
  await ready(page);
  assert.equal(await text(page, "steps"), "0");
  assert.match(await text(page, "status"), /none of yours/);
  assert.deepEqual(page.trouble, []);
});

test("dark, and on a telephone", { skip }, async () => {
  const page = await opened();
  await page.emulateMedia({ colorScheme: "dark" });
  await draw(page, HOUSE);
  await picture(page, "5-dark");
  await page.setViewportSize({ width: 390, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} pixels wide`);
  assert.deepEqual(await clipped(page, Infinity), []);
  await picture(page, "6-small");
  assert.deepEqual(page.trouble, []);
});

test("a finger is told to tap", { skip }, async () => {
  const touching = await browser.newContext({ ...PHONE, hasTouch: true, isMobile: true });
  const page = await touching.newPage();
  await page.goto(address);
  await ready(page);
  const words = await page.locator("main").innerText();
  assert.match(words, /with your finger/);
  assert.match(words, /tap it/);
  assert.doesNotMatch(words, /click|key|Esc/);
  await picture(page, "7-touch");
  await touching.close();
});
