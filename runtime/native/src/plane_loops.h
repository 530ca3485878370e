/* The loops of convolutions over shifted planes, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_PLANE_LOOPS_H
#define FLOW2ONNX_NATIVE_PLANE_LOOPS_H

#include <cstddef>
#include <cstdint>

namespace planes {

constexpr size_t LANES = 16;  /* of the widest register: counts are rounded up to it */
constexpr size_t OUTPUTS = 4; /* at a time, at most */

/* y[o * step + i] = first[o] + sum over t of w[t * outputs + o] * x[at[t] + i], for i < count. */
struct Correlation {
    const float *x, *w, *first;
    const int32_t *at;
    size_t taps, outputs, count, step;
    float *y;
};

/* sums[o * step + t] += sum over i < count of g[o * g_step + i] * x[at[t] + i] */
struct Dots {
    const float *x, *g;
    const int32_t *at;
    size_t taps, outputs, count, g_step, step;
    float *sums;
};

struct Loops {
    void (*correlate)(const Correlation &);
    void (*dot)(const Dots &);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace planes

#endif
