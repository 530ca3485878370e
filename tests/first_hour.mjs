/** Pages of a first hour in real Chromium: node first_hour.mjs KIND ADDRESS FOLDER.
 *
 * Uses the page as a newcomer would, fails where it does not do what it is for, and prints the
 * names of the pictures that it has written into the folder.
 */

import assert from "node:assert/strict";
import { join } from "node:path";
import { chromium } from "playwright-core";

import { HOUSE, ONE, draw, ready } from "./strokes.js";

const [kind, address, folder] = process.argv.slice(2);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 800 } });
const trouble = [];
page.on("pageerror", (error) => trouble.push(String(error)));

async function picture(name, options) {
  await page.waitForTimeout(400); // bars move
  await page.screenshot({ path: join(folder, `${name}.png`), ...options });
  console.log(`${name}.png`);
}

const read = () => page.locator("#digit").textContent();

async function digits() {
  await page.goto(address);
  await ready(page);
  await draw(page, ONE);
  assert.equal(await read(), "1");
  await picture("page_reads");
  await draw(page, HOUSE);
  for (let i = 0; i < 3; i++) {
    await page.getByRole("button", { name: "4", exact: true }).click();
    await ready(page);
  }
  assert.equal(await read(), "4");
  await picture("page_has_learnt");
}

async function server() {
  await page.goto(address);
  await page.locator("summary").first().click();
  await picture("server_models");
  await page.locator(".card h2 a").first().click();
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator("output", { hasText: "200 OK" }).waitFor();
  await page.locator("#latency svg").waitFor();
  await picture("server_model", { fullPage: true });
  await page.goto(`${address}docs`);
  await picture("server_api");
}

async function show() {
  await page.goto(address);
  await page.locator(".box").first().waitFor();
  await picture("bundle");
}

await { digits, server, show }[kind]();
await browser.close();
assert.deepEqual(trouble, []);
