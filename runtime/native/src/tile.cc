/* The loops of tile.inc for each instruction set, and the choice among them. */
#include "tile.h"

#include <memory>

namespace tile {
namespace baseline {
#include "tile.inc"
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_WIDE_LOOPS 1
/* Said apart: g++ has read the whole file before a pragma can define __FMA__. */
#define TILE_HAS_FMA 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "tile.inc"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#include "tile.inc"
}
#pragma GCC pop_options
#endif

const Loops &loops() {
#ifdef HAS_WIDE_LOOPS
    static const Loops &chosen = __builtin_cpu_supports("avx512f") &&
                                         __builtin_cpu_supports("avx512dq") &&
                                         __builtin_cpu_supports("avx512bw") &&
                                         __builtin_cpu_supports("avx512vl")
                                     ? avx512::LOOPS
                                 : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                                     ? avx2::LOOPS
                                     : baseline::LOOPS;
    return chosen;
#else
    return baseline::LOOPS;
#endif
}

float *scratch(size_t floats) {
    thread_local std::unique_ptr<float[]> memory;
    thread_local size_t capacity = 0;
    if (floats > capacity) {
        memory.reset(new float[floats + 16]);
        capacity = floats;
    }
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    return reinterpret_cast<float *>((address + 63) & ~uintptr_t(63));
}

} // namespace tile
