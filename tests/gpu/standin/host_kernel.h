// What a kernel text meets when it is compiled for the host: CUDA's words, and one thread at a time.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace standin {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// What a lane shows to the others of its warp.
struct Words {
  uint32_t at[6];
};

// What the driver of the stand-in offers to kernels. Threads of a block take turns: one gives its
// turn away where it waits for others.
struct Host {
  const Index3* thread;
  const Index3* block;
  const Index3* block_size;
  const Index3* grid_size;
  void (*wait_for_block)();
  void (*wait_for_warp)();
  uint32_t (*exchange)(uint32_t value, unsigned lane);  // the value of that lane of the warp
  const Words* (*collect)(const uint32_t (&own)[6]);    // what all lanes of the warp show
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

// Conversions of float16, by whole numbers, as not every compiler has the type.
#define HAS_HALVES
static inline float float16_to_float(unsigned short bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, rest = (bits & 0x7fffu) << 13;
  const float found = __uint_as_float(rest) * 0x1p112f;  // the exponent has another origin
  const bool is_number = (bits & 0x7c00u) != 0x7c00u;
  return __uint_as_float(sign | (is_number ? __float_as_uint(found) : rest | 0x7f800000u));
}
static inline unsigned short float_to_float16(float x) {
  const uint32_t all = __float_as_uint(x), sign = (all >> 16) & 0x8000u, rest = all & 0x7fffffffu;
  uint32_t found;
  if (rest > 0x7f800000u) found = 0x7e00u;
  else if (rest >= 0x477ff000u) found = 0x7c00u;  // from 65520 on
  else if (rest < 0x38800000u) found = __float_as_uint(__uint_as_float(rest) + 0.5f) - 0x3f000000u;
  else found = (rest - 0x38000000u + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  return (unsigned short)(sign | found);
}

// What tensor cores do, by the layout that the PTX manual gives for mma.m16n8k8 of tf32: lane
// 4 g + t holds of A (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), of B (t, g), (t + 4, g), and of C
// (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
#define HAS_TENSOR_CORES
static inline unsigned to_tf32(float x) {
  const uint32_t bits = __float_as_uint(x);
  const bool is_number = (bits & 0x7f800000u) != 0x7f800000u;
  return is_number ? (bits + 0x1000u) & ~0x1fffu : bits;
}
static inline void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const standin::Words* all = standin_host->collect(own);
  for (unsigned e = 0; e < 4; ++e) {
    for (unsigned k = 0; k < 8; ++k) {
      const uint32_t left = all[g * 4 + k % 4].at[e / 2 + k / 4 * 2];
      const uint32_t right = all[(2 * t + e % 2) * 4 + k % 4].at[4 + k / 4];
      c[e] += __uint_as_float(left) * __uint_as_float(right);
    }
  }
  standin_host->wait_for_warp();
}
