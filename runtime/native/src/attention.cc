/* The operators `Attention` and `AttentionGradient`: softmax(scale * Q K^T, masked) V, and what
 * they hand back, without the matrix of all scores.
 *
 * Scores are made a tile at a time, and the softmax goes on from tile to tile (Milakov and
 * Gimelshein 2018; Dao and others 2022). Forward keeps two numbers of each query, its largest score
 * and one by the sum of e^(score - largest), with which the gradient makes the shares again (Dao
 * 2023; one number, the logarithm, is too coarse where all scores are far from zero).
 *
 * A tile lies key by key, so that what is done for each query, maxima and sums too, is done for a
 * register of queries at once; and its products with rows of values, keys, queries and slopes read
 * both sides as they are.
 *
 * What a mask leaves out in whole tiles is not looked at, whatever is there; where masked scores
 * are finite numbers, forward looks at tiles before the first that is seen. A query that sees
 * nothing has NaN as its result.
 *
 * The attribute `shape` is an `AttentionShape`, `layout` an `AttentionLayout`, `values` are the
 * scale, what stands in the place of masked scores, and a factor that dropout has on GPUs.
 * Tasks share out heads and blocks of queries or keys, of which each is computed in one order.
 * Heads of queries that read one head of keys are a group, whose gradients of keys one task adds
 * up.
 */
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention_loops.h"
#include "attention_shape.h"
#include "machine.h"
#include "packed_loops.h"
#include "tile.h"
#include "transpose_loops.h"

namespace {

using namespace attention;
using ort::Tensor;

constexpr int64_t LARGEST = abi::MOST_MATRIX_ELEMENTS;
constexpr int64_t TASK_PRODUCTS = 1 << 19; /* fewer multiplications are not worth a thread */
constexpr int64_t TILE_QUERIES = QUERIES, TILE_KEYS = KEYS, TILE_SCORES = QUERIES * KEYS;
constexpr int64_t BLOCK = 4 * TILE_QUERIES; /* rows of a task, where it has not all of a head */
/* Addends from here on mask a score, which is nowhere near as large. */
constexpr float MASKS = -1e30f;
constexpr float VANISHES = -86; /* e^x is zero below */
constexpr int64_t WORD = 8; /* truths that are looked at at once, each a byte of 0 or 1 */
constexpr uint64_t ALL_TRUE = 0x0101010101010101;
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

size_t size(int64_t number) { return static_cast<size_t>(number); }
int64_t padded(int64_t width) {
    constexpr int64_t STEP = packed::PANEL;
    return (width + STEP - 1) / STEP * STEP;
}
int64_t parts(int64_t length, int64_t part) { return (length + part - 1) / part; }

struct Kernel {
    const char *name = nullptr;
    Shape shape{};
    abi::AttentionLayout layout{};
    float scale = 1, other = 0;
};

/* The rows of one head. */
struct Rows {
    const float *data;
    int64_t step;

    const float *at(int64_t row) const { return data + row * step; }
};

/* Where the heads of a tensor lie: one behind the other, or side by side within each row. */
struct Heads {
    int64_t rows, width, heads;
    bool is_in_rows;

    int64_t step() const { return is_in_rows ? heads * width : width; }
    int64_t start(int64_t group) const {
        const int64_t batch = group / heads, head = group % heads;
        return batch * heads * rows * width + head * (is_in_rows ? width : rows * width);
    }
    Rows of(const float *tensor, int64_t group) const { return {tensor + start(group), step()}; }
};

Heads heads_of_queries(const Shape &s, int64_t is_in_rows) {
    return {s.queries, s.width, s.heads, is_in_rows != 0};
}
Heads heads_of_keys(const Shape &s, int64_t is_in_rows) {
    return {s.keys, s.width, s.heads / s.group, is_in_rows != 0};
}

/* What a mask does to a tile: nothing, to some scores, or to all, which are `level` at most. */
struct Effect {
    enum Kind { NONE, SOME, ALL } kind;
    float level;
};

struct Span {
    int64_t first, count;
};

struct Mask {
    const Shape &shape;
    const void *data;
    float other;

    Effect look(int64_t group, Span queries, Span keys) const {
        if (shape.mask == NO_MASK) return {Effect::NONE, 0};
        if (shape.mask_query == 0) queries.count = 1;
        if (shape.mask_key == 0) keys.count = 1;
        const int64_t at = start(group, queries, keys);
        const int64_t all = queries.count * keys.count;
        if (shape.mask == CHOSEN) return {choice(truths() + at, queries, keys), other};
        const float *from = addends() + at;
        if (count(from, queries, keys, [](float a) { return a == 0; }) == all) {
            return {Effect::NONE, 0};
        }
        const auto are_all = [&](float most) {
            return count(from, queries, keys, [=](float a) { return a <= most; }) == all;
        };
        if (!are_all(MASKS)) return {Effect::SOME, 0};
        return {Effect::ALL, are_all(LOWEST) ? LOWEST : MASKS / 2};
    }

    /* The mask of a tile, as the tile lies; neutral behind the last query. */
    void load(int64_t group, Span queries, Span keys, int64_t columns, float *to) const {
        const int64_t at = start(group, queries, keys);
        if (shape.mask == CHOSEN) load(truths() + at, queries, keys, columns, 1, to);
        else load(addends() + at, queries, keys, columns, 0, to);
    }

private:
    const uint8_t *truths() const { return static_cast<const uint8_t *>(data); }
    const float *addends() const { return static_cast<const float *>(data); }
    int64_t start(int64_t group, Span queries, Span keys) const {
        return group / shape.heads * shape.mask_batch + group % shape.heads * shape.mask_head +
               queries.first * shape.mask_query + keys.first * shape.mask_key;
    }
    template <typename Element>
    void load(const Element *from, Span queries, Span keys, int64_t columns, float neutral,
              float *__restrict to) const {
        const int64_t by_query = shape.mask_query, by_key = shape.mask_key;
        for (int64_t k = 0; k < keys.count; ++k, from += by_key, to += columns) {
            for (int64_t q = 0; q < queries.count; ++q) to[q] = from[q * by_query];
            std::fill(to + queries.count, to + columns, neutral);
        }
    }
    /* What truths do, looked at until both are seen; those side by side are read as words. */
    Effect::Kind choice(const uint8_t *from, Span queries, Span keys) const {
        bool has_true = false, has_false = false;
        for (int64_t q = 0; q < queries.count; ++q, from += shape.mask_query) {
            int64_t k = 0;
            for (; shape.mask_key == 1 && k + WORD <= keys.count; k += WORD) {
                uint64_t truths = 0;
                std::memcpy(&truths, from + k, sizeof truths);
                has_true = has_true || truths != 0;
                has_false = has_false || truths != ALL_TRUE;
            }
            for (; k < keys.count; ++k) (from[k * shape.mask_key] ? has_true : has_false) = true;
            if (has_true && has_false) return Effect::SOME;
        }
        return has_true ? Effect::NONE : Effect::ALL;
    }
    template <typename Element, typename Predicate>
    int64_t count(const Element *from, Span queries, Span keys, Predicate is_so) const {
        int64_t found = 0;
        for (int64_t q = 0; q < queries.count; ++q, from += shape.mask_query) {
            int32_t here = 0;
            if (shape.mask_key == 1) {
                for (int64_t k = 0; k < keys.count; ++k) here += is_so(from[k]);
            } else {
                for (int64_t k = 0; k < keys.count; ++k) here += is_so(from[k * shape.mask_key]);
            }
            found += here;
        }
        return found;
    }
};

/* y = a b, or y += a b, where rows of b are whole panels. */
struct Operand {
    const float *data;
    int64_t step;
    bool is_transposed = false;
};

void multiply(const Operand &a, const Operand &b, bool adds, float *y, int64_t y_step, int64_t rows,
              int64_t depth, int64_t columns) {
    packed::loops().multiply({a.data, b.data, adds ? y : nullptr, y, size(rows), size(depth),
                              size(columns), 0, size(padded(columns)) / packed::PANEL,
                              size(a.step), packed::PANEL, size(b.step), size(y_step),
                              size(y_step), a.is_transposed});
}

/* Rows as the right side of a product: side by side in memory, and whole panels. */
Operand right_side(const Rows &from, int64_t rows, int64_t width, float *memory) {
    const int64_t whole = padded(width);
    if (from.step == width && whole == width) return {from.data, width};
    for (int64_t i = 0; i < rows; ++i, memory += whole) {
        std::copy_n(from.at(i), width, memory);
        std::fill(memory + width, memory + whole, 0.0f);
    }
    return {memory - rows * whole, whole};
}

/* `count` rows, transposed, times a factor; in whole panels, with zeros behind the last. */
void transpose(const Rows &from, int64_t count, int64_t width, float factor, float *to) {
    const int64_t columns = padded(count);
    for (int64_t j = 0; count < columns && j < width; ++j) {
        std::fill(to + j * columns + count, to + (j + 1) * columns, 0.0f);
    }
    transposes::loops().transpose(
        {from.data, to, size(count), size(width), size(from.step), size(columns)});
    if (factor != 1) tile::loops().scale(to, factor, size(columns * width));
}

/* Memory of a task, handed out in pieces. */
struct Memory {
    float *next;

    explicit Memory(std::initializer_list<int64_t> pieces) {
        int64_t all = 0;
        for (int64_t piece : pieces) all += padded(piece);
        next = machine::scratch<machine::TILES>(size(all));
    }
    float *take(int64_t floats) {
        float *taken = next;
        next += padded(floats);
        return taken;
    }
};

/* One tile of one head at a time. */
struct Tiles {
    const Kernel &kernel;
    int64_t group;
    Rows keys;
    const void *mask;
    float *scores, *masked; /* memory for a tile */
    Effect effect{Effect::NONE, 0};
    int64_t columns = 0, count = 0; /* of queries, and keys */

    const Shape &shape() const { return kernel.shape; }
    Tile tile() const { return {scores, size(count), size(columns)}; }

    /* Whether there is something in a tile for queries of which `most` tells the largest scores. */
    bool look(Span of_queries, Span of_keys, const float *most) {
        columns = padded(of_queries.count);
        count = of_keys.count;
        const Mask all{shape(), mask, kernel.other};
        effect = all.look(group, of_queries, of_keys);
        if (effect.kind == Effect::NONE) return true;
        if (effect.kind == Effect::ALL) {
            bool vanishes = true;
            for (int64_t q = 0; q < of_queries.count; ++q) {
                vanishes = vanishes && effect.level - most[q] < VANISHES;
            }
            if (vanishes) return false;
        }
        all.load(group, of_queries, of_keys, columns, masked);
        return true;
    }
    /* Whether no query sees any of it, whatever it has seen before. */
    bool is_hidden() const { return effect.kind == Effect::ALL && effect.level == LOWEST; }

    /* The scores, of queries that are transposed and scaled. */
    void compute(const float *queries, Span of_keys) const {
        multiply({keys.at(of_keys.first), keys.step}, {queries, columns}, false, scores, columns,
                 count, shape().width, columns);
        if (effect.kind == Effect::NONE) return;
        if (shape().mask == ADDED) loops().add(tile(), masked);
        else loops().choose(tile(), masked, kernel.other);
    }
    /* Keeps gradients of masked scores from going on. */
    void stop(float *slopes) const {
        if (effect.kind == Effect::NONE || shape().mask == ADDED) return;
        loops().choose({slopes, size(count), size(columns)}, masked, 0);
    }
};

/* Parts of a length, of so many rows each but for the last. */
template <typename Work>
void each_part(Span whole, int64_t part, Work work) {
    for (int64_t at = 0; at < whole.count; at += part) {
        work(Span{whole.first + at, std::min(part, whole.count - at)});
    }
}

struct Forward {
    const Kernel &kernel;
    const float *q, *k, *v;
    const void *mask;
    float *result, *kept;

    int64_t blocks() const { return parts(kernel.shape.queries, BLOCK); }
    int64_t tasks() const { return kernel.shape.groups() * blocks(); }

    void operator()(size_t task) const {
        const Shape &s = kernel.shape;
        const auto at = static_cast<int64_t>(task);
        const int64_t group = at / blocks(), first = at % blocks() * BLOCK;
        const int64_t transposed = s.width * TILE_QUERIES, whole = s.keys * padded(s.width);
        Memory memory{whole, transposed, TILE_SCORES, TILE_SCORES};
        const Rows rows = heads_of_keys(s, kernel.layout.values).of(v, group / s.group);
        const Operand values = right_side(rows, s.keys, s.width, memory.take(whole));
        float *queries = memory.take(transposed), *scores = memory.take(TILE_SCORES);
        Tiles tiles{kernel, group, heads_of_keys(s, kernel.layout.keys).of(k, group / s.group),
                    mask, scores, memory.take(TILE_SCORES)};
        each_part({first, std::min(BLOCK, s.queries - first)}, TILE_QUERIES,
                  [&](Span part) { attend(tiles, values, queries, part); });
    }

    void attend(Tiles &tiles, const Operand &values, float *queries, Span part) const {
        const Shape &s = kernel.shape;
        const Heads out = heads_of_queries(s, kernel.layout.result);
        const Rows from = heads_of_queries(s, kernel.layout.queries).of(q, tiles.group);
        const int64_t step = out.step(), columns = padded(part.count);
        float *to = result + out.start(tiles.group) + part.first * step;
        transpose({from.at(part.first), from.step}, part.count, s.width, kernel.scale, queries);
        State state;
        std::fill_n(state.most, QUERIES, LOWEST);
        std::fill_n(state.sum, QUERIES, 0.0f);
        bool has_begun = false;
        each_part({0, s.keys}, TILE_KEYS, [&](Span keys) {
            if (!tiles.look(part, keys, state.most) || tiles.is_hidden()) return;
            float factors[QUERIES];
            tiles.compute(queries, keys);
            loops().advance(tiles.tile(), &state, factors);
            for (int64_t i = 0; has_begun && i < part.count; ++i) {
                if (factors[i] != 1) tile::loops().scale(to + i * step, factors[i], size(s.width));
            }
            multiply({tiles.scores, columns, true},
                     {values.data + keys.first * values.step, values.step}, has_begun, to, step,
                     part.count, keys.count, s.width);
            has_begun = true;
        });
        for (int64_t i = 0; i < part.count; ++i) {
            float *row = to + i * step;
            if (!has_begun) std::fill_n(row, s.width, 0.0f);
            const float rate = 1 / state.sum[i];
            const int64_t query = tiles.group * s.queries + part.first + i;
            tile::loops().scale(row, rate, size(s.width));
            kept[query] = state.most[i];
            kept[s.groups() * s.queries + query] = rate;
        }
    }
};

struct Gradient {
    const Kernel &kernel;
    const float *slope, *q, *k, *v, *result, *kept;
    const void *mask;
    float *dq, *dk, *dv, *delta;
    /* Measured as products: both directions at once are five a tile, each for itself seven. */
    enum Direction { BOTH, OF_QUERIES, OF_KEYS } direction;

    int64_t blocks() const {
        const Shape &s = kernel.shape;
        return direction == BOTH ? 1 : parts(direction == OF_KEYS ? s.keys : s.queries, BLOCK);
    }
    int64_t tasks() const { return kernel.shape.key_groups() * blocks(); }

    /* What is read of one head, as products have it. */
    struct Head {
        float *transposed_queries, *transposed_slopes; /* tile by tile */
        Operand queries, slopes;
        Rows values;
        float *slopes_of_tile, *key_rows;
    };

    void operator()(size_t task) const {
        const Shape &s = kernel.shape;
        const auto at = static_cast<int64_t>(task);
        const int64_t of_keys = at / blocks(), first = at % blocks() * BLOCK;
        Span queries{0, s.queries}, keys{0, s.keys};
        if (direction == OF_QUERIES) queries = {first, std::min(BLOCK, s.queries - first)};
        if (direction == OF_KEYS) keys = {first, std::min(BLOCK, s.keys - first)};
        const int64_t transposed = parts(queries.count, TILE_QUERIES) * TILE_QUERIES * s.width;
        const int64_t whole = queries.count * padded(s.width);
        const int64_t tile_rows = TILE_KEYS * padded(s.width);
        for (int64_t member = 0; member < s.group; ++member) {
            Memory memory{transposed, transposed, whole, whole, TILE_SCORES, tile_rows,
                          TILE_SCORES, TILE_SCORES};
            go_back_in_head(of_keys * s.group + member, queries, keys, memory, member > 0);
        }
    }

    /* The way back of one head; gradients of keys and values are added to those of others. */
    void go_back_in_head(int64_t group, Span queries, Span keys, Memory &memory, bool adds) const {
        const Shape &s = kernel.shape;
        const int64_t transposed = parts(queries.count, TILE_QUERIES) * TILE_QUERIES * s.width;
        const int64_t whole = queries.count * padded(s.width);
        Head head{};
        head.transposed_queries = memory.take(transposed);
        head.transposed_slopes = memory.take(transposed);
        Rows from_q = heads_of_queries(s, kernel.layout.queries).of(q, group);
        Rows from_slope = heads_of_queries(s, kernel.layout.slope).of(slope, group);
        from_q.data = from_q.at(queries.first);
        from_slope.data = from_slope.at(queries.first);
        head.queries = right_side(from_q, queries.count, s.width, memory.take(whole));
        head.slopes = right_side(from_slope, queries.count, s.width, memory.take(whole));
        head.values = heads_of_keys(s, kernel.layout.values).of(v, group / s.group);
        head.slopes_of_tile = memory.take(TILE_SCORES);
        head.key_rows = memory.take(TILE_KEYS * padded(s.width));
        each_part({0, queries.count}, TILE_QUERIES, [&](Span part) {
            const int64_t at_part = part.first * s.width;
            const auto turn = [&](const Rows &rows, float *to, float factor) {
                transpose({rows.at(part.first), rows.step}, part.count, s.width, factor,
                          to + at_part);
            };
            turn(from_q, head.transposed_queries, kernel.scale);
            turn(from_slope, head.transposed_slopes, 1);
        });
        if (direction != OF_KEYS) multiply_results(group, queries, from_slope);
        float *scores = memory.take(TILE_SCORES);
        Tiles tiles{kernel, group, heads_of_keys(s, kernel.layout.keys).of(k, group / s.group),
                    mask, scores, memory.take(TILE_SCORES)};
        go_back(head, tiles, queries, keys, adds);
    }

    /* The sums of slopes times results, of each query. */
    void multiply_results(int64_t group, Span queries, const Rows &slopes) const {
        const Shape &s = kernel.shape;
        const Rows results = heads_of_queries(s, kernel.layout.result).of(result, group);
        float *to = delta + group * s.queries + queries.first;
        for (int64_t i = 0; i < queries.count; ++i) {
            to[i] = loops().dot(slopes.at(i), results.at(queries.first + i), size(s.width));
        }
    }

    void go_back(const Head &head, Tiles &tiles, Span queries, Span keys, bool adds) const {
        const Shape &s = kernel.shape;
        const Heads to_q = heads_of_queries(s, kernel.layout.query_gradient);
        const Heads to_k = heads_of_keys(s, kernel.layout.key_gradient);
        const Heads to_v = heads_of_keys(s, kernel.layout.value_gradient);
        const int64_t of_keys = tiles.group / s.group;
        std::vector<char> has_begun(size(parts(queries.count, TILE_QUERIES)), 0);
        float *first_q = dq + to_q.start(tiles.group) + queries.first * to_q.step();
        each_part(keys, TILE_KEYS, [&](Span of_keys_here) {
            float *own_k = dk + to_k.start(of_keys) + of_keys_here.first * to_k.step();
            float *own_v = dv + to_v.start(of_keys) + of_keys_here.first * to_v.step();
            const Rows here{tiles.keys.at(of_keys_here.first), tiles.keys.step};
            Operand key_rows{};
            if (direction != OF_KEYS) {
                key_rows = right_side(here, of_keys_here.count, s.width, head.key_rows);
            }
            bool is_first = !adds;
            each_part({0, queries.count}, TILE_QUERIES, [&](Span part) {
                if (!differentiate(head, tiles, queries, part, of_keys_here)) return;
                const Operand shares{tiles.scores, tiles.columns};
                const Operand slopes{head.slopes_of_tile, tiles.columns};
                if (direction != OF_QUERIES) {
                    multiply(shares, part_of(head.slopes, part), !is_first, own_v, to_v.step(),
                             of_keys_here.count, part.count, s.width);
                    multiply(slopes, part_of(head.queries, part), !is_first, own_k, to_k.step(),
                             of_keys_here.count, part.count, s.width);
                    is_first = false;
                }
                if (direction != OF_KEYS) {
                    char &has = has_begun[size(part.first / TILE_QUERIES)];
                    multiply({slopes.data, slopes.step, true}, key_rows, has != 0,
                             first_q + part.first * to_q.step(), to_q.step(), part.count,
                             of_keys_here.count, s.width);
                    has = 1;
                }
            });
            if (is_first && direction != OF_QUERIES) {
                clear(own_k, to_k.step(), of_keys_here.count);
                clear(own_v, to_v.step(), of_keys_here.count);
            }
        });
        if (direction == OF_KEYS) return;
        each_part({0, queries.count}, TILE_QUERIES, [&](Span part) {
            if (has_begun[size(part.first / TILE_QUERIES)]) return;
            clear(first_q + part.first * to_q.step(), to_q.step(), part.count);
        });
    }

    static Operand part_of(const Operand &rows, Span part) {
        return {rows.data + part.first * rows.step, rows.step};
    }
    void clear(float *rows, int64_t step, int64_t count) const {
        for (int64_t i = 0; i < count; ++i) std::fill_n(rows + i * step, kernel.shape.width, 0.0f);
    }

    /* Shares of a tile, and gradients of its scores times the scale; false if there are none. */
    bool differentiate(const Head &head, Tiles &tiles, Span queries, Span part, Span keys) const {
        const Shape &s = kernel.shape;
        const int64_t row = queries.first + part.first, at = tiles.group * s.queries + row;
        if (!tiles.look({row, part.count}, keys, kept + at)) return false;
        tiles.compute(head.transposed_queries + part.first * s.width, keys);
        multiply({head.values.at(keys.first), head.values.step},
                 {head.transposed_slopes + part.first * s.width, tiles.columns}, false,
                 head.slopes_of_tile, tiles.columns, keys.count, s.width, tiles.columns);
        Shares shares{};
        std::copy_n(kept + at, part.count, shares.most);
        std::copy_n(kept + s.groups() * s.queries + at, part.count, shares.rate);
        std::copy_n(delta + at, part.count, shares.delta);
        loops().differentiate(tiles.tile(), head.slopes_of_tile, shares, kernel.scale);
        tiles.stop(head.slopes_of_tile);
        return true;
    }
};

/* Each task for itself; those that are not worth a thread by one. */
template <typename Call>
OrtStatus *run_tasks(OrtKernelContext *context, const Shape &shape, Call &call) {
    const auto tasks = static_cast<size_t>(call.tasks());
    if (shape.scores() >= TASK_PRODUCTS / shape.width) return ort::parallel(context, tasks, call);
    for (size_t task = 0; task < tasks; ++task) call(task);
    return nullptr;
}

/* The dims of a tensor of heads, as many as the queries have. */
std::vector<int64_t> dims_of(const Shape &s, size_t rank, const Heads &of) {
    if (rank == 3) return {s.batch * of.heads, of.rows, of.width};
    if (of.is_in_rows) return {s.batch, of.rows, of.heads, of.width};
    return {s.batch, of.heads, of.rows, of.width};
}

OrtStatus *make_output(OrtKernelContext *context, size_t index, const std::vector<int64_t> &dims,
                       float **data) {
    void *made = nullptr;
    ORT_TRY(ort::output(context, index, dims.data(), dims.size(), &made));
    *data = static_cast<float *>(made);
    return nullptr;
}

OrtStatus *run_forward(const Kernel &kernel, OrtKernelContext *context) {
    const Shape &s = kernel.shape;
    const Operands in{kernel.name, context};
    Tensor q, k, v, mask;
    ORT_TRY(in.read(0, ort::FLOAT, s.query_size(), &q));
    ORT_TRY(in.read(1, ort::FLOAT, s.key_size(), &k));
    ORT_TRY(in.read(2, ort::FLOAT, s.key_size(), &v));
    ORT_TRY(in.read_mask(s, 3, &mask));
    Forward call{kernel, q.floats(), k.floats(), v.floats(), mask.data, nullptr, nullptr};
    const Heads results = heads_of_queries(s, kernel.layout.result);
    ORT_TRY(make_output(context, 0, dims_of(s, q.rank, results), &call.result));
    ORT_TRY(make_output(context, 1, {2 * s.groups(), s.queries}, &call.kept));
    return run_tasks(context, s, call);
}

/* Whether heads are shared out so unevenly that blocks of them are worth more products. */
bool are_few(int64_t groups, int64_t tasks) {
    return 5 * parts(groups, tasks) * tasks > 7 * groups;
}

OrtStatus *run_gradient(const Kernel &kernel, OrtKernelContext *context) {
    const Shape &s = kernel.shape;
    const abi::AttentionLayout &layout = kernel.layout;
    const Operands in{kernel.name, context};
    Tensor slope, q, k, v, result, kept, mask;
    ORT_TRY(in.read(0, ort::FLOAT, s.query_size(), &slope));
    ORT_TRY(in.read(1, ort::FLOAT, s.query_size(), &q));
    ORT_TRY(in.read(2, ort::FLOAT, s.key_size(), &k));
    ORT_TRY(in.read(3, ort::FLOAT, s.key_size(), &v));
    ORT_TRY(in.read(4, ort::FLOAT, s.query_size(), &result));
    ORT_TRY(in.read(5, ort::FLOAT, 2 * s.groups() * s.queries, &kept));
    ORT_TRY(in.read_mask(s, 6, &mask));
    Gradient call{kernel, slope.floats(), q.floats(), k.floats(), v.floats(), result.floats(),
                  kept.floats(), mask.data, nullptr, nullptr, nullptr, nullptr, Gradient::BOTH};
    const Heads of_q = heads_of_queries(s, layout.query_gradient);
    const Heads of_k = heads_of_keys(s, layout.key_gradient);
    const Heads of_v = heads_of_keys(s, layout.value_gradient);
    ORT_TRY(make_output(context, 0, dims_of(s, q.rank, of_q), &call.dq));
    ORT_TRY(make_output(context, 1, dims_of(s, q.rank, of_k), &call.dk));
    ORT_TRY(make_output(context, 2, dims_of(s, q.rank, of_v), &call.dv));
    ORT_TRY(make_output(context, 3, {s.groups() * s.queries}, &call.delta));
    if (!are_few(s.key_groups(), layout.tasks)) return run_tasks(context, s, call);
    call.direction = Gradient::OF_QUERIES;
    ORT_TRY(run_tasks(context, s, call));
    call.direction = Gradient::OF_KEYS;
    return run_tasks(context, s, call);
}

bool is_sound(const Kernel &kernel, const abi::Draw &draw) {
    const Shape &s = kernel.shape;
    const abi::AttentionLayout &l = kernel.layout;
    if (!s.is_sound() || s.element != ort::FLOAT || draw.least != 0 ||
        !ort::is_within({s.width}, 1, abi::MOST_HEAD_WIDTH_ON_CPU) ||
        !ort::is_within({l.tasks}, 1, abi::MOST_MATRIX_TASKS) ||
        !ort::is_within({l.queries, l.keys, l.values, l.result, l.slope, l.query_gradient,
                         l.key_gradient, l.value_gradient}, 0, 1)) {
        return false;
    }
    const int64_t rows = LARGEST / padded(s.width) / std::max(s.queries, s.keys);
    return s.batch <= rows && s.heads <= rows / s.batch;
}

template <int which>
OrtStatus *make(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = NAMES[which];
    std::vector<int64_t> shape, layout, draw;
    std::vector<float> values;
    ORT_TRY(ort::integers(info, "shape", &shape));
    ORT_TRY(ort::integers(info, "layout", &layout));
    ORT_TRY(ort::integers(info, "draw", &draw));
    ORT_TRY(ort::floats(info, "values", &values));
    size_t next[3] = {};
    abi::Draw drawn{};
    const bool is_whole = ort::take(shape, &next[0], &kernel->shape) && next[0] == shape.size() &&
                          ort::take(layout, &next[1], &kernel->layout) &&
                          next[1] == layout.size() && ort::take(draw, &next[2], &drawn) &&
                          next[2] == draw.size() && values.size() == 3;
    if (!is_whole || !is_sound(*kernel, drawn)) {
        return ort::refuse("%s: the shape is none that it computes", kernel->name);
    }
    kernel->scale = values[0];
    kernel->other = values[1];
    *made = kernel.release();
    return nullptr;
}

template <int which, OrtStatus *(*run)(const Kernel &, OrtKernelContext *)>
ort::CustomOp described() {
    ort::CustomOp o = ort::described<Kernel, make<which>, run>();
    o.GetName = [](const ort::CustomOp *) { return NAMES[which]; };
    o.GetInputTypeCount = [](const ort::CustomOp *) -> size_t { return which == 0 ? 4 : 7; };
    o.GetOutputTypeCount = [](const ort::CustomOp *) -> size_t { return which == 0 ? 2 : 4; };
    /* the mask, floats or truths */
    o.GetInputType = [](const ort::CustomOp *, size_t i) {
        return i == (which == 0 ? 3 : 6) ? ort::ANY : ort::FLOAT;
    };
    o.GetInputCharacteristic = [](const ort::CustomOp *, size_t i) {
        return i == (which == 0 ? 3 : 6) ? ort::OPTIONAL : ort::REQUIRED;
    };
    return o;
}

} // namespace

const ort::CustomOp *ort::attention_operator(int which) {
    static const CustomOp forward = ::described<0, run_forward>();
    static const CustomOp gradient = ::described<1, run_gradient>();
    return which == 0 ? &forward : &gradient;
}
