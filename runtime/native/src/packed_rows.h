/* Products with a transposed side, where sgemm is slow at them as they lie: of rows that share sets
 * of the cache, and of many rows by few columns. */
#ifndef FLOW2ONNX_NATIVE_PACKED_ROWS_H
#define FLOW2ONNX_NATIVE_PACKED_ROWS_H

#include <cstdint>

#include "onednn.h"

namespace packed {

/* y = alpha a b + beta y, of `rows` by `depth` and `depth` by `columns`. Rows of each matrix as it
 * lies, transposed or not, are so many floats apart. */
struct Sides {
    const float *a, *b;
    float *y;
    int64_t rows, columns, depth;
    int64_t a_row, b_row, y_row;
    float alpha, beta;
};

/* Of a right side that lies transposed, by oneDNN's sgemm of parts of the rows packed side by side
 * or of the right side transposed. Throws std::bad_alloc. */
onednn::Status multiply_rows(const Sides &);

/* Whether that takes less time than sgemm of both sides as they lie. */
bool pays_rows(int64_t rows, int64_t columns, int64_t depth, int64_t a_row, int64_t b_row);

/* Of a left side that lies transposed, by oneDNN's sgemm of blocks of it packed side by side.
 * Throws std::bad_alloc. */
onednn::Status multiply_columns(const Sides &);

/* Whether that takes less time than sgemm of both sides as they lie. */
bool pays_columns(int64_t rows, int64_t columns, int64_t depth, int64_t a_row);

} // namespace packed

#endif
