/* The operators `Conv`, `ConvInputGradient` and `ConvWeightGradient`: what goes in and comes out.
 *
 * The attribute `method` says how they are computed: conv_direct.cc on oneDNN, which also has what
 * is too large for conv_planes.cc, conv_depthwise.cc and conv_columns.cc, conv_products.cc, or
 * winograd.cc.
 */
#include <algorithm>
#include <memory>

#include "conv.h"
#include "ort.h"

namespace {

using namespace conv;
using ort::Tensor;

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
    *images = x.rank == 4 ? x.dims[0] : 0; /* as only Winograd's algorithm takes any number */
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
    const size_t rank = static_cast<size_t>(s.axes) + 2;
    const auto output = [&](int64_t first, int64_t second, const int64_t *extents, float **to) {
        int64_t dims[2 + MOST_AXES] = {first, second};
        std::copy_n(extents + MOST_AXES - s.axes, s.axes, dims + 2);
        void *made = nullptr;
        ORT_TRY(ort::output(context, 0, dims, rank, &made));
        *to = static_cast<float *>(made);
        return static_cast<OrtStatus *>(nullptr);
    };
    if (kernel.which == FORWARD_PASS) {
        float *addend = nullptr;
        ORT_TRY(expect(context, 0, x_size, name, &call.source));
        ORT_TRY(expect(context, 1, s.weights(), name, &call.weights));
        if (kernel.form.has_bias) ORT_TRY(expect(context, 2, s.out, name, &call.bias));
        if (kernel.form.has_addend) ORT_TRY(expect(context, 3, y_size, name, &addend));
        call.addend = addend;
        ORT_TRY(output(call.images, s.out, &s.out_depth, &call.result));
    } else if (kernel.which == INPUT_GRADIENT) {
        ORT_TRY(expect(context, 0, y_size, name, &call.result));
        ORT_TRY(expect(context, 1, s.weights(), name, &call.weights));
        ORT_TRY(output(call.images, s.in, &s.depth, &call.source));
    } else {
        ORT_TRY(expect(context, 0, x_size, name, &call.source));
        ORT_TRY(expect(context, 1, y_size, name, &call.result));
        ORT_TRY(output(s.out, s.in / s.groups, &s.kernel_depth, &call.weights));
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
    int64_t method = 0;
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "method", &method));
    if (method == abi::method::TILES_OF_4 || method == abi::method::TILES_OF_2) {
        *kernel = winograd(shape, which, form, method).release();
        if (*kernel != nullptr) return nullptr;
        return ort::refuse("%s: Winograd's tiles of %lld are not for this shape: of 3x3 they are "
                           "4, of 5x5 they are 2, of others there are none",
                           NAMES[which], static_cast<long long>(method));
    }
    if (!form.is_plain() || shape.images == 0) {
        return ort::refuse("%s: only by winograd there are addends, Relu, weights that are kept "
                           "and any number of images",
                           NAMES[which]);
    }
    if (method == abi::method::CHANNELS && (shape.in != shape.groups || shape.out != shape.in)) {
        return ort::refuse("%s: only of one channel a group there are channels side by side",
                           NAMES[which]);
    }
    if (method == abi::method::PRODUCTS) {
        *kernel = by_products(shape, which, form).release();
        if (*kernel != nullptr) return nullptr;
        return ort::refuse("%s: of groups there are products with windows of one element alone",
                           NAMES[which]);
    }
    if (method == abi::method::COLUMNS && (which != FORWARD_PASS || shape.groups > 1)) {
        return ort::refuse("%s: columns are for forward passes without groups", NAMES[which]);
    }
    switch (method) {
    case abi::method::SUMS: break;
    case abi::method::PLANES: *kernel = by_planes(shape, which, form).release(); break;
    case abi::method::CHANNELS: *kernel = by_channels(shape, which, form).release(); break;
    case abi::method::COLUMNS: *kernel = by_columns(shape, form).release(); break;
    default:
        return ort::refuse("%s: there is no method %lld", NAMES[which],
                           static_cast<long long>(method));
    }
    if (method != abi::method::SUMS && *kernel != nullptr) return nullptr; /* not too large */
    int failed = 0;
    *kernel = direct(shape, which, form, &failed).release();
    if (failed != 0) {
        return ort::refuse("%s: oneDNN has no kernel for this shape (status %d)", NAMES[which],
                           failed);
    }
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
