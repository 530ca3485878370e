/* The runtime's API as this library sees it: tensors, attributes, errors, registration. */
#include "ort.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

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

/* One domain serves all sessions: the runtime keeps pointers to it as long as they live. */
static OrtStatus *domain(const OrtApi *table, const std::vector<const CustomOp *> &operators,
                         OrtCustomOpDomain **found) {
    static std::mutex lock;
    static OrtCustomOpDomain *known = nullptr;
    const std::lock_guard<std::mutex> guard(lock);
    if (known == nullptr) {
        view_table(table); /* not again: kernels of other sessions may be reading it */
        OrtCustomOpDomain *made = nullptr;
        ORT_TRY(api.CreateCustomOpDomain(abi::DOMAIN_NAME, &made));
        for (const CustomOp *op : operators) ORT_TRY(api.CustomOpDomain_Add(made, op));
        known = made;
    }
    *found = known;
    return nullptr;
}

OrtStatus *add_operators(OrtSessionOptions *options, const OrtApiBase *base,
                         const std::vector<const CustomOp *> &operators) {
    const OrtApi *table = base->GetApi(OLDEST_API);
    if (table == nullptr) {
        /* Older ones have the function that makes a status, as the first of their table. */
        std::memcpy(&api.CreateStatus, base->GetApi(1), sizeof api.CreateStatus);
        return refuse("flow2onnx-native needs ONNX Runtime 1.%u or newer, this is %s", OLDEST_API,
                      base->GetVersionString());
    }
    OrtCustomOpDomain *found = nullptr;
    ORT_TRY(domain(table, operators, &found));
    return api.AddCustomOpDomain(options, found);
}

} // namespace ort
