/* The operators `Pack` and `PackedProduct`: a matrix that many products read, brought into the
 * order that they read it in once.
 *
 * The steps of a recurrent layer multiply a few rows each with the same weight. A product of few
 * rows spends as much time in packing the weight as in multiplying. Tasks share out the columns;
 * each element is one sum in the order of its terms, whatever the tasks.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "ort.h"
#include "packed_loops.h"

namespace {

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

struct Call {
    packed::Product product;
    int64_t tasks;

    void operator()(size_t task) const {
        packed::Product part = product;
        const size_t panels = product.last, count = static_cast<size_t>(tasks);
        part.first = panels * task / count;
        part.last = panels * (task + 1) / count;
        packed::loops().multiply(part);
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
    const int64_t dims[] = {s.rows, s.columns};
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, dims, 2, &made));
    p.y = static_cast<float *>(made);
    const double products = static_cast<double>(s.rows * s.columns) * static_cast<double>(s.depth);
    const auto worth = static_cast<int64_t>(products / TASK_PRODUCTS) + 1;
    const int64_t tasks = std::min({s.tasks, panels, worth});
    Call call = {p, tasks};
    return ort::parallel(context, static_cast<size_t>(tasks), call);
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
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 3; };
        o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 2 ? OPTIONAL : REQUIRED;
        };
        return o;
    }();
    return which == 0 ? &packing : &product;
}
