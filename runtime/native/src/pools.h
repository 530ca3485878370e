/* Pools of maxima, and their gradients, over planes: the loops for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_POOLS_H
#define FLOW2ONNX_NATIVE_POOLS_H

#include <cstddef>
#include <cstdint>

#include "abi.h"

namespace pools {

constexpr size_t LANES = 16;        /* rows in the cache are whole in it */
constexpr size_t MOST_PLACES = abi::MOST_POOL_WINDOW;

inline size_t whole(size_t count) { return (count + LANES - 1) / LANES * LANES; }

/* How windows lie on a plane. Each has at least one element of it. */
struct Pool {
    size_t height, width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x;
    size_t top, left; /* padding */

    size_t plane() const { return height * width; }
    size_t results() const { return out_height * out_width; }

    /* The floats of a row, from the padding before it on, that the loops read for its windows. */
    size_t extent() const { return stride_x * whole(out_width) + kernel_width; }
    /* Whether no window has padding at its left or right. */
    bool is_inside() const {
        return left == 0 && (out_width - 1) * stride_x + kernel_width <= width;
    }

    /* Windows that begin so far before an element, in steps, may still have it. */
    size_t reach() const { return (kernel_width - 1) / stride_x; }
    /* The steps of a row that has gradients, padding before it included. */
    size_t steps() const { return whole((left + width + stride_x - 1) / stride_x); }
    /* A row of results with nothing before and after it, as far as a row of gradients looks. */
    size_t framed() const {
        return whole(reach() + (steps() > out_width ? steps() : out_width)) + LANES;
    }
    /* The rows of results whose windows share a row of the plane: no more than this power of 2. */
    size_t sharing() const { return power((kernel_height - 1) / stride_y + 1); }
    size_t kept_rows() const { return power(kernel_height); }
    static size_t power(size_t least) {
        size_t found = 1;
        while (found < least) found *= 2;
        return found;
    }

    /* The floats that the loops work in. */
    size_t room() const { return 3 * whole(out_width) + kept_rows() * whole(extent()); }
    size_t gradient_room() const { return stride_x * steps() + 2 * sharing() * framed(); }
};

struct Loops {
    /* Of each window of some planes the greatest element, and its place: the first in the order of
     * rows, counted in the window, padding included. */
    void (*greatest)(const Pool &, const float *x, float *y, uint8_t *places, size_t planes,
                     float *room);
    /* What each element of some planes gets from the windows in which it is at `places`. A place
     * that is none of a window's in the plane counts for nothing. */
    void (*gradient)(const Pool &, const float *g, const uint8_t *places, float *dx, size_t planes,
                     float *room);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace pools

#endif
