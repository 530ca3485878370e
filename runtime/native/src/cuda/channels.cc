/* The operator `FusedChannels` on the GPU: a launch for each stage, and one for cells that go out.
 *
 * Its node has one output more than the plan, the memory of partial sums and of what is kept.
 */
#include <memory>

#include "channels_text.h"
#include "operators.h"
#include "text.h"

namespace {

using channels::Plan;
using ort::Tensor;

struct Kernel {
    Plan plan;
    cuda::ChannelsLayout layout;
    std::vector<cuda::Function> stages;
    cuda::Function cells;
};

OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    ORT_TRY(channels::create(info, ort::Reals::HALVES_TOO, &kernel->plan));
    cuda::Device device;
    ORT_TRY(cuda::current_device(&device));
    kernel->layout = cuda::channels_layout(kernel->plan, device.processors);
    const std::string text = cuda::channels_text(kernel->plan, kernel->layout);
    for (int64_t stage : kernel->layout.stages) {
        kernel->stages.emplace_back();
        ORT_TRY(cuda::load(text, cuda::channels_kernel(stage).c_str(), &kernel->stages.back()));
    }
    if (kernel->layout.has_cell_kernel) {
        ORT_TRY(cuda::load(text, cuda::channels_kernel(-1).c_str(), &kernel->cells));
    }
    *made = kernel.release();
    return nullptr;
}

OrtStatus *read(const Kernel &kernel, OrtKernelContext *context, cuda::Arguments *given) {
    const Plan &plan = kernel.plan;
    size_t inputs = 0, outputs = 0;
    ORT_TRY(ort::api.KernelContext_GetInputCount(context, &inputs));
    ORT_TRY(ort::api.KernelContext_GetOutputCount(context, &outputs));
    if (inputs != plan.inputs.size() || outputs != plan.outputs.size() + 1) {
        return ort::refuse("FusedChannels: %zu inputs and %zu outputs, the program has %zu and %zu",
                           inputs, outputs, plan.inputs.size(), plan.outputs.size() + 1);
    }
    for (size_t i = 0; i < inputs; ++i) {
        Tensor tensor;
        ORT_TRY(ort::input(context, i, &tensor));
        ORT_TRY(channels::check_input(plan, i, tensor));
        given->add(tensor.data);
    }
    for (size_t i = 0; i < outputs; ++i) {
        const bool is_scratch = i == plan.outputs.size();
        void *data = nullptr;
        const auto type =
            is_scratch ? ort::FLOAT : static_cast<ort::Element>(plan.outputs[i].element);
        ORT_TRY(ort::output_of(type, context, i,
                               is_scratch ? std::vector<int64_t>{kernel.layout.scratch}
                                          : plan.outputs[i].dims,
                               &data));
        given->add(data);
    }
    return nullptr;
}

OrtStatus *compute(const Kernel &kernel, OrtKernelContext *context) {
    cuda::Arguments given;
    void *stream = nullptr;
    ORT_TRY(read(kernel, context, &given));
    ORT_TRY(cuda::stream_of(context, &stream));
    for (const cuda::Function &stage : kernel.stages) {
        ORT_TRY(cuda::launch(stage, stream, kernel.plan.channels, kernel.layout.slices,
                             cuda::CHANNEL_THREADS, given.data()));
    }
    if (!kernel.layout.has_cell_kernel) return nullptr;
    return cuda::launch(kernel.cells, stream, kernel.plan.channels, 1, cuda::CELL_THREADS,
                        given.data());
}

} // namespace

const ort::CustomOp *cuda::channels_operator() {
    static const ort::CustomOp op = [] {
        ort::CustomOp o = of_any_operands<::Kernel, create, compute>();
        o.GetName = [](const ort::CustomOp *) { return "FusedChannels"; };
        return o;
    }();
    return &op;
}
