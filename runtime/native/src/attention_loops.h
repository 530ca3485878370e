/* What happens to a tile of scores of attention besides its products, for each instruction set. */
#ifndef FLOW2ONNX_NATIVE_ATTENTION_LOOPS_H
#define FLOW2ONNX_NATIVE_ATTENTION_LOOPS_H

#include <cstddef>
#include <cstdint>

namespace attention {

constexpr size_t QUERIES = 64, KEYS = 64; /* of a tile */

/* A tile lies key by key: its element (key, query) is at [key * columns + query]. There are whole
 * registers of queries: `columns` is a multiple of 16, and what is behind the last one is anything.
 */
struct Tile {
    float *scores;
    size_t keys, columns;
};

/* What is known of the queries of a tile so far: their largest score, and the sum of their shares
 * beside it. */
struct State {
    float most[QUERIES], sum[QUERIES];
};

/* What the gradient knows of the queries of a tile: their largest score, one by the sum of their
 * shares beside it, and the sum of slopes times results. */
struct Shares {
    float most[QUERIES], rate[QUERIES], delta[QUERIES];
};

struct Loops {
    /* Scores to e^(score - most), and the state with those of the tile; `factors` is what turns
     * shares beside the largest score before into those beside the one now. */
    void (*advance)(const Tile &, State *, float *factors);
    /* Scores to shares, and `slopes`, those of shares, to those of scores times the scale. */
    void (*differentiate)(const Tile &, float *slopes, const Shares &, float scale);
    /* Each score plus an addend; each where a truth is not zero, else another number. */
    void (*add)(const Tile &, const float *addends);
    void (*choose)(const Tile &, const float *truths, float other);
    float (*dot)(const float *a, const float *b, size_t width);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace attention

#endif
