/* Rows of a table on the GPU: `Rows` looks them up, `AddRows` adds to them, `PutRows` puts others.
 *
 * What they compute stands in kernels/rows.inc. Indices lie on the device, so one that names no row
 * is no error as on the CPU: what is looked up is NaN, what is written is left out.
 */
#include <memory>

#include "../row_operators.h"
#include "operators.h"
#include "text.h"

namespace {

using ort::Tensor;
using rows::ADD, rows::LOOK_UP, rows::PUT;
using rows::are_rows, rows::NAMES, rows::Which, rows::width_of;
const char *const KERNELS[] = {"flow2onnx_look_up", "flow2onnx_add_rows", "flow2onnx_put_rows"};
constexpr int64_t MOST_BLOCKS = 1 << 30, THREADS = 256, SHORT_ROW = 64;

const char *const TEXT =
#include "kernels/rows.inc"
    ;

struct Kernel {
    Which which = LOOK_UP;
    std::vector<int64_t> shape = {}; /* of what is looked up */
    cuda::Function of_int32, of_int64;
};

OrtStatus *load(Which which, const char *index, cuda::Function *function) {
    const std::string text = std::string(cuda::PRELUDE) + "typedef " + index + " INDEX;\n" + TEXT;
    return cuda::load(text, KERNELS[which], function);
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    kernel->which = static_cast<Which>(which);
    if (which == LOOK_UP) ORT_TRY(ort::integers(info, "shape", &kernel->shape));
    ORT_TRY(load(kernel->which, "int", &kernel->of_int32));
    ORT_TRY(load(kernel->which, "long long", &kernel->of_int64));
    *made = kernel.release();
    return nullptr;
}

/* The tensors of a call; `made` is what it writes to. */
struct Call {
    Tensor table, indices, rows;
    void *made = nullptr;

    OrtStatus *read(const Kernel &kernel, OrtKernelContext *context) {
        ORT_TRY(rows::read(kernel.which, context, 0, &table, &indices));
        const bool looks_up = kernel.which == LOOK_UP;
        std::vector<int64_t> shape = kernel.shape;
        if (!looks_up) {
            ORT_TRY(ort::input(context, 2, &rows));
            shape.assign(rows.dims, rows.dims + rows.rank);
        }
        if ((!looks_up && rows.type != ort::FLOAT) || !are_rows(shape, table, indices.size()) ||
            indices.size() > MOST_BLOCKS) {
            return ort::refuse("%s: %lld indices of rows of %lld floats do not fit the rows",
                               NAMES[kernel.which], static_cast<long long>(indices.size()),
                               static_cast<long long>(width_of(table)));
        }
        if (looks_up) return ort::output(context, 0, shape.data(), shape.size(), &made);
        return ort::output(context, 0, table.dims, table.rank, &made);
    }
};

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    Call call;
    void *stream = nullptr;
    ORT_TRY(call.read(kernel, context));
    ORT_TRY(cuda::stream_of(context, &stream));
    const int64_t size = call.table.size(), width = width_of(call.table);
    if (kernel.which != LOOK_UP && call.made != call.table.data && size > 0) {
        const size_t bytes = static_cast<size_t>(size) * sizeof(float);
        ORT_TRY(cuda::copy(stream, call.made, call.table.data, bytes));
    }
    const int64_t count = call.indices.size();
    if (count == 0 || width == 0) return nullptr;
    cuda::Arguments given;
    for (const void *data : {call.table.data, call.indices.data, call.rows.data, call.made}) {
        given.add(data);
    }
    for (int64_t number : {count, call.table.dims[0], width}) given.add(number);
    const bool is_short = call.indices.type == ort::INT32;
    const bool is_narrow = kernel.which == LOOK_UP && width <= SHORT_ROW;
    return cuda::launch(is_short ? kernel.of_int32 : kernel.of_int64, stream, count, 1,
                        is_narrow ? 32 : THREADS, given.data());
}

template <int which>
ort::CustomOp described() {
    ort::CustomOp o = rows::described<which, Kernel, create<which>, run>();
    o.GetExecutionProviderType = cuda::provider;
    return o;
}

} // namespace

const ort::CustomOp *cuda::rows_operator(int which) {
    static const ort::CustomOp operators[] = {described<LOOK_UP>(), described<ADD>(),
                                              described<PUT>()};
    return &operators[which];
}
