/* Convolutions over one to three axes: their numbers, and what the ways to compute them have in
 * common. */
#ifndef FLOW2ONNX_NATIVE_CONV_H
#define FLOW2ONNX_NATIVE_CONV_H

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "ort.h"

namespace conv {

enum Which : int { FORWARD_PASS, INPUT_GRADIENT, WEIGHT_GRADIENT };

constexpr const char *NAMES[] = {"Conv", "ConvInputGradient", "ConvWeightGradient"};

constexpr int64_t LARGEST = int64_t(1) << 40; /* elements of a tensor */
constexpr int MOST_AXES = 3;

/* A quotient, rounded up. */
inline int64_t whole(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* How many gradients of so many weights may be in memory at once, to be added up: 64 MB of them. */
inline int64_t most_sums(int64_t weights) {
    return std::max<int64_t>(1, (int64_t(1) << 24) / weights);
}

/* One axis of an image, and the windows along it. */
struct Axis {
    int64_t size, out, kernel, stride, dilation, before, after;

    int64_t reach() const { return (kernel - 1) * dilation + 1; }
    bool fits() const {
        const int64_t room = size + before + after;
        return room >= reach() && (room - reach()) / stride + 1 == out;
    }
    bool is_single() const { return size == 1 && kernel == 1 && stride == 1 && out == 1; }
};

/* The attribute `shape`. */
struct Shape : abi::ConvShape {
    Axis axis(int i) const {
        return {(&depth)[i],    (&out_depth)[i],  (&kernel_depth)[i], (&stride_z)[i],
                (&dilation_z)[i], (&front)[i], (&back)[i]};
    }
    void set_axis(int i, const Axis &a) {
        (&depth)[i] = a.size;
        (&out_depth)[i] = a.out;
        (&kernel_depth)[i] = a.kernel;
        (&front)[i] = a.before;
        (&back)[i] = a.after;
    }
    bool is_sound() const {
        const int64_t *numbers = &images;
        for (int i = 0; i < 18; ++i) {
            const int64_t least = i == 0 ? 0 : 1;
            if (numbers[i] < least || numbers[i] > (int64_t(1) << 31)) return false;
        }
        for (int i = 0; i < 2 * MOST_AXES; ++i) {
            const int64_t pad = (&front)[i];
            if (pad < 0 || pad > (1 << 20)) return false;
        }
        if (groups < 1 || tasks < 1 || tasks > abi::MOST_MATRIX_TASKS) return false;
        if (axes < 1 || axes > MOST_AXES) return false;
        if (in % groups != 0 || out % groups != 0 || !is_bounded()) return false;
        for (int i = 0; i < MOST_AXES; ++i) {
            if (!axis(i).fits() || (i < MOST_AXES - axes && !axis(i).is_single())) return false;
        }
        return true;
    }
    /* Whether no tensor is above LARGEST: what is computed of their sizes does not overflow. */
    bool is_bounded() const {
        const int64_t batch = std::max<int64_t>(images, 1);
        const int64_t tensors[][5] = {
            {batch, in, depth, height, width},
            {batch, out, out_depth, out_height, out_width},
            {out, in / groups, kernel_depth, kernel_height, kernel_width}};
        return std::all_of(std::begin(tensors), std::end(tensors), [](const int64_t (&sizes)[5]) {
            int64_t left = LARGEST;
            for (int64_t size : sizes) left /= size;
            return left > 0;
        });
    }
    int64_t plane() const { return depth * height * width; } /* elements of a channel */
    int64_t out_plane() const { return out_depth * out_height * out_width; }
    int64_t taps() const { return kernel_depth * kernel_height * kernel_width; }
    int64_t source() const { return in * plane(); } /* elements of one image */
    int64_t result() const { return out * out_plane(); }
    int64_t weights() const { return out * (in / groups) * taps(); }
};
static_assert(sizeof(Shape) == sizeof(abi::ConvShape), "nothing but the numbers");

/* The tensors of a call, of checked sizes; `bias` and `addend` may be null. */
struct Tensors {
    float *source = nullptr, *weights = nullptr, *result = nullptr, *bias = nullptr;
    const float *addend = nullptr; /* as large as the result */
    int64_t images = 0;
};

/* What a forward pass takes and does beside the convolution: the attribute `form`. */
struct Form : abi::ConvForm {
    Form() : abi::ConvForm{} {}
    /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): zero, or filled by the runtime */
    bool is_plain() const { return !has_addend && !relu && !keeps; }
};
static_assert(sizeof(Form) == sizeof(abi::ConvForm), "nothing but the numbers");

using abi::MOST_IMAGES;

struct Kernel {
    const Shape shape;
    const Which which;
    const Form form;

    Kernel(const Shape &s, Which w, const Form &f) : shape(s), which(w), form(f) {}
    virtual ~Kernel() = default;
    virtual OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const = 0;
};

/* Null where it does not apply: `tile` is the side of the results of a tile. */
std::unique_ptr<Kernel> winograd(const Shape &shape, Which which, const Form &form, int64_t tile);

/* As sums of shifted planes; null for shapes that are too large. */
std::unique_ptr<Kernel> by_planes(const Shape &shape, Which which, const Form &form);

/* As matrix products; null for groups, but with windows of one element. */
std::unique_ptr<Kernel> by_products(const Shape &shape, Which which, const Form &form);

/* As one product with the windows of all images, without groups; null where these are many. */
std::unique_ptr<Kernel> by_columns(const Shape &shape, const Form &form);

/* With channels side by side, where a group has one; null for shapes that are too large. */
std::unique_ptr<Kernel> by_channels(const Shape &shape, Which which, const Form &form);

/* By sums of products, on oneDNN; its status is not 0 where oneDNN has no kernel. */
std::unique_ptr<Kernel> direct(const Shape &shape, Which which, const Form &form, int *status);

} // namespace conv

#endif
