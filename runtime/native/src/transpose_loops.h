/* The loops that transpose a matrix, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_TRANSPOSE_LOOPS_H
#define FLOW2ONNX_NATIVE_TRANSPOSE_LOOPS_H

#include <cstddef>

namespace transposes {

/* to[j * to_row + i] = from[i * from_row + j], i < rows, j < columns */
struct Matrix {
    const float *from;
    float *to;
    size_t rows, columns, from_row, to_row;
};

struct Loops {
    void (*transpose)(const Matrix &);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace transposes

#endif
