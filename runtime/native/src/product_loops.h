/* The loops of products beside those of oneDNN, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_PRODUCT_LOOPS_H
#define FLOW2ONNX_NATIVE_PRODUCT_LOOPS_H

#include <cstddef>

namespace product {

/* y[i * y_row + j] = alpha * sum over k of a[i * a_row + k] * b[j * b_row + k] */
struct Dots {
    const float *a, *b;
    float *y;
    size_t rows, columns, depth; /* of i, j and k */
    size_t a_row, b_row, y_row;
    float alpha;
};

struct Loops {
    void (*dots)(const Dots &); /* terms are added in an order that depends on the depth alone */
    /* to[j] times one where above[j] is above zero, else times zero */
    void (*mask)(float *to, const float *above, size_t n);
    void (*mask_and_sum)(float *to, const float *above, float *sums, size_t n);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace product

#endif
