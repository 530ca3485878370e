/* The operator `Draw` on the GPU: truths, drawn by a hash of place and counters.
 *
 * Its inputs are the counters; the attributes are an `abi::Draw` and the shape of what comes out.
 */
#include "draw.h"

#include <algorithm>
#include <memory>

namespace {

constexpr int64_t THREADS = 256, BLOCKS_EACH = 16; /* of a processor */

const char *const DRAW =
#include "kernels/draw.inc"
    ;
const char *const MASK =
#include "kernels/mask.inc"
    ;

struct Kernel {
    abi::Draw draw{};
    std::vector<int64_t> shape = {};
    int64_t total = 1, processors = 1;
    cuda::Function function;
};

bool is_sound(const abi::Draw &d) {
    const bool has_numbers = ort::is_within({d.start, d.step}, 0, abi::DRAW_PRIME - 1) &&
                             ort::is_within({d.least}, 0, abi::DRAW_PRIME) &&
                             ort::is_within({d.counters}, 0, abi::MOST_COUNTERS);
    return has_numbers && (d.least > 0 || d.counters == 0);
}

OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    ORT_TRY(cuda::read_draw(info, "Draw", &kernel->draw));
    ORT_TRY(ort::integers(info, "shape", &kernel->shape));
    for (int64_t size : kernel->shape) {
        const bool is_sound = ort::is_within({size}, 1, abi::MOST_DRAWN - 1);
        kernel->total = is_sound ? kernel->total * size : abi::MOST_DRAWN;
        if (kernel->total >= abi::MOST_DRAWN) break;
    }
    if (kernel->shape.size() > ort::Tensor::MOST || kernel->total >= abi::MOST_DRAWN ||
        kernel->draw.counters == 0) {
        return ort::refuse("Draw: wanted are one counter or more, and a shape of fewer than %lld "
                           "places in %zu dimensions at most",
                           static_cast<long long>(abi::MOST_DRAWN), ort::Tensor::MOST);
    }
    cuda::Device device;
    ORT_TRY(cuda::current_device(&device));
    kernel->processors = device.processors;
    const std::string text = cuda::PRELUDE + cuda::draw_text(kernel->draw) + MASK;
    ORT_TRY(cuda::load(text, "flow2onnx_draw", &kernel->function));
    *made = kernel.release();
    return nullptr;
}

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    void *to = nullptr, *stream = nullptr;
    cuda::Arguments given;
    ORT_TRY(cuda::add_counters(kernel.draw, "Draw", context, 0, &given));
    ORT_TRY(ort::output_of(ort::BOOL, context, 0, kernel.shape, &to));
    given.add(to);
    given.add(kernel.total);
    ORT_TRY(cuda::stream_of(context, &stream));
    const int64_t blocks = (kernel.total + THREADS - 1) / THREADS;
    return cuda::launch(kernel.function, stream, std::min(blocks, kernel.processors * BLOCKS_EACH),
                        1, THREADS, given.data());
}

} // namespace

namespace cuda {

OrtStatus *read_draw(const OrtKernelInfo *info, const char *name, abi::Draw *draw) {
    std::vector<int64_t> numbers;
    ORT_TRY(ort::integers(info, "draw", &numbers));
    size_t next = 0;
    if (!ort::take(numbers, &next, draw) || next != numbers.size() || !is_sound(*draw)) {
        return ort::refuse("%s: the draw is none that it makes", name);
    }
    return nullptr;
}

std::string draw_text(const abi::Draw &draw) {
    const auto line = [](const char *type, const char *name, const std::string &number) {
        return std::string("constexpr ") + type + " " + name + " = " + number + ";\n";
    };
    return line("Word", "DRAW_START", text_of(draw.start)) +
           line("Word", "DRAW_STEP", text_of(draw.step)) +
           line("Word", "DRAW_LEAST", text_of(draw.least)) +
           line("int", "COUNTERS", std::to_string(draw.counters)) +
           line("int", "MOST_COUNTERS", std::to_string(abi::MOST_COUNTERS)) + DRAW;
}

OrtStatus *add_counters(const abi::Draw &draw, const char *name, OrtKernelContext *context,
                        size_t at, Arguments *given) {
    for (int64_t i = 0; i < abi::MOST_COUNTERS; ++i) {
        ort::Tensor counter;
        if (i < draw.counters) {
            ORT_TRY(ort::input(context, at + static_cast<size_t>(i), &counter));
            if (counter.type != ort::INT64 || counter.size() != 1) {
                return ort::refuse("%s: counter %lld has %lld elements of type %d, wanted is one "
                                   "of int64",
                                   name, static_cast<long long>(i),
                                   static_cast<long long>(counter.size()), counter.type);
            }
        }
        given->add(counter.data);
    }
    return nullptr;
}

const ort::CustomOp *draw_operator() {
    static const ort::CustomOp op = [] {
        ort::CustomOp o = of_any_operands<::Kernel, create, run>();
        o.GetName = [](const ort::CustomOp *) { return "Draw"; };
        return o;
    }();
    return &op;
}

} // namespace cuda
