/* The loops of packed_loops.inc for each instruction set, and the choice among them. */
#include "packed_loops.h"

#include "machine.h"

/* Sums of products may round once here: nothing that they stand for prescribes an order. */
#ifdef __clang__
#pragma STDC FP_CONTRACT ON
#else
#pragma GCC optimize("fp-contract=fast")
#endif

namespace packed {

#define LOOPS_FILE "packed_loops.inc"
#include "every_set.inc"

} // namespace packed
