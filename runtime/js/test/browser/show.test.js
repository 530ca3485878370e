import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

import { ROOT } from "../folders.js";
import { PROGRAM, skip } from "./chromium.js";

const PICTURES = process.env.SCREENSHOTS;
const DESK = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true };

let browser, folder;

function python(...args) {
  execFileSync(process.env.PYTHON ?? "python3", ["-m", ...args], { cwd: ROOT });
}

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), "show-"));
  python("tests.view.models", folder);
  for (const name of ["hostile", "large", "flat"]) {
    python("flow2onnx", "show", join(folder, `${name}.onnx`), "-o", join(folder, `${name}.html`));
  }
  for (const name of ["lenet", "transformer"]) {
    const bundle = join(ROOT, "runtime", "conformance", name, "bundle");
    python("flow2onnx", "show", bundle, "-o", join(folder, `${name}.html`));
  }
  const args = ["--no-sandbox", "--disable-dev-shm-usage"];
  browser = await chromium.launch({ executablePath: PROGRAM, args });
});

after(async () => {
  await browser?.close();
  if (folder) await rm(folder, { recursive: true, force: true });
});

/** Does `act` with the page of a model, which asks for nothing and has no error. */
async function onPage(name, settings, act) {
  const context = await browser.newContext(settings);
  const page = await context.newPage();
  const trouble = (page.trouble = []);
  page.on("pageerror", (error) => trouble.push(String(error)));
  page.on("console", (message) => message.type() === "error" && trouble.push(message.text()));
  page.on("request", (request) => {
    if (!request.url().startsWith("file:")) trouble.push(request.url());
  });
  await page.goto(pathToFileURL(join(folder, `${name}.html`)).href);
  await act(page);
  if (PICTURES) {
    const size = settings.viewport.width;
    await page.screenshot({ path: join(PICTURES, `${name}-${size}.png`) });
  }
  assert.deepEqual(trouble, []);
  await context.close();
}

const boxes = (page) => page.locator(".box").count();
const titled = (page, text) => page.locator(".box", { hasText: text }).first();

test("a model by layer: open, close, look at", { skip }, async () => {
  await onPage("lenet", DESK, async (page) => {
    const closed = await boxes(page);
    assert.equal(await page.locator("#about h2").textContent(), "train_job of bundle");
    await titled(page, "conv1").dblclick();
    assert.equal(await boxes(page), closed + 2);
    await titled(page, "AveragePool").click();
    const text = await page.locator("#about").textContent();
    assert.match(text, /pool1\/AveragePool/);
    assert.match(text, /kernel_shape/);
    assert.match(text, /float32 8 × 4 × 8 × 8/);
    assert.ok((await page.locator(".edge.near").count()) >= 2);
    await page.locator("#collapse").click();
    assert.equal(await boxes(page), closed);
  });
});

test("gradients are there on a switch", { skip }, async () => {
  await onPage("lenet", DESK, async (page) => {
    assert.equal(await titled(page, "gradients").count(), 0);
    await page.locator("#gradients").check();
    await titled(page, "update").click();
    assert.match(await page.locator("#about").textContent(), /conv1-weight|conv1/);
    await titled(page, "gradients").dblclick();
    assert.ok((await page.locator(".role-gradient").count()) > 8);
    await page.locator("#gradients").uncheck();
    assert.equal(await page.locator(".role-gradient").count(), 0);
  });
  await onPage("hostile", DESK, async (page) => {
    assert.ok(!(await page.locator("#gradients").isVisible()));
  });
});

test("search and keys reach every node", { skip }, async () => {
  await onPage("transformer", DESK, async (page) => {
    await page.keyboard.press("/");
    await page.keyboard.type("gelu_0/Erf");
    await page.locator("#found button").first().click();
    assert.equal(await page.locator("#about h2").textContent(), "Erf");
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#about h2").textContent(), "gelu_0");
    await page.keyboard.press("Enter");
    assert.equal(await page.locator(".box.open").count(), 0);
    await page.keyboard.press("ArrowDown");
    assert.notEqual(await page.locator("#about h2").textContent(), "gelu_0");
    await page.keyboard.press("/");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("no such layer");
    assert.match(await page.locator("#found").textContent(), /nothing has this/);
  });
});

test("light and dark, nearer and further", { skip }, async () => {
  await onPage("lenet", { ...DESK, colorScheme: "dark" }, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    await page.keyboard.press("t");
    assert.notEqual(await ground(), dark);
    const scale = () => page.evaluate(() => document.getElementById("scene").getCTM().a);
    const first = await scale();
    await page.locator("#closer").click();
    assert.ok((await scale()) > first);
    await page.mouse.move(400, 400);
    await page.mouse.wheel(0, 300);
    await page.keyboard.press("0");
    assert.ok(Math.abs((await scale()) - first) < 1e-6);
  });
});

test("names of a hostile model stay text", { skip }, async () => {
  await onPage("hostile", DESK, async (page) => {
    for (const box of await page.locator(".box").all()) await box.click({ force: true });
    await page.keyboard.press("/");
    await page.keyboard.type("script");
    assert.ok((await page.locator("#found button").count()) >= 2);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.equal(await page.locator("img").count(), 0);
    const policy = await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.hit = 2";
      document.body.append(script);
      return window.hit;
    });
    assert.equal(policy, undefined);
    assert.match(page.trouble.pop(), /Content Security Policy/); // what that script was told
  });
});

for (const name of ["large", "flat"]) {
  test(`10,000 nodes, ${name}`, { skip }, async () => {
    await onPage(name, DESK, async (page) => {
      assert.ok((await boxes(page)) <= 120);
      await page.locator(".box.group").first().dblclick();
      const opened = await boxes(page);
      assert.ok(opened > 40 && opened < 800, String(opened));
      await page.keyboard.press("/");
      await page.keyboard.type(name === "large" ? "block499" : "Relu_9981");
      await page.locator("#found button").first().click();
      assert.ok(await page.locator(".box.chosen").isVisible());
    });
  });
}

test("on a telephone", { skip }, async () => {
  await onPage("transformer", PHONE, async (page) => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, String(wide));
    await titled(page, "matmul_0").tap({ force: true });
    assert.ok(await page.locator("body.about-open aside").isVisible());
    await page.locator("#close").tap();
    assert.ok(!(await page.locator("#close").isVisible()));
  });
});
