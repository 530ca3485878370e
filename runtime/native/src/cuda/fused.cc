/* The operators `Fused` and `FusedParts` on the GPU.
 *
 * `Fused` is one program, as on the CPU. `FusedParts` is several that differ in the number of their
 * elements alone, such as the updates of all weights: they run as one launch, two where they have
 * sums. Their plans stand one behind the other in the attribute `plan`, with `parts` of them; what
 * goes in and out stands in the same order. Programs with sums have one output more, the memory of
 * partial sums.
 */
#include <memory>

#include "fused_text.h"
#include "operators.h"
#include "text.h"

namespace {

using cuda::Arguments;
using cuda::Layout;
using fused::Plan;
using ort::Tensor;

constexpr int64_t MOST_PARTS = 1 << 16;
constexpr int64_t ARGUMENT_WORDS = 4000; /* of a launch: the driver takes 32,764 bytes */
const char *const NAMES[] = {"Fused", "FusedParts"};

/* Programs of one launch, and those with sums of a second one. */
struct Launch {
    size_t first = 0, count = 0;
    int64_t blocks = 0;
    int64_t partials = 0; /* the offset of its partial sums, in floats */
};

struct Kernel {
    const char *name = nullptr;
    std::vector<Plan> plans;
    Layout layout;
    std::vector<int64_t> part_blocks; /* of each program */
    std::vector<Launch> launches;
    size_t room = 1; /* programs that an argument holds */
    int64_t partials = 0;
    cuda::Function program, sums;

    const Plan &plan() const { return plans.front(); }
    bool has_sums() const { return !layout.sums.empty(); }
};

bool is_alike(const Plan &a, const Plan &b) {
    const auto same_operands = [](const auto &x, const auto &y) {
        if (x.size() != y.size()) return false;
        for (size_t i = 0; i < x.size(); ++i) {
            if (x[i].at != y[i].at || x[i].mode != y[i].mode || x[i].element != y[i].element) {
                return false;
            }
        }
        return true;
    };
    const auto same_steps = [](const abi::Step &x, const abi::Step &y) {
        return x.operation == y.operation && x.to == y.to && x.a == y.a && x.b == y.b && x.c == y.c;
    };
    return a.registers == b.registers && a.constants == b.constants &&
           same_operands(a.inputs, b.inputs) && same_operands(a.outputs, b.outputs) &&
           std::equal(a.code.begin(), a.code.end(), b.code.begin(), b.code.end(), same_steps);
}

OrtStatus *read_plans(const OrtKernelInfo *info, int64_t parts, Kernel *kernel) {
    std::vector<int64_t> numbers;
    std::vector<float> values;
    ORT_TRY(ort::integers(info, "plan", &numbers));
    size_t next = 0;
    for (int64_t i = 0; i < parts; ++i) {
        kernel->plans.emplace_back();
        if (!fused::read_plan(numbers, ort::Reals::HALVES_TOO, &next, &kernel->plans.back())) {
            return ort::refuse("%s: plan %lld is no sound program", kernel->name,
                               static_cast<long long>(i));
        }
    }
    if (next != numbers.size()) {
        return ort::refuse("%s: the plan is no sound program: it has numbers left", kernel->name);
    }
    if (!kernel->plan().constants.empty()) ORT_TRY(ort::floats(info, "values", &values));
    if (values.size() != kernel->plan().constants.size()) {
        return ort::refuse("%s: %zu values for %zu constants", kernel->name, values.size(),
                           kernel->plan().constants.size());
    }
    kernel->plans.front().values = values;
    return nullptr;
}

OrtStatus *check_parts(const Kernel &kernel) {
    for (size_t i = 0; kernel.plans.size() > 1 && i < kernel.plans.size(); ++i) {
        if (!cuda::can_be_part(kernel.plans[i]) || !is_alike(kernel.plan(), kernel.plans[i])) {
            return ort::refuse("%s: program %zu cannot run beside the others; wanted are the same "
                               "steps, on whole tensors and single numbers",
                               kernel.name, i);
        }
    }
    return nullptr;
}

/* Shares out the programs among launches; at once as many as an argument holds. */
void plan_launches(int64_t processors, Kernel *kernel) {
    const Plan &plan = kernel->plan();
    const bool is_one = kernel->plans.size() == 1;
    kernel->layout = is_one ? cuda::layout_of(plan, processors) : cuda::layout_of_parts(plan);
    const auto words = plan.inputs.size() + plan.outputs.size() + cuda::PART_WORDS;
    const size_t most = std::max<size_t>(2, (ARGUMENT_WORDS - cuda::LAST_WORDS) / words);
    kernel->room = is_one ? 1 : std::min(most, kernel->plans.size());
    for (size_t i = 0; i < kernel->plans.size(); ++i) {
        if (i % most == 0) kernel->launches.push_back({i, 0, 0, kernel->partials});
        Launch &launch = kernel->launches.back();
        const int64_t blocks = is_one ? kernel->layout.blocks()
                                      : cuda::blocks_of_part(kernel->layout, kernel->plans[i].total,
                                                             processors);
        kernel->part_blocks.push_back(blocks);
        launch.count += 1;
        launch.blocks += blocks;
        kernel->partials += is_one ? kernel->layout.partials
                                   : blocks * static_cast<int64_t>(kernel->layout.sums.size());
    }
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = NAMES[which];
    int64_t parts = 1;
    if (which == 1) ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "parts", &parts));
    if (!ort::is_within({parts}, 1, MOST_PARTS)) {
        return ort::refuse("%s: %lld parts, wanted are 1 to %lld", kernel->name,
                           static_cast<long long>(parts), static_cast<long long>(MOST_PARTS));
    }
    ORT_TRY(read_plans(info, parts, kernel.get()));
    ORT_TRY(check_parts(*kernel));
    cuda::Device device;
    ORT_TRY(cuda::current_device(&device));
    plan_launches(device.processors, kernel.get());
    const auto room = static_cast<int64_t>(kernel->room);
    const std::string text = cuda::fused_text(kernel->plan(), kernel->layout, room);
    ORT_TRY(cuda::load(text, cuda::FUSED_KERNEL, &kernel->program));
    if (kernel->has_sums()) ORT_TRY(cuda::load(text, cuda::SUMS_KERNEL, &kernel->sums));
    *made = kernel.release();
    return nullptr;
}

/* The tensors of a call, in the order of the plans. */
struct Call {
    const Kernel &kernel;
    std::vector<const void *> inputs = {};
    std::vector<void *> outputs = {};
    float *partials = nullptr;
    void *stream = nullptr;

    OrtStatus *read(OrtKernelContext *context) {
        size_t given = 0, wanted = 0, count = 0;
        ORT_TRY(ort::api.KernelContext_GetInputCount(context, &given));
        ORT_TRY(ort::api.KernelContext_GetOutputCount(context, &count));
        const size_t each = kernel.plan().inputs.size(), made = kernel.plan().outputs.size();
        wanted = kernel.plans.size() * made + (kernel.has_sums() ? 1 : 0);
        if (given < kernel.plans.size() * each || count != wanted) {
            return ort::refuse("%s: %zu inputs and %zu outputs, the programs have %zu and %zu",
                               kernel.name, given, count, kernel.plans.size() * each, wanted);
        }
        for (const Plan &plan : kernel.plans) {
            for (size_t i = 0; i < each; ++i) {
                Tensor tensor;
                ORT_TRY(ort::input(context, inputs.size(), &tensor));
                ORT_TRY(fused::check_input(kernel.name, plan, i, tensor));
                inputs.push_back(tensor.data);
            }
        }
        return make_outputs(context);
    }

    OrtStatus *make_outputs(OrtKernelContext *context) {
        for (const Plan &plan : kernel.plans) {
            for (const fused::Operand &o : plan.outputs) {
                void *data = nullptr;
                ORT_TRY(ort::output_of(static_cast<ort::Element>(o.element), context,
                                       outputs.size(), o.dims, &data));
                outputs.push_back(data);
            }
        }
        if (!kernel.has_sums()) return nullptr;
        void *data = nullptr;
        ORT_TRY(ort::output_of(ort::FLOAT, context, outputs.size(), {kernel.partials}, &data));
        partials = static_cast<float *>(data);
        return nullptr;
    }

    void add_part(size_t at, int64_t first_block, Arguments *given) const {
        const size_t each = kernel.plan().inputs.size(), made = kernel.plan().outputs.size();
        for (size_t i = 0; i < each; ++i) given->add(inputs[at * each + i]);
        for (size_t i = 0; i < made; ++i) given->add(outputs[at * made + i]);
        given->add(kernel.plans[at].total);
        given->add(first_block);
        given->add(kernel.part_blocks[at]);
    }

    OrtStatus *run(const Launch &launch) const {
        Arguments given;
        int64_t block = 0;
        for (size_t i = launch.first; i < launch.first + launch.count; ++i) {
            add_part(i, block, &given);
            block += kernel.part_blocks[i];
        }
        given.resize(given.size() / launch.count * kernel.room);
        given.add(partials == nullptr ? nullptr : partials + launch.partials);
        given.add(static_cast<int64_t>(launch.count));
        given.add(launch.blocks);
        ORT_TRY(cuda::launch(kernel.program, stream, launch.blocks, 1, kernel.layout.threads,
                             given.data()));
        if (!kernel.has_sums()) return nullptr;
        const int64_t blocks = kernel.plans.size() == 1
                                   ? kernel.layout.finishing_blocks()
                                   : static_cast<int64_t>(launch.count * kernel.layout.sums.size());
        return cuda::launch(kernel.sums, stream, blocks, 1, 256, given.data());
    }
};

OrtStatus *compute(const Kernel &kernel, OrtKernelContext *context) {
    Call call{kernel};
    ORT_TRY(call.read(context));
    ORT_TRY(cuda::stream_of(context, &call.stream));
    for (const Launch &launch : kernel.launches) ORT_TRY(call.run(launch));
    return nullptr;
}

template <int which>
ort::CustomOp operator_of() {
    ort::CustomOp op = cuda::of_any_operands<Kernel, create<which>, compute>();
    op.GetName = [](const ort::CustomOp *) { return NAMES[which]; };
    return op;
}

} // namespace

const ort::CustomOp *cuda::fused_operator(int which) {
    static const ort::CustomOp operators[] = {operator_of<0>(), operator_of<1>()};
    return &operators[which];
}
