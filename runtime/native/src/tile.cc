/* The loops of tile.inc for each instruction set, and the choice among them. */
#include "tile.h"

#include "adam.h"
#include "machine.h"

namespace tile {

#define LOOPS_FILE "tile.inc"
#include "every_set.inc"

} // namespace tile
