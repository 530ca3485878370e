/** The worker's side of a page: functions that answer calls by name, and its onnxruntime. */

const BUILDS = { wasm: "./ort/ort.wasm.min.mjs", webgpu: "./ort/ort.webgpu.min.mjs" };
const MOST_THREADS = 8;
// Threads of a subgroup that onnxruntime-web 1.30 computes attention right with; software has 4.
const SMALLEST_SUBGROUP = 8;

/** Let functions by name answer the page; each gets what is given, and `tell` for its news. */
export function answerBy(functions) {
  self.onmessage = async ({ data: { id, name, given } }) => {
    const tell = (news) => self.postMessage({ id, news });
    try {
      self.postMessage({ id, result: await functions[name](given ?? {}, tell) });
    } catch (error) {
      self.postMessage({ id, error: error?.message ?? String(error) }); // WebAssembly throws numbers
    }
  };
}

/** Do something, then `end`, also where it fails: what failed first is thrown. */
export async function actThenEnd(act, end) {
  let result;
  try {
    result = await act();
  } catch (error) {
    await Promise.resolve().then(end).catch(() => {});
    throw error;
  }
  await end();
  return result;
}

/** The threads that a page may have: several where it is isolated from other origins. */
export function threads() {
  return self.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, MOST_THREADS) : 1;
}

/**
 * The build of onnxruntime for a provider. That for WebGPU lacks contrib kernels for the processor.
 */
export async function loadRuntime(provider) {
  if (provider === "webgpu") leaveOutSmallSubgroups();
  const ort = await import(BUILDS[provider]);
  ort.env.wasm.numThreads = threads();
  return ort;
}

/** Let onnxruntime ask for a GPU without subgroups, where they are too small for its kernels. */
function leaveOutSmallSubgroups() {
  const prototype = self.GPUAdapter?.prototype;
  if (!prototype || prototype.isChanged) return;
  const { requestDevice } = prototype;
  prototype.isChanged = true;
  prototype.requestDevice = function (wanted = {}) {
    const isSmall = this.info?.subgroupMinSize < SMALLEST_SUBGROUP;
    const features = [...(wanted.requiredFeatures ?? [])];
    const requiredFeatures = isSmall ? features.filter((name) => !/^subgroup/.test(name)) : features;
    return requestDevice.call(this, { ...wanted, requiredFeatures });
  };
}
