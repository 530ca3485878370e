/* The loops that move what windows see to rows of a matrix and back, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_PATCH_LOOPS_H
#define FLOW2ONNX_NATIVE_PATCH_LOOPS_H

#include <cstddef>
#include <cstdint>

namespace patches {

/* Windows side by side, and the same element of each: where that of the first of those is which do
 * not see a zero there, how many are before them, how many they are, and how many are behind. */
struct Line {
    int64_t first;
    size_t before, count, behind;
};

struct Loops {
    /* The elements along each line, `step` apart, and the zeros, to elements side by side. */
    void (*gather)(float *to, const float *image, const Line *lines, size_t count, size_t step);
    /* The elements at some places, side by side; of a place below zero a zero. */
    void (*pick)(float *to, const float *image, const int32_t *places, size_t count);
    /* Elements side by side to where they are from. */
    void (*scatter)(float *image, const float *from, const Line *lines, size_t count, size_t step);
    /* The same, added to what is there. */
    void (*add)(float *image, const float *from, const Line *lines, size_t count, size_t step);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace patches

#endif
