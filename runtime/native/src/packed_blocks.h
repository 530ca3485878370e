/* Products whose left side comes transposed, as gradients of weights do, block by block. */
#ifndef FLOW2ONNX_NATIVE_PACKED_BLOCKS_H
#define FLOW2ONNX_NATIVE_PACKED_BLOCKS_H

#include <cstddef>

namespace packed {

/* y[i * y_row + j] = alpha * sum over k of a[k * a_row + i] * b[k * b_row + j], plus what is in y
 * if it `adds`. */
struct TransposedProduct {
    const float *a, *b;
    float *y;
    size_t rows, columns, depth; /* of i, j and k */
    size_t a_row, b_row, y_row;
    float alpha;
    bool adds;
};

/* Each element is the same whatever rows and columns are computed with it. Throws
 * std::bad_alloc. */
void multiply_transposed(const TransposedProduct &);

/* Whether that takes less time than oneDNN's sgemm, on this processor, of enough terms. */
bool pays_transposed(size_t rows, size_t columns);

} // namespace packed

#endif
