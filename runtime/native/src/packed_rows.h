/* Products whose right side comes transposed, where sgemm is slow at them as they lie: of rows that
 * share sets of the cache, and of many rows by few columns. */
#ifndef FLOW2ONNX_NATIVE_PACKED_ROWS_H
#define FLOW2ONNX_NATIVE_PACKED_ROWS_H

#include <cstdint>

#include "onednn.h"

namespace packed {

/* y[i * y_row + j] = alpha * sum over k of a[i * a_row + k] * b[j * b_row + k], plus beta times
 * what is in y. */
struct RowProduct {
    const float *a, *b;
    float *y;
    int64_t rows, columns, depth; /* of i, j and k */
    int64_t a_row, b_row, y_row;
    float alpha, beta;
};

/* By oneDNN's sgemm, of parts of the rows packed side by side or of the right side transposed.
 * Throws std::bad_alloc. */
onednn::Status multiply_rows(const RowProduct &);

/* Whether that takes less time than sgemm of both sides as they lie. */
bool pays_rows(int64_t rows, int64_t columns, int64_t depth, int64_t a_row, int64_t b_row);

} // namespace packed

#endif
