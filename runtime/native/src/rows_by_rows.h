/* Products of each row of one matrix with each of another, on oneDNN's sgemm. */
#ifndef FLOW2ONNX_NATIVE_ROWS_BY_ROWS_H
#define FLOW2ONNX_NATIVE_ROWS_BY_ROWS_H

#include <cstdint>

#include "onednn.h"

namespace rows_by_rows {

/* Rows that lie in memory so many floats apart. */
struct Rows {
    const float *first;
    int64_t pitch;
};

/* Whether rows of both lie at the same places of the cache, and sgemm would read them as they lie,
 * so that it pays to copy them. */
bool pays_to_copy(int64_t rows, int64_t columns, int64_t terms, int64_t left, int64_t right);

/* to = beta * to + alpha * left * right', by copies of parts of all rows. */
onednn::Status multiply_copies(int64_t rows, int64_t columns, int64_t terms, float alpha, Rows left,
                               Rows right, float beta, float *to, int64_t pitch);

} // namespace rows_by_rows

#endif
