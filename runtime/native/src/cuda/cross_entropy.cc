/* The operator `CrossEntropy` on the GPU: the softmax of rows beside the classes they belong to.
 *
 * What it computes stands in kernels/cross_entropy.inc. Labels lie on the device, so one that names
 * no class is no error as on the CPU: its loss and its slopes are NaN.
 */
#include <memory>

#include "operators.h"
#include "text.h"

namespace {

using ort::Tensor;

constexpr int64_t LARGE_ROW = 8192, SMALL_ROW = 1024, MOST_BLOCKS = 1 << 30;

const char *const TEXT =
#include "kernels/cross_entropy.inc"
    ;

struct Kernel {
    std::vector<int64_t> shape = {}; /* of the losses */
    cuda::Function of_int32, of_int64;
};

OrtStatus *load(const char *label, cuda::Function *function) {
    const std::string text = std::string(cuda::PRELUDE) + "typedef " + label + " LABEL;\n" + TEXT;
    return cuda::load(text, "flow2onnx_cross_entropy", function);
}

OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    ORT_TRY(ort::integers(info, "shape", &kernel->shape));
    if (kernel->shape.size() > Tensor::MOST) {
        return ort::refuse("CrossEntropy: losses of %zu dimensions; wanted are %zu at most",
                           kernel->shape.size(), Tensor::MOST);
    }
    ORT_TRY(load("int", &kernel->of_int32));
    ORT_TRY(load("long long", &kernel->of_int64));
    *made = kernel.release();
    return nullptr;
}

OrtStatus *check(const Kernel &kernel, const Tensor &logits, const Tensor &labels,
                 const Tensor &factors) {
    if (logits.type != ort::FLOAT || logits.rank < 1 || logits.dims[logits.rank - 1] < 1) {
        return ort::refuse("CrossEntropy: the logits are of type %d and have %zu dimensions; "
                           "wanted are floats, of one class or more",
                           logits.type, logits.rank);
    }
    const int64_t rows = logits.size() / logits.dims[logits.rank - 1];
    if ((labels.type != ort::INT32 && labels.type != ort::INT64) || labels.size() != rows) {
        return ort::refuse("CrossEntropy: %lld labels of type %d do not fit %lld rows; wanted is "
                           "one of int32 or int64 for each",
                           static_cast<long long>(labels.size()), labels.type,
                           static_cast<long long>(rows));
    }
    if (factors.type != ort::FLOAT || (factors.size() != 1 && factors.size() != rows)) {
        return ort::refuse("CrossEntropy: %lld factors of type %d do not fit %lld rows; wanted is "
                           "one float, or one for each",
                           static_cast<long long>(factors.size()), factors.type,
                           static_cast<long long>(rows));
    }
    int64_t losses = 1;
    for (int64_t d : kernel.shape) {
        if (d < 0 || __builtin_mul_overflow(losses, d, &losses)) losses = -1;
        if (losses < 0) break;
    }
    if (losses != rows || rows > MOST_BLOCKS) {
        return ort::refuse("CrossEntropy: %lld losses are not of the shape it was made for",
                           static_cast<long long>(rows));
    }
    return nullptr;
}

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    Tensor logits, labels, factors;
    ORT_TRY(ort::input(context, 0, &logits));
    ORT_TRY(ort::input(context, 1, &labels));
    ORT_TRY(ort::input(context, 2, &factors));
    ORT_TRY(check(kernel, logits, labels, factors));
    void *losses = nullptr, *slopes = nullptr, *stream = nullptr;
    ORT_TRY(ort::output(context, 0, kernel.shape.data(), kernel.shape.size(), &losses));
    ORT_TRY(ort::output(context, 1, logits.dims, logits.rank, &slopes));
    const int64_t classes = logits.dims[logits.rank - 1], rows = logits.size() / classes;
    if (rows == 0) return nullptr;
    cuda::Arguments given;
    for (const void *data : {logits.data, labels.data, factors.data, losses, slopes}) {
        given.add(data);
    }
    given.add(classes);
    given.add(int64_t(factors.size() == 1 ? 0 : 1));
    ORT_TRY(cuda::stream_of(context, &stream));
    const bool is_short = labels.type == ort::INT32;
    const int64_t threads = classes > LARGE_ROW ? 1024 : classes > SMALL_ROW ? 256 : 32;
    return cuda::launch(is_short ? kernel.of_int32 : kernel.of_int64, stream, rows, 1, threads,
                        given.data());
}

} // namespace

const ort::CustomOp *cuda::cross_entropy_operator() {
    static const ort::CustomOp op = [] {
        ort::CustomOp o = ort::described<::Kernel, create, run>();
        o.GetExecutionProviderType = provider;
        o.GetName = [](const ort::CustomOp *) { return "CrossEntropy"; };
        o.GetInputType = [](const ort::CustomOp *, size_t i) {
            return i == 1 ? ort::ANY : ort::FLOAT;
        };
        o.GetInputTypeCount = [](const ort::CustomOp *) -> size_t { return 3; };
        o.GetOutputTypeCount = [](const ort::CustomOp *) -> size_t { return 2; };
        return o;
    }();
    return &op;
}
