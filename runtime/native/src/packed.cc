/* The operators `Pack` and `PackedProduct`: a matrix that many products read, brought into the
 * order that they read it in once.
 *
 * The steps of a recurrent layer multiply a few rows each with the same weight, and a prediction
 * reads the same weights in every call. A product of few rows spends as much time in packing the
 * weight as in multiplying. Tasks share out the columns, or the rows; each element is the same sum
 * of parts in the order of their terms, whatever the tasks. An activation and a residual follow
 * while the results are in the cache.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "ort.h"
#include "packed_loops.h"
#include "tile.h"

namespace {

using namespace abi::activation;
using namespace abi::addend;
using ort::Tensor;
using packed::PANEL;

constexpr int64_t PANEL_COLUMNS = abi::PACKED_COLUMNS;
constexpr int64_t LARGEST = abi::MOST_MATRIX_ELEMENTS;
constexpr int64_t TASK_PRODUCTS = 1 << 19; /* fewer multiplications are not worth a thread */

int64_t panels_of(int64_t columns) { return (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS; }

/* True if a matrix of these extents, whole panels of it, has no more elements than there may be. */
bool fits(int64_t depth, int64_t columns) {
    return ort::is_within({depth, columns}, 1, LARGEST) &&
           panels_of(columns) <= LARGEST / PANEL_COLUMNS / depth;
}

template <typename Record>
OrtStatus *read_shape(const OrtKernelInfo *info, const char *name, Record *record) {
    std::vector<int64_t> numbers;
    size_t next = 0;
    ORT_TRY(ort::integers(info, "shape", &numbers));
    if (ort::take(numbers, &next, record) && next == numbers.size()) return nullptr;
    return ort::refuse("%s: the shape has %zu numbers", name, numbers.size());
}

OrtStatus *expect(OrtKernelContext *context, const char *name, size_t index, int64_t size,
                  const float **data) {
    Tensor tensor;
    ORT_TRY(ort::input(context, index, &tensor));
    if (tensor.type != ort::FLOAT || tensor.size() != size) {
        return ort::refuse("%s: input %zu has %lld elements of type %d; wanted are %lld floats",
                           name, index, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(size));
    }
    *data = tensor.floats();
    return nullptr;
}

/* One panel: rows of columns side by side, with zeros where there are no more columns. */
struct Packing {
    abi::PackShape shape;
    const float *from;
    float *to;

    void operator()(size_t panel) const {
        const int64_t column = static_cast<int64_t>(panel) * PANEL_COLUMNS;
        const int64_t count = std::min(PANEL_COLUMNS, shape.columns - column);
        float *rows = to + column * shape.depth;
        if (count < PANEL_COLUMNS) std::fill_n(rows, shape.depth * PANEL_COLUMNS, 0.0f);
        if (shape.is_transposed) transpose(rows, from + column * shape.depth, count);
        else copy(rows, from + column, count);
    }
    void copy(float *rows, const float *first, int64_t count) const {
        for (int64_t k = 0; k < shape.depth; ++k) {
            std::copy_n(first + k * shape.columns, count, rows + k * PANEL_COLUMNS);
        }
    }
    void transpose(float *rows, const float *first, int64_t count) const {
        for (int64_t k = 0; k < shape.depth; ++k) {
            for (int64_t j = 0; j < count; ++j) {
                rows[k * PANEL_COLUMNS + j] = first[j * shape.depth + k];
            }
        }
    }
};

OrtStatus *make_pack(const OrtKernelInfo *info, void **kernel) {
    auto shape = std::make_unique<abi::PackShape>();
    ORT_TRY(read_shape(info, "Pack", shape.get()));
    if (!fits(shape->depth, shape->columns) || !ort::is_within({shape->is_transposed}, 0, 1)) {
        return ort::refuse("Pack: the shape is that of no matrix");
    }
    *kernel = shape.release();
    return nullptr;
}

OrtStatus *pack(const abi::PackShape &shape, OrtKernelContext *context) {
    Packing call = {shape, nullptr, nullptr};
    ORT_TRY(expect(context, "Pack", 0, shape.depth * shape.columns, &call.from));
    const int64_t panels = panels_of(shape.columns);
    const int64_t dims[] = {panels, shape.depth, PANEL_COLUMNS};
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, dims, 3, &made));
    call.to = static_cast<float *>(made);
    return ort::parallel(context, static_cast<size_t>(panels), call);
}

/* Measured with AVX-512: a block of rows, of so many terms, stays in the second level of the cache
 * beside the panels; results are still in it when they are worked upon. Rows and panels are whole
 * numbers of those that the loops compute together. */
constexpr size_t BLOCK_DEPTH = 768, BLOCK_ELEMENTS = 1 << 17;
constexpr size_t FEWEST_ROWS = 96, MOST_ROWS = 384, ROW_STEP = 24;
constexpr size_t KEPT_RESULTS = 1 << 16, PANEL_STEP = 3;

struct Call {
    packed::Product product;
    const float *residual;
    int64_t activation;
    size_t tasks;

    /* Tasks share out rows where there are more than columns: each then reads few of them. */
    void operator()(size_t task) const {
        const bool is_tall = product.rows >= product.columns;
        const size_t all = is_tall ? product.rows : product.last;
        const size_t step = is_tall ? ROW_STEP : 1, steps = (all + step - 1) / step;
        const size_t first = std::min(all, steps * task / tasks * step);
        const size_t last = std::min(all, steps * (task + 1) / tasks * step);
        packed::Product part = product;
        if (!is_tall) {
            part.first = first;
            part.last = last;
        }
        each_block(part, is_tall ? first : 0, is_tall ? last : product.rows);
    }
    void each_block(const packed::Product &part, size_t first, size_t last) const {
        const size_t fit = BLOCK_ELEMENTS / part_depth() / ROW_STEP * ROW_STEP;
        const size_t step = std::clamp(fit, FEWEST_ROWS, MOST_ROWS);
        for (size_t row = first; row < last; row += step) {
            block(part, row, std::min(step, last - row));
        }
    }

    /* `rows` rows from one on, of the panels of a part. */
    void block(packed::Product part, size_t row, size_t rows) const {
        part.rows = rows;
        part.a += row * part.a_row;
        part.y += row * part.y_row;
        if (part.c != nullptr) part.c += row * part.c_row;
        const size_t all = part.last;
        const size_t fit = KEPT_RESULTS / rows / packed::PANEL / PANEL_STEP * PANEL_STEP;
        const size_t step = is_product() ? all : std::max(fit, PANEL_STEP);
        for (; part.first < all; part.first = part.last) {
            part.last = std::min(all, part.first + step);
            multiply(part);
            if (!is_product()) finish(part, row);
        }
    }
    /* Of the fewest parts of a sum, of nearly one length, that have no more than a block. */
    size_t part_depth() const {
        const size_t parts = (product.depth + BLOCK_DEPTH - 1) / BLOCK_DEPTH;
        return (product.depth + parts - 1) / parts;
    }
    void multiply(packed::Product part) const {
        const size_t most = part_depth();
        for (size_t k = 0; k < product.depth; k += most) {
            part.depth = std::min(most, product.depth - k);
            packed::loops().multiply(part);
            part.a += part.depth;
            part.b += part.depth * packed::PANEL;
            part.c = part.y;
            part.c_row = part.y_row;
        }
    }
    bool is_product() const { return residual == nullptr && activation == NONE; }

    /* What comes after the product and its addend. */
    void finish(const packed::Product &part, size_t row) const {
        const tile::Loops &loops = tile::loops();
        const size_t column = part.first * packed::PANEL;
        const size_t count = std::min(part.columns, part.last * packed::PANEL) - column;
        for (size_t i = 0; i < part.rows; ++i) {
            float *y = part.y + i * part.y_row + column;
            if (activation == GELU) loops.gelu(y, y, y, y, count);
            if (activation == RELU) loops.operations[tile::RELU](y, y, y, y, count);
            if (residual != nullptr) {
                loops.add_to(y, residual + (row + i) * part.y_row + column, count);
            }
        }
    }
};

int64_t addends(const abi::PackedShape &shape) {
    return shape.addend == FULL ? shape.rows * shape.columns : shape.columns;
}

OrtStatus *make_product(const OrtKernelInfo *info, void **kernel) {
    auto shape = std::make_unique<abi::PackedShape>();
    ORT_TRY(read_shape(info, "PackedProduct", shape.get()));
    const abi::PackedShape &s = *shape;
    const bool is_known = s.addend == NOTHING || s.addend == PER_COLUMN || s.addend == FULL;
    if (!fits(s.depth, s.columns) || !ort::is_within({s.rows}, 1, LARGEST) || !is_known ||
        s.rows > LARGEST / s.depth || s.rows > LARGEST / s.columns ||
        !ort::is_within({s.activation}, NONE, GELU) ||
        !ort::is_within({s.has_residual}, 0, 1) ||
        !ort::is_within({s.tasks}, 1, abi::MOST_MATRIX_TASKS)) {
        return ort::refuse("PackedProduct: the shape is that of no product");
    }
    *kernel = shape.release();
    return nullptr;
}

OrtStatus *multiply(const abi::PackedShape &s, OrtKernelContext *context) {
    const int64_t panels = panels_of(s.columns);
    const auto size = [](int64_t number) { return static_cast<size_t>(number); };
    packed::Product p =
        packed::of_packed(nullptr, nullptr, nullptr, nullptr, size(s.rows), size(s.depth),
                          size(s.columns), s.addend == FULL ? size(s.columns) : 0);
    ORT_TRY(expect(context, "PackedProduct", 0, s.rows * s.depth, &p.a));
    ORT_TRY(expect(context, "PackedProduct", 1, panels * PANEL_COLUMNS * s.depth, &p.b));
    if (s.addend != NOTHING) ORT_TRY(expect(context, "PackedProduct", 2, addends(s), &p.c));
    const float *residual = nullptr;
    if (s.has_residual) {
        ORT_TRY(expect(context, "PackedProduct", 3, s.rows * s.columns, &residual));
    }
    const int64_t dims[] = {s.rows, s.columns};
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, dims, 2, &made));
    p.y = static_cast<float *>(made);
    const double products = static_cast<double>(s.rows * s.columns) * static_cast<double>(s.depth);
    const auto worth = static_cast<int64_t>(products / TASK_PRODUCTS) + 1;
    const int64_t tasks = std::min({s.tasks, std::max(panels, s.rows), worth});
    Call call = {p, residual, s.activation, size(tasks)};
    return ort::parallel(context, call.tasks, call);
}

} // namespace

const ort::CustomOp *ort::packed_operator(int which) {
    static const CustomOp packing = [] {
        CustomOp o = described<abi::PackShape, make_pack, pack>();
        o.GetName = [](const CustomOp *) { return "Pack"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 1; };
        return o;
    }();
    static const CustomOp product = [] {
        CustomOp o = described<abi::PackedShape, make_product, multiply>();
        o.GetName = [](const CustomOp *) { return "PackedProduct"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 4; };
        o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 2 ? OPTIONAL : REQUIRED;
        };
        return o;
    }();
    return which == 0 ? &packing : &product;
}
