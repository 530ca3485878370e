/* The loops of products with a packed matrix, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_PACKED_LOOPS_H
#define FLOW2ONNX_NATIVE_PACKED_LOOPS_H

#include <cstddef>

#include "abi.h"

namespace packed {

constexpr size_t PANEL = abi::PACKED_COLUMNS;

/* y[i][j] = sum over k of a[i][k] b[k][j], plus c[i * c_row + j] if there is c.
 *
 * b is kept in panels of PANEL columns, element (k, j) at [j / PANEL][k][j % PANEL], with zeros
 * behind the last column. Rows of y have `columns` floats; panels `first` to `last` are computed.
 */
struct Product {
    const float *a, *b, *c;
    float *y;
    size_t rows, depth, columns, c_row, first, last;
};

struct Loops {
    void (*multiply)(const Product &); /* terms are added in their order, whatever the rows */
};

const Loops &loops(); /* the widest that this processor has */

} // namespace packed

#endif
