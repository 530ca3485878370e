/* A convolution cut into pieces that threads compute side by side, each a convolution itself. */
#ifndef FLOW2ONNX_NATIVE_CONV_PIECES_H
#define FLOW2ONNX_NATIVE_CONV_PIECES_H

#include <vector>

#include "conv.h"

namespace conv {

/* A part of a convolution, and where it begins in the tensors of the whole. */
struct Piece {
    Shape shape;
    int64_t source = 0, weights = 0, result = 0, bias = 0;
};

struct Pieces {
    std::vector<Piece> all;
    bool have_all_weights = true; /* each the whole tensor of them; gradients of it are summed */
    bool have_all_taps = true;    /* none of a kernel meets the border alone */
    int64_t jobs = 1;             /* that they are shared out to, neighbours to the same */
};

Pieces cut(const Shape &whole, Which which);

} // namespace conv

#endif
