/* The loops of product_loops.inc for each instruction set, and the choice among them. */
#include "product_loops.h"

#include "machine.h"

/* Sums of products may round once here: nothing that they stand for prescribes an order. */
#ifdef __clang__
#pragma STDC FP_CONTRACT ON
#else
#pragma GCC optimize("fp-contract=fast")
#endif

namespace product {
namespace baseline {
#define PRODUCT_WIDTH 4
#include "product_loops.inc"
}

#ifdef HAS_WIDE_LOOPS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define PRODUCT_WIDTH 8
#include "product_loops.inc"
}
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#define PRODUCT_WIDTH 16
#include "product_loops.inc"
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

} // namespace product
