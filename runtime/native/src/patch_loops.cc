/* The loops of patch_loops.inc for each instruction set, and the choice among them. */
#include "patch_loops.h"

#include "machine.h"

namespace patches {

#define LOOPS_FILE "patch_loops.inc"
#include "every_set.inc"

} // namespace patches
