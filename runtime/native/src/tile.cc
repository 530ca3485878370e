/* The loops of tile.inc for each instruction set, and the choice among them. */
#include "tile.h"

#include "adam.h"
#include "machine.h"

namespace tile {
namespace baseline {
#include "tile.inc"
}

#ifdef HAS_WIDE_LOOPS
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
    static const Loops &chosen = machine::widest(avx512::LOOPS, avx2::LOOPS, baseline::LOOPS);
    return chosen;
#else
    return baseline::LOOPS;
#endif
}

} // namespace tile
