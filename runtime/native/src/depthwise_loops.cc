/* The loops of depthwise_loops.inc for each instruction set, and the choice among them. */
#include "depthwise_loops.h"

#include <algorithm>
#include <utility>

#include "machine.h"

/* Sums of products may round once here: nothing that they stand for prescribes an order. */
#ifdef __clang__
#pragma STDC FP_CONTRACT ON
#else
#pragma GCC optimize("fp-contract=fast")
#endif

namespace depthwise {

#define LOOPS_FILE "depthwise_loops.inc"
#include "every_set.inc"

} // namespace depthwise
