/** All that the page may ask of the other processes. */

const { contextBridge, ipcRenderer } = require("electron");

contextBridge.exposeInMainWorld("digits", {
  ask: (method, ...given) => ipcRenderer.invoke("digits", { method, given }),
});
