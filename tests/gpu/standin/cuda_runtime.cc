// A stand-in for the CUDA runtime. Device memory is host memory; copies and memsets really happen,
// in a capture at each launch of its graph, and from pinned memory as late as CUDA allows; kernels
// are counted and not run.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "device.h"

using standin::Copies;
using standin::Device;
using standin::Graph;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

struct LaunchShape {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local LaunchShape launch_shape;

struct Locked {
  Device& device = Device::get();
  std::lock_guard<std::recursive_mutex> lock{device.mutex};
  Device* operator->() { return &device; }
};

cudaError_t fail(cudaError_t error) { return last_error = error; }

// A handle that nothing is read from.
template <class Handle>
cudaError_t make(Handle* handle) {
  *handle = static_cast<Handle>(std::malloc(8));
  return cudaSuccess;
}

// What a device that has stopped answers.
cudaError_t fault() { return fail(static_cast<cudaError_t>(Locked()->fault)); }
bool has_stopped() { return Locked()->fault != 0; }

cudaError_t launch(const void* kernel, void* stream) {
  Locked device;
  if (has_stopped()) return fault();
  device->launching.insert(stream);
  if (!device->captures_on(stream)) device->finish(stream);
  auto name = device->kernel_names.find(kernel);
  device->launch(name == device->kernel_names.end() ? "unknown" : name->second);
  return cudaSuccess;
}

cudaError_t allocate(void** pointer, size_t bytes) {
  Locked device;
  *pointer = nullptr;
  if (device->used + bytes > device->size) return fail(cudaErrorMemoryAllocation);
  if (posix_memalign(pointer, 256, std::max<size_t>(bytes, 1))) {
    return fail(cudaErrorMemoryAllocation);
  }
  // Small blocks begin as NaN, so that what is read before it is written shows.
  if (bytes <= 1 << 16) std::memset(*pointer, 0xff, bytes);
  device->memory.add(*pointer, bytes);
  device->used += bytes;
  device->peak = std::max(device->peak, device->used);
  device->counters.allocations++;
  return cudaSuccess;
}

void count_copy(const void* to, const void* from, size_t bytes, void* stream) {
  Locked device;
  bool from_device = device->memory.holds(from), to_device = device->memory.holds(to);
  bool is_beside = stream != nullptr && !device->launching.count(stream);
  auto count = [&](Copies& copies, const void* host) {
    copies.count++;
    copies.bytes += bytes;
    if (host != nullptr && device->pinned.holds(host)) copies.pinned += bytes;
    if (is_beside) copies.beside += bytes;
  };
  auto& counters = device->counters;
  if (from_device && to_device) count(counters.on_device, nullptr);
  if (!from_device && to_device) count(counters.to_device, from);
  if (from_device && !to_device) count(counters.to_host, to);
}

void copy(void* to, const void* from, size_t bytes, void* stream) {
  count_copy(to, from, bytes, stream);
  std::memmove(to, from, bytes);
}

void write(std::ostream& out, const char* name, const Copies& copies) {
  out << '"' << name << "\":{\"count\":" << copies.count << ",\"bytes\":" << copies.bytes
      << ",\"pinned\":" << copies.pinned << ",\"beside\":" << copies.beside << "},";
}

void write(std::ostream& out, const char* name, const std::map<std::string, long>& counts) {
  out << '"' << name << "\":{";
  const char* separator = "";
  for (auto& [key, count] : counts) {
    out << separator << '"' << key << "\":" << count;
    separator = ",";
  }
  out << "},";
}

}  // namespace

extern "C" {

// --- for tests and the other libraries -----------------------------------------------------------
int standin_launch(const char* name) {
  Locked device;
  const bool is_refused = !device->refused.empty() &&
                          std::string(name).compare(0, device->refused.size(), device->refused) == 0;
  if (!is_refused) device->launch(name);
  return is_refused ? 3000 : 0;  // CUDNN_STATUS_NOT_SUPPORTED
}

// Work on a stream that a library brings along; it is a launch where it has a name.
void standin_enqueue(const char* name, void* stream, void (*work)(void*), void* data) {
  Locked device;
  if (name != nullptr) device->launch(name);
  device->enqueue(stream, [=] { work(data); });
}

void standin_reset() {
  Locked device;
  device->counters = {};
  device->peak = device->used;
}

void standin_resize(size_t bytes) { Locked()->size = bytes; }

// Work of this library fails from now on, as a form that it does not have; of none, if empty.
void standin_refuse_work(const char* prefix) { Locked()->refused = prefix; }

void standin_refuse_captures(int refuses) { Locked()->refuses_captures = refuses != 0; }

void standin_stop(int error) { Locked()->fault = error; }

const char* standin_report() {
  static std::string report;
  Locked device;
  auto& c = device->counters;
  std::ostringstream out;
  out << "{\"kernels\":" << c.kernels << ",\"graph_launches\":" << c.graph_launches
      << ",\"graph_kernels\":" << c.graph_kernels << ",\"captures\":" << c.captures << ",\"waits\":" << c.waits
      << ",\"allocations\":" << c.allocations << ',';
  write(out, "to_device", c.to_device);
  write(out, "to_host", c.to_host);
  write(out, "on_device", c.on_device);
  write(out, "launched", c.launched);
  write(out, "violations", c.violations);
  out << "\"used\":" << device->used << ",\"peak\":" << device->peak << '}';
  report = out.str();
  return report.c_str();
}

// --- kernels -------------------------------------------------------------------------------------
void** __cudaRegisterFatBinary(void*) {
  static void* handle[4];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Locked()->kernel_names[stub] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  launch_shape = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = launch_shape.grid;
  *block = launch_shape.block;
  *shared = launch_shape.shared;
  *static_cast<void**>(stream) = launch_shape.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3,
                               void**, size_t, cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t,
                                        cudaStream_t stream) {
  return launch(kernel, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return launch(kernel, config->stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  Locked()->is_forbidden(__func__);
  Locked()->finish(stream);
  function(argument);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 8;
  return cudaSuccess;
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**,
                                unsigned, cudaLibraryOption*, void**, unsigned) {
  return make(library);
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  make(kernel);
  Locked()->kernel_names[*kernel] = name;
  return cudaSuccess;
}

// --- devices: an H200 ----------------------------------------------------------------------------
cudaError_t cudaGetDeviceCount(int* count) {
  *count = Locked()->devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* id) {
  *id = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int id) {
  if (id < 0 || id >= Locked()->devices) return fail(cudaErrorInvalidDevice);
  current_device = id;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int id) {
  Locked device;
  if (id < 0 || id >= device->devices) return fail(cudaErrorInvalidDevice);
  std::memset(p, 0, sizeof *p);
  std::strcpy(p->name, "NVIDIA H200 (stand-in)");
  p->major = 9;
  p->multiProcessorCount = 132;
  p->totalGlobalMem = device->size;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = 1 << 16;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 0xffff;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->l2CacheSize = 60 << 20;
  p->textureAlignment = 512;
  p->memPitch = 0x7fffffff;
  p->concurrentKernels = p->memoryPoolsSupported = p->unifiedAddressing = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> known = {
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrWarpSize, 32},
  };
  auto found = known.find(attribute);
  *value = found == known.end() ? 1 : found->second;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// --- errors --------------------------------------------------------------------------------------
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    default: return "unknown error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default: return "unknown error";
  }
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

// --- memory --------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (has_stopped()) return fault();
  if (Locked()->is_forbidden(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
  return allocate(pointer, bytes);
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return allocate(pointer, bytes);
}
cudaError_t cudaFree(void* pointer) {
  Locked device;
  if (pointer == nullptr) return cudaSuccess;
  device->finish_all();
  if (device->is_forbidden(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
  if (device->memory.holds(pointer)) {
    device->used -= device->memory.remove(pointer);
    std::free(pointer);
  }
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (posix_memalign(pointer, 256, std::max<size_t>(bytes, 1))) {
    return fail(cudaErrorMemoryAllocation);
  }
  Locked()->pinned.add(*pointer, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, 0);
}
cudaError_t cudaFreeHost(void* pointer) {
  Locked()->finish_all();
  Locked()->pinned.remove(pointer);
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Locked device;
  if (has_stopped()) return fault();
  *total = device->size;
  *free = device->size - std::min(device->used, device->size);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Locked device;
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = device->memory.holds(pointer)   ? cudaMemoryTypeDevice
                     : device->pinned.holds(pointer) ? cudaMemoryTypeHost
                                                     : cudaMemoryTypeUnregistered;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { return make(pool); }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<long*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

// --- copies --------------------------------------------------------------------------------------
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  Locked device;
  if (has_stopped()) return fault();
  if (device->is_forbidden(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
  device->counters.waits++;
  device->finish(nullptr);
  copy(to, from, bytes, nullptr);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  Locked device;
  if (has_stopped()) return fault();
  if (device->captures_on(stream) &&
      !(device->memory.holds(to) && device->memory.holds(from))) {
    // Legal for pinned memory, and yet wrong: the address is read again at every launch.
    device->counters.violations["captured copy of host memory"]++;
  }
  if (!device->captures_on(stream) && device->pinned.holds(from) && device->memory.holds(to)) {
    count_copy(to, from, bytes, stream);
    device->defer(stream, [=] { std::memmove(to, from, bytes); });
  } else {
    device->enqueue(stream, [=] { copy(to, from, bytes, stream); });
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  Locked()->enqueue(stream, [=] {
    for (size_t row = 0; row < height; row++) {
      copy(static_cast<char*>(to) + row * to_pitch,
           static_cast<const char*>(from) + row * from_pitch, width, stream);
    }
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpyFromSymbol(void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  Locked device;
  device->counters.launched["memset"]++;
  device->enqueue(stream, [=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}

// --- streams, events, graphs: all but copies from pinned memory is done when it is asked for -----
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = static_cast<cudaStream_t>(std::malloc(8));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Locked device;
  device->finish(stream);
  device->launching.erase(stream);
  if (device->captures_on(stream)) device->capture = nullptr;
  std::free(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  Locked()->finish_all();  // which stream the event is of is not kept
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Locked device;
  if (has_stopped()) return fault();
  bool is_captured = device->captures_on(stream) || stream == nullptr;
  if (is_captured && device->is_forbidden(__func__)) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  device->counters.waits++;
  device->finish(stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  Locked device;
  if (has_stopped()) return fault();
  if (device->is_forbidden(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
  device->counters.waits++;
  device->finish_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make(event); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  Locked device;
  if (device->is_forbidden(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
  device->counters.waits++;
  device->finish_all();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Locked device;
  if (device->refuses_captures) return fail(cudaErrorStreamCaptureUnsupported);
  device->capture = new Graph;
  device->capture_stream = stream;
  device->counters.captures++;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  Locked device;
  *graph = reinterpret_cast<cudaGraph_t>(device->capture);
  device->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = Locked()->captures_on(stream) ? cudaStreamCaptureStatusActive
                                          : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph,
                                 unsigned long long) {
  *instance = reinterpret_cast<cudaGraphExec_t>(graph);  // one Graph is both, and stays
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  Locked device;
  if (has_stopped()) return fault();
  auto* graph = reinterpret_cast<Graph*>(instance);
  device->finish(stream);
  device->counters.graph_launches++;
  device->counters.graph_kernels += graph->kernels;
  for (auto& work : graph->work) work();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

}  // extern "C"
