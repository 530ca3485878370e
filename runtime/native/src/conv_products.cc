/* Convolutions as matrix products, and the gradients of those.
 *
 * With windows of one element, stride 1 and no zeros, the channels of each image are a matrix of as
 * many columns as there are positions: weights times it are the result, and transposed weights
 * times gradients the input gradient. All positions of all images are shared out evenly. Of a
 * weight gradient rows or columns are, to which every image adds; of few weights parts of the sum
 * are, as many for any number of threads.
 *
 * What other windows see is moved to the rows of such a matrix (im2col), for as many positions at
 * a time as stay in the cache. Input gradients are moved back (col2im): where windows meet they are
 * sums, and channels are shared out instead of positions.
 *
 * With one window, of the whole image, images are rows as they are, and so are weights: a layer
 * that connects all with all. Columns of what is made are shared out.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "conv.h"
#include "machine.h"
#include "onednn.h"
#include "ort.h"
#include "packed_rows.h"
#include "patch_loops.h"
#include "tile.h"

namespace {

using namespace conv;
using onednn::dnnl;

constexpr int64_t ROW_STEP = 16, COLUMN_STEP = 48; /* of sgemm's loops: tasks begin at multiples */
constexpr int64_t SUM_PART = 384; /* measured: longer sums fall out of the cache */
/* Measured: of all images, sums that stay in the cache take down to a quarter of the time, but of
 * too many blocks each image is read too often. */
constexpr int64_t BLOCK_ROWS = 128, BLOCK_COLUMNS = 21 * COLUMN_STEP, MOST_BLOCKS = 4;
constexpr int64_t FEWEST_SHIFTED = 32; /* channels: with fewer a tap has too little to do */
constexpr int64_t FEW_WEIGHTS = 1 << 14, SUMS = 8; /* parts of a sum */

/* Units from `at` to `end`, by what they are units of: `each` of one image or group, at most `most`
 * at a time. */
template <typename Make>
onednn::Status by_parts(int64_t at, int64_t end, int64_t each, int64_t most, const Make &make) {
    while (at < end) {
        const int64_t part = at / each, start = part * each;
        const int64_t last = std::min({end, start + each, at + most});
        const onednn::Status failed = make(part, at - start, last - start);
        if (failed != onednn::SUCCESS) return failed;
        at = last;
    }
    return onednn::SUCCESS;
}

struct Products : Kernel {
    Products(const Shape &s, Which w, const Form &f) : Kernel(s, w, f) {}

    virtual int64_t units() const = 0; /* that tasks share out */
    virtual onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const = 0;

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const int64_t all = units(), tasks = std::max<int64_t>(1, std::min(shape.tasks, all));
        std::vector<onednn::Status> failures(static_cast<size_t>(tasks), onednn::SUCCESS);
        const auto job = [&](size_t task) {
            const onednn::OneThread guard;
            const int64_t own = static_cast<int64_t>(task);
            const int64_t first = all * own / tasks, last = all * (own + 1) / tasks;
            failures[task] = make(tensors, first, last);
        };
        ORT_TRY(ort::parallel(context, static_cast<size_t>(tasks), job));
        for (onednn::Status failed : failures) {
            if (failed != onednn::SUCCESS) {
                return ort::refuse("%s: oneDNN failed with status %d", NAMES[which], failed);
            }
        }
        return nullptr;
    }
};

/* With windows of one element. */
struct Pointwise : Products {
    const int64_t source, result; /* elements from an image to the next */

    Pointwise(const Shape &s, Which w, const Form &f)
        : Products(s, w, f), source(s.source()), result(s.result()) {}
    /* One group of a whole. */
    Pointwise(const Shape &one, const Shape &s, Which w, const Form &f)
        : Products(one, w, f), source(s.source()), result(s.result()) {}

    /* What windows see, from one position on: a row for each element of a window. */
    struct Seen {
        float *rows;
        int64_t pitch;
    };
    /* `count` rows from `row` on, of so many positions of an image. */
    virtual Seen seen(const Tensors &tensors, int64_t image, int64_t row, int64_t, int64_t first,
                      int64_t) const {
        return {tensors.source + image * source + row * shape.plane() + first, shape.plane()};
    }
    /* Input gradients of positions from `first` on, made in what `seen` gave. */
    virtual void put_back(const Tensors &, int64_t, const Seen &, int64_t, int64_t) const {}
    virtual int64_t most_steps() const { return shape.out_plane(); } /* of a product */

    int64_t per_window() const { return shape.in * shape.taps(); }

    /* Steps of rows, of columns, or of positions of all images. */
    int64_t units() const override {
        if (which == WEIGHT_GRADIENT) {
            return has_rows() ? whole(shape.out, ROW_STEP) : whole(per_window(), COLUMN_STEP);
        }
        return shape.images * whole(shape.out_plane(), COLUMN_STEP);
    }
    /* Else columns are shared out. */
    virtual bool has_rows() const { return shape.out >= shape.in; }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        if (which == WEIGHT_GRADIENT) return add_images(tensors, at, end);
        const int64_t plane = shape.out_plane(), steps = whole(plane, COLUMN_STEP);
        const auto make_positions = [&](int64_t image, int64_t first, int64_t last) {
            const int64_t begin = first * COLUMN_STEP;
            return multiply(tensors, image, begin, std::min(plane, last * COLUMN_STEP) - begin);
        };
        return by_parts(at, end, steps, most_steps(), make_positions);
    }

    /* So many positions of an image. */
    virtual onednn::Status multiply(const Tensors &tensors, int64_t image, int64_t first,
                                    int64_t count) const {
        const int64_t plane = shape.out_plane(), in = per_window();
        const float *w = tensors.weights;
        const Seen x = seen(tensors, image, 0, in, first, count);
        float *y = tensors.result + image * result + first;
        if (which == INPUT_GRADIENT) {
            const onednn::Status failed = dnnl.sgemm('T', 'N', in, count, shape.out, 1, w, in, y,
                                                     plane, 0, x.rows, x.pitch);
            put_back(tensors, image, x, first, count);
            return failed;
        }
        for (int64_t k = 0; tensors.bias != nullptr && k < shape.out; ++k) {
            std::fill_n(y + k * plane, count, tensors.bias[k]);
        }
        const float beta = tensors.bias != nullptr ? 1 : 0;
        return dnnl.sgemm('N', 'N', shape.out, count, in, 1, w, in, x.rows, x.pitch, beta, y,
                          plane);
    }

    onednn::Status add_images(const Tensors &tensors, int64_t at, int64_t end) const {
        const int64_t in = per_window(), first = has_rows() ? at * ROW_STEP : 0;
        const int64_t left = has_rows() ? 0 : at * COLUMN_STEP;
        const int64_t bottom = has_rows() ? std::min(shape.out, end * ROW_STEP) : shape.out;
        const int64_t right = has_rows() ? in : std::min(in, end * COLUMN_STEP);
        const int64_t rows = rows_of_block(bottom - first);
        const int64_t columns = rows <= BLOCK_ROWS ? BLOCK_COLUMNS : right - left;
        for (int64_t column = left; column < right; column += columns) {
            for (int64_t row = first; row < bottom; row += rows) {
                const onednn::Status failed =
                    add_block(tensors, row, std::min(rows, bottom - row), column,
                              std::min(columns, right - column));
                if (failed != onednn::SUCCESS) return failed;
            }
        }
        return onednn::SUCCESS;
    }
    virtual int64_t rows_of_block(int64_t rows) const {
        if (rows > MOST_BLOCKS * BLOCK_ROWS) return rows;
        return whole(whole(rows, whole(rows, BLOCK_ROWS)), ROW_STEP) * ROW_STEP;
    }

    /* Of some rows and columns. */
    onednn::Status add_block(const Tensors &tensors, int64_t row, int64_t rows, int64_t column,
                             int64_t columns) const {
        const int64_t plane = shape.out_plane();
        float *to = tensors.weights + row * per_window() + column, beta = 0;
        for (int64_t image = 0; image < shape.images; ++image) {
            const float *y = tensors.result + image * result + row * plane;
            for (int64_t k = 0; k < plane; k += SUM_PART) {
                const int64_t terms = std::min(SUM_PART, plane - k);
                const Seen x = seen(tensors, image, column, columns, k, terms);
                const onednn::Status failed = add_part(y + k, x, rows, columns, terms, beta, to);
                if (failed != onednn::SUCCESS) return failed;
                beta = 1;
            }
        }
        return onednn::SUCCESS;
    }

    /* Adds the products of some rows over a part of an image to beta times what is there. */
    onednn::Status add_part(const float *y, const Seen &x, int64_t rows, int64_t columns,
                            int64_t terms, float beta, float *to) const {
        const int64_t plane = shape.out_plane(), in = per_window();
        if (packed::pays_rows(rows, columns, plane, plane, x.pitch)) {
            return packed::multiply_rows(
                {y, x.rows, to, rows, columns, terms, plane, x.pitch, in, 1, beta});
        }
        return dnnl.sgemm('N', 'T', rows, columns, terms, 1, y, plane, x.rows, x.pitch, beta, to,
                          in);
    }
};

/* With windows of one element of the channels of a group. What groups have to do is shared out. */
struct Grouped : Products {
    const Pointwise one;

    Grouped(const Shape &s, Which w, const Form &f) : Products(s, w, f), one(group(s), s, w, f) {}

    static Shape group(const Shape &s) {
        Shape made = s;
        made.in /= s.groups;
        made.out /= s.groups;
        made.groups = 1;
        return made;
    }
    int64_t units() const override { return shape.groups * one.units(); }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        const auto make_group = [&](int64_t g, int64_t first, int64_t last) {
            Tensors own = tensors;
            own.source += g * one.shape.source();
            own.result += g * one.shape.result();
            own.weights += g * one.shape.weights();
            if (own.bias != nullptr) own.bias += g * one.shape.out;
            return one.make(own, first, last);
        };
        return by_parts(at, end, one.units(), one.units(), make_group);
    }
};

/* With any windows: what they see is moved to rows, of few positions at a time (im2col). */
struct Moved : Pointwise {
    Moved(const Shape &s, Which w, const Form &f) : Pointwise(s, w, f) {}

    static constexpr int64_t FEWEST_STEPS = 4, MOST_STEPS = 24; /* measured */
    static constexpr int64_t ROWS_OF_COLUMN = 4;

    int64_t most_steps() const override { return steps_of(per_window()); }
    /* Steps of positions whose rows stay in the cache. */
    static int64_t steps_of(int64_t rows) {
        return std::clamp(machine::second_cache() / 2 / (rows * COLUMN_STEP), FEWEST_STEPS,
                          MOST_STEPS);
    }
    /* All that share out rows move the same. */
    bool has_rows() const override { return shape.out >= ROWS_OF_COLUMN * per_window(); }
    int64_t rows_of_block(int64_t rows) const override { return rows; } /* they see the same */

    Seen seen(const Tensors &tensors, int64_t image, int64_t row, int64_t rows, int64_t first,
              int64_t count) const override {
        const Seen made{machine::scratch<machine::BLOCK_POINTS>(static_cast<size_t>(rows * count)),
                        count};
        if (which == INPUT_GRADIENT) return made;
        const float *x = tensors.source + image * shape.source();
        each_row(row, rows, first, count, [&](int64_t i, int64_t channel, const Lines &lines) {
            patches::loops().gather(made.rows + i * count, x + channel * shape.plane(),
                                    lines.data(), lines.size(), step());
        });
        return made;
    }

    using Lines = std::vector<patches::Line>;

    size_t step() const { return static_cast<size_t>(shape.stride_x); }

    /* For each row: its number, its channel, and the lines along which its elements are. */
    template <typename Move>
    void each_row(int64_t row, int64_t rows, int64_t first, int64_t count, const Move &move) const {
        thread_local std::vector<Lines> lines; /* kept, as threads come back for the next */
        const int64_t taps = shape.taps();
        lines.resize(static_cast<size_t>(taps));
        for (int64_t tap = 0; tap < taps; ++tap) {
            lines_of(&lines[static_cast<size_t>(tap)], tap, first, count);
        }
        for (int64_t i = 0; i < rows; ++i) {
            move(i, (row + i) / taps, lines[static_cast<size_t>((row + i) % taps)]);
        }
    }

    void lines_of(Lines *lines, int64_t tap, int64_t first, int64_t count) const {
        const Axis z = shape.axis(0), y = shape.axis(1), x = shape.axis(2);
        const int64_t kx = tap % x.kernel * x.dilation - x.before;
        const int64_t ky = tap / x.kernel % y.kernel * y.dilation - y.before;
        const int64_t kz = tap / x.kernel / y.kernel * z.dilation - z.before;
        /* the windows that do not see a zero */
        const int64_t begin = kx < 0 ? whole(-kx, x.stride) : 0;
        const int64_t end = kx < x.size ? whole(x.size - kx, x.stride) : 0;
        lines->clear();
        for (int64_t at = first; at < first + count;) {
            const int64_t line = at / x.out, left = at % x.out;
            const int64_t n = std::min(x.out - left, first + count - at);
            const int64_t down = line % y.out * y.stride + ky, depth = line / y.out * z.stride + kz;
            const bool is_there = down >= 0 && down < y.size && depth >= 0 && depth < z.size;
            const int64_t from = is_there ? std::clamp(begin, left, left + n) : left + n;
            const int64_t to = std::clamp(end, from, left + n);
            const int64_t place = (depth * y.size + down) * x.size + from * x.stride + kx;
            lines->push_back({to > from ? place : 0, static_cast<size_t>(from - left),
                              static_cast<size_t>(to - from),
                              static_cast<size_t>(left + n - to)});
            at += n;
        }
    }
};

bool is_pointwise(const Axis &a) {
    return a.kernel == 1 && a.stride == 1 && a.before == 0 && a.after == 0;
}

/* With windows along the first of several axes: what a tap sees lies as the result does, at a
 * distance, and products of all taps are added to it. Along a single axis longer products of moved
 * rows are faster. */
struct Shifted : Pointwise {
    const Axis along;
    const int64_t inner; /* elements from one place of the axis to the next */

    Shifted(const Shape &s, Which w, const Form &f)
        : Pointwise(s, w, f), along(s.axis(axis_of(s))), inner(inner_of(s)) {}

    /* The outermost of more than one place. */
    static int axis_of(const Shape &s) {
        int i = 0;
        while (i < MOST_AXES - 1 && s.axis(i).is_single()) ++i;
        return i;
    }
    static int64_t inner_of(const Shape &s) {
        int64_t inner = 1;
        for (int i = axis_of(s) + 1; i < MOST_AXES; ++i) inner *= s.axis(i).size;
        return inner;
    }
    static bool fits(const Shape &s) {
        const int own = axis_of(s);
        for (int i = own + 1; i < MOST_AXES; ++i) {
            if (!is_pointwise(s.axis(i))) return false;
        }
        return inner_of(s) > 1 && s.axis(own).stride == 1 && s.in >= FEWEST_SHIFTED;
    }

    int64_t most_steps() const override { return Moved::steps_of(shape.in + shape.out); }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const int64_t taps = shape.taps(), all = shape.out * shape.in;
        float *by_tap = machine::scratch<machine::SUMMED>(static_cast<size_t>(taps * all));
        for (int64_t i = 0; i < all; ++i) {
            for (int64_t tap = 0; tap < taps; ++tap) {
                by_tap[tap * all + i] = tensors.weights[i * taps + tap];
            }
        }
        Tensors own = tensors;
        own.weights = by_tap;
        return Products::run(context, own);
    }

    onednn::Status multiply(const Tensors &tensors, int64_t image, int64_t first,
                            int64_t count) const override {
        const int64_t plane = shape.plane(), out_plane = shape.out_plane(), in = shape.in;
        const float *x = tensors.source + image * source;
        float *y = tensors.result + image * result;
        for (int64_t k = 0; k < shape.out; ++k) {
            std::fill_n(y + k * out_plane + first, count,
                        tensors.bias != nullptr ? tensors.bias[k] : 0.0F);
        }
        for (int64_t tap = 0; tap < along.kernel; ++tap) {
            const int64_t shift = (tap * along.dilation - along.before) * inner;
            const int64_t from = std::max(first, -shift);
            const int64_t to = std::min(first + count, plane - shift);
            if (to <= from) continue;
            const onednn::Status failed =
                dnnl.sgemm('N', 'N', shape.out, to - from, in, 1,
                           tensors.weights + tap * shape.out * in, in, x + from + shift, plane, 1,
                           y + from, out_plane);
            if (failed != onednn::SUCCESS) return failed;
        }
        return onednn::SUCCESS;
    }
};

/* Input gradients of windows that do not meet. */
struct Apart : Moved {
    using Moved::Moved;

    void put_back(const Tensors &tensors, int64_t image, const Seen &made, int64_t first,
                  int64_t count) const override {
        float *x = tensors.source + image * shape.source();
        each_row(0, per_window(), first, count,
                 [&](int64_t i, int64_t channel, const Lines &lines) {
                     patches::loops().scatter(x + channel * shape.plane(), made.rows + i * count,
                                              lines.data(), lines.size(), step());
                 });
    }

    /* What no window sees has a gradient of zero. */
    bool has_gaps() const {
        for (int i = 0; i < MOST_AXES; ++i) {
            const Axis a = shape.axis(i);
            if (a.kernel < a.stride || a.out * a.stride < a.size) return true;
        }
        return false;
    }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        if (has_gaps()) {
            std::fill_n(tensors.source, shape.images * shape.source(), 0.0F);
        }
        return Products::run(context, tensors);
    }
};

/* Input gradients of windows that meet: sums over them. Channels of all images are shared out. */
struct Meeting : Moved {
    using Moved::Moved;

    int64_t units() const override { return shape.images * shape.in; }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        const auto make_channels = [&](int64_t image, int64_t first, int64_t last) {
            return add_windows(tensors, image, first, last - first);
        };
        return by_parts(at, end, shape.in, shape.in, make_channels);
    }

    onednn::Status add_windows(const Tensors &tensors, int64_t image, int64_t channel,
                               int64_t channels) const {
        const int64_t plane = shape.out_plane(), taps = shape.taps(), rows = channels * taps;
        const int64_t most = steps_of(rows) * COLUMN_STEP;
        const float *w = tensors.weights + channel * taps;
        const float *y = tensors.result + image * shape.result();
        float *x = tensors.source + image * shape.source() + channel * shape.plane();
        std::fill_n(x, channels * shape.plane(), 0.0F);
        for (int64_t first = 0; first < plane; first += most) {
            const int64_t count = std::min(most, plane - first);
            const Seen made = seen(tensors, image, 0, rows, first, count);
            const onednn::Status failed = dnnl.sgemm('T', 'N', rows, count, shape.out, 1, w,
                                                     per_window(), y + first, plane, 0, made.rows,
                                                     made.pitch);
            if (failed != onednn::SUCCESS) return failed;
            each_row(0, rows, first, count, [&](int64_t i, int64_t own, const Lines &lines) {
                patches::loops().add(x + own * shape.plane(), made.rows + i * made.pitch,
                                     lines.data(), lines.size(), step());
            });
        }
        return onednn::SUCCESS;
    }
};

/* The gradient of few weights: parts of the sum, which are added up in the end. */
template <typename Windows>
struct Summed : Windows {
    using Windows::shape;

    Summed(const Shape &s, const Form &f) : Windows(s, WEIGHT_GRADIENT, f) {}

    static int64_t steps_of(const Shape &s) {
        return s.images * whole(s.out_plane(), SUM_PART);
    }
    static bool fits(const Shape &s) {
        return s.weights() <= FEW_WEIGHTS && steps_of(s) >= SUMS;
    }
    int64_t units() const override { return SUMS; }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const int64_t weights = shape.weights();
        float *sums = machine::scratch<machine::SUMMED>(static_cast<size_t>(SUMS * weights));
        Tensors own = tensors;
        own.weights = sums;
        ORT_TRY(Windows::run(context, own));
        std::copy_n(sums, weights, tensors.weights);
        for (int64_t part = 1; part < SUMS; ++part) {
            tile::loops().add_to(tensors.weights, sums + part * weights,
                                 static_cast<size_t>(weights));
        }
        return nullptr;
    }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        const int64_t plane = shape.out_plane(), steps = whole(plane, SUM_PART);
        const int64_t all = steps_of(shape), in = this->per_window();
        for (int64_t part = at; part < end; ++part) {
            float *to = tensors.weights + part * shape.weights();
            const int64_t first = all * part / SUMS, last = all * (part + 1) / SUMS;
            for (int64_t i = first; i < last; ++i) {
                const int64_t image = i / steps, k = i % steps * SUM_PART;
                const int64_t terms = std::min(SUM_PART, plane - k);
                const Pointwise::Seen x = this->seen(tensors, image, 0, in, k, terms);
                const onednn::Status failed =
                    this->add_part(tensors.result + image * shape.result() + k, x, shape.out, in,
                                   terms, i > first ? 1 : 0, to);
                if (failed != onednn::SUCCESS) return failed;
            }
        }
        return onednn::SUCCESS;
    }
};

/* With one window, of the whole image. */
struct Connected : Products {
    Connected(const Shape &s, Which w, const Form &f) : Products(s, w, f) {}

    int64_t columns() const { return which == FORWARD_PASS ? shape.out : shape.source(); }
    int64_t units() const override { return whole(columns(), COLUMN_STEP); }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        const int64_t n = shape.images, in = shape.source(), out = shape.out;
        const int64_t first = at * COLUMN_STEP;
        const int64_t count = std::min(columns(), end * COLUMN_STEP) - first;
        const float *w = tensors.weights;
        float *x = tensors.source, *y = tensors.result;
        if (which == INPUT_GRADIENT) {
            return dnnl.sgemm('N', 'N', n, count, out, 1, y, out, w + first, in, 0, x + first, in);
        }
        if (which == WEIGHT_GRADIENT) {
            return dnnl.sgemm('T', 'N', out, count, n, 1, y, out, x + first, in, 0,
                              tensors.weights + first, in);
        }
        for (int64_t i = 0; tensors.bias != nullptr && i < n; ++i) {
            std::copy_n(tensors.bias + first, count, y + i * out + first);
        }
        const float beta = tensors.bias != nullptr ? 1 : 0;
        w += first * in;
        if (packed::pays_rows(n, count, in, in, in)) {
            return packed::multiply_rows({x, w, y + first, n, count, in, in, in, out, 1, beta});
        }
        return dnnl.sgemm('N', 'T', n, count, in, 1, x, in, w, in, beta, y + first, out);
    }
};

bool is_apart(const Axis &a) {
    return a.kernel <= a.stride && a.dilation == 1 && a.before == 0 && a.after == 0;
}

bool has_one_window(const Axis &a) {
    return a.kernel == a.size && a.dilation == 1 && a.out == 1 && a.before == 0 && a.after == 0;
}

bool holds(const Shape &s, bool (*condition)(const Axis &)) {
    for (int i = 0; i < MOST_AXES; ++i) {
        if (!condition(s.axis(i))) return false;
    }
    return true;
}

template <typename Windows>
std::unique_ptr<Kernel> with_windows(const Shape &s, Which which, const Form &form) {
    if (which == WEIGHT_GRADIENT && Summed<Windows>::fits(s)) {
        return std::make_unique<Summed<Windows>>(s, form);
    }
    return std::make_unique<Windows>(s, which, form);
}

} // namespace

std::unique_ptr<Kernel> conv::by_products(const Shape &s, Which which, const Form &form) {
    if (s.groups > 1) {
        return holds(s, is_pointwise) ? std::make_unique<Grouped>(s, which, form) : nullptr;
    }
    if (holds(s, has_one_window)) return std::make_unique<Connected>(s, which, form);
    if (holds(s, is_pointwise)) return with_windows<Pointwise>(s, which, form);
    if (which == FORWARD_PASS && Shifted::fits(s)) return std::make_unique<Shifted>(s, which, form);
    if (which != INPUT_GRADIENT) return with_windows<Moved>(s, which, form);
    if (holds(s, is_apart)) return std::make_unique<Apart>(s, which, form);
    return std::make_unique<Meeting>(s, which, form);
}
