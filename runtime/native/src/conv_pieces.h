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
    int64_t blocks = 0;           /* of channels, that a piece has at most; 0: cut otherwise */
};

/* With `fewer`, pieces of channels have so many blocks less than an even share, and are more. */
Pieces cut(const Shape &whole, Which which, int64_t fewer = 0);

} // namespace conv

#endif
