/* The operators `Recurrence` and `RecurrenceGradient`: all steps of one direction of an LSTM, GRU
 * or plain recurrent layer.
 *
 * What goes into a step is projected already: the products of all inputs with their weights are
 * one large product, which is none of this operator. So is the gradient of the weights: the gradient
 * of what goes into each step is what comes out here, with the states before it.
 *
 *   Recurrence(x (steps x batch, gates x units), R packed, h0 (batch, units), [c0 or bias], [lengths])
 *     -> y (steps, batch, units), last h, [gates], [cells, or products with R], [last c]
 *   RecurrenceGradient(gates, R packed the other way, h0, y, [cells or products], [c0], [lengths],
 *                      [dy], [dh], [dc])
 *     -> dx, states before each step, dh0, [dc0, or the gradient of products with R]
 *
 * Gates may lie where x was, and dx where the gates were: each is written when it has been read.
 * A sequence that is over keeps its states and puts out zeros; in reverse it starts at its end.
 * Sequences know nothing of each other, so tasks share them out and each goes through all steps.
 */
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ort.h"
#include "packed_loops.h"
#include "recurrence_loops.h"

namespace {

using namespace abi::cell;
using ort::Tensor;
using Shape = abi::RecurrenceShape;

constexpr int64_t PANEL_COLUMNS = abi::PACKED_COLUMNS;
constexpr int64_t LARGEST = abi::MOST_MATRIX_ELEMENTS;
constexpr int64_t TASK_PRODUCTS = 1 << 19; /* fewer multiplications are not worth a thread */

int64_t gates_of(const Shape &s) { return s.cell == LSTM ? 4 : s.cell == GRU ? 3 : 1; }
int64_t state_of(const Shape &s) { return s.batch * s.units; }
int64_t all_of(const Shape &s) { return s.steps * state_of(s); }
int64_t packed(int64_t depth, int64_t columns) {
    return depth * ((columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS) * PANEL_COLUMNS;
}

OrtStatus *make(const OrtKernelInfo *info, const char *name, void **kernel) {
    std::vector<int64_t> numbers;
    auto shape = std::make_unique<Shape>();
    size_t next = 0;
    ORT_TRY(ort::integers(info, "shape", &numbers));
    const bool is_whole = ort::take(numbers, &next, shape.get()) && next == numbers.size();
    const Shape &s = *shape;
    const bool is_known =
        is_whole && ort::is_within({s.cell}, LSTM, RELU) &&
        ort::is_within({s.steps, s.batch, s.units}, 1, LARGEST) &&
        ort::is_within({s.is_reverse, s.has_lengths, s.has_dy, s.has_dh, s.has_dc}, 0, 1) &&
        ort::is_within({s.tasks}, 1, abi::MOST_MATRIX_TASKS);
    /* Divided, as the product of the extents may overflow; 4 gates are the most. */
    const int64_t most = LARGEST / 4;
    if (!is_known || s.units > most / (s.units + PANEL_COLUMNS) || s.batch > most / s.units ||
        s.steps > most / (s.batch * s.units)) {
        return ort::refuse("%s: the shape is that of no layer", name);
    }
    *kernel = shape.release();
    return nullptr;
}

OrtStatus *make_forward(const OrtKernelInfo *info, void **kernel) {
    return make(info, "Recurrence", kernel);
}

OrtStatus *make_gradient(const OrtKernelInfo *info, void **kernel) {
    return make(info, "RecurrenceGradient", kernel);
}

/* What one operator reads, each checked for its size. */
struct Inputs {
    OrtKernelContext *context;
    const char *name;

    OrtStatus *floats(size_t index, int64_t size, const float **data) const {
        Tensor tensor;
        ORT_TRY(ort::input(context, index, &tensor));
        if (tensor.type == ort::FLOAT && tensor.size() == size) {
            *data = tensor.floats();
            return nullptr;
        }
        return refuse(index, tensor, size, "floats");
    }
    OrtStatus *lengths(size_t index, const Shape &s, const int32_t **data) const {
        Tensor tensor;
        ORT_TRY(ort::input(context, index, &tensor));
        if (tensor.type == ort::INT32 && tensor.size() == s.batch) {
            *data = static_cast<const int32_t *>(tensor.data);
            return nullptr;
        }
        return refuse(index, tensor, s.batch, "numbers of type 6");
    }
    OrtStatus *refuse(size_t index, const Tensor &got, int64_t size, const char *what) const {
        return ort::refuse("%s: input %zu has %lld elements of type %d; wanted are %lld %s", name,
                           index, static_cast<long long>(got.size()), got.type,
                           static_cast<long long>(size), what);
    }
};

OrtStatus *make_output(OrtKernelContext *context, size_t index, std::vector<int64_t> dims,
                       float **data) {
    void *made = nullptr;
    ORT_TRY(ort::output(context, index, dims.data(), dims.size(), &made));
    *data = static_cast<float *>(made);
    return nullptr;
}

/* How the steps of some sequences follow each other. */
struct Steps {
    Shape shape;
    const int32_t *lengths;
    const float *h0;
    int64_t tasks;

    /* The sequences of a task: from the first to before the last. */
    std::pair<int64_t, int64_t> sequences_of(size_t task) const {
        const auto part = static_cast<int64_t>(task);
        return {shape.batch * part / tasks, shape.batch * (part + 1) / tasks};
    }
    int64_t at(int64_t i) const { return shape.is_reverse ? shape.steps - 1 - i : i; }
    bool goes_on(int64_t t, int64_t row) const { return lengths == nullptr || t < lengths[row]; }
    /* The state that a sequence goes into step t with, which its outputs have but for the first. */
    const float *before(const float *y, int64_t t, int64_t row) const {
        const int64_t last = t + (shape.is_reverse ? 1 : -1);
        const bool is_first = last < 0 || last >= shape.steps || !goes_on(last, row);
        if (is_first) return h0 + row * shape.units;
        return y + (last * shape.batch + row) * shape.units;
    }
    /* The rows of a tensor of a state for each step and sequence. */
    int64_t place(int64_t t, int64_t row) const { return t * shape.batch + row; }
};

void copy(const float *from, int64_t count, float *to) { std::copy_n(from, count, to); }

struct Forward {
    Steps steps;
    const float *x, *weights, *c0, *bias;
    float *y, *h, *gates, *inner, *c;

    void operator()(size_t task) const {
        const Shape &s = steps.shape;
        const auto [first, last] = steps.sequences_of(task);
        const int64_t count = (last - first) * s.units;
        copy(steps.h0 + first * s.units, count, h + first * s.units);
        if (s.cell == LSTM) copy(c0 + first * s.units, count, c + first * s.units);
        for (int64_t i = 0; i < s.steps; ++i) step(steps.at(i), first, last);
    }

    void step(int64_t t, int64_t first, int64_t last) const {
        const Shape &s = steps.shape;
        multiply(t, first, last);
        for (int64_t row = first; row < last; ++row) {
            if (steps.goes_on(t, row)) {
                advance(t, row);
                copy(y + steps.place(t, row) * s.units, s.units, h + row * s.units);
            } else {
                skip(t, row);
            }
        }
    }

    /* The products of the states with the recurrent weights, to where the cell wants them. */
    void multiply(int64_t t, int64_t first, int64_t last) const {
        const Shape &s = steps.shape;
        const auto size = [](int64_t n) { return static_cast<size_t>(n); };
        const int64_t columns = gates_of(s) * s.units;
        const int64_t at = steps.place(t, first) * columns;
        const bool is_gru = s.cell == GRU;
        float *to = is_gru ? inner : s.cell == LSTM ? gates : y;
        packed::loops().multiply(packed::of_packed(
            h + first * s.units, weights, is_gru ? bias : x + at, to + at, size(last - first),
            size(s.units), size(columns), is_gru ? 0 : size(columns)));
    }

    void advance(int64_t t, int64_t row) const {
        const Shape &s = steps.shape;
        const auto units = static_cast<size_t>(s.units);
        const int64_t place = steps.place(t, row);
        const recurrence::Loops &loops = recurrence::loops();
        float *made = y + place * s.units, *cell = c + row * s.units;
        if (s.cell == LSTM) {
            float *next = inner + place * s.units;
            loops.lstm(gates + 4 * place * s.units, cell, next, made, units);
            copy(next, s.units, cell);
        } else if (s.cell == GRU) {
            const int64_t at = 3 * place * s.units;
            loops.gru(x + at, inner + at, h + row * s.units, gates + at, made, units);
        } else {
            (s.cell == TANH ? loops.tanh : loops.relu)(made, units);
        }
    }

    /* A sequence that is over, or has not begun: what is kept of it is read, but not used. */
    void skip(int64_t t, int64_t row) const {
        const Shape &s = steps.shape;
        const int64_t place = steps.place(t, row);
        std::fill_n(y + place * s.units, s.units, 0.0f);
        if (s.cell == LSTM) copy(c + row * s.units, s.units, inner + place * s.units);
        if (s.cell == GRU) std::fill_n(gates + 3 * place * s.units, 3 * s.units, 0.0f);
    }
};

struct Gradient {
    Steps steps;
    const float *gates, *weights, *y, *inner, *c0, *dy;
    float *dx, *states, *dh, *dc, *dproduct;

    void operator()(size_t task) const {
        const Shape &s = steps.shape;
        const auto [first, last] = steps.sequences_of(task);
        for (int64_t i = s.steps; i-- > 0;) {
            for (int64_t row = first; row < last; ++row) go_back(steps.at(i), row);
            multiply(steps.at(i), first, last);
        }
    }

    void go_back(int64_t t, int64_t row) const {
        const Shape &s = steps.shape;
        const int64_t place = steps.place(t, row), columns = gates_of(s) * s.units;
        const float *before = steps.before(y, t, row);
        float *made = dx + place * columns, *carried = dh + row * s.units;
        copy(before, s.units, states + place * s.units);
        if (!steps.goes_on(t, row)) {
            std::fill_n(made, columns, 0.0f);
            if (s.cell == GRU) std::fill_n(dproduct + place * columns, columns, 0.0f);
            return;
        }
        if (dy != nullptr) {
            const float *more = dy + place * s.units;
            for (int64_t i = 0; i < s.units; ++i) carried[i] += more[i];
        }
        differentiate(t, row, before, made, carried);
        if (s.cell != GRU) std::fill_n(carried, s.units, 0.0f);
    }

    void differentiate(int64_t t, int64_t row, const float *before, float *made,
                       float *carried) const {
        const Shape &s = steps.shape;
        const auto units = static_cast<size_t>(s.units);
        const int64_t place = steps.place(t, row), at = place * gates_of(s) * s.units;
        const recurrence::Loops &loops = recurrence::loops();
        if (s.cell == LSTM) {
            loops.lstm_gradient(gates + at, cell_before(t, row), inner + place * s.units, carried,
                                dc + row * s.units, made, units);
        } else if (s.cell == GRU) {
            loops.gru_gradient(gates + at, inner + at, before, carried, made, dproduct + at, units);
        } else {
            const auto loop = s.cell == TANH ? loops.tanh_gradient : loops.relu_gradient;
            loop(y + place * s.units, carried, made, units);
        }
    }

    /* Cells of a sequence that is over are those of its end, so that each is the one before. */
    const float *cell_before(int64_t t, int64_t row) const {
        const Shape &s = steps.shape;
        const int64_t last = t + (s.is_reverse ? 1 : -1);
        if (last < 0 || last >= s.steps) return c0 + row * s.units;
        return inner + steps.place(last, row) * s.units;
    }

    /* What goes to the states before by the recurrent weights, on top of what goes by itself. */
    void multiply(int64_t t, int64_t first, int64_t last) const {
        const Shape &s = steps.shape;
        const auto size = [](int64_t n) { return static_cast<size_t>(n); };
        const int64_t depth = gates_of(s) * s.units;
        const float *from = (s.cell == GRU ? dproduct : dx) + steps.place(t, first) * depth;
        float *to = dh + first * s.units;
        packed::loops().multiply(packed::of_packed(from, weights, to, to, size(last - first),
                                                   size(depth), size(s.units), size(s.units)));
    }
};

int64_t tasks_for(const Shape &s) {
    const double products = static_cast<double>(all_of(s)) * static_cast<double>(s.units);
    const auto worth = static_cast<int64_t>(
        std::min(products * static_cast<double>(gates_of(s)) / TASK_PRODUCTS, 1e6));
    return std::min({s.tasks, s.batch, worth + 1});
}

OrtStatus *run_forward(const Shape &s, OrtKernelContext *context) {
    const Inputs in = {context, "Recurrence"};
    const int64_t columns = gates_of(s) * s.units;
    Forward call = {};
    call.steps.shape = s;
    call.steps.tasks = tasks_for(s);
    ORT_TRY(in.floats(0, all_of(s) * gates_of(s), &call.x));
    ORT_TRY(in.floats(1, packed(s.units, columns), &call.weights));
    ORT_TRY(in.floats(2, state_of(s), &call.steps.h0));
    if (s.cell == LSTM) ORT_TRY(in.floats(3, state_of(s), &call.c0));
    if (s.cell == GRU) ORT_TRY(in.floats(3, columns, &call.bias));
    if (s.has_lengths) ORT_TRY(in.lengths(4, s, &call.steps.lengths));
    ORT_TRY(make_output(context, 0, {s.steps, s.batch, s.units}, &call.y));
    ORT_TRY(make_output(context, 1, {s.batch, s.units}, &call.h));
    if (s.cell == LSTM || s.cell == GRU) {
        ORT_TRY(make_output(context, 2, {s.steps * s.batch, columns}, &call.gates));
        const int64_t width = s.cell == LSTM ? s.units : columns;
        ORT_TRY(make_output(context, 3, {s.steps * s.batch, width}, &call.inner));
    }
    if (s.cell == LSTM) ORT_TRY(make_output(context, 4, {s.batch, s.units}, &call.c));
    return ort::parallel(context, static_cast<size_t>(call.steps.tasks), call);
}

/* The gradient of a last state, or zeros, to where it is carried from step to step. */
OrtStatus *begin(const Inputs &in, const Shape &s, size_t index, bool is_given, float *to) {
    if (!is_given) {
        std::fill_n(to, state_of(s), 0.0f);
        return nullptr;
    }
    const float *from = nullptr;
    ORT_TRY(in.floats(index, state_of(s), &from));
    copy(from, state_of(s), to);
    return nullptr;
}

OrtStatus *read_kept(const Inputs &in, const Shape &s, Gradient *call) {
    const int64_t columns = gates_of(s) * s.units;
    const bool is_gated = s.cell == LSTM || s.cell == GRU;
    if (is_gated) ORT_TRY(in.floats(0, all_of(s) * gates_of(s), &call->gates));
    ORT_TRY(in.floats(1, packed(columns, s.units), &call->weights));
    ORT_TRY(in.floats(2, state_of(s), &call->steps.h0));
    ORT_TRY(in.floats(3, all_of(s), &call->y));
    const int64_t width = s.cell == LSTM ? 1 : gates_of(s);
    if (is_gated) ORT_TRY(in.floats(4, all_of(s) * width, &call->inner));
    if (s.cell == LSTM) ORT_TRY(in.floats(5, state_of(s), &call->c0));
    if (s.has_lengths) ORT_TRY(in.lengths(6, s, &call->steps.lengths));
    if (s.has_dy) ORT_TRY(in.floats(7, all_of(s), &call->dy));
    return nullptr;
}

OrtStatus *run_gradient(const Shape &s, OrtKernelContext *context) {
    const Inputs in = {context, "RecurrenceGradient"};
    const int64_t columns = gates_of(s) * s.units;
    Gradient call = {};
    call.steps.shape = s;
    call.steps.tasks = tasks_for(s);
    ORT_TRY(read_kept(in, s, &call));
    ORT_TRY(make_output(context, 0, {s.steps * s.batch, columns}, &call.dx));
    ORT_TRY(make_output(context, 1, {s.steps * s.batch, s.units}, &call.states));
    ORT_TRY(make_output(context, 2, {s.batch, s.units}, &call.dh));
    ORT_TRY(begin(in, s, 8, s.has_dh != 0, call.dh));
    if (s.cell == LSTM) {
        ORT_TRY(make_output(context, 3, {s.batch, s.units}, &call.dc));
        ORT_TRY(begin(in, s, 9, s.has_dc != 0, call.dc));
    }
    if (s.cell == GRU) {
        ORT_TRY(make_output(context, 3, {s.steps * s.batch, columns}, &call.dproduct));
    }
    return ort::parallel(context, static_cast<size_t>(call.steps.tasks), call);
}

/* Lets output `to` be in the memory of the first input, once nobody else reads that. */
template <int to>
void reuse_first(ort::CustomOp *op) {
    op->GetMayInplace = [](int **from, int **made) -> size_t {
        static int input = 0, output = to;
        *from = &input;
        *made = &output;
        return 1;
    };
    op->ReleaseMayInplace = [](int *, int *) {};
}

} // namespace

const ort::CustomOp *ort::recurrence_operator(int which) {
    static const CustomOp forward = [] {
        CustomOp o = described<Shape, make_forward, run_forward>();
        o.GetName = [](const CustomOp *) { return "Recurrence"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 5; };
        o.GetInputType = [](const CustomOp *, size_t i) { return i == 4 ? INT32 : FLOAT; };
        o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 3 ? OPTIONAL : REQUIRED;
        };
        o.GetOutputTypeCount = [](const CustomOp *) -> size_t { return 5; };
        o.GetOutputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 2 ? OPTIONAL : REQUIRED;
        };
        reuse_first<2>(&o);
        return o;
    }();
    static const CustomOp gradient = [] {
        CustomOp o = described<Shape, make_gradient, run_gradient>();
        o.GetName = [](const CustomOp *) { return "RecurrenceGradient"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 10; };
        o.GetInputType = [](const CustomOp *, size_t i) { return i == 6 ? INT32 : FLOAT; };
        o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
            return i == 0 || i >= 4 ? OPTIONAL : REQUIRED;
        };
        o.GetOutputTypeCount = [](const CustomOp *) -> size_t { return 4; };
        o.GetOutputCharacteristic = [](const CustomOp *, size_t i) {
            return i >= 3 ? OPTIONAL : REQUIRED;
        };
        reuse_first<0>(&o);
        return o;
    }();
    return which == 0 ? &forward : &gradient;
}
