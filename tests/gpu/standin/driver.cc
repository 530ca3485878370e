// A stand-in for the CUDA driver. A module is a shared library of kernels that the stand-in for
// NVRTC compiled for the host; a launch runs every thread of every block, on the memory as it is.
//
// Where the stand-in for the CUDA runtime is loaded too, it counts launches and records captures.

#include <dlfcn.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host_kernel.h"

extern "C" void standin_enqueue(const char* name, void* stream, void (*work)(void*), void* data)
    __attribute__((weak));

namespace {

using Entry = void (*)(const void*);
using standin::Index3;

constexpr size_t STACK = 1 << 17;
constexpr unsigned WARP = 32;

struct Function {
  std::string name;
  Entry entry;
  size_t bytes;
};

// A thread of a block, with a stack of its own.
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[STACK]};
  Index3 index;
  bool has_ended = false;
};

// The block that runs. Its threads come in turn; one goes on where all of the group it waits for
// wait too.
struct Block {
  ucontext_t scheduler;
  std::vector<Fiber> fibers;
  Fiber* running = nullptr;
  size_t steps = 0;  // arrivals and ends, by which the block goes on
  Index3 index, size, grid;
  Entry entry = nullptr;
  const void* arguments = nullptr;
  uint32_t lanes[32][WARP];
  standin::Words words[32][WARP];
};

Block block;
std::recursive_mutex one_launch;
standin::Host host;

void give_turn() {
  Fiber* self = block.running;
  swapcontext(&self->context, &block.scheduler);
  block.running = self;
  host.thread = &self->index;
}

// Waits for `count` threads from `first` on, all of which have to come here.
void wait_for(size_t first, size_t count) {
  static std::vector<unsigned> arrived(64), rounds(64);
  const size_t group = count == WARP ? 1 + first / WARP : 0;
  const unsigned round = rounds[group];
  block.steps++;
  if (++arrived[group] == count) {
    arrived[group] = 0;
    rounds[group]++;
    return;
  }
  while (rounds[group] == round) give_turn();
}

void wait_for_block() { wait_for(0, block.fibers.size()); }

void wait_for_warp() { wait_for(host.thread->x / WARP * size_t{WARP}, WARP); }

// Until the next wait for the warp.
const standin::Words* collect(const uint32_t (&own)[6]) {
  const unsigned warp = host.thread->x / WARP;
  std::memcpy(block.words[warp][host.thread->x % WARP].at, own, sizeof own);
  wait_for_warp();
  return block.words[warp];
}

uint32_t exchange(uint32_t value, unsigned lane) {
  const unsigned own = host.thread->x, warp = own / WARP;
  block.lanes[warp][own % WARP] = value;
  wait_for_warp();
  const uint32_t found = block.lanes[warp][lane];
  wait_for_warp();
  return found;
}

void run_thread() {
  block.entry(block.arguments);
  block.running->has_ended = true;
  block.steps++;
}

void start(Fiber* fiber, unsigned x) {
  fiber->has_ended = false;
  fiber->index = {x, 0, 0};
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = STACK;
  fiber->context.uc_link = &block.scheduler;
  makecontext(&fiber->context, run_thread, 0);
}

void run_block(const Function& function) {
  for (unsigned x = 0; x < block.size.x; ++x) start(&block.fibers[x], x);
  size_t left = block.fibers.size();
  while (left > 0) {
    const size_t before = block.steps;
    for (Fiber& fiber : block.fibers) {
      if (fiber.has_ended) continue;
      block.running = &fiber;
      host.thread = &fiber.index;
      swapcontext(&block.scheduler, &fiber.context);
      left -= fiber.has_ended;
    }
    if (block.steps == before) {
      std::fprintf(stderr, "%s: threads wait for others that do not come\n", function.name.c_str());
      std::abort();
    }
  }
}

struct Launch {
  const Function* function;
  Index3 grid, size;
  std::vector<char> arguments;
};

void run(void* data) {
  const auto& launch = *static_cast<const Launch*>(data);
  if (launch.function->entry == nullptr) return;
  const std::lock_guard<std::recursive_mutex> guard(one_launch);
  block.grid = launch.grid;
  block.size = launch.size;
  block.entry = launch.function->entry;
  block.arguments = launch.arguments.data();
  if (block.fibers.size() != launch.size.x) block.fibers = std::vector<Fiber>(launch.size.x);
  host = {nullptr, &block.index, &block.size, &block.grid, wait_for_block, wait_for_warp,
          exchange, collect};
  for (unsigned y = 0; y < launch.grid.y; ++y) {
    for (unsigned x = 0; x < launch.grid.x; ++x) {
      block.index = {x, y, 0};
      run_block(*launch.function);
    }
  }
}

int context = 0;  // its address stands for one, and for a module of nothing

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int code, const char** text) {
  *text = code == 1 ? "invalid argument" : code == 500 ? "named symbol not found" : "unknown error";
  return 0;
}
int cuCtxGetCurrent(void** found) {
  *found = &context;
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return number == 0 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** found, int) { return cuCtxGetCurrent(found); }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  *module = &context;
  if (*static_cast<const char*>(image) == 0) return 0;  // launches are counted, nothing runs
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (*module == nullptr) return 1;
  *static_cast<const standin::Host**>(dlsym(*module, "standin_host")) = &host;
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (module == &context) {
    *function = new Function{name, nullptr, 0};
    return 0;
  }
  auto entry = reinterpret_cast<Entry>(dlsym(module, name));
  auto bytes = static_cast<unsigned long*>(dlsym(module, (std::string(name) + "_bytes").c_str()));
  if (entry == nullptr || bytes == nullptr) return 500;
  *function = new Function{name, entry, *bytes};
  return 0;
}
int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  auto work = [](void* data) {
    const auto& copy = *static_cast<Copy*>(data);
    std::memmove(copy.to, copy.from, copy.bytes);
  };
  auto* copy = new Copy{to, from, bytes};  // a graph may ask for it again
  if (standin_enqueue != nullptr) standin_enqueue(nullptr, stream, work, copy);
  else work(copy);
  return 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream,
                   void** arguments, void**) {
  const bool is_legal = x >= 1 && x <= 0x7fffffff && y >= 1 && y <= 0xffff && z == 1 &&
                        threads >= 1 && threads <= 1024 && threads_y == 1 && threads_z == 1 &&
                        shared == 0;
  const auto* asked = static_cast<const Function*>(function);
  if (!is_legal || asked->bytes > 32764) return 1;
  const auto* first = static_cast<const char*>(arguments[0]);
  auto* launch = new Launch{asked, {x, y, z}, {threads, 1, 1}, {first, first + asked->bytes}};
  if (standin_enqueue != nullptr) {
    standin_enqueue(asked->name.c_str(), stream, run, launch);
  } else {
    run(launch);
  }
  return 0;
}
int cuTensorMapEncodeTiled() { return 0; }

}  // extern "C"
