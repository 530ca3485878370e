/* Convolutions over two axes: their numbers, and what the ways to compute them have in common. */
#ifndef FLOW2ONNX_NATIVE_CONV_H
#define FLOW2ONNX_NATIVE_CONV_H

#include <algorithm>
#include <iterator>
#include <memory>

#include "ort.h"

namespace conv {

enum Which : int { FORWARD_PASS, INPUT_GRADIENT, WEIGHT_GRADIENT };

constexpr const char *NAMES[] = {"Conv", "ConvInputGradient", "ConvWeightGradient"};

constexpr int64_t LARGEST = int64_t(1) << 40; /* elements of a tensor */

/* The attribute `shape`. */
struct Shape : abi::ConvShape {
    bool is_sound() const {
        const int64_t *numbers = &images;
        for (int i = 0; i < 13; ++i) {
            const int64_t least = i == 0 ? 0 : 1;
            if (numbers[i] < least || numbers[i] > (int64_t(1) << 31)) return false;
        }
        for (int64_t pad : {top, left, bottom, right}) {
            if (pad < 0 || pad > (1 << 20)) return false;
        }
        if (groups < 1 || tasks < 1 || tasks > abi::MOST_MATRIX_TASKS) return false;
        if (images % tasks != 0) return false;
        if (in % groups != 0 || out % groups != 0 || !is_bounded()) return false;
        return fits(height + top + bottom, kernel_height, dilation_y, stride_y, out_height) &&
               fits(width + left + right, kernel_width, dilation_x, stride_x, out_width);
    }
    /* Whether no tensor is above LARGEST: what is computed of their sizes does not overflow. */
    bool is_bounded() const {
        const int64_t batch = std::max<int64_t>(images, 1);
        const int64_t tensors[][4] = {{batch, in, height, width},
                                      {batch, out, out_height, out_width},
                                      {out, in / groups, kernel_height, kernel_width}};
        return std::all_of(std::begin(tensors), std::end(tensors), [](const int64_t (&sizes)[4]) {
            int64_t left = LARGEST;
            for (int64_t size : sizes) left /= size;
            return left > 0;
        });
    }
    static bool fits(int64_t room, int64_t kernel, int64_t dilation, int64_t stride,
                     int64_t windows) {
        const int64_t reach = (kernel - 1) * dilation + 1;
        return room >= reach && (room - reach) / stride + 1 == windows;
    }
    int64_t source() const { return in * height * width; } /* elements of one image */
    int64_t result() const { return out * out_height * out_width; }
    int64_t weights() const { return out * (in / groups) * kernel_height * kernel_width; }
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

} // namespace conv

#endif
