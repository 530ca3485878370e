import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { test } from "node:test";
import * as ort from "onnxruntime-node";

import { Options, Trainer } from "../src/index.js";
import { BUNDLES, CONFORMANCE, files } from "./folders.js";
import { replay } from "./trace.js";

for (const optimization of ["all", "disabled"]) {
  for (const name of BUNDLES) {
    test(`the trace of ${name}, optimization ${optimization}`, async (t) => {
      const options = new Options({ threads: 1, optimization });
      const folder = `${CONFORMANCE}/${name}/bundle`;
      const { worst, tolerance, steps } = await replay(name, folder, files(name), { ort, options });
      t.diagnostic(`worst error ${worst.toExponential(1)} after ${steps} steps`);
      assert.ok(worst <= tolerance, `${worst}`);
    });
  }
}

test("every bundle is run", async () => {
  const entries = await readdir(CONFORMANCE, { withFileTypes: true });
  assert.deepEqual(
    entries
      .filter((e) => e.isDirectory())
      .map((e) => e.name)
      .sort(),
    BUNDLES,
  );
});

for (const name of BUNDLES) {
  test(`the recorded state of ${name} is saved again byte for byte`, async () => {
    const recorded = await files(name)("state.safetensors");
    const trainer = await Trainer.open(`${CONFORMANCE}/${name}/bundle`, { ort });
    assert.equal(await trainer.load(recorded), true);
    assert.deepEqual(await trainer.toBytes(), recorded);
  });
}
