/* The operator `Product`: matrix products on oneDNN's sgemm, or where it is slow on loops of ours.
 *
 * Y = relu(alpha A B + beta C), for each of `outer` times `inner` pairs of matrices. How the
 * matrices lie in A, B and Y is told by leading dimensions and by the ways from one pair to the
 * next, so operands need not be copied into the order that the product has them in. C is there for
 * a single pair only, and may be Y itself. As a mask it is not added: where it is not above zero,
 * the product is taken times zero, as a gradient on its way through Relu is; then the sums of the
 * columns are there for the asking, as a second output. A fourth input is not read: what makes it
 * has to come before.
 *
 * Tasks share out pairs, or rows or columns of a single one: no sum of products is split among
 * them. Sums of columns are those of strips, added up, whoever has the strips.
 *
 * The attribute `shape` is checked in full when the kernel is made, the tensors in every call.
 */
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "machine.h"
#include "onednn.h"
#include "ort.h"
#include "packed_blocks.h"
#include "packed_rows.h"
#include "product_loops.h"
#include "tile.h"

namespace {

using onednn::dnnl;
using ort::Tensor;
using namespace abi::addend;

constexpr int64_t LARGEST = abi::MOST_MATRIX_ELEMENTS;
/* Measured: of few rows sgemm keeps all of a long sum in hand, and falls out of the cache. */
constexpr int64_t FEW_ROWS = 128, LONG_SUM = 1024, SUM_PART = 512;
/* Measured on AVX-512: of a transposed left side it reads the next term a row further, and of rows
 * so long it takes up to a third less time for parts of the sum one after another. Each part reads
 * and writes all results, so that of many results it has to be longer: parts of 192 terms then take
 * up to a fifth more than parts of 256, which of few results take a tenth more. */
constexpr int64_t LONG_ROW = 1024, ROWS_AT_ONCE = 192, ROWS_OF_MANY = 256, MANY_RESULTS = 1 << 20;
/* Measured on AVX-512: of so many rows, by up to 768 columns and of long sums, it takes up to 8 %
 * less time for blocks of them one after another; of 1,024 columns it takes more. */
constexpr int64_t TALL = 2048, TALL_BLOCK = 384, MOST_OF_TALL = 768, FEWEST_OF_TALL = 1024;
/* Tasks begin at multiples of it, as the inner loops of sgemm do; a strip has so many rows. */
constexpr int64_t ROW_STEP = 16, COLUMN_STEP = 48;
constexpr int64_t FEW_COLUMNS = 8; /* measured: up to them, sgemm takes longer than dot products */
constexpr int64_t FETCHED = 1 << 16; /* floats: pairs that the second level of the cache holds */

size_t size(int64_t number) { return static_cast<size_t>(number); }

struct Matrices : abi::Matrix {
    /* Whether `rows` by `columns`, as often as told, lie within the tensor. */
    bool fit(int64_t rows, int64_t columns, int64_t outers, int64_t inners) const {
        if (is_transposed < 0 || is_transposed > 1) return false;
        if (is_transposed) std::swap(rows, columns);
        for (int64_t number : {leading, outer, inner}) {
            if (number < 0 || number > LARGEST) return false;
        }
        if (leading < columns || size < 1 || size > LARGEST) return false;
        return (outers - 1) * outer + (inners - 1) * inner + (rows - 1) * leading + columns <= size;
    }
    int64_t start(int64_t pair, int64_t inners) const {
        return pair / inners * outer + pair % inners * inner;
    }
    int64_t at(int64_t row, int64_t column) const {
        return is_transposed ? column * leading + row : row * leading + column;
    }
    char letter() const { return is_transposed ? 'T' : 'N'; }
    /* Asks for one of the matrices. */
    void fetch(const float *from, int64_t rows, int64_t columns) const {
        if (is_transposed) std::swap(rows, columns);
        for (int64_t i = 0; i < rows; ++i) machine::fetch(from + i * leading, columns);
    }
};

/* The attribute `shape`. */
struct Shape : abi::ProductHead {
    Matrices a, b, y;

    int64_t pairs() const { return outer * inner; }
    int64_t strips() const { return (rows + ROW_STEP - 1) / ROW_STEP; }
    /* Whether sgemm is to be spared: it is slow for so few. */
    bool has_few_columns() const {
        return columns <= FEW_COLUMNS && !a.is_transposed && b.is_transposed && addend != FULL;
    }
    bool is_sound() const {
        for (int64_t number : {rows, columns, sum, outer, inner, tasks}) {
            if (number < 1 || number > LARGEST) return false;
        }
        if (tasks > abi::MOST_MATRIX_TASKS) return false;
        if (addend < NOTHING || addend > MASK) return false;
        if (has_relu < 0 || has_relu > 1 || has_sums < 0 || has_sums > 1) return false;
        if (has_sums && (addend != MASK || has_relu)) return false;
        if (outer > LARGEST / inner || (addend != NOTHING && pairs() > 1)) return false;
        return a.fit(rows, sum, outer, inner) && b.fit(sum, columns, outer, inner) &&
               y.fit(rows, columns, outer, inner) && covers();
    }
    /* Whether the results lie in Y side by side: each element is one of them, and of one only. */
    bool covers() const {
        struct Way {
            int64_t length, count;
        };
        Way ways[] = {{1, columns}, {y.leading, rows}, {y.inner, inner}, {y.outer, outer}};
        std::sort(ways, ways + 4, [](const Way &u, const Way &v) {
            return u.length != v.length ? u.length < v.length : u.count < v.count;
        });
        int64_t covered = 1;
        for (const Way &way : ways) {
            if (way.count == 1) continue;
            if (way.length != covered || covered > LARGEST / way.count) return false;
            covered *= way.count;
        }
        return !y.is_transposed && covered == y.size;
    }
    int64_t addends() const {
        const int64_t counts[] = {0, 1, columns, rows, rows * columns, rows * columns};
        return counts[addend];
    }
};
constexpr size_t NUMBERS = sizeof(Shape) / sizeof(int64_t);

struct Product {
    Shape shape;
    float alpha = 1, beta = 1;
    std::vector<int64_t> dims; /* of the output */
};

/* The length of the fewest parts of nearly one length that have at most `most` each. */
int64_t even_part(int64_t length, int64_t most) {
    const int64_t parts = (length + most - 1) / most;
    return (length + parts - 1) / parts;
}

/* What one task computes: rows and columns of every pair from `first` to `last`. */
struct Piece {
    int64_t first, last, row, rows, column, columns;
};

/* The part of `length` that the task has, in steps; the last ones may have none. */
void cut(int64_t length, int64_t step, int64_t tasks, int64_t task, int64_t *start,
         int64_t *count) {
    const int64_t steps = (length + step - 1) / step;
    *start = std::min(length, steps * task / tasks * step);
    *count = std::min(length, steps * (task + 1) / tasks * step) - *start;
}

struct Call {
    const Product &product;
    const float *a = nullptr, *b = nullptr, *c = nullptr;
    float *y = nullptr;
    std::vector<float> sums = {}; /* of the columns, strip by strip */
    std::vector<onednn::Status> failures = {};

    void operator()(size_t task) {
        const onednn::OneThread guard;
        const Shape &s = product.shape;
        Piece piece = {0, s.pairs(), 0, s.rows, 0, s.columns};
        const auto at = static_cast<int64_t>(task);
        if (s.pairs() > 1) {
            piece.first = s.pairs() * at / s.tasks;
            piece.last = s.pairs() * (at + 1) / s.tasks;
        } else if (s.rows >= s.columns) {
            cut(s.rows, ROW_STEP, s.tasks, at, &piece.row, &piece.rows);
        } else {
            cut(s.columns, COLUMN_STEP, s.tasks, at, &piece.column, &piece.columns);
        }
        if (piece.rows > 0 && piece.columns > 0) failures[task] = run(piece);
    }

    onednn::Status run(const Piece &piece) {
        const Shape &s = product.shape;
        if (s.addend == FULL && c != y) copy(piece);
        for (int64_t pair = piece.first; pair < piece.last; ++pair) {
            float *to = y + s.y.start(pair, s.inner) + s.y.at(piece.row, piece.column);
            fetch(pair);
            if (s.has_few_columns()) {
                dots(piece, pair, to);
            } else if (is_packed_here(piece)) {
                multiply_packed(piece, pair, to);
            } else {
                const onednn::Status failed =
                    has_packed_rows(piece)      ? packed::multiply_rows(sides(piece, pair, to))
                    : has_packed_columns(piece) ? packed::multiply_columns(sides(piece, pair, to))
                                                : multiply(sides(piece, pair, to));
                if (failed != onednn::SUCCESS) return failed;
            }
            if (s.addend == MASK) mask(piece, to);
            finish(piece, to);
        }
        return onednn::SUCCESS;
    }

    /* Measured: small matrices that are apart from the last ones come late if sgemm asks first. */
    void fetch(int64_t pair) const {
        const Shape &s = product.shape;
        const int64_t size = s.rows * s.sum + s.sum * s.columns + s.rows * s.columns;
        if (s.pairs() == 1 || size > FETCHED) return;
        s.a.fetch(a + s.a.start(pair, s.inner), s.rows, s.sum);
        s.b.fetch(b + s.b.start(pair, s.inner), s.sum, s.columns);
        s.y.fetch(y + s.y.start(pair, s.inner), s.rows, s.columns);
    }

    void dots(const Piece &piece, int64_t pair, float *to) const {
        const Shape &s = product.shape;
        product::loops().dots({
            a + s.a.start(pair, s.inner) + s.a.at(piece.row, 0),
            b + s.b.start(pair, s.inner) + s.b.at(0, piece.column), to,
            size(piece.rows), size(piece.columns), size(s.sum),
            size(s.a.leading), size(s.b.leading), size(s.y.leading), product.alpha,
        });
    }

    bool is_packed_here(const Piece &piece) const {
        const Shape &s = product.shape;
        return s.a.is_transposed && !s.b.is_transposed &&
               (s.addend != FULL || product.beta == 1) &&
               packed::pays_transposed(size(piece.rows), size(piece.columns));
    }

    void multiply_packed(const Piece &piece, int64_t pair, float *to) const {
        const Shape &s = product.shape;
        packed::multiply_transposed({
            a + s.a.start(pair, s.inner) + s.a.at(piece.row, 0),
            b + s.b.start(pair, s.inner) + s.b.at(0, piece.column), to,
            size(piece.rows), size(piece.columns), size(s.sum),
            size(s.a.leading), size(s.b.leading), size(s.y.leading),
            product.alpha, s.addend == FULL,
        });
    }

    bool has_packed_rows(const Piece &piece) const {
        const Shape &s = product.shape;
        return !s.a.is_transposed && s.b.is_transposed &&
               packed::pays_rows(piece.rows, piece.columns, s.sum, s.a.leading, s.b.leading);
    }

    bool has_packed_columns(const Piece &piece) const {
        const Shape &s = product.shape;
        return s.a.is_transposed && !s.b.is_transposed &&
               packed::pays_columns(piece.rows, piece.columns, s.sum, s.a.leading);
    }

    packed::Sides sides(const Piece &piece, int64_t pair, float *to) const {
        const Shape &s = product.shape;
        return {
            a + s.a.start(pair, s.inner) + s.a.at(piece.row, 0),
            b + s.b.start(pair, s.inner) + s.b.at(0, piece.column), to,
            piece.rows, piece.columns, s.sum, s.a.leading, s.b.leading, s.y.leading,
            product.alpha, s.addend == FULL ? product.beta : 0,
        };
    }

    onednn::Status multiply(const packed::Sides &sides) const {
        const Shape &s = product.shape;
        const int64_t most = rows_at_once(sides);
        for (int64_t i = 0; i < sides.rows; i += most) {
            packed::Sides block = sides;
            block.a += s.a.at(i, 0);
            block.y += i * sides.y_row;
            block.rows = std::min(most, sides.rows - i);
            const onednn::Status failed = multiply_block(block);
            if (failed != onednn::SUCCESS) return failed;
        }
        return onednn::SUCCESS;
    }

    onednn::Status multiply_block(const packed::Sides &p) const {
        const Shape &s = product.shape;
        const int64_t most = terms_at_once();
        for (int64_t k = 0; k < p.depth; k += most) {
            const onednn::Status failed = dnnl.sgemm(
                s.a.letter(), s.b.letter(), p.rows, p.columns, std::min(most, p.depth - k),
                p.alpha, p.a + s.a.at(0, k), p.a_row, p.b + s.b.at(k, 0), p.b_row,
                k > 0 ? 1 : p.beta, p.y, p.y_row);
            if (failed != onednn::SUCCESS) return failed;
        }
        return onednn::SUCCESS;
    }

    /* How many rows sgemm is given. */
    int64_t rows_at_once(const packed::Sides &p) const {
        const Shape &s = product.shape;
        const bool is_tall = !s.a.is_transposed && !s.b.is_transposed && p.rows >= TALL &&
                             p.columns <= MOST_OF_TALL && p.depth >= FEWEST_OF_TALL &&
                             machine::isa() == machine::Isa::AVX512;
        return is_tall ? TALL_BLOCK : p.rows;
    }

    /* How many terms of a sum sgemm is given. */
    int64_t terms_at_once() const {
        const Shape &s = product.shape;
        if (s.rows <= FEW_ROWS && s.sum > LONG_SUM) return SUM_PART;
        const bool is_far = s.a.is_transposed && !s.b.is_transposed &&
                            std::max(s.a.leading, s.b.leading) >= LONG_ROW &&
                            machine::isa() == machine::Isa::AVX512;
        if (!is_far) return s.sum;
        return even_part(s.sum, s.rows * s.columns < MANY_RESULTS ? ROWS_AT_ONCE : ROWS_OF_MANY);
    }

    void copy(const Piece &piece) const {
        const Shape &s = product.shape;
        const auto bytes = static_cast<size_t>(piece.columns) * sizeof(float);
        for (int64_t i = piece.row; i < piece.row + piece.rows; ++i) {
            std::memcpy(y + s.y.at(i, piece.column), c + i * s.columns + piece.column, bytes);
        }
    }

    void mask(const Piece &piece, float *to) {
        const Shape &s = product.shape;
        const product::Loops &loops = product::loops();
        const auto width = static_cast<size_t>(piece.columns);
        for (int64_t i = piece.row; i < piece.row + piece.rows; ++i, to += s.y.leading) {
            const float *above = c + i * s.columns + piece.column;
            if (!s.has_sums) {
                loops.mask(to, above, width);
                continue;
            }
            float *strip = sums.data() + i / ROW_STEP * s.columns + piece.column;
            loops.mask_and_sum(to, above, strip, width);
        }
    }

    void add_up(float *to) const {
        const auto width = static_cast<size_t>(product.shape.columns);
        std::copy_n(sums.data(), width, to);
        for (size_t at = width; at < sums.size(); at += width) {
            tile::loops().add_to(to, sums.data() + at, width);
        }
    }

    /* Adds what is the same for rows or columns, and cuts off below zero. */
    void finish(const Piece &piece, float *to) const {
        const Shape &s = product.shape;
        const tile::Loops &loops = tile::loops();
        const auto width = static_cast<size_t>(piece.columns);
        const bool is_spread = s.addend == ONE || s.addend == PER_COLUMN || s.addend == PER_ROW;
        if (!is_spread && !s.has_relu) return;
        std::vector<float> added(is_spread ? width : 0);
        for (size_t j = 0; is_spread && j < width; ++j) {
            const int64_t column = piece.column + static_cast<int64_t>(j);
            added[j] = product.beta * (s.addend == PER_COLUMN ? c[column] : c[0]);
        }
        for (int64_t i = 0; i < piece.rows; ++i, to += s.y.leading) {
            if (s.addend == PER_ROW) {
                loops.fill(added.data(), product.beta * c[piece.row + i], width);
            }
            if (is_spread) loops.add_to(to, added.data(), width);
            if (s.has_relu) loops.operations[tile::RELU](to, to, to, to, width);
        }
    }
};

OrtStatus *expect(OrtKernelContext *context, size_t index, int64_t size, const float **data) {
    Tensor tensor;
    ORT_TRY(ort::input(context, index, &tensor));
    if (tensor.type != ort::FLOAT || tensor.size() != size) {
        return ort::refuse("Product: input %zu has %lld elements of type %d, it was made for %lld "
                           "floats",
                           index, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(size));
    }
    *data = tensor.floats();
    return nullptr;
}

OrtStatus *run(const Product &product, OrtKernelContext *context) {
    const Shape &s = product.shape;
    Call call{product};
    ORT_TRY(expect(context, 0, s.a.size, &call.a));
    ORT_TRY(expect(context, 1, s.b.size, &call.b));
    if (s.addend != NOTHING) ORT_TRY(expect(context, 2, s.addends(), &call.c));
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, product.dims.data(), product.dims.size(), &made));
    call.y = static_cast<float *>(made);
    void *sums = nullptr;
    if (s.has_sums) {
        ORT_TRY(ort::output(context, 1, &s.columns, 1, &sums));
        call.sums.resize(static_cast<size_t>(s.strips() * s.columns));
    }
    call.failures.assign(static_cast<size_t>(s.tasks), onednn::SUCCESS);
    ORT_TRY(ort::parallel(context, static_cast<size_t>(s.tasks), call));
    for (onednn::Status failed : call.failures) {
        if (failed != onednn::SUCCESS) {
            return ort::refuse("Product: oneDNN failed with status %d", failed);
        }
    }
    if (s.has_sums) call.add_up(static_cast<float *>(sums));
    return nullptr;
}

OrtStatus *read_dims(const OrtKernelInfo *info, Product *product) {
    ORT_TRY(ort::integers(info, "dims", &product->dims));
    int64_t size = 1;
    bool is_sound = product->dims.size() <= Tensor::MOST;
    for (int64_t d : product->dims) {
        is_sound = is_sound && d >= 1 && d <= LARGEST / size;
        if (is_sound) size *= d;
    }
    if (!is_sound || size != product->shape.y.size) {
        return ort::refuse("Product: the dims are not those of %lld elements",
                           static_cast<long long>(product->shape.y.size));
    }
    return nullptr;
}

OrtStatus *make(const OrtKernelInfo *info, void **kernel) {
    auto product = std::make_unique<Product>();
    size_t count = NUMBERS, floats = 2;
    int64_t *numbers = &product->shape.rows;
    ORT_TRY(ort::api.KernelInfoGetAttributeArray_int64(info, "shape", numbers, &count));
    float scales[2] = {};
    ORT_TRY(ort::api.KernelInfoGetAttributeArray_float(info, "scales", scales, &floats));
    if (count != NUMBERS || floats != 2 || !product->shape.is_sound()) {
        return ort::refuse("Product: the shape is that of no product");
    }
    product->alpha = scales[0];
    product->beta = scales[1];
    ORT_TRY(read_dims(info, product.get()));
    *kernel = product.release();
    return nullptr;
}

} // namespace

const ort::CustomOp *ort::product_operator() {
    static const CustomOp op = [] {
        CustomOp o = described<Product, make, run>();
        o.GetName = [](const CustomOp *) { return "Product"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 4; };
        o.GetOutputTypeCount = [](const CustomOp *) -> size_t { return 2; };
        o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 2 ? OPTIONAL : REQUIRED;
        };
        o.GetOutputCharacteristic = [](const CustomOp *, size_t i) {
            return i == 1 ? OPTIONAL : REQUIRED;
        };
        return o;
    }();
    return &op;
}
