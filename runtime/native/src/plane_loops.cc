/* The loops of plane_loops.inc for each instruction set, and the choice among them. */
#include "plane_loops.h"

#include "machine.h"

/* Sums of products may round once here: nothing that they stand for prescribes an order. */
#ifdef __clang__
#pragma STDC FP_CONTRACT ON
#else
#pragma GCC optimize("fp-contract=fast")
#endif

namespace planes {

#define LOOPS_FILE "plane_loops.inc"
#include "every_set.inc"

} // namespace planes
