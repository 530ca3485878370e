/* The loops of pools.inc for each instruction set, and the choice among them. */
#include "pools.h"

#include "machine.h"

namespace pools {

#define LOOPS_FILE "pools.inc"
#include "every_set.inc"

} // namespace pools
