/* The loops of pools.inc for each instruction set, and the choice among them. */
#include "pools.h"

#include "machine.h"

namespace pools {
namespace baseline {
#define POOLS_WIDTH 4
#include "pools.inc"
}

#ifdef HAS_WIDE_LOOPS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define POOLS_WIDTH 8
#include "pools.inc"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#define POOLS_WIDTH 16
#include "pools.inc"
}
#pragma GCC pop_options
#endif

const Loops &loops() {
#ifdef HAS_WIDE_LOOPS
    static const Loops &chosen = machine::widest(avx512::LOOPS, avx2::LOOPS, baseline::LOOPS);
    return chosen;
#else
    return baseline::LOOPS;
#endif
}

} // namespace pools
