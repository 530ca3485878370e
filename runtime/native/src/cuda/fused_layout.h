/* How the elements of a `Fused` program are shared out on the device.
 *
 * The elements are seen as rows. A group of threads, a warp or a block, has one tile of columns of
 * some rows: all those of one class, a number that the sums ask for, in one of some slices. Sums
 * are made in two steps: each group leaves partial ones in memory, and a second kernel adds them up
 * in an order that never changes.
 */
#ifndef FLOW2ONNX_NATIVE_CUDA_FUSED_LAYOUT_H
#define FLOW2ONNX_NATIVE_CUDA_FUSED_LAYOUT_H

#include <vector>

#include "../fused_plan.h"

namespace cuda {

/* How an output that is a sum comes about. */
struct Sum {
    enum Kind { OF_ALL, OF_ROWS, OF_COLUMNS };
    size_t output;
    Kind kind;
    int64_t offset = 0; /* of its first partial sum, in floats */
    int64_t blocks = 0; /* that add them up */
};

struct Layout {
    int64_t row = 0, rows = 0; /* the row that programs are walked by, and how many there are */
    int64_t group = 0, threads = 0; /* threads of a group and a block */
    int64_t items = 0;              /* elements a thread */
    int64_t tiles = 1, classes = 1, slices = 1;
    int64_t partials = 0; /* floats */
    std::vector<Sum> sums;

    int64_t groups() const { return threads / group; } /* in a block */
    int64_t slots() const { return slices * classes * tiles; }
    int64_t blocks() const { return (slots() + groups() - 1) / groups(); }
    int64_t finishing_blocks() const;
};

/* `processors`: of the device, which run blocks side by side. */
Layout layout_of(const fused::Plan &plan, int64_t processors);

/* The same for programs side by side, as far as they have it in common; whether they can be so. */
bool can_be_part(const fused::Plan &plan);
Layout layout_of_parts(const fused::Plan &plan);

/* How many blocks work on one of them. */
int64_t blocks_of_part(const Layout &layout, int64_t total, int64_t processors);

} // namespace cuda

#endif
