/* The loops of Winograd convolutions, for each instruction set.
 *
 * A tile of m x m results of a kernel of r x r comes from m + r - 1 = 6 times 6 elements of the
 * image. Transformed, each of these 36 points is on its own: a convolution is 36 matrix products.
 * All matrices are kept in panels of 16 columns: element (i, j) at [j / 16][i][j % 16].
 */
#ifndef FLOW2ONNX_NATIVE_WINOGRAD_LOOPS_H
#define FLOW2ONNX_NATIVE_WINOGRAD_LOOPS_H

#include <cstddef>
#include <cstdint>

namespace winograd {

constexpr size_t SIDE = 6, POINTS = SIDE * SIDE, LANES = 16;

/* c[i][j] (+)= sum over k of a[k][i] b[k][j]; rows of a, columns of b and c in whole panels. */
struct Product {
    const float *a, *b;
    float *c;
    size_t row_panels, column_panels, depth;
    size_t a_panel, b_panel, c_panel; /* floats from a panel to the next */
    bool adds;
};

/* `planes`: 36 lines of LANES floats, `stride` floats apart. */
struct Planes {
    float *data;
    size_t stride;
};

/* For one pair of m and r. */
struct Transforms {
    /* LANES tiles of results or their gradients, which begin at base[offsets[lane]]. */
    void (*from_results)(Planes to, const float *base, const int32_t *offsets, size_t row);
    /* results[m][LANES][4]: the last 4 - m of four are of no meaning. */
    void (*to_results)(float *results, Planes from, float bias);
    void (*from_weights)(Planes to, const float *weights); /* weights[r * r][LANES] */
    void (*to_weights)(float *weights, Planes from);
};

struct Loops {
    void (*product)(const Product &);
    /* LANES tiles of an image, which begin at base[offsets[lane]]; reads 6 rows of 8. */
    void (*from_image)(Planes to, const float *base, const int32_t *offsets, size_t row);
    /* to[i][lane] = from[lane * stride + i], i < count */
    void (*gather)(float *to, const float *from, size_t stride, size_t count);
    /* to[lane * stride + i] = from[i][lane] */
    void (*scatter)(float *to, const float *from, size_t stride, size_t count);
    Transforms wide;  /* m = 4, r = 3 */
    Transforms small; /* m = 2, r = 5 */
};

const Loops &loops(); /* the widest that this processor has */

} // namespace winograd

#endif
