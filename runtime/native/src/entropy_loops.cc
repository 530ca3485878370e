/* The loops of entropy_loops.inc for each instruction set, and the choice among them. */
#include "entropy_loops.h"

#include "machine.h"

namespace entropy {

#define LOOPS_FILE "entropy_loops.inc"
#include "every_set.inc"

} // namespace entropy
