import assert from "node:assert/strict";
import { test } from "node:test";

import { BUNDLES } from "../folders.js";
import { SOFTWARE_GPU, skip, withPage } from "./chromium.js";

const GPU = "ort.webgpu.min.mjs";

/** The worst error of a trace, found in the page; `file` is the build of onnxruntime-web. */
function replayed(page, name, provider, file, limit = 1e9) {
  return page.evaluate(
    async ({ name, provider, file, limit }) => {
      const { Options } = await import("/runtime/js/src/index.js");
      const { replay } = await import("/runtime/js/test/trace.js");
      const ort = await import(`/runtime/js/node_modules/onnxruntime-web/dist/${file}`);
      const folder = `/runtime/conformance/${name}`;
      const load = async (path) => {
        return new Uint8Array(await (await fetch(`${folder}/${path}`)).arrayBuffer());
      };
      const options = new Options({ provider });
      return replay(name, `${folder}/bundle`, load, { ort, options, limit });
    },
    { name, provider, file, limit },
  );
}

for (const name of BUNDLES) {
  test(`the trace of ${name} in Chromium`, { skip }, async (t) => {
    const act = (page) => replayed(page, name, "wasm", "ort.wasm.min.mjs");
    const { worst, tolerance, steps } = await withPage(act);
    t.diagnostic(`worst error ${worst.toExponential(1)} after ${steps} steps`);
    assert.ok(worst <= tolerance, `${worst}`);
  });
}

// The build `ort.webgpu` has no kernel for the schedule of `mlp`, which is in float64.
for (const [name, file] of [
  ["lenet", GPU],
  ["transformer", GPU],
  ["mlp", "ort.all.min.mjs"],
]) {
  test(`40 steps of ${name} with WebGPU in software, ${file}`, { skip }, async (t) => {
    const act = (page) => replayed(page, name, "webgpu", file, 40);
    const { worst, steps } = await withPage(act, { flags: SOFTWARE_GPU });
    t.diagnostic(`worst error ${worst.toExponential(1)} after ${steps} steps`);
    assert.ok(worst <= 1e-4, `${worst}`);
  });
}

test(
  "with WebGPU the state stays on the GPU, and what is replaced is given back",
  { skip },
  async () => {
    const found = await withPage(
      (page) =>
        page.evaluate(async (file) => {
          let live = 0;
          const { createBuffer } = GPUDevice.prototype;
          GPUDevice.prototype.createBuffer = function (description) {
            live += 1;
            const buffer = createBuffer.call(this, description);
            const destroy = buffer.destroy.bind(buffer);
            buffer.destroy = () => ((live -= 1), destroy());
            return buffer;
          };
          const { Options, Trainer } = await import("/runtime/js/src/index.js");
          const ort = await import(`/runtime/js/node_modules/onnxruntime-web/dist/${file}`);
          const options = new Options({ provider: "webgpu" });
          const trainer = await Trainer.open("/runtime/conformance/lenet/bundle", { ort, options });
          const feeds = [new Float32Array(8 * 64), new Int32Array(8)];
          const lives = [];
          let old;
          for (let i = 0; i < 12; i++) {
            if (i === 6) old = trainer.state.tensor("conv1-weight");
            await trainer.step(feeds);
            await trainer.evaluate(feeds);
            lives.push(live);
          }
          const { location } = trainer.state.tensor("conv1-weight");
          let isGone = false;
          try {
            void old.gpuBuffer;
          } catch {
            isGone = true;
          }
          const saved = await trainer.toBytes();
          await trainer.load(saved);
          await trainer.step(feeds);
          const steps = trainer.steps;
          await trainer.dispose();
          return { lives, location, isGone, steps };
        }, GPU),
      { flags: SOFTWARE_GPU },
    );
    assert.equal(found.location, "gpu-buffer");
    assert.equal(found.isGone, true);
    assert.equal(found.steps, 13);
    assert.ok(found.lives[3] > 0, `${found.lives}`);
    assert.equal(found.lives.at(-1), found.lives[3], `${found.lives}`);
  },
);

test("a build that lacks a kernel of the model says so", { skip }, async () => {
  const told = await withPage(
    (page) =>
      page.evaluate(async (file) => {
        const { Options, Trainer } = await import("/runtime/js/src/index.js");
        const ort = await import(`/runtime/js/node_modules/onnxruntime-web/dist/${file}`);
        const options = new Options({ provider: "webgpu" });
        const opened = Trainer.open("/runtime/conformance/mlp/bundle", { ort, options });
        return opened.then(
          () => "opened",
          (e) => `${e.name}: ${e.message}`,
        );
      }, GPU),
    { flags: SOFTWARE_GPU },
  );
  // Either it says so, or a later release has the kernel.
  assert.match(told, /^(opened|(Bundle|Provider)Error: .*step\.onnx.*(\n.*)*build of onnxruntime)/);
});

test("a provider that is not there is refused", { skip }, async () => {
  const told = await withPage((page) =>
    page.evaluate(async (file) => {
      const { Options, ProviderError, Trainer } = await import("/runtime/js/src/index.js");
      const ort = await import(`/runtime/js/node_modules/onnxruntime-web/dist/${file}`);
      const tell = (provider) =>
        Trainer.open("/runtime/conformance/mlp/bundle", {
          ort,
          options: new Options({ provider }),
        }).then(
          () => "opened",
          (e) => `${e instanceof ProviderError} ${e.message}`,
        );
      return [await tell("webgpu"), await tell("abacus")];
    }, "ort.wasm.min.mjs"),
  );
  for (const text of told) assert.match(text, /^true .*cannot be used/);
});

test("damages of a bundle and of a saved state, in Chromium", { skip }, async (t) => {
  const cases = await withPage((page) =>
    page.evaluate(async () => {
      const { BundleError, Trainer } = await import("/runtime/js/src/index.js");
      const { damages } = await import("/runtime/js/test/damages.js");
      const ort = await import("/runtime/js/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
      const folder = "/runtime/conformance/mlp/bundle";
      const load = async (name) => {
        return [name, new Uint8Array(await (await fetch(`${folder}/${name}`)).arrayBuffer())];
      };
      const manifest = await (await fetch(`${folder}/manifest.json`)).json();
      const names = ["manifest.json", ...Object.keys(manifest.files)];
      const files = new Map(await Promise.all(names.map(load)));
      const trainer = await Trainer.open(files, { ort });
      let cases = 0;
      const refused = async (act, what) => {
        const error = await act().then(
          () => null,
          (e) => e,
        );
        if (!(error instanceof BundleError)) throw new Error(`${what}: ${error}`);
        cases += 1;
      };
      for (const [name, whole] of files) {
        for (const { what, content } of damages(whole, 50, 12)) {
          const damaged = new Map(files).set(name, content);
          await refused(() => Trainer.open(damaged, { ort }), `${name}: ${what}`);
        }
      }
      const saved = await trainer.toBytes();
      for (const { what, content } of damages(saved, 150, 36)) {
        await refused(() => trainer.load(content), what);
      }
      if (String(await trainer.toBytes()) !== String(saved)) throw new Error("the state changed");
      return cases;
    }),
  );
  t.diagnostic(`${cases} cases`);
  assert.ok(cases >= 500, `${cases}`);
});

test("a state in IndexedDB survives a reload", { skip }, async () => {
  const steps = await withPage(async (page) => {
    const act = () =>
      page.evaluate(async () => {
        const { Trainer, indexedDBStore } = await import("/runtime/js/src/index.js");
        const ort = await import("/runtime/js/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
        const trainer = await Trainer.open("/runtime/conformance/mlp/bundle", { ort });
        const store = indexedDBStore("state");
        const isBack = await trainer.load(store);
        await trainer.step([new Float32Array(160).fill(0.5), new Int32Array(8)]);
        await trainer.save(store);
        return [isBack, trainer.steps, (await trainer.toBytes()).join()];
      });
    const first = await act();
    await page.reload();
    const second = await act();
    await page.evaluate(async () => {
      const { indexedDBStore } = await import("/runtime/js/src/index.js");
      await indexedDBStore("state").remove();
    });
    await page.reload();
    const third = await act();
    return [first, second, third];
  });
  assert.deepEqual(
    steps.map(([isBack, count]) => [isBack, count]),
    [
      [false, 1],
      [true, 2],
      [false, 1],
    ],
  );
  assert.equal(steps[2][2], steps[0][2]);
});
