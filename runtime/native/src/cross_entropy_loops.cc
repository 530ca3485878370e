/* The loops of cross_entropy_loops.inc for each instruction set, and the choice among them. */
#include "cross_entropy_loops.h"

#include "machine.h"

namespace cross_entropy {

#define LOOPS_FILE "cross_entropy_loops.inc"
#include "every_set.inc"

} // namespace cross_entropy
