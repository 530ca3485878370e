/* What happens to a row of logits, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_CROSS_ENTROPY_LOOPS_H
#define FLOW2ONNX_NATIVE_CROSS_ENTROPY_LOOPS_H

#include <cstddef>

namespace cross_entropy {

struct Loops {
    /* The largest of some numbers, one at least; a NaN is larger than all. */
    float (*largest)(const float *x, size_t n);
    /* to[i] = e^(x[i] - most), and the sum of these. */
    float (*powers)(float *to, const float *x, float most, size_t n);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace cross_entropy

#endif
