/* The loops of transpose_loops.inc for each instruction set, and the choice among them. */
#include "transpose_loops.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "machine.h"

namespace transposes {

#define LOOPS_FILE "transpose_loops.inc"
#include "every_set.inc"

} // namespace transposes
