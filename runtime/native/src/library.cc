/* What the shared library offers to others: its version, its operators, and their registration. */
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "onednn.h"
#include "ort.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace ort {

Api api;

OrtStatus *refuse(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is the line above */
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return api.CreateStatus(INVALID_ARGUMENT, text);
}

OrtStatus *input(OrtKernelContext *context, size_t index, Tensor *tensor) {
    const OrtValue *value = nullptr;
    ORT_TRY(api.KernelContext_GetInput(context, index, &value));
    if (value == nullptr) return refuse("input %zu is missing", index);
    OrtTensorTypeAndShapeInfo *info = nullptr;
    ORT_TRY(api.GetTensorTypeAndShape(value, &info));
    OrtStatus *status = api.GetTensorElementType(info, &tensor->type);
    if (status == nullptr) status = api.GetDimensionsCount(info, &tensor->rank);
    if (status == nullptr && tensor->rank > Tensor::MOST) {
        status = refuse("input %zu has %zu dimensions", index, tensor->rank);
    }
    if (status == nullptr) status = api.GetDimensions(info, tensor->dims, tensor->rank);
    api.ReleaseTensorTypeAndShapeInfo(info);
    ORT_TRY(status);
    return api.GetTensorMutableData(const_cast<OrtValue *>(value), &tensor->data);
}

OrtStatus *output(OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                  void **data) {
    OrtValue *value = nullptr;
    ORT_TRY(api.KernelContext_GetOutput(context, index, dims, rank, &value));
    if (value == nullptr) return refuse("output %zu is missing", index);
    return api.GetTensorMutableData(value, data);
}

OrtStatus *output_of(Element type, OrtKernelContext *context, size_t index,
                     const std::vector<int64_t> &dims, void **data) {
    OrtValue *value = nullptr;
    ORT_TRY(api.KernelContext_GetOutput(context, index, dims.data(), dims.size(), &value));
    if (value == nullptr) return refuse("output %zu is missing", index);
    OrtTensorTypeAndShapeInfo *info = nullptr;
    ORT_TRY(api.GetTensorTypeAndShape(value, &info));
    Element made = ANY;
    OrtStatus *status = api.GetTensorElementType(info, &made);
    api.ReleaseTensorTypeAndShapeInfo(info);
    ORT_TRY(status);
    if (made != type) return refuse("output %zu is of type %d, not of %d", index, made, type);
    return api.GetTensorMutableData(value, data);
}

OrtStatus *integers(const OrtKernelInfo *info, const char *attribute, std::vector<int64_t> *found) {
    size_t count = 0;
    ORT_TRY(api.KernelInfoGetAttributeArray_int64(info, attribute, nullptr, &count));
    found->resize(count);
    return api.KernelInfoGetAttributeArray_int64(info, attribute, found->data(), &count);
}

OrtStatus *floats(const OrtKernelInfo *info, const char *attribute, std::vector<float> *found) {
    size_t count = 0;
    ORT_TRY(api.KernelInfoGetAttributeArray_float(info, attribute, nullptr, &count));
    found->resize(count);
    return api.KernelInfoGetAttributeArray_float(info, attribute, found->data(), &count);
}

static void view_table(const OrtApi *table) {
    const auto *slots = reinterpret_cast<const unsigned char *>(table);
#define ORT_COPY(position, name, result, arguments) \
    std::memcpy(&api.name, slots + (position) * sizeof api.name, sizeof api.name);
    ORT_ROWS(ORT_COPY)
#undef ORT_COPY
}

static std::vector<const CustomOp *> operators() {
    std::vector<const CustomOp *> found = {fused_operator(), channels_operator()};
    for (int which = 0; which < 3; ++which) found.push_back(rows_operator(which));
    found.push_back(entropy_operator());
    for (int which = 0; which < 2; ++which) found.push_back(pool_operator(which));
    if (!onednn::is_loaded()) return found;
    for (int which = 0; which < 3; ++which) found.push_back(conv_operator(which));
    found.push_back(product_operator());
    return found;
}

/* One domain serves all sessions: the runtime keeps pointers to it as long as they live. */
static OrtStatus *domain(const OrtApi *table, OrtCustomOpDomain **found) {
    static std::mutex lock;
    static OrtCustomOpDomain *known = nullptr;
    const std::lock_guard<std::mutex> guard(lock);
    if (known == nullptr) {
        view_table(table); /* not again: kernels of other sessions may be reading it */
        OrtCustomOpDomain *made = nullptr;
        ORT_TRY(api.CreateCustomOpDomain(abi::DOMAIN_NAME, &made));
        for (const CustomOp *op : operators()) ORT_TRY(api.CustomOpDomain_Add(made, op));
        known = made;
    }
    *found = known;
    return nullptr;
}

} // namespace ort

/* The digest of the table that the library was built with. */
EXPORTED const char *flow2onnx_native_abi() { return abi::DIGEST; }

/* Opens oneDNN, which most operators need; returns null, or why not. Before registering. */
EXPORTED const char *flow2onnx_native_open_onednn(const char *path) { return onednn::open(path); }

/* The names of the operators that registering adds, with a blank behind each. */
EXPORTED const char *flow2onnx_native_operators() {
    static thread_local std::string names;
    names.clear();
    for (const ort::CustomOp *op : ort::operators()) names += op->GetName(op) + std::string(" ");
    return names.c_str();
}

EXPORTED OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    const OrtApi *table = base->GetApi(ort::OLDEST_API);
    if (table == nullptr) {
        /* Older ones have the function that makes a status, as the first of their table. */
        std::memcpy(&ort::api.CreateStatus, base->GetApi(1), sizeof ort::api.CreateStatus);
        return ort::refuse("flow2onnx-native needs ONNX Runtime 1.%u or newer, this is %s",
                           ort::OLDEST_API, base->GetVersionString());
    }
    OrtCustomOpDomain *domain = nullptr;
    ORT_TRY(ort::domain(table, &domain));
    return ort::api.AddCustomOpDomain(options, domain);
}
