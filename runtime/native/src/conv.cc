/* Convolutions and their two gradients on oneDNN: `Conv`, `ConvInputGradient`,
 * `ConvWeightGradient`. With the attribute `winograd`, winograd.cc computes them instead.
 *
 * Tensors come and go in the plain order of ONNX. oneDNN chooses the order that it works in, and
 * what differs is reordered in scratch memory. The images of a batch are shared out among the
 * threads of the session; every task runs oneDNN in its own thread.
 */
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "conv.h"
#include "machine.h"
#include "onednn.h"
#include "ort.h"

namespace {

using namespace conv;
using namespace onednn;
using ort::Tensor;

#define DNNL_TRY(expression) \
    do { \
        if (Status failed_ = (expression)) return failed_; \
    } while (0)

size_t aligned(size_t bytes) { return (bytes + 63) & ~size_t(63); }

/* One of the three tensors: how it is given, how oneDNN wants it, and the way between. */
struct Side {
    Argument argument;
    Layout *given = nullptr;
    const Layout *wanted = nullptr; /* owned by the description */
    Primitive *reorder = nullptr;
    Description *reorder_description = nullptr;
    size_t scratchpad = 0;
    bool is_output = false;

    Status prepare(Description *of, Query query) {
        wanted = dnnl.primitive_desc_query_md(of, query, 0);
        if (dnnl.memory_desc_equal(given, wanted)) return SUCCESS;
        const Layout *from = is_output ? wanted : given, *to = is_output ? given : wanted;
        DNNL_TRY(dnnl.reorder_primitive_desc_create(&reorder_description, from, engine, to,
                                                    engine, attributes));
        const Layout *pad = dnnl.primitive_desc_query_md(reorder_description, SCRATCHPAD_LAYOUT, 0);
        scratchpad = pad ? dnnl.memory_desc_get_size(pad) : 0;
        return dnnl.primitive_create(&reorder, reorder_description);
    }
    size_t reordered() const { return reorder ? dnnl.memory_desc_get_size(wanted) : 0; }
    void release() {
        if (reorder) dnnl.primitive_destroy(reorder);
        if (reorder_description) dnnl.primitive_desc_destroy(reorder_description);
        if (given) dnnl.memory_desc_destroy(given);
    }
};

struct Conv : Kernel {
    Description *description = nullptr, *hint = nullptr;
    Primitive *primitive = nullptr;
    Side source, weights, result;
    Layout *bias = nullptr;
    size_t scratchpad = 0;

    Conv(const Shape &s, Which w, const Form &f) : Kernel(s, w, f) {
        source.argument = w == INPUT_GRADIENT ? DIFF_SRC : SRC;
        weights.argument = w == WEIGHT_GRADIENT ? DIFF_WEIGHTS : WEIGHTS;
        result.argument = w == FORWARD_PASS ? DST : DIFF_DST;
        output().is_output = true;
    }
    ~Conv() override {
        if (primitive) dnnl.primitive_destroy(primitive);
        for (Side *side : {&source, &weights, &result}) side->release();
        for (Description *d : {description, hint}) {
            if (d) dnnl.primitive_desc_destroy(d);
        }
        if (bias) dnnl.memory_desc_destroy(bias);
    }
    Conv(const Conv &) = delete;
    Conv &operator=(const Conv &) = delete;

    Side &output() {
        return which == FORWARD_PASS ? result : which == INPUT_GRADIENT ? source : weights;
    }

    Status prepare() {
        const Shape &s = shape;
        const int64_t images = s.images / s.tasks;
        const Dims x = {images, s.in, s.height, s.width};
        const Dims y = {images, s.out, s.out_height, s.out_width};
        const Dims plain = {s.out, s.in, s.kernel_height, s.kernel_width};
        const Dims grouped = {s.groups, s.out / s.groups, s.in / s.groups, s.kernel_height,
                              s.kernel_width};
        const int rank = s.groups > 1 ? 5 : 4;
        const int64_t *w = s.groups > 1 ? grouped : plain;
        const Dims channels = {s.out};
        DNNL_TRY(layout(&source.given, 4, x, ORDER_ABCD));
        DNNL_TRY(layout(&result.given, 4, y, ORDER_ABCD));
        DNNL_TRY(layout(&weights.given, rank, w, rank == 5 ? ORDER_ABCDE : ORDER_ABCD));
        if (form.has_bias) DNNL_TRY(layout(&bias, 1, channels, ORDER_A));
        Layout *any_x = nullptr, *any_w = nullptr, *any_y = nullptr;
        DNNL_TRY(layout(&any_x, 4, x, ORDER_ANY));
        DNNL_TRY(layout(&any_w, rank, w, ORDER_ANY));
        DNNL_TRY(layout(&any_y, 4, y, ORDER_ANY));
        const Status status = describe(any_x, any_w, any_y);
        for (Layout *l : {any_x, any_w, any_y}) dnnl.memory_desc_destroy(l);
        DNNL_TRY(status);
        const bool back = which != FORWARD_PASS;
        DNNL_TRY(source.prepare(
            description, which == INPUT_GRADIENT ? DIFF_SRC_LAYOUT : SRC_LAYOUT));
        DNNL_TRY(weights.prepare(
            description, which == WEIGHT_GRADIENT ? DIFF_WEIGHTS_LAYOUT : WEIGHTS_LAYOUT));
        DNNL_TRY(result.prepare(description, back ? DIFF_DST_LAYOUT : DST_LAYOUT));
        const Layout *pad = dnnl.primitive_desc_query_md(description, SCRATCHPAD_LAYOUT, 0);
        scratchpad = pad ? dnnl.memory_desc_get_size(pad) : 0;
        return dnnl.primitive_create(&primitive, description);
    }

    static Status layout(Layout **made, int rank, const int64_t *dims, int order) {
        return dnnl.memory_desc_create_with_tag(made, rank, dims, SINGLE_PRECISION, order);
    }

    Status describe(const Layout *x, const Layout *w, const Layout *y) {
        const Shape &s = shape;
        const Dims strides = {s.stride_y, s.stride_x};
        const Dims gaps = {s.dilation_y - 1, s.dilation_x - 1};
        const Dims before = {s.top, s.left}, after = {s.bottom, s.right};
        Description **made = which == FORWARD_PASS ? &description : &hint;
        DNNL_TRY(dnnl.convolution_forward_primitive_desc_create(
            made, engine, FORWARD, DIRECT, x, w, bias, y, strides, gaps, before, after,
            attributes));
        if (which == INPUT_GRADIENT) {
            return dnnl.convolution_backward_data_primitive_desc_create(
                &description, engine, DIRECT, x, w, y, strides, gaps, before, after, hint,
                attributes);
        }
        if (which == WEIGHT_GRADIENT) {
            return dnnl.convolution_backward_weights_primitive_desc_create(
                &description, engine, DIRECT, x, w, nullptr, y, strides, gaps, before, after,
                hint, attributes);
        }
        return SUCCESS;
    }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override;

    size_t scratch() const {
        return aligned(source.reordered()) + aligned(weights.reordered()) +
               aligned(result.reordered()) + aligned(most_scratchpad());
    }
    size_t most_scratchpad() const {
        return std::max({scratchpad, source.scratchpad, weights.scratchpad, result.scratchpad});
    }
};

/* Memory objects of one task; they are views. */
struct Views {
    std::vector<Memory *> made;
    Status status = SUCCESS;

    Memory *of(const Layout *layout, void *data) {
        Memory *memory = nullptr;
        const Status failed = dnnl.memory_create(&memory, layout, engine, data);
        if (failed != SUCCESS) status = failed;
        else made.push_back(memory);
        return memory;
    }
    ~Views() {
        for (Memory *memory : made) dnnl.memory_destroy(memory);
    }
};

char *task_scratch(size_t bytes) {
    return reinterpret_cast<char *>(machine::scratch<machine::REORDERS>(bytes / sizeof(float) + 1));
}

/* A stream for each thread: it keeps no state between calls, and making one is not free. */
Stream *stream() {
    struct Owned {
        Stream *stream = nullptr;
        ~Owned() {
            if (stream) dnnl.stream_destroy(stream);
        }
    };
    thread_local Owned owned;
    if (!owned.stream) dnnl.stream_create(&owned.stream, engine, IN_ORDER);
    return owned.stream;
}

struct Call {
    const Conv &conv;
    float *source, *weights, *result, *bias;
    std::vector<float> parts = {};    /* weight gradients of all tasks but the first */
    std::vector<Status> failures = {};

    void operator()(size_t task) {
        const OneThread guard;
        failures[task] = run(task);
    }

    Status run(size_t task) {
        const int64_t images = conv.shape.images / conv.shape.tasks * static_cast<int64_t>(task);
        float *own = weights;
        if (conv.which == WEIGHT_GRADIENT && task > 0) {
            own = parts.data() + (static_cast<int64_t>(task) - 1) * conv.shape.weights();
        }
        Stream *on = stream();
        if (on == nullptr) return static_cast<Status>(1);
        char *next = task_scratch(conv.scratch());
        Views views;
        char *pad = next;
        next += aligned(conv.most_scratchpad());
        std::vector<Given> given;
        Given results = {};
        struct Place {
            const Side *side;
            float *data;
        };
        const Place places[] = {{&conv.source, source + images * conv.shape.source()},
                                {&conv.weights, own},
                                {&conv.result, result + images * conv.shape.result()}};
        for (const Place &place : places) {
            const Side &side = *place.side;
            void *data = side.reorder ? static_cast<void *>(next) : place.data;
            next += aligned(side.reordered());
            Memory *memory = views.of(side.wanted, data);
            given.push_back({side.argument, memory});
            if (side.reorder && !side.is_output) {
                DNNL_TRY(move(side, views.of(side.given, place.data), memory, views, pad, on));
            }
            if (side.is_output) results = {side.argument, memory};
        }
        if (conv.form.has_bias) given.push_back({BIAS, views.of(conv.bias, bias)});
        const Layout *room = dnnl.primitive_desc_query_md(conv.description, SCRATCHPAD_LAYOUT, 0);
        given.push_back({SCRATCHPAD, views.of(room, pad)});
        DNNL_TRY(views.status);
        DNNL_TRY(dnnl.primitive_execute(conv.primitive, on, static_cast<int>(given.size()),
                                        given.data()));
        for (const Place &place : places) {
            const Side &side = *place.side;
            if (side.reorder && side.is_output) {
                Memory *plain = views.of(side.given, place.data);
                DNNL_TRY(move(side, results.memory, plain, views, pad, on));
            }
        }
        return dnnl.stream_wait(on);
    }

    static Status move(const Side &side, Memory *from, Memory *to, Views &views, char *pad,
                       Stream *on) {
        const Layout *room =
            dnnl.primitive_desc_query_md(side.reorder_description, SCRATCHPAD_LAYOUT, 0);
        Memory *scratch = views.of(room, pad);
        DNNL_TRY(views.status);
        const Given given[] = {{SRC, from}, {DST, to}, {SCRATCHPAD, scratch}};
        return dnnl.primitive_execute(side.reorder, on, 3, given);
    }

    void finish() {
        const int64_t size = conv.shape.weights();
        for (size_t at = 0; at < parts.size(); at += static_cast<size_t>(size)) {
            for (int64_t i = 0; i < size; ++i) weights[i] += parts[at + static_cast<size_t>(i)];
        }
    }
};

OrtStatus *Conv::run(OrtKernelContext *context, const Tensors &tensors) const {
    Call call{*this, tensors.source, tensors.weights, tensors.result, tensors.bias};
    if (which == WEIGHT_GRADIENT) {
        call.parts.resize(static_cast<size_t>((shape.tasks - 1) * shape.weights()));
    }
    call.failures.assign(static_cast<size_t>(shape.tasks), SUCCESS);
    ORT_TRY(ort::parallel(context, static_cast<size_t>(shape.tasks), call));
    for (Status failed : call.failures) {
        if (failed != SUCCESS) {
            return ort::refuse("%s: oneDNN failed with status %d", NAMES[which], failed);
        }
    }
    call.finish();
    return nullptr;
}

OrtStatus *expect(OrtKernelContext *context, size_t index, int64_t size, const char *name,
                  float **data) {
    Tensor tensor;
    ORT_TRY(ort::input(context, index, &tensor));
    if (tensor.type != ort::FLOAT || tensor.size() != size) {
        return ort::refuse("%s: input %zu has %lld elements of type %d, it was made for %lld "
                           "floats",
                           name, index, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(size));
    }
    *data = static_cast<float *>(tensor.data);
    return nullptr;
}

/* Those it was made for, or those that the first input has. */
OrtStatus *count_images(const Kernel &kernel, OrtKernelContext *context, int64_t *images) {
    *images = kernel.shape.images;
    if (*images > 0) return nullptr;
    Tensor x;
    ORT_TRY(ort::input(context, 0, &x));
    *images = x.rank == 4 ? x.dims[0] : 0;
    if (x.rank != 4 || *images > MOST_IMAGES) {
        return ort::refuse("%s: input 0 has %zu axes, or more than %lld images",
                           NAMES[kernel.which], x.rank, static_cast<long long>(MOST_IMAGES));
    }
    return nullptr;
}

OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    const Shape &s = kernel.shape;
    const char *name = NAMES[kernel.which];
    Tensors call;
    ORT_TRY(count_images(kernel, context, &call.images));
    const int64_t x_size = call.images * s.source(), y_size = call.images * s.result();
    void *made = nullptr;
    if (kernel.which == FORWARD_PASS) {
        const int64_t dims[] = {call.images, s.out, s.out_height, s.out_width};
        float *addend = nullptr;
        ORT_TRY(expect(context, 0, x_size, name, &call.source));
        ORT_TRY(expect(context, 1, s.weights(), name, &call.weights));
        if (kernel.form.has_bias) ORT_TRY(expect(context, 2, s.out, name, &call.bias));
        if (kernel.form.has_addend) ORT_TRY(expect(context, 3, y_size, name, &addend));
        call.addend = addend;
        ORT_TRY(ort::output(context, 0, dims, 4, &made));
        call.result = static_cast<float *>(made);
    } else if (kernel.which == INPUT_GRADIENT) {
        const int64_t dims[] = {call.images, s.in, s.height, s.width};
        ORT_TRY(expect(context, 0, y_size, name, &call.result));
        ORT_TRY(expect(context, 1, s.weights(), name, &call.weights));
        ORT_TRY(ort::output(context, 0, dims, 4, &made));
        call.source = static_cast<float *>(made);
    } else {
        const int64_t dims[] = {s.out, s.in / s.groups, s.kernel_height, s.kernel_width};
        ORT_TRY(expect(context, 0, x_size, name, &call.source));
        ORT_TRY(expect(context, 1, y_size, name, &call.result));
        ORT_TRY(ort::output(context, 0, dims, 4, &made));
        call.weights = static_cast<float *>(made);
    }
    return kernel.run(context, call);
}

OrtStatus *make(Which which, const OrtKernelInfo *info, void **kernel) {
    Shape shape;
    size_t count = sizeof shape / sizeof(int64_t);
    ORT_TRY(ort::api.KernelInfoGetAttributeArray_int64(info, "shape", &shape.images, &count));
    Form form;
    size_t parts = sizeof form / sizeof(int64_t);
    if (which == FORWARD_PASS) {
        ORT_TRY(ort::api.KernelInfoGetAttributeArray_int64(info, "form", &form.has_bias, &parts));
    }
    if (count != sizeof shape / sizeof(int64_t) || parts != sizeof form / sizeof(int64_t) ||
        !shape.is_sound()) {
        return ort::refuse("%s: the shape is that of no convolution", NAMES[which]);
    }
    int64_t tile = 0;
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "winograd", &tile));
    if (tile != 0) {
        *kernel = winograd(shape, which, form, tile).release();
        if (*kernel != nullptr) return nullptr;
        return ort::refuse("%s: winograd is %lld, which this shape has not: of 3x3 it can be 4, "
                           "of 5x5 it can be 2, of others 0 alone",
                           NAMES[which], static_cast<long long>(tile));
    }
    if (!form.is_plain() || shape.images == 0) {
        return ort::refuse("%s: only by winograd there are addends, Relu, weights that are kept "
                           "and any number of images",
                           NAMES[which]);
    }
    const OneThread guard; /* oneDNN plans for as many threads as it is created with */
    auto conv = std::make_unique<Conv>(shape, which, form);
    if (const Status failed = conv->prepare()) {
        return ort::refuse("%s: oneDNN has no kernel for this shape (status %d)", NAMES[which],
                           failed);
    }
    *kernel = static_cast<Kernel *>(conv.release());
    return nullptr;
}

template <Which which>
OrtStatus *create(const OrtKernelInfo *info, void **kernel) {
    return make(which, info, kernel);
}

template <Which which>
ort::CustomOp operator_of() {
    using ort::CustomOp;
    CustomOp o = ort::described<Kernel, create<which>, run>();
    o.GetName = [](const CustomOp *) { return NAMES[which]; };
    o.GetInputTypeCount = [](const CustomOp *) -> size_t { return which == FORWARD_PASS ? 4 : 2; };
    o.GetInputCharacteristic = [](const CustomOp *, size_t i) {
        return i >= 2 ? ort::OPTIONAL : ort::REQUIRED;
    };
    return o;
}

} // namespace

const ort::CustomOp *ort::conv_operator(int which) {
    static const CustomOp operators[] = {operator_of<FORWARD_PASS>(), operator_of<INPUT_GRADIENT>(),
                                         operator_of<WEIGHT_GRADIENT>()};
    return &operators[which];
}
