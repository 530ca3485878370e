/* The loops of recurrence_loops.inc for each instruction set, and the choice among them. */
#include "recurrence_loops.h"

#include <cstdint>

#include "machine.h"

namespace recurrence {

#define LOOPS_FILE "recurrence_loops.inc"
#include "every_set.inc"

} // namespace recurrence
