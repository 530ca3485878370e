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

#include "draw.h"

namespace {

using ort::Tensor;

constexpr int64_t ROWS = 32, SMALL_WIDTH = 64, SMALL_TILE = 32, LARGE_TILE = 8;
constexpr int64_t MOST_GROUPS = 65535; /* of the second axis of a launch */
const char *const NAMES[] = {"Attention", "AttentionGradient"};

const char *const TEXT =
#include "kernels/attention.inc"
    ;

struct Kernel {
    const char *name = nullptr;
    abi::AttentionShape shape{};
    abi::Draw draw{};
    float scale = 1, fill = 0, factor = 1;
    cuda::Function forward, queries, keys;

    ort::Element real() const { return static_cast<ort::Element>(shape.element); }
    int64_t groups() const { return shape.batch * shape.heads; }
    int64_t query_size() const { return groups() * shape.queries * shape.width; }
    int64_t scores() const { return groups() * shape.queries * shape.keys; }
    int64_t key_size() const { return groups() * shape.keys * shape.width; }
    int64_t last_of_mask() const {
        return (shape.batch - 1) * shape.mask_batch + (shape.heads - 1) * shape.mask_head +
               (shape.queries - 1) * shape.mask_query + (shape.keys - 1) * shape.mask_key;
    }
};

bool is_sound(const abi::AttentionShape &s) {
    constexpr int64_t MOST = 1 << 20;
    return ort::is_within({s.batch, s.heads, s.queries, s.keys}, 1, MOST) &&
           s.batch * s.heads <= MOST_GROUPS && ort::is_within({s.width}, 8, abi::MOST_HEAD_WIDTH) &&
           s.width % 8 == 0 && ort::is_within({s.mask}, 0, 2) &&
           ort::is_within({s.is_precise}, 0, 1) &&
           ort::is_real(s.element, ort::Reals::HALVES_TOO) &&
           ort::is_within({s.mask_batch, s.mask_head, s.mask_query, s.mask_key}, 0,
                          int64_t(1) << 40);
}

/* Whether a draw, if one is made, has a number for each score. */
bool can_draw(const Kernel &kernel) {
    return kernel.draw.least == 0 || kernel.scores() < abi::MOST_DRAWN;
}

std::string text_for(const Kernel &kernel) {
    const abi::AttentionShape &s = kernel.shape;
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

OrtStatus *read(const Kernel &kernel, OrtKernelContext *context, size_t at, ort::Element type,
                int64_t least, int64_t most, Tensor *tensor) {
    ORT_TRY(ort::input(context, at, tensor));
    if (tensor->type == type && ort::is_within({tensor->size()}, least, most)) return nullptr;
    return ort::refuse("%s: input %zu has %lld elements of type %d, wanted are %lld of type %d",
                       kernel.name, at, static_cast<long long>(tensor->size()), tensor->type,
                       static_cast<long long>(least), type);
}

struct Wanted {
    Tensor *tensor;
    int64_t size;
    ort::Element type;
};

OrtStatus *read_all(const Kernel &kernel, OrtKernelContext *context,
                    const std::vector<Wanted> &wanted, Tensor *mask, cuda::Arguments *given) {
    for (size_t i = 0; i < wanted.size(); ++i) {
        const auto &[tensor, size, type] = wanted[i];
        ORT_TRY(read(kernel, context, i, type, size, size, tensor));
    }
    if (kernel.shape.mask != 0) {
        const ort::Element type = kernel.shape.mask == 1 ? ort::FLOAT : ort::BOOL;
        ORT_TRY(read(kernel, context, wanted.size(), type, kernel.last_of_mask() + 1, INT64_MAX,
                     mask));
    }
    return cuda::add_counters(kernel.draw, kernel.name, context,
                              wanted.size() + (kernel.shape.mask != 0), given);
}

std::vector<int64_t> dims_of(const Tensor &tensor, size_t rank) {
    return {tensor.dims, tensor.dims + rank};
}

OrtStatus *run_forward(const Kernel &kernel, OrtKernelContext *context) {
    const abi::AttentionShape &s = kernel.shape;
    Tensors t;
    cuda::Arguments given;
    void *stream = nullptr;
    const ort::Element real = kernel.real();
    ORT_TRY(read_all(kernel, context,
                     {{&t.q, kernel.query_size(), real}, {&t.k, kernel.key_size(), real},
                      {&t.v, kernel.key_size(), real}}, &t.mask, &given));
    ORT_TRY(ort::output_of(real, context, 0, dims_of(t.q, t.q.rank), &t.to_o));
    ORT_TRY(ort::output_of(ort::FLOAT, context, 1, {kernel.groups(), s.queries}, &t.to_sums));
    ORT_TRY(cuda::stream_of(context, &stream));
    t.add_to(&given, s);
    return cuda::launch(kernel.forward, stream, (s.queries + ROWS - 1) / ROWS, kernel.groups(),
                        ROWS * 2, given.data());
}

OrtStatus *run_backward(const Kernel &kernel, OrtKernelContext *context) {
    const abi::AttentionShape &s = kernel.shape;
    const int64_t queries = kernel.query_size(), keys = kernel.key_size();
    const int64_t rows = kernel.groups() * s.queries;
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
    ORT_TRY(cuda::launch(kernel.queries, stream, (s.queries + ROWS - 1) / ROWS, kernel.groups(),
                         ROWS * 2, given.data()));
    return cuda::launch(kernel.keys, stream, (s.keys + ROWS - 1) / ROWS, kernel.groups(), ROWS * 2,
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
