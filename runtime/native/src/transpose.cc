/* `Transpose` where neighbouring axes change places with those behind them: of each of any number of
 * matrices rows become columns.
 *
 * The runtime wakes its threads for each matrix, however small. Here all are shared out at once, in
 * stripes of columns.
 */
#include <algorithm>
#include <numeric>
#include <vector>

#include "ort.h"
#include "transpose_loops.h"

namespace {

using abi::MOST_DIMENSIONS;
using abi::MOST_TASKS;
using ort::Tensor;

constexpr int64_t STRIPE = 16;             /* columns: whole lines of the cache, mostly */
constexpr int64_t TASK_ELEMENTS = 1 << 13; /* fewer are not worth waking a thread */

struct Kernel {
    std::vector<int64_t> order; /* of axes */
    size_t first, split;        /* the first axis of rows, and of columns */
    int64_t tasks;
};

/* Axes before `first` stay, and those from `split` on come before those from `first` on. */
bool is_exchange(const std::vector<int64_t> &order, size_t first, size_t split) {
    std::vector<int64_t> wanted(order.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    std::rotate(wanted.begin() + static_cast<std::ptrdiff_t>(first),
                wanted.begin() + static_cast<std::ptrdiff_t>(split), wanted.end());
    return order == wanted;
}

OrtStatus *create(const OrtKernelInfo *info, void **made) {
    std::vector<int64_t> order;
    int64_t tasks = 0;
    ORT_TRY(ort::integers(info, "perm", &order));
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "tasks", &tasks));
    if (tasks < 1 || tasks > MOST_TASKS) {
        return ort::refuse("Transpose: %lld tasks, wanted are 1 to %lld",
                           static_cast<long long>(tasks), static_cast<long long>(MOST_TASKS));
    }
    size_t first = 0;
    while (first < order.size() && order[first] == static_cast<int64_t>(first)) ++first;
    const size_t split = first < order.size() ? static_cast<size_t>(order[first]) : 0;
    if (first < split && split < order.size() && order.size() <= MOST_DIMENSIONS &&
        is_exchange(order, first, split)) {
        *made = new Kernel{order, first, split, tasks};
        return nullptr;
    }
    return ort::refuse("Transpose: perm does not exchange the last axes with those before them");
}

int64_t product(const int64_t *first, const int64_t *last) {
    return std::accumulate(first, last, int64_t(1), std::multiplies<int64_t>());
}

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    Tensor x;
    ORT_TRY(ort::input(context, 0, &x));
    const size_t rank = kernel.order.size();
    if (x.type != ort::FLOAT || x.rank != rank) {
        return ort::refuse("Transpose: input 0 is of type %d with %zu dimensions; wanted are floats "
                           "with %zu",
                           x.type, x.rank, rank);
    }
    int64_t dims[Tensor::MOST] = {};
    for (size_t i = 0; i < rank; ++i) dims[i] = x.dims[kernel.order[i]];
    void *to = nullptr;
    ORT_TRY(ort::output(context, 0, dims, rank, &to));
    if (x.size() == 0) return nullptr;
    const int64_t rows = product(x.dims + kernel.first, x.dims + kernel.split);
    const int64_t columns = product(x.dims + kernel.split, x.dims + rank);
    const int64_t stripes = (columns + STRIPE - 1) / STRIPE;
    const int64_t units = product(x.dims, x.dims + kernel.first) * stripes;
    const int64_t tasks =
        std::max<int64_t>(1, std::min({kernel.tasks, units, x.size() / TASK_ELEMENTS}));
    const auto job = [&](size_t task) {
        int64_t at = units * static_cast<int64_t>(task) / tasks;
        const int64_t end = units * (static_cast<int64_t>(task) + 1) / tasks;
        while (at < end) { /* as much of a matrix as is left */
            const int64_t matrix = at / stripes, from = at % stripes * STRIPE;
            const int64_t next = std::min(end, (matrix + 1) * stripes);
            const int64_t until = std::min(columns, (next - matrix * stripes) * STRIPE);
            const int64_t place = matrix * rows * columns;
            transposes::loops().transpose(
                {x.floats() + place + from, static_cast<float *>(to) + place + from * rows,
                 static_cast<size_t>(rows), static_cast<size_t>(until - from),
                 static_cast<size_t>(columns), static_cast<size_t>(rows)});
            at = next;
        }
    };
    return ort::parallel(context, static_cast<size_t>(tasks), job);
}

} // namespace

const ort::CustomOp *ort::transpose_operator() {
    static const CustomOp made = [] {
        CustomOp o = described<Kernel, create, run>();
        o.GetName = [](const CustomOp *) { return "Transpose"; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 1; };
        return o;
    }();
    return &made;
}
