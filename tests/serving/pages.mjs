/** The server's pages in real Chromium: node pages.mjs OPEN GUARDED TOKEN [PICTURES].
 *
 * OPEN and GUARDED are the addresses of two servers, the second with a token. Pictures of every
 * page, light, dark and as wide as a telephone, are written into a folder where one is named.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [open, guarded, token, pictures] = process.argv.slice(2);
const HOSTILE = "<img src=x onerror=alert(1)>";
const DESK = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true };
const LOOKS = {
  light: { ...DESK, colorScheme: "light" },
  dark: { ...DESK, colorScheme: "dark" },
  phone: { ...PHONE, colorScheme: "light" },
};

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});

/** Does `act` with a page that has no error and asks no other host. */
async function onPage(settings, base, act) {
  const context = await browser.newContext(settings);
  const page = await context.newPage();
  const trouble = [];
  page.on("pageerror", (error) => trouble.push(String(error)));
  page.on("dialog", (dialog) => trouble.push(`dialog: ${dialog.message()}`));
  page.on("console", (message) => {
    const refused = /status of 40[014]/.test(message.text()); // what some of these pages are for
    if (message.type() === "error" && !refused) trouble.push(message.text());
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${base}/`) && !url.startsWith("data:")) trouble.push(url);
  });
  await act(page);
  assert.deepEqual(trouble, []);
  await context.close();
}

async function look(page, name) {
  const [wide, shown] = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return [scrollWidth, clientWidth];
  });
  assert.ok(wide <= shown, `${name} is ${wide} wide on ${shown}`);
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

async function models(page, kind) {
  await page.goto(`${open}/`);
  assert.ok(await page.getByRole("link", { name: HOSTILE, exact: true }).isVisible());
  assert.equal(await page.locator("main img").count(), 0);
  await page.locator(".card", { hasText: "mlp" }).first().locator("summary").click();
  await look(page, `models-${kind}`);
}

async function model(page, kind) {
  await page.goto(`${open}/`);
  await page.getByRole("link", { name: "mlp", exact: true }).click();
  await page.waitForURL(`${open}/models/mlp`);
  const answered = () => page.locator("#versions tbody td").nth(2).textContent();
  const before = Number(await answered());
  for (let i = 0; i < 3; i++) {
    await page.getByRole("button", { name: "Send" }).click();
    await page.locator("output", { hasText: "200 OK" }).waitFor();
  }
  await page.waitForFunction(
    (count) => Number(document.querySelectorAll("#versions tbody td")[2].textContent) === count,
    before + 3,
  );
  assert.ok(await page.locator("#latency svg").isVisible());
  await look(page, `model-${kind}`);
  await page.locator("textarea").fill("[");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("output", { hasText: "400 Bad Request" }).waitFor();
}

async function api(page, kind) {
  await page.goto(`${open}/docs`);
  const infer = page.locator("details", { hasText: "/v2/models/{model}/infer" }).first();
  await infer.locator("summary").click();
  await infer.getByRole("button", { name: "Send" }).click();
  await infer.locator("output", { hasText: "200 OK" }).waitFor();
  await infer.scrollIntoViewIfNeeded();
  await look(page, `api-${kind}`);
}

async function hostile(page, kind) {
  await page.goto(`${open}/models/${encodeURIComponent(HOSTILE)}`);
  assert.ok((await page.locator("h1").textContent()).startsWith(HOSTILE));
  assert.ok((await page.locator("#x-python").textContent()).includes("%3Cimg%20src"));
  await page.goto(`${open}/models/nothing`);
  assert.equal(await page.locator("h1").textContent(), "404 Not Found");
  await look(page, `refused-${kind}`);
}

async function signIn(page, kind) {
  await page.goto(`${guarded}/models/mlp`);
  assert.ok(!(await page.content()).includes("mlp"));
  await look(page, `token-${kind}`);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("status").filter({ hasText: "that is not the token" }).waitFor();
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator("h1", { hasText: "mlp" }).waitFor();
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("output", { hasText: "200 OK" }).waitFor();
  await page.getByRole("link", { name: "API", exact: true }).click();
  await page.locator("h1", { hasText: "API" }).waitFor();
}

for (const [kind, settings] of Object.entries(LOOKS)) {
  for (const act of [models, model, api, hostile]) {
    await onPage(settings, open, (page) => act(page, kind));
  }
  await onPage(settings, guarded, (page) => signIn(page, kind));
}
await browser.close();
console.log("well");
