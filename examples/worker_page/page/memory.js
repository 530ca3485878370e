/** The memory that WebAssembly has in this thread: it only grows, and may be limited. */

const PAGE = 2 ** 16; // bytes
const taken = []; // memories of the builds of onnxruntime that were loaded
let most = Infinity;

WebAssembly.Memory = new Proxy(WebAssembly.Memory, {
  construct(Memory, [{ maximum = Infinity, ...given }]) {
    const memory = new Memory({ ...given, maximum: Math.min(maximum, most) });
    taken.push(memory);
    return memory;
  },
});

/** Let each build of onnxruntime that is loaded from now on take so many bytes at most. */
export function limitMemory(bytes) {
  most = Math.floor(bytes / PAGE);
}

/** The bytes that WebAssembly has taken. */
export function memoryTaken() {
  return taken.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
}
