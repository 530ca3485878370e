/* Convolutions that are matrix products as their tensors lie, and the gradients of those.
 *
 * With windows of one element, stride 1 and no zeros, the channels of each image are a matrix of as
 * many columns as there are positions: weights times it are the result, and transposed weights
 * times gradients the input gradient. All positions of all images are shared out evenly. Of a
 * weight gradient rows or columns are, to which every image adds; of few weights parts of the sum
 * are, as many for any number of threads.
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
#include "tile.h"

namespace {

using namespace conv;
using onednn::dnnl;

constexpr int64_t ROW_STEP = 16, COLUMN_STEP = 48; /* of sgemm's loops: tasks begin at multiples */
constexpr int64_t SUM_PART = 384; /* measured: longer sums fall out of the cache */
constexpr int64_t FEW_WEIGHTS = 1 << 14, SUMS = 8, FEWEST_OF_SUM = 2; /* parts of so many terms */

int64_t whole(int64_t a, int64_t b) { return (a + b - 1) / b; }

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
    Pointwise(const Shape &s, Which w, const Form &f) : Products(s, w, f) {}

    /* Steps of rows, of columns, or of positions of all images. */
    int64_t units() const override {
        if (which == WEIGHT_GRADIENT) {
            return has_rows() ? whole(shape.out, ROW_STEP) : whole(shape.in, COLUMN_STEP);
        }
        return shape.images * whole(shape.plane(), COLUMN_STEP);
    }
    bool has_rows() const { return shape.out >= shape.in; } /* else columns are shared out */

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        if (which == WEIGHT_GRADIENT) return add_images(tensors, at, end);
        const int64_t plane = shape.plane(), steps = whole(plane, COLUMN_STEP);
        while (at < end) {
            const int64_t image = at / steps, last = std::min(end, (image + 1) * steps);
            const int64_t begin = (at - image * steps) * COLUMN_STEP;
            const int64_t behind = std::min(plane, (last - image * steps) * COLUMN_STEP);
            const onednn::Status failed = multiply(tensors, image, begin, behind - begin);
            if (failed != onednn::SUCCESS) return failed;
            at = last;
        }
        return onednn::SUCCESS;
    }

    /* So many positions of an image. */
    onednn::Status multiply(const Tensors &tensors, int64_t image, int64_t first,
                            int64_t count) const {
        const int64_t plane = shape.plane();
        const float *w = tensors.weights;
        float *x = tensors.source + image * shape.source() + first;
        float *y = tensors.result + image * shape.result() + first;
        if (which == INPUT_GRADIENT) {
            return dnnl.sgemm('T', 'N', shape.in, count, shape.out, 1, w, shape.in, y, plane, 0, x,
                              plane);
        }
        for (int64_t k = 0; tensors.bias != nullptr && k < shape.out; ++k) {
            std::fill_n(y + k * plane, count, tensors.bias[k]);
        }
        const float beta = tensors.bias != nullptr ? 1 : 0;
        return dnnl.sgemm('N', 'N', shape.out, count, shape.in, 1, w, shape.in, x, plane, beta, y,
                          plane);
    }

    onednn::Status add_images(const Tensors &tensors, int64_t first, int64_t last) const {
        const int64_t plane = shape.plane();
        const int64_t row = has_rows() ? first * ROW_STEP : 0;
        const int64_t column = has_rows() ? 0 : first * COLUMN_STEP;
        const int64_t rows = has_rows() ? std::min(shape.out, last * ROW_STEP) - row : shape.out;
        const int64_t columns =
            has_rows() ? shape.in : std::min(shape.in, last * COLUMN_STEP) - column;
        float beta = 0;
        for (int64_t image = 0; image < shape.images; ++image) {
            const float *x = tensors.source + image * shape.source() + column * plane;
            const float *y = tensors.result + image * shape.result() + row * plane;
            for (int64_t k = 0; k < plane; k += SUM_PART) {
                const onednn::Status failed =
                    add_part(y + k, x + k, rows, columns, std::min(SUM_PART, plane - k), beta,
                             tensors.weights + row * shape.in + column);
                if (failed != onednn::SUCCESS) return failed;
                beta = 1;
            }
        }
        return onednn::SUCCESS;
    }

    /* Adds the products of some channels over a part of an image to beta times what is there. */
    onednn::Status add_part(const float *y, const float *x, int64_t rows, int64_t columns,
                            int64_t terms, float beta, float *to) const {
        const int64_t plane = shape.plane();
        return dnnl.sgemm('N', 'T', rows, columns, terms, 1, y, plane, x, plane, beta, to,
                          shape.in);
    }
};

/* The gradient of few weights: parts of the sum, which are added up in the end. */
struct Summed : Pointwise {
    Summed(const Shape &s, const Form &f) : Pointwise(s, WEIGHT_GRADIENT, f) {}

    static int64_t steps_of(const Shape &s) { return s.images * whole(s.plane(), SUM_PART); }
    static bool fits(const Shape &s) {
        return s.weights() <= FEW_WEIGHTS && steps_of(s) >= SUMS * FEWEST_OF_SUM;
    }
    int64_t units() const override { return SUMS; }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const int64_t weights = shape.weights();
        float *sums = machine::scratch<machine::SUMMED>(static_cast<size_t>(SUMS * weights));
        Tensors own = tensors;
        own.weights = sums;
        ORT_TRY(Products::run(context, own));
        std::copy_n(sums, weights, tensors.weights);
        for (int64_t part = 1; part < SUMS; ++part) {
            tile::loops().add_to(tensors.weights, sums + part * weights,
                                 static_cast<size_t>(weights));
        }
        return nullptr;
    }

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const override {
        const int64_t plane = shape.plane(), steps = whole(plane, SUM_PART), all = steps_of(shape);
        for (int64_t part = at; part < end; ++part) {
            float *to = tensors.weights + part * shape.weights();
            const int64_t first = all * part / SUMS, last = all * (part + 1) / SUMS;
            for (int64_t i = first; i < last; ++i) {
                const int64_t image = i / steps, k = i % steps * SUM_PART;
                const onednn::Status failed =
                    add_part(tensors.result + image * shape.result() + k,
                             tensors.source + image * shape.source() + k, shape.out, shape.in,
                             std::min(SUM_PART, plane - k), i > first ? 1 : 0, to);
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
        return dnnl.sgemm('N', 'T', n, count, in, 1, x, in, w + first * in, in, beta, y + first,
                          out);
    }
};

bool is_pointwise(const Axis &a) {
    return a.kernel == 1 && a.stride == 1 && a.before == 0 && a.after == 0;
}

bool has_one_window(const Axis &a) {
    return a.kernel == a.size && a.dilation == 1 && a.out == 1 && a.before == 0 && a.after == 0;
}

bool holds(const Shape &s, bool (*condition)(const Axis &)) {
    if (s.groups > 1) return false;
    for (int i = 0; i < MOST_AXES; ++i) {
        if (!condition(s.axis(i))) return false;
    }
    return true;
}

} // namespace

std::unique_ptr<Kernel> conv::by_products(const Shape &s, Which which, const Form &form) {
    if (holds(s, has_one_window)) return std::make_unique<Connected>(s, which, form);
    if (!holds(s, is_pointwise)) return nullptr;
    if (which == WEIGHT_GRADIENT && Summed::fits(s)) return std::make_unique<Summed>(s, form);
    return std::make_unique<Pointwise>(s, which, form);
}
