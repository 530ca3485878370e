// What a kernel text meets when it is compiled for the host: CUDA's words, and one thread at a time.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace standin {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// What the driver of the stand-in offers to kernels. Threads of a block take turns: one gives its
// turn away where it waits for others.
struct Host {
  const Index3* thread;
  const Index3* block;
  const Index3* block_size;
  const Index3* grid_size;
  void (*wait_for_block)();
  uint32_t (*exchange)(uint32_t value, unsigned lane);  // the value of that lane of the warp
};

}  // namespace standin

extern "C" const standin::Host* standin_host;

#define threadIdx (*standin_host->thread)
#define blockIdx (*standin_host->block)
#define blockDim (*standin_host->block_size)
#define gridDim (*standin_host->grid_size)
#define __device__
#define __forceinline__ inline
#define SHARED static
#define KERNEL(name, threads)                                                       \
  static void name##_body(const Arguments& p);                                      \
  extern "C" const unsigned long name##_bytes = sizeof(Arguments);                  \
  extern "C" void name(const void* p) { name##_body(*(const Arguments*)p); }        \
  static void name##_body(const Arguments& p)

static inline void __syncthreads() { standin_host->wait_for_block(); }
static inline float __uint_as_float(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}
static inline uint32_t __float_as_uint(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}
static inline float __shfl_xor_sync(unsigned, float x, int step) {
  return __uint_as_float(
      standin_host->exchange(__float_as_uint(x), (threadIdx.x % 32) ^ (unsigned)step));
}
static inline float __shfl_sync(unsigned, float x, int lane) {
  return __uint_as_float(standin_host->exchange(__float_as_uint(x), (unsigned)lane % 32));
}
static inline float normcdff(float x) { return 0.5f * std::erfc(x * -0.70710678118654752f); }
