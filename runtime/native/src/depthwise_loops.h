/* The loops of depthwise convolutions over channels side by side, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_DEPTHWISE_LOOPS_H
#define FLOW2ONNX_NATIVE_DEPTHWISE_LOOPS_H

#include <cstddef>
#include <cstdint>

namespace depthwise {

/* Elements are vectors of `Loops::width` floats, one of each channel; places count floats. */
struct Place {
    int64_t x, w; /* in what is read, and in the weights, or in the gradient of the output */
};

/* y[i * y_step] = first + sum over r, t of w[rows[r].w + taps[t].w] *
 * x[rows[r].x + taps[t].x + i * x_step], for i < count. */
struct Products {
    const float *x, *w, *first;
    const Place *rows, *taps;
    size_t row_count, tap_count, count, x_step, y_step;
    float *y;
};

/* sums[t] += sum over r, i < count of x[rows[r].x + t * tap_step + i * x_step] * g[rows[r].w + i] */
struct Sums {
    const float *x, *g;
    const Place *rows;
    size_t row_count, taps, count, x_step, tap_step;
    float *sums;
};

/* Channels, each `distance` floats behind the one before; `count` elements in rows of so many,
 * between which the vectors have a gap. */
struct Channels {
    int64_t distance, channels, count, row, gap;
};

struct Loops {
    size_t width; /* floats of a register */
    void (*add)(const Products &);
    void (*sum)(const Sums &);
    void (*interleave)(const Channels &, const float *channels, float *vectors);
    void (*part)(const Channels &, const float *vectors, float *channels); /* without gaps */
};

const Loops &loops(); /* the widest that this processor has */

} // namespace depthwise

#endif
