/* The loops of attention_loops.inc for each instruction set, and the choice among them. */
#include "attention_loops.h"

#include "machine.h"

namespace attention {

#define LOOPS_FILE "attention_loops.inc"
#include "every_set.inc"

} // namespace attention
