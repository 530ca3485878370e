/* Convolutions of one element, stride 1 and no zeros, and their gradients: matrix products.
 *
 * Of each image the channels are a matrix of as many columns as there are positions, which needs
 * no other order: weights times it are the result, and transposed weights times gradients the
 * input gradient. All positions of all images are shared out evenly. Of a weight gradient rows or
 * columns are, to which every image adds. No sum of products is split among tasks.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "conv.h"
#include "onednn.h"
#include "ort.h"

namespace {

using namespace conv;
using onednn::dnnl;

constexpr int64_t ROW_STEP = 16, COLUMN_STEP = 48; /* of sgemm's loops: tasks begin at multiples */
constexpr int64_t SUM_PART = 384; /* measured: longer sums fall out of the cache */

int64_t whole(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Pointwise : Kernel {
    Pointwise(const Shape &s, Which w, const Form &f) : Kernel(s, w, f) {}

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const int64_t all = units(), tasks = std::max<int64_t>(1, std::min(shape.tasks, all));
        std::vector<onednn::Status> failures(static_cast<size_t>(tasks), onednn::SUCCESS);
        const auto job = [&](size_t task) {
            const onednn::OneThread guard;
            const int64_t own = static_cast<int64_t>(task);
            const int64_t first = all * own / tasks, last = all * (own + 1) / tasks;
            failures[task] = which == WEIGHT_GRADIENT ? add_images(tensors, first, last)
                                                      : make(tensors, first, last);
        };
        ORT_TRY(ort::parallel(context, static_cast<size_t>(tasks), job));
        for (onednn::Status failed : failures) {
            if (failed != onednn::SUCCESS) {
                return ort::refuse("%s: oneDNN failed with status %d", NAMES[which], failed);
            }
        }
        return nullptr;
    }

    /* What tasks share out: steps of rows, of columns, or of positions of all images. */
    int64_t units() const {
        if (which == WEIGHT_GRADIENT) {
            return has_rows() ? whole(shape.out, ROW_STEP) : whole(shape.in, COLUMN_STEP);
        }
        return shape.images * whole(shape.plane(), COLUMN_STEP);
    }
    bool has_rows() const { return shape.out >= shape.in; } /* else columns are shared out */

    onednn::Status make(const Tensors &tensors, int64_t at, int64_t end) const {
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
                const onednn::Status failed = dnnl.sgemm(
                    'N', 'T', rows, columns, std::min(SUM_PART, plane - k), 1, y + k, plane, x + k,
                    plane, beta, tensors.weights + row * shape.in + column, shape.in);
                if (failed != onednn::SUCCESS) return failed;
                beta = 1;
            }
        }
        return onednn::SUCCESS;
    }
};

bool is_pointwise(const Shape &s) {
    for (int i = 0; i < MOST_AXES; ++i) {
        const Axis a = s.axis(i);
        if (a.kernel != 1 || a.stride != 1 || a.before != 0 || a.after != 0) return false;
    }
    return s.groups == 1;
}

} // namespace

std::unique_ptr<Kernel> conv::by_products(const Shape &s, Which which, const Form &form) {
    if (!is_pointwise(s)) return nullptr;
    return std::make_unique<Pointwise>(s, which, form);
}
