/** A page of real Chromium, headless, on a server of this repository on the loopback. */

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { chromium } from "playwright-core";

import { ROOT } from "../folders.js";

const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".json": "application/json",
  ".wasm": "application/wasm",
};
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser's program: CHROMIUM, or where systems put it; undefined if there is none. */
export const PROGRAM = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path));

/** Why no test can run here, or false. */
export const skip = !PROGRAM && "there is no Chromium: install it, or set CHROMIUM to its path";

// A GPU in software: slow, and the same everywhere.
export const SOFTWARE_GPU = [
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
  "--use-vulkan=swiftshader",
  "--use-angle=swiftshader",
];

async function answer(request, response) {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
  // Threads need a page that is isolated from other origins.
  response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
  response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
  response.setHeader("Content-Type", TYPES[extname(path)] ?? "application/octet-stream");
  if (path === "/") return response.setHeader("Content-Type", "text/html").end("<!doctype html>");
  try {
    response.end(await readFile(join(ROOT, path)));
  } catch {
    response.writeHead(404).end();
  }
}

/** Does `act` with an empty page of the server. */
export async function withPage(act, { flags = [] } = {}) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const browser = await chromium.launch({
    executablePath: PROGRAM,
    args: ["--no-sandbox", "--disable-dev-shm-usage", ...flags],
  });
  try {
    const page = await browser.newPage();
    const trouble = [];
    page.on("pageerror", (error) => trouble.push(String(error)));
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const result = await act(page);
    if (trouble.length) throw new Error(trouble.join("\n"));
    return result;
  } finally {
    await browser.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** The address that a command prints once it serves. */
export function served(child) {
  return new Promise((resolve, reject) => {
    let text = "";
    const take = (chunk) => {
      text += chunk;
      const found = /http:\/\/127\.0\.0\.1:\d+\//.exec(text);
      if (found) resolve(found[0]);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("exit", () => reject(new Error(text)));
  });
}
