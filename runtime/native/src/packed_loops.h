/* The loops of products with a packed matrix, or a small one, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_PACKED_LOOPS_H
#define FLOW2ONNX_NATIVE_PACKED_LOOPS_H

#include <cstddef>

#include "abi.h"

namespace packed {

constexpr size_t PANEL = abi::PACKED_COLUMNS;

/* y[i][j] = sum over k of a[i][k] b[k][j], plus c[i * c_row + j] if there is c, which may be y.
 *
 * Element (i, k) of a is at [i * a_row + k], or at [k * a_row + i] where it is transposed. Element
 * (k, j) of b is at [j / PANEL * b_panel + k * b_row + j % PANEL]; whole panels are read, whatever
 * is behind the last column. Panels `first` to `last` are computed.
 */
struct Product {
    const float *a, *b, *c;
    float *y;
    size_t rows, depth, columns, first, last;
    size_t a_row, b_panel, b_row, c_row, y_row;
    bool is_transposed;
};

/* The product with a matrix that is kept panel by panel, as `Pack` leaves it. */
inline Product of_packed(const float *a, const float *b, const float *c, float *y, size_t rows,
                         size_t depth, size_t columns, size_t c_row) {
    const size_t panels = (columns + PANEL - 1) / PANEL;
    return {a, b, c, y, rows, depth, columns, 0, panels,
            depth, depth * PANEL, PANEL, c_row, columns, false};
}

struct Loops {
    void (*multiply)(const Product &); /* terms are added in their order, whatever the rows */
};

const Loops &loops(); /* the widest that this processor has */

} // namespace packed

#endif
