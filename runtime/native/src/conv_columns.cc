/* Forward passes of few windows and many weights, which are read once and as they lie.
 *
 * To put weights into the order of a kernel, as the loops of others do, costs more than to multiply
 * them where each is used for few windows. What the windows of all images see is moved to the
 * columns of one matrix instead (im2col), and weights times it are the result. First the rows of
 * that matrix are shared out, then those of the weights.
 */
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "conv.h"
#include "machine.h"
#include "ort.h"
#include "packed_loops.h"
#include "patch_loops.h"

namespace {

using namespace conv;

constexpr int64_t PANEL = static_cast<int64_t>(packed::PANEL);
constexpr int64_t DEPTH = 1024, ROWS = 24; /* of weights at a time; measured */
constexpr int64_t MOST_WINDOWS = 256, MOST_DEPTH = 1 << 17; /* 128 MB of columns */
constexpr int32_t ZERO = -1; /* the place of what is beyond the border */

struct Span {
    int64_t first, count;
};

/* The part of `length` that a task has, in whole steps. */
Span part_of(int64_t length, int64_t step, int64_t task, int64_t tasks) {
    const int64_t steps = whole(length, step);
    const int64_t first = steps * task / tasks * step;
    return {first, std::min(length, steps * (task + 1) / tasks * step) - first};
}

struct Columns : Kernel {
    const int64_t windows, pitch, depth; /* of all images; whole panels of them; what each sees */
    std::vector<int32_t> places;         /* of what windows see, from a channel on, for each tap */

    Columns(const Shape &s, const Form &f)
        : Kernel(s, FORWARD_PASS, f), windows(s.images * s.out_plane()),
          pitch(whole(windows, PANEL) * PANEL), depth(s.in * s.taps()) {
        for (int64_t tap = 0; tap < s.taps(); ++tap) {
            for (int64_t window = 0; window < pitch; ++window) {
                places.push_back(window < windows ? place(tap, window) : ZERO);
            }
        }
    }

    static bool fits(const Shape &s) {
        return s.images * s.out_plane() <= MOST_WINDOWS && s.in * s.taps() <= MOST_DEPTH &&
               s.images * s.source() <= INT32_MAX;
    }

    int32_t place(int64_t tap, int64_t window) const {
        const int64_t image = window / shape.out_plane();
        int64_t at = 0, taps = shape.taps(), left = shape.out_plane();
        for (int i = 0; i < MOST_AXES; ++i) {
            const Axis a = shape.axis(i);
            taps /= a.kernel;
            left /= a.out;
            const int64_t along = window / left % a.out * a.stride +
                                  tap / taps % a.kernel * a.dilation - a.before;
            if (along < 0 || along >= a.size) return ZERO;
            at = at * a.size + along;
        }
        return static_cast<int32_t>(image * shape.source() + at);
    }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        float *columns = machine::scratch<machine::COLUMNS>(static_cast<size_t>(depth * pitch));
        ORT_TRY(share(context, shape.in, 1, [&](Span channels) {
            move(columns, tensors.source, channels);
        }));
        return share(context, shape.out, ROWS, [&](Span rows) { multiply(tensors, columns, rows); });
    }

    template <typename Work>
    OrtStatus *share(OrtKernelContext *context, int64_t length, int64_t step,
                     const Work &work) const {
        const int64_t tasks = std::clamp<int64_t>(shape.tasks, 1, whole(length, step));
        const auto job = [&](size_t task) {
            work(part_of(length, step, static_cast<int64_t>(task), tasks));
        };
        return ort::parallel(context, static_cast<size_t>(tasks), job);
    }

    void move(float *columns, const float *source, Span channels) const {
        const int64_t taps = shape.taps();
        for (int64_t i = channels.first * taps; i < (channels.first + channels.count) * taps; ++i) {
            patches::loops().pick(columns + i * pitch, source + i / taps * shape.plane(),
                                  places.data() + i % taps * pitch, static_cast<size_t>(pitch));
        }
    }

    /* Some channels of the result; of one image they are computed where they belong. */
    void multiply(const Tensors &tensors, const float *columns, Span rows) const {
        const bool is_single = shape.images == 1;
        const int64_t row = is_single ? windows : pitch;
        float *sums = is_single ? tensors.result + rows.first * windows
                                : machine::scratch<machine::SUMMED>(
                                      static_cast<size_t>(rows.count * pitch));
        for (int64_t k = 0; k < depth; k += DEPTH) {
            for (int64_t i = 0; i < rows.count; i += ROWS) {
                const float *weights = tensors.weights + (rows.first + i) * depth;
                add_part(weights, columns, std::min(ROWS, rows.count - i),
                         {k, std::min(DEPTH, depth - k)}, sums + i * row, row);
            }
        }
        if (is_single && tensors.bias == nullptr) return;
        for (int64_t i = 0; i < rows.count; ++i) put(tensors, rows.first + i, sums + i * row);
    }

    /* Adds some terms to the sums of some channels, `row` apart, but from the first term on. */
    void add_part(const float *weights, const float *columns, int64_t rows, Span terms, float *sums,
                  int64_t row) const {
        packed::Product p{};
        p.a = weights + terms.first;
        p.b = columns + terms.first * pitch;
        p.c = terms.first > 0 ? sums : nullptr;
        p.y = sums;
        p.rows = static_cast<size_t>(rows);
        p.depth = static_cast<size_t>(terms.count);
        p.columns = p.c_row = p.y_row = static_cast<size_t>(row);
        p.last = static_cast<size_t>(pitch / PANEL);
        p.a_row = static_cast<size_t>(depth);
        p.b_row = static_cast<size_t>(pitch);
        p.b_panel = packed::PANEL;
        packed::loops().multiply(p);
    }

    /* A channel of all images to its places, with its bias. */
    void put(const Tensors &tensors, int64_t out, const float *sums) const {
        const int64_t plane = shape.out_plane();
        const float bias = tensors.bias != nullptr ? tensors.bias[out] : 0;
        for (int64_t image = 0; image < shape.images; ++image) {
            float *to = tensors.result + image * shape.result() + out * plane;
            for (int64_t i = 0; i < plane; ++i) to[i] = sums[image * plane + i] + bias;
        }
    }
};

} // namespace

std::unique_ptr<Kernel> conv::by_columns(const Shape &s, const Form &form) {
    return Columns::fits(s) ? std::make_unique<Columns>(s, form) : nullptr;
}
