/* Convolutions and their two gradients on oneDNN, as sums of products.
 *
 * Tensors come and go in the plain order of ONNX. oneDNN chooses the order that it works in, and
 * what differs is reordered in scratch memory. The work is cut into pieces (conv_pieces.cc), which
 * the threads of the session share; each runs oneDNN in its own thread. Pieces of the same numbers
 * have one plan. Weights that all pieces read are reordered once.
 */
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "conv.h"
#include "conv_pieces.h"
#include "machine.h"
#include "onednn.h"
#include "ort.h"

namespace {

using namespace conv;
using namespace onednn;

#define DNNL_TRY(expression) \
    do { \
        if (Status failed_ = (expression)) return failed_; \
    } while (0)

size_t aligned(size_t bytes) { return (bytes + 63) & ~size_t(63); }

size_t size_of(const Layout *layout) { return layout ? dnnl.memory_desc_get_size(layout) : 0; }

/* The sizes of a tensor, and how far apart its elements are in the whole that it is a part of. */
struct Extents {
    int rank = 0;
    Dims sizes = {}, strides = {};

    void add(int64_t size, int64_t stride) {
        sizes[rank] = size;
        strides[rank++] = stride;
    }
    /* The last axes, of which the whole has `extents`. */
    template <typename Size>
    void add_axes(int axes, Size size, const int64_t *whole) {
        for (int i = MOST_AXES - axes; i < MOST_AXES; ++i) {
            int64_t step = 1;
            for (int j = i + 1; j < MOST_AXES; ++j) step *= whole[j];
            add(size(i), step);
        }
    }
    Status given(Layout **made) const {
        return dnnl.memory_desc_create_with_strides(made, rank, sizes, SINGLE_PRECISION, strides);
    }
    Status any(Layout **made) const {
        return dnnl.memory_desc_create_with_tag(made, rank, sizes, SINGLE_PRECISION, ORDER_ANY);
    }
};

/* One of the three tensors: how it is given, how oneDNN wants it, and the way between. */
struct Side {
    Argument argument;
    Layout *given = nullptr;
    const Layout *wanted = nullptr; /* owned by the description */
    Primitive *reorder = nullptr;
    Description *reorder_description = nullptr;
    const Layout *room = nullptr; /* of the reorder */
    bool is_output = false;

    Status prepare(Description *of, Query query) {
        wanted = dnnl.primitive_desc_query_md(of, query, 0);
        if (dnnl.memory_desc_equal(given, wanted)) return SUCCESS;
        const Layout *from = is_output ? wanted : given, *to = is_output ? given : wanted;
        DNNL_TRY(dnnl.reorder_primitive_desc_create(&reorder_description, from, engine, to,
                                                    engine, attributes));
        room = dnnl.primitive_desc_query_md(reorder_description, SCRATCHPAD_LAYOUT, 0);
        return dnnl.primitive_create(&reorder, reorder_description);
    }
    size_t reordered() const { return reorder ? aligned(size_of(wanted)) : 0; }
    void release() {
        if (reorder) dnnl.primitive_destroy(reorder);
        if (reorder_description) dnnl.primitive_desc_destroy(reorder_description);
        if (given) dnnl.memory_desc_destroy(given);
    }
};

/* What computes the pieces of these numbers. */
struct Plan {
    const Shape shape; /* of a piece */
    const Which which;
    Description *description = nullptr, *hint = nullptr;
    Primitive *primitive = nullptr;
    Side source, weights, result;
    Layout *bias = nullptr;
    const Layout *room = nullptr;

    Plan(const Shape &s, Which w) : shape(s), which(w) {
        source.argument = w == INPUT_GRADIENT ? DIFF_SRC : SRC;
        weights.argument = w == WEIGHT_GRADIENT ? DIFF_WEIGHTS : WEIGHTS;
        result.argument = w == FORWARD_PASS ? DST : DIFF_DST;
        Side &output = w == FORWARD_PASS ? result : w == INPUT_GRADIENT ? source : weights;
        output.is_output = true;
    }
    ~Plan() {
        if (primitive) dnnl.primitive_destroy(primitive);
        for (Side *side : {&source, &weights, &result}) side->release();
        for (Description *d : {description, hint}) {
            if (d) dnnl.primitive_desc_destroy(d);
        }
        if (bias) dnnl.memory_desc_destroy(bias);
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;

    /* A row of positions is an image of one row: oneDNN has more kernels for two axes. */
    int axes() const { return shape.axes == MOST_AXES ? MOST_AXES : 2; }

    Status prepare(const Shape &whole, bool has_bias) {
        const Shape &s = shape;
        Extents x, w, y, channels;
        x.add(s.images, whole.source());
        x.add(s.in, whole.plane());
        x.add_axes(axes(), [&](int i) { return s.axis(i).size; }, &whole.depth);
        y.add(s.images, whole.result());
        y.add(s.out, whole.out_plane());
        y.add_axes(axes(), [&](int i) { return s.axis(i).out; }, &whole.out_depth);
        const int64_t per_out = whole.in / whole.groups * whole.taps(), own = s.out / s.groups;
        if (whole.groups > 1) w.add(s.groups, own * per_out);
        w.add(own, per_out);
        w.add(s.in / s.groups, whole.taps());
        w.add_axes(axes(), [&](int i) { return s.axis(i).kernel; }, &whole.kernel_depth);
        channels.add(s.out, 1);
        DNNL_TRY(x.given(&source.given));
        DNNL_TRY(w.given(&weights.given));
        DNNL_TRY(y.given(&result.given));
        if (has_bias) DNNL_TRY(channels.given(&bias));
        Layout *any_x = nullptr, *any_w = nullptr, *any_y = nullptr;
        DNNL_TRY(x.any(&any_x));
        DNNL_TRY(w.any(&any_w));
        DNNL_TRY(y.any(&any_y));
        const Status status = describe(any_x, any_w, any_y);
        for (Layout *l : {any_x, any_w, any_y}) dnnl.memory_desc_destroy(l);
        DNNL_TRY(status);
        const bool back = which != FORWARD_PASS;
        DNNL_TRY(source.prepare(
            description, which == INPUT_GRADIENT ? DIFF_SRC_LAYOUT : SRC_LAYOUT));
        DNNL_TRY(weights.prepare(
            description, which == WEIGHT_GRADIENT ? DIFF_WEIGHTS_LAYOUT : WEIGHTS_LAYOUT));
        DNNL_TRY(result.prepare(description, back ? DIFF_DST_LAYOUT : DST_LAYOUT));
        room = dnnl.primitive_desc_query_md(description, SCRATCHPAD_LAYOUT, 0);
        return dnnl.primitive_create(&primitive, description);
    }

    Status describe(const Layout *x, const Layout *w, const Layout *y) {
        Dims strides, gaps, before, after;
        for (int i = 0; i < axes(); ++i) {
            const Axis axis = shape.axis(MOST_AXES - axes() + i);
            strides[i] = axis.stride;
            gaps[i] = axis.dilation - 1;
            before[i] = axis.before;
            after[i] = axis.after;
        }
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

    /* Whether oneDNN has no loops for these sizes, and takes products of gathered windows. */
    bool is_gathered() const {
        const char *name = nullptr;
        const Status status = dnnl.primitive_desc_query(description, IMPLEMENTATION, 0, &name);
        return status == SUCCESS && name != nullptr &&
               (std::strstr(name, "gemm:") != nullptr || std::strstr(name, "ref:") != nullptr);
    }

    size_t scratchpad() const {
        return aligned(std::max({size_of(room), size_of(source.room), size_of(weights.room),
                                 size_of(result.room)}));
    }
    size_t scratch() const {
        return source.reordered() + weights.reordered() + result.reordered() + scratchpad();
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

template <machine::Use use>
char *bytes(size_t count) {
    return reinterpret_cast<char *>(machine::scratch<use>(count / sizeof(float) + 1));
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

/* Puts a tensor in the order of the other side. */
Status move(const Side &side, void *from, void *to, char *pad, Stream *on) {
    Views views;
    const bool back = side.is_output;
    Memory *source = views.of(back ? side.wanted : side.given, from);
    Memory *target = views.of(back ? side.given : side.wanted, to);
    const Given given[] = {{SRC, source}, {DST, target}, {SCRATCHPAD, views.of(side.room, pad)}};
    DNNL_TRY(views.status);
    DNNL_TRY(dnnl.primitive_execute(side.reorder, on, 3, given));
    return dnnl.stream_wait(on);
}

constexpr int64_t MOST_FEWER = 3;

struct Direct : Kernel {
    Pieces pieces;
    std::vector<std::unique_ptr<Plan>> plans;
    std::vector<size_t> plan_of; /* each piece */

    Direct(const Shape &s, Which w, const Form &f) : Kernel(s, w, f), pieces(cut(s, w)) {}

    /* Even pieces of channels, unless oneDNN has loops for somewhat smaller ones alone. */
    Status prepare() {
        DNNL_TRY(plan());
        for (int64_t fewer = 1; fewer <= MOST_FEWER && are_gathered(); ++fewer) {
            if (pieces.blocks - fewer < 1) return SUCCESS;
            auto other = Direct(shape, which, form);
            other.pieces = cut(shape, which, fewer);
            DNNL_TRY(other.plan());
            if (other.are_gathered()) continue;
            std::swap(pieces, other.pieces);
            std::swap(plans, other.plans);
            std::swap(plan_of, other.plan_of);
        }
        return SUCCESS;
    }
    bool are_gathered() const {
        const auto is_gathered = [](const std::unique_ptr<Plan> &p) { return p->is_gathered(); };
        return std::any_of(plans.begin(), plans.end(), is_gathered);
    }
    Status plan() {
        for (const Piece &piece : pieces.all) {
            size_t at = 0;
            while (at < plans.size() && !is_same(plans[at]->shape, piece.shape)) ++at;
            if (at == plans.size()) {
                plans.push_back(std::make_unique<Plan>(piece.shape, which));
                DNNL_TRY(plans.back()->prepare(shape, form.has_bias != 0));
            }
            plan_of.push_back(at);
        }
        return SUCCESS;
    }
    /* The first plan that wants weights in the order in which this one wants them. */
    size_t first_alike(const Plan &plan) const {
        size_t at = 0;
        while (!dnnl.memory_desc_equal(plans[at]->weights.wanted, plan.weights.wanted)) ++at;
        return at;
    }
    static bool is_same(const Shape &a, const Shape &b) { return !std::memcmp(&a, &b, sizeof a); }

    bool shares_weights() const { return pieces.have_all_weights && which != WEIGHT_GRADIENT; }
    size_t jobs() const { return static_cast<size_t>(pieces.jobs); }
    bool has_sums() const { return pieces.have_all_weights && which == WEIGHT_GRADIENT; }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override;
};

struct Call {
    const Direct &conv;
    const Tensors &tensors;
    std::vector<char *> reordered = {}; /* weights, of each plan */
    float *parts = nullptr;             /* weight gradients of all jobs but the first */
    std::vector<Status> failures = {};

    void operator()(size_t job) {
        const OneThread guard;
        const size_t count = conv.pieces.all.size(), first = count * job / conv.jobs();
        const size_t last = count * (job + 1) / conv.jobs();
        float *sums = tensors.weights;
        if (conv.has_sums() && job > 0) {
            sums = cleared(parts + (static_cast<int64_t>(job) - 1) * conv.shape.weights());
        }
        for (size_t i = first; i < last && failures[job] == SUCCESS; ++i) {
            failures[job] = conv.has_sums() && i > first ? add(i, sums) : run(i, sums);
        }
    }

    /* Room for a weight gradient, with zeros where no piece puts one. */
    float *cleared(float *weights) const {
        if (!conv.pieces.have_all_taps) std::fill_n(weights, conv.shape.weights(), 0.0F);
        return weights;
    }

    /* A weight gradient of one more piece. */
    Status add(size_t i, float *sums) const {
        const int64_t size = conv.shape.weights();
        float *own = machine::scratch<machine::BLOCK_POINTS>(static_cast<size_t>(size));
        DNNL_TRY(run(i, cleared(own)));
        for (int64_t k = 0; k < size; ++k) sums[k] += own[k];
        return SUCCESS;
    }

    /* One piece, its weights among these. */
    Status run(size_t i, float *weights) const {
        const Piece &piece = conv.pieces.all[i];
        const Plan &plan = *conv.plans[conv.plan_of[i]];
        float *own = weights + piece.weights;
        Stream *on = stream();
        if (on == nullptr) return static_cast<Status>(1);
        char *next = bytes<machine::REORDERS>(plan.scratch()), *pad = next;
        next += plan.scratchpad();
        Views views;
        std::vector<Given> given;
        struct Place {
            const Side *side;
            float *data;
            void *used;
        } places[] = {{&plan.source, tensors.source + piece.source, nullptr},
                      {&plan.weights, own, nullptr},
                      {&plan.result, tensors.result + piece.result, nullptr}};
        for (Place &place : places) {
            const Side &side = *place.side;
            place.used = place.data;
            if (side.reorder != nullptr) {
                const bool is_known = &side == &plan.weights && conv.shares_weights();
                place.used = is_known ? reordered[conv.plan_of[i]] : next;
                next += side.reordered();
                if (!is_known && !side.is_output) {
                    DNNL_TRY(move(side, place.data, place.used, pad, on));
                }
            }
            given.push_back({side.argument, views.of(side.wanted, place.used)});
        }
        if (plan.bias != nullptr) {
            given.push_back({BIAS, views.of(plan.bias, tensors.bias + piece.bias)});
        }
        given.push_back({SCRATCHPAD, views.of(plan.room, pad)});
        DNNL_TRY(views.status);
        DNNL_TRY(dnnl.primitive_execute(plan.primitive, on, static_cast<int>(given.size()),
                                        given.data()));
        DNNL_TRY(dnnl.stream_wait(on));
        for (const Place &place : places) {
            if (place.side->reorder != nullptr && place.side->is_output) {
                DNNL_TRY(move(*place.side, place.used, place.data, pad, on));
            }
        }
        return SUCCESS;
    }

    /* For all pieces at once, and once for all plans that want them in the same order. */
    Status reorder_weights() {
        const OneThread guard;
        Stream *on = stream();
        if (on == nullptr) return static_cast<Status>(1);
        size_t size = 0;
        for (const auto &plan : conv.plans) size += plan->weights.reordered();
        char *next = bytes<machine::KEPT_POINTS>(size);
        for (const auto &plan : conv.plans) {
            const size_t same = conv.first_alike(*plan);
            const bool is_done = same < reordered.size();
            reordered.push_back(is_done ? reordered[same] : next);
            if (is_done || plan->weights.reorder == nullptr) continue;
            char *pad = bytes<machine::REORDERS>(plan->scratchpad());
            float *first = tensors.weights + conv.pieces.all.front().weights;
            DNNL_TRY(move(plan->weights, first, next, pad, on));
            next += plan->weights.reordered();
        }
        return SUCCESS;
    }

    OrtStatus *sum_parts(OrtKernelContext *context) const {
        constexpr int64_t BLOCK = 1 << 14;
        const int64_t size = conv.shape.weights();
        const size_t count = conv.jobs() - 1;
        const auto add = [&](size_t block) {
            const int64_t begin = static_cast<int64_t>(block) * BLOCK;
            const int64_t end = std::min(size, begin + BLOCK);
            for (size_t part = 0; part < count; ++part) {
                const float *from = parts + static_cast<int64_t>(part) * size;
                for (int64_t i = begin; i < end; ++i) tensors.weights[i] += from[i];
            }
        };
        return ort::parallel(context, static_cast<size_t>((size + BLOCK - 1) / BLOCK), add);
    }
};

OrtStatus *Direct::run(OrtKernelContext *context, const Tensors &tensors) const {
    Call call{*this, tensors};
    const size_t count = jobs();
    call.failures.assign(count, SUCCESS);
    if (has_sums() && count > 1) {
        const size_t floats = (count - 1) * static_cast<size_t>(shape.weights());
        call.parts = machine::scratch<machine::SUMMED>(floats);
    }
    if (which == WEIGHT_GRADIENT) call.cleared(tensors.weights);
    if (shares_weights()) call.failures[0] = call.reorder_weights();
    if (call.failures[0] == SUCCESS) ORT_TRY(ort::parallel(context, count, call));
    for (Status failed : call.failures) {
        if (failed != SUCCESS) {
            return ort::refuse("%s: oneDNN failed with status %d", NAMES[which], failed);
        }
    }
    return call.parts == nullptr ? nullptr : call.sum_parts(context);
}

} // namespace

std::unique_ptr<Kernel> conv::direct(const Shape &shape, Which which, const Form &form,
                                     int *status) {
    const OneThread guard; /* oneDNN plans for as many threads as it is created with */
    auto made = std::make_unique<Direct>(shape, which, form);
    *status = made->prepare();
    if (*status != SUCCESS) return nullptr;
    return made;
}
