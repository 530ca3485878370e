/* The operators `Attention` and `AttentionGradient` on the GPU.
 *
 * softmax(scale * Q K^T, masked) V, and its gradients, as kernels/attention.inc computes them. The
 * attribute `shape` is an `AttentionShape`; `values` are the scale, what stands in the place of
 * masked scores, and the factor of shares that the draw keeps, if one is made: `draw` says so, and
 * its counters are the last inputs. The results of the one go into the other: beside its result
 * `Attention` gives the logarithmic sum of each row. The last output of the gradient is memory that
 * it works in.
 */
#include <memory>

#include "../attention_shape.h"
#include "draw.h"

namespace {

using attention::NAMES;
using attention::Operands;
using ort::Tensor;

constexpr int64_t ROWS = 32, SMALL_WIDTH = 64, SMALL_TILE = 32, LARGE_TILE = 8;
constexpr int64_t MOST_GROUPS = 65535; /* of the second axis of a launch */

const char *const TEXT =
#include "kernels/attention.inc"
    ;

struct Kernel {
    const char *name = nullptr;
    attention::Shape shape{};
    abi::Draw draw{};
    float scale = 1, fill = 0, factor = 1;
    cuda::Function forward, queries, keys;

    ort::Element real() const { return static_cast<ort::Element>(shape.element); }
};

bool is_sound(const attention::Shape &s) {
    return s.is_sound() && s.group == 1 && s.groups() <= MOST_GROUPS &&
           ort::is_within({s.width}, 8, abi::MOST_HEAD_WIDTH) && s.width % 8 == 0 &&
           ort::is_real(s.element, ort::Reals::HALVES_TOO);
}

/* Whether a draw, if one is made, has a number for each score. */
bool can_draw(const Kernel &kernel) {
    return kernel.draw.least == 0 || kernel.shape.scores() < abi::MOST_DRAWN;
}

std::string text_for(const Kernel &kernel) {
    const attention::Shape &s = kernel.shape;
    const auto line = [](const char *type, const char *name, const std::string &value) {
        return std::string("constexpr ") + type + " " + name + " = " + value + ";\n";
    };
    const int64_t tile = s.width <= SMALL_WIDTH ? SMALL_TILE : LARGE_TILE;
    return std::string(cuda::PRELUDE) + "typedef " + cuda::real_type(s.element) + " Real;\n" +
           line("int", "WIDTH", std::to_string(s.width)) +
           line("int", "ROWS", std::to_string(ROWS)) + line("int", "TILE", std::to_string(tile)) +
           line("int", "MASK", std::to_string(s.mask)) +
           line("bool", "IS_PRECISE", s.is_precise ? "true" : "false") +
           line("bool", "DRAWS", kernel.draw.least > 0 ? "true" : "false") + "#define SCALE " +
           cuda::text_of(kernel.scale) + "\n#define FILL " + cuda::text_of(kernel.fill) +
           "\n#define FACTOR " + cuda::text_of(kernel.factor) + "\n" +
           cuda::draw_text(kernel.draw) + TEXT;
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    kernel->name = NAMES[which];
    std::vector<int64_t> numbers;
    std::vector<float> values;
    ORT_TRY(ort::integers(info, "shape", &numbers));
    ORT_TRY(ort::floats(info, "values", &values));
    ORT_TRY(cuda::read_draw(info, kernel->name, &kernel->draw));
    size_t next = 0;
    if (!ort::take(numbers, &next, &kernel->shape) || next != numbers.size() ||
        values.size() != 3 || !is_sound(kernel->shape) || !can_draw(*kernel)) {
        return ort::refuse("%s: the shape is none that it computes", kernel->name);
    }
    kernel->scale = values[0];
    kernel->fill = values[1];
    kernel->factor = values[2];
    const std::string text = text_for(*kernel);
    if (which == 0) {
        ORT_TRY(cuda::load(text, "flow2onnx_attention", &kernel->forward));
    } else {
        ORT_TRY(cuda::load(text, "flow2onnx_attention_queries", &kernel->queries));
        ORT_TRY(cuda::load(text, "flow2onnx_attention_keys", &kernel->keys));
    }
    *made = kernel.release();
    return nullptr;
}

/* What kernels/attention.inc takes, in its order. */
struct Tensors {
    Tensor q, k, v, o, sums, slope, mask;
    void *to_o = nullptr, *to_sums = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr,
         *delta = nullptr;

    void add_to(cuda::Arguments *given, const abi::AttentionShape &s) const {
        for (const void *data : {q.data, k.data, v.data, o.data, sums.data, slope.data, mask.data,
                                 to_o, to_sums, dq, dk, dv, delta}) {
            given->add(data);
        }
        for (int64_t size : {s.queries, s.keys, s.heads, s.mask_batch, s.mask_head, s.mask_query,
                             s.mask_key}) {
            given->add(size);
        }
    }
};

struct Wanted {
    Tensor *tensor;
    int64_t size;
    ort::Element type;
};

OrtStatus *read_all(const Kernel &kernel, OrtKernelContext *context,
                    const std::vector<Wanted> &wanted, Tensor *mask, cuda::Arguments *given) {
    const Operands operands{kernel.name, context};
    for (size_t i = 0; i < wanted.size(); ++i) {
        const auto &[tensor, size, type] = wanted[i];
        ORT_TRY(operands.read(i, type, size, tensor));
    }
    ORT_TRY(operands.read_mask(kernel.shape, wanted.size(), mask));
    return cuda::add_counters(kernel.draw, kernel.name, context,
                              wanted.size() + (kernel.shape.mask != 0), given);
}

std::vector<int64_t> dims_of(const Tensor &tensor, size_t rank) {
    return {tensor.dims, tensor.dims + rank};
}

OrtStatus *run_forward(const Kernel &kernel, OrtKernelContext *context) {
    const attention::Shape &s = kernel.shape;
    Tensors t;
    cuda::Arguments given;
    void *stream = nullptr;
    const ort::Element real = kernel.real();
    ORT_TRY(read_all(kernel, context,
                     {{&t.q, s.query_size(), real}, {&t.k, s.key_size(), real},
                      {&t.v, s.key_size(), real}}, &t.mask, &given));
    ORT_TRY(ort::output_of(real, context, 0, dims_of(t.q, t.q.rank), &t.to_o));
    ORT_TRY(ort::output_of(ort::FLOAT, context, 1, {s.groups(), s.queries}, &t.to_sums));
    ORT_TRY(cuda::stream_of(context, &stream));
    t.add_to(&given, s);
    return cuda::launch(kernel.forward, stream, (s.queries + ROWS - 1) / ROWS, s.groups(),
                        ROWS * 2, given.data());
}

OrtStatus *run_backward(const Kernel &kernel, OrtKernelContext *context) {
    const attention::Shape &s = kernel.shape;
    const int64_t queries = s.query_size(), keys = s.key_size();
    const int64_t rows = s.groups() * s.queries;
    Tensors t;
    cuda::Arguments given;
    void *stream = nullptr;
    const ort::Element real = kernel.real();
    ORT_TRY(read_all(kernel, context,
                     {{&t.slope, queries, real}, {&t.q, queries, real}, {&t.k, keys, real},
                      {&t.v, keys, real}, {&t.o, queries, real}, {&t.sums, rows, ort::FLOAT}},
                     &t.mask, &given));
    ORT_TRY(ort::output_of(real, context, 0, dims_of(t.q, t.q.rank), &t.dq));
    ORT_TRY(ort::output_of(real, context, 1, dims_of(t.k, t.k.rank), &t.dk));
    ORT_TRY(ort::output_of(real, context, 2, dims_of(t.v, t.v.rank), &t.dv));
    ORT_TRY(ort::output_of(ort::FLOAT, context, 3, {rows}, &t.delta));
    ORT_TRY(cuda::stream_of(context, &stream));
    t.add_to(&given, s);
    ORT_TRY(cuda::launch(kernel.queries, stream, (s.queries + ROWS - 1) / ROWS, s.groups(),
                         ROWS * 2, given.data()));
    return cuda::launch(kernel.keys, stream, (s.keys + ROWS - 1) / ROWS, s.groups(), ROWS * 2,
                        given.data());
}

} // namespace

const ort::CustomOp *cuda::attention_operator(int which) {
    static const ort::CustomOp operators[] = {
        [] {
            ort::CustomOp op = of_any_operands<::Kernel, create<0>, run_forward>();
            op.GetName = [](const ort::CustomOp *) { return NAMES[0]; };
            return op;
        }(),
        [] {
            ort::CustomOp op = of_any_operands<::Kernel, create<1>, run_backward>();
            op.GetName = [](const ort::CustomOp *) { return NAMES[1]; };
            return op;
        }(),
    };
    return &operators[which];
}
