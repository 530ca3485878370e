/** Where the tests find things. */

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
export const CONFORMANCE = fileURLToPath(new URL("../../conformance", import.meta.url));
export const BUNDLES = ["lenet", "mixed", "mlp", "named", "transformer"];

/** A function that reads the files of a conformance folder. */
export function files(name) {
  return async (file) => new Uint8Array(await readFile(`${CONFORMANCE}/${name}/${file}`));
}
