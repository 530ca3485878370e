/* The operator `CrossEntropy`: the softmax of rows beside the classes that they belong to.
 *
 * losses[i] = -log softmax(logits[i])[label], slopes[i] = factor * (softmax(logits[i]) - one at the
 * label). There is one factor, or one for each row. A negative label counts from the last class,
 * and one that names no class is an error: it is looked for before anything is computed.
 *
 * Tasks share out the rows, which know nothing of each other.
 */
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "cross_entropy_loops.h"
#include "ort.h"
#include "tile.h"

namespace {

using ort::Tensor;

using abi::MOST_TASKS;
constexpr int64_t TASK_ELEMENTS = 1 << 14;  /* less is not worth waking a thread */
constexpr int64_t BLOCK_ELEMENTS = 1 << 12; /* of rows that go through a loop together */
constexpr int64_t LONG = 32;                /* classes of rows that are worth loops of their own */

struct Kernel {
    int64_t tasks = 1;
    std::vector<int64_t> shape = {}; /* of the losses */
};

template <typename Label>
struct Call {
    const float *logits, *factors;
    const Label *labels;
    float *losses, *slopes;
    int64_t rows, classes, factor_step, tasks; /* the step is 0 if all rows have one factor */

    void operator()(size_t task) const {
        const auto at = static_cast<int64_t>(task);
        const int64_t begin = rows * at / tasks, end = rows * (at + 1) / tasks;
        if (classes >= LONG) {
            for (int64_t i = begin; i < end; ++i) long_row(i);
            return;
        }
        const int64_t most = BLOCK_ELEMENTS / classes;
        for (int64_t i = begin; i < end; i += most) short_rows(i, std::min(end, i + most));
    }

    /* What is read of the logits is read before the slopes are written, whose memory may be one. */
    void short_rows(int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end; ++i) {
            const float most = begin_row(i), *from = logits + i * classes;
            float *to = slopes + i * classes;
            for (int64_t j = 0; j < classes; ++j) to[j] = from[j] - most;
        }
        float *powers = slopes + begin * classes;
        const auto count = static_cast<size_t>((end - begin) * classes);
        tile::loops().operations[tile::EXP](powers, powers, powers, powers, count);
        for (int64_t i = begin; i < end; ++i) {
            const float *made = slopes + i * classes;
            finish(i, std::accumulate(made, made + classes, 0.0f));
        }
    }

    void long_row(int64_t i) const {
        const float most = begin_row(i);
        finish(i, cross_entropy::loops().powers(slopes + i * classes, logits + i * classes, most,
                                          static_cast<size_t>(classes)));
    }

    /* The largest logit of a row, whose loss is begun with it. */
    float begin_row(int64_t i) const {
        const float *from = logits + i * classes;
        const float most = cross_entropy::loops().largest(from, static_cast<size_t>(classes));
        losses[i] = most - from[label(i)];
        return most;
    }

    void finish(int64_t i, float sum) const {
        float *to = slopes + i * classes;
        const float rate = 1 / sum, factor = factors[i * factor_step];
        const float right = to[label(i)] * rate - 1;
        losses[i] += std::log(sum);
        tile::loops().scale(to, rate * factor, static_cast<size_t>(classes));
        to[label(i)] = right * factor;
    }

    int64_t label(int64_t i) const {
        const auto found = static_cast<int64_t>(labels[i]);
        return found < 0 ? found + classes : found;
    }

    /* The position of the first label that names no class; -1 if all do. */
    int64_t first_outside() const {
        for (int64_t i = 0; i < rows; ++i) {
            const auto found = static_cast<int64_t>(labels[i]);
            if (found < -classes || found >= classes) return i;
        }
        return -1;
    }
};

struct Inputs {
    Tensor logits, labels, factors;
    int64_t rows = 0, classes = 0;
};

OrtStatus *read(const Kernel &kernel, OrtKernelContext *context, Inputs *in) {
    ORT_TRY(ort::input(context, 0, &in->logits));
    ORT_TRY(ort::input(context, 1, &in->labels));
    ORT_TRY(ort::input(context, 2, &in->factors));
    const Tensor &logits = in->logits, &labels = in->labels, &factors = in->factors;
    if (logits.type != ort::FLOAT || logits.rank < 1 || logits.dims[logits.rank - 1] < 1) {
        return ort::refuse("CrossEntropy: the logits are of type %d and have %zu dimensions; "
                           "wanted are floats, of one class or more",
                           logits.type, logits.rank);
    }
    in->classes = logits.dims[logits.rank - 1];
    in->rows = logits.size() / in->classes;
    if ((labels.type != ort::INT32 && labels.type != ort::INT64) || labels.size() != in->rows) {
        return ort::refuse("CrossEntropy: %lld labels of type %d do not fit %lld rows; wanted is "
                           "one of int32 or int64 for each",
                           static_cast<long long>(labels.size()), labels.type,
                           static_cast<long long>(in->rows));
    }
    if (factors.type != ort::FLOAT || (factors.size() != 1 && factors.size() != in->rows)) {
        return ort::refuse("CrossEntropy: %lld factors of type %d do not fit %lld rows; wanted is "
                           "one float, or one for each",
                           static_cast<long long>(factors.size()), factors.type,
                           static_cast<long long>(in->rows));
    }
    int64_t losses = 1;
    for (int64_t d : kernel.shape) {
        if (d < 0 || (d > 0 && losses > in->rows / d)) losses = -1;
        if (losses < 0) break;
        losses *= d;
    }
    if (losses != in->rows) {
        return ort::refuse("CrossEntropy: %lld losses are not of the shape it was made for",
                           static_cast<long long>(in->rows));
    }
    return nullptr;
}

template <typename Label>
OrtStatus *compute(const Kernel &kernel, OrtKernelContext *context, const Inputs &in) {
    const int64_t worth = in.rows * in.classes / TASK_ELEMENTS;
    Call<Label> call{in.logits.floats(), in.factors.floats(),
                     static_cast<const Label *>(in.labels.data), nullptr, nullptr, in.rows,
                     in.classes, in.factors.size() == 1 ? 0 : 1,
                     std::max<int64_t>(1, std::min({kernel.tasks, worth, in.rows}))};
    const int64_t at = call.first_outside();
    if (at >= 0) {
        return ort::refuse("CrossEntropy: label %lld at position %lld is none of %lld classes",
                           static_cast<long long>(call.labels[at]), static_cast<long long>(at),
                           static_cast<long long>(in.classes));
    }
    void *losses = nullptr, *slopes = nullptr;
    ORT_TRY(ort::output(context, 0, kernel.shape.data(), kernel.shape.size(), &losses));
    ORT_TRY(ort::output(context, 1, in.logits.dims, in.logits.rank, &slopes));
    call.losses = static_cast<float *>(losses);
    call.slopes = static_cast<float *>(slopes);
    return ort::parallel(context, static_cast<size_t>(call.tasks), call);
}

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    Inputs in;
    ORT_TRY(read(kernel, context, &in));
    if (in.labels.type == ort::INT32) return compute<int32_t>(kernel, context, in);
    return compute<int64_t>(kernel, context, in);
}

OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "tasks", &kernel->tasks));
    ORT_TRY(ort::integers(info, "shape", &kernel->shape));
    if (kernel->tasks < 1 || kernel->tasks > MOST_TASKS || kernel->shape.size() > Tensor::MOST) {
        return ort::refuse("CrossEntropy: %lld tasks and losses of %zu dimensions; wanted are 1 to "
                           "%lld tasks, and %zu dimensions at most",
                           static_cast<long long>(kernel->tasks), kernel->shape.size(),
                           static_cast<long long>(MOST_TASKS), Tensor::MOST);
    }
    *made = kernel.release();
    return nullptr;
}

} // namespace

const ort::CustomOp *ort::cross_entropy_operator() {
    static const CustomOp op = [] {
        CustomOp o = described<Kernel, create, run>();
        o.GetName = [](const CustomOp *) { return "CrossEntropy"; };
        o.GetInputType = [](const CustomOp *, size_t i) { return i == 1 ? ANY : FLOAT; };
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 3; };
        o.GetOutputTypeCount = [](const CustomOp *) -> size_t { return 2; };
        return o;
    }();
    return &op;
}
