/** The window, and between it and the process that trains. */

import { BrowserWindow, app, ipcMain, utilityProcess } from "electron";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

app.whenReady().then(() => {
  const worker = utilityProcess.fork(here("worker.js"), [here("bundle"), app.getPath("userData")]);
  const waiting = new Map();
  let last = 0;
  worker.on("message", ({ number, result, error }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (error) reject(new Error(error));
    else resolve(result);
  });
  worker.on("exit", (code) => {
    for (const { reject } of waiting.values()) reject(new Error(`the worker ended with ${code}`));
    waiting.clear();
  });
  ipcMain.handle("digits", (_, request) => {
    const number = ++last;
    worker.postMessage({ number, ...request });
    return new Promise((resolve, reject) => waiting.set(number, { resolve, reject }));
  });
  const webPreferences = { preload: here("preload.cjs") };
  new BrowserWindow({ width: 420, height: 560, webPreferences }).loadFile(here("index.html"));
});

app.on("window-all-closed", () => app.quit());
