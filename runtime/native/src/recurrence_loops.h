/* What happens in one step of a recurrent layer besides its product, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_RECURRENCE_LOOPS_H
#define FLOW2ONNX_NATIVE_RECURRENCE_LOOPS_H

#include <cstddef>

namespace recurrence {

/* All pointers are to one sequence at one step, gates of `units` floats each side by side.
 *
 * LSTM, whose gates are input, output, forget and candidate as the standard has them:
 *   c = f c' + i n, y = o tanh(c)
 * GRU, whose gates are update, reset and candidate, with r the recurrent product and its bias:
 *   n = tanh(x_n + reset r_n), y = (1 - z) n + z h'
 * Others: y = f(y), in place.
 */
struct Loops {
    void (*lstm)(float *gates, const float *cell_before, float *cell, float *y, size_t units);
    void (*gru)(const float *x, const float *product, const float *before, float *gates, float *y,
                size_t units);
    void (*tanh)(float *y, size_t units);
    void (*relu)(float *y, size_t units);
    /* Gradients: `dy` is that of y from all who read it, the cell's is added to and replaced by
     * that of the cell before. */
    void (*lstm_gradient)(const float *gates, const float *cell_before, const float *cell,
                          const float *dy, float *dcell, float *dgates, size_t units);
    /* Two of the gates: with the reset one on the input's way and without on the product's. The
     * share of dy that goes to the state before by itself takes its place. */
    void (*gru_gradient)(const float *gates, const float *product, const float *before, float *dy,
                         float *dx, float *dproduct, size_t units);
    void (*tanh_gradient)(const float *y, const float *dy, float *dx, size_t units);
    void (*relu_gradient)(const float *y, const float *dy, float *dx, size_t units);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace recurrence

#endif
