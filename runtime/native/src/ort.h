/* What this library uses of ONNX Runtime's C API, in our own declarations.
 *
 * The API is a table of functions to which newer versions only append, so a function is known by
 * its position. The declarations here hold for every version from `OLDEST_API` on.
 */
#ifndef FLOW2ONNX_NATIVE_ORT_H
#define FLOW2ONNX_NATIVE_ORT_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <vector>

#include "abi.h"

struct OrtStatus;
struct OrtApi;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)();
};

namespace ort {

/* Kernels report errors from it on, and run on the session's threads. */
constexpr uint32_t OLDEST_API = 18;

enum Code : int { FAIL = 1, INVALID_ARGUMENT = 2 };
enum Element : int { ANY = 0, FLOAT = 1, UINT8 = 2, INT32 = 6, INT64 = 7, BOOL = 9,
                     FLOAT16 = 10, BFLOAT16 = 16 };
/* The types of numbers that programs read and write: those on CUDA take halves too. */
enum class Reals { SINGLE, HALVES_TOO };
inline bool is_real(int64_t type, Reals reals) {
    return type == FLOAT || (reals == Reals::HALVES_TOO && (type == FLOAT16 || type == BFLOAT16));
}
enum Arity : int { REQUIRED = 0, OPTIONAL = 1, VARIADIC = 2 };

/* position, name, result, arguments */
#define ORT_ROWS(X) \
    X(0, CreateStatus, OrtStatus *, (Code, const char *)) \
    X(26, CreateCustomOpDomain, OrtStatus *, (const char *, OrtCustomOpDomain **)) \
    X(27, CustomOpDomain_Add, OrtStatus *, (OrtCustomOpDomain *, const struct CustomOp *)) \
    X(28, AddCustomOpDomain, OrtStatus *, (OrtSessionOptions *, OrtCustomOpDomain *)) \
    X(51, GetTensorMutableData, OrtStatus *, (OrtValue *, void **)) \
    X(60, GetTensorElementType, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, Element *)) \
    X(61, GetDimensionsCount, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, size_t *)) \
    X(62, GetDimensions, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t)) \
    X(65, GetTensorTypeAndShape, OrtStatus *, (const OrtValue *, OrtTensorTypeAndShapeInfo **)) \
    X(88, KernelContext_GetInputCount, OrtStatus *, (const OrtKernelContext *, size_t *)) \
    X(89, KernelContext_GetOutputCount, OrtStatus *, (const OrtKernelContext *, size_t *)) \
    X(90, KernelContext_GetInput, OrtStatus *, \
      (const OrtKernelContext *, size_t, const OrtValue **)) \
    X(91, KernelContext_GetOutput, OrtStatus *, \
      (OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **)) \
    X(93, ReleaseStatus, void, (OrtStatus *)) \
    X(99, ReleaseTensorTypeAndShapeInfo, void, (OrtTensorTypeAndShapeInfo *)) \
    X(101, ReleaseCustomOpDomain, void, (OrtCustomOpDomain *)) \
    X(86, KernelInfoGetAttribute_int64, OrtStatus *, \
      (const OrtKernelInfo *, const char *, int64_t *)) \
    X(162, KernelInfoGetAttributeArray_float, OrtStatus *, \
      (const OrtKernelInfo *, const char *, float *, size_t *)) \
    X(163, KernelInfoGetAttributeArray_int64, OrtStatus *, \
      (const OrtKernelInfo *, const char *, int64_t *, size_t *)) \
    X(193, KernelContext_GetGPUComputeStream, OrtStatus *, (const OrtKernelContext *, void **)) \
    X(274, KernelContext_ParallelFor, OrtStatus *, \
      (const OrtKernelContext *, void (*)(void *, size_t), size_t, size_t, void *))

/* How an operator is described to the runtime: a structure that newer versions append to. */
struct CustomOp {
    uint32_t version;
    void *(*CreateKernel)(const CustomOp *, const OrtApi *, const OrtKernelInfo *);
    const char *(*GetName)(const CustomOp *);
    const char *(*GetExecutionProviderType)(const CustomOp *);
    Element (*GetInputType)(const CustomOp *, size_t);
    size_t (*GetInputTypeCount)(const CustomOp *);
    Element (*GetOutputType)(const CustomOp *, size_t);
    size_t (*GetOutputTypeCount)(const CustomOp *);
    void (*KernelCompute)(void *, OrtKernelContext *);
    void (*KernelDestroy)(void *);
    Arity (*GetInputCharacteristic)(const CustomOp *, size_t);
    Arity (*GetOutputCharacteristic)(const CustomOp *, size_t);
    int (*GetInputMemoryType)(const CustomOp *, size_t);
    int (*GetVariadicInputMinArity)(const CustomOp *);
    int (*GetVariadicInputHomogeneity)(const CustomOp *);
    int (*GetVariadicOutputMinArity)(const CustomOp *);
    int (*GetVariadicOutputHomogeneity)(const CustomOp *);
    OrtStatus *(*CreateKernelV2)(const CustomOp *, const OrtApi *, const OrtKernelInfo *, void **);
    OrtStatus *(*KernelComputeV2)(void *, OrtKernelContext *);
    OrtStatus *(*InferOutputShape)(const CustomOp *, OrtShapeInferContext *);
    int (*GetStartVersion)(const CustomOp *);
    int (*GetEndVersion)(const CustomOp *);
    size_t (*GetMayInplace)(int **, int **);
    void (*ReleaseMayInplace)(int *, int *);
    size_t (*GetAliasMap)(int **, int **);
    void (*ReleaseAliasMap)(int *, int *);
};

struct Api {
#define ORT_DECLARE(position, name, result, arguments) result(*name) arguments;
    ORT_ROWS(ORT_DECLARE)
#undef ORT_DECLARE
};

extern Api api; /* filled once, when the library is registered first */

/* One tensor of a call. */
struct Tensor {
    static constexpr size_t MOST = abi::MOST_DIMENSIONS;
    void *data = nullptr;
    Element type = ANY;
    size_t rank = 0;
    int64_t dims[MOST] = {};

    int64_t size() const {
        int64_t n = 1;
        for (size_t i = 0; i < rank; ++i) n *= dims[i];
        return n;
    }
    const float *floats() const { return static_cast<const float *>(data); }
};

/* Both return null, or what is wrong as a status that the runtime raises. */
OrtStatus *input(OrtKernelContext *context, size_t index, Tensor *tensor);
OrtStatus *output(OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                  void **data);
/* The same where an operator's description leaves the type open: the model may say any other. */
OrtStatus *output_of(Element type, OrtKernelContext *context, size_t index,
                     const std::vector<int64_t> &dims, void **data);
OrtStatus *integers(const OrtKernelInfo *info, const char *attribute, std::vector<int64_t> *found);
OrtStatus *floats(const OrtKernelInfo *info, const char *attribute, std::vector<float> *found);
OrtStatus *refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes a record of the table off the numbers of an attribute; false if they end too early. */
template <typename Record>
bool take(const std::vector<int64_t> &numbers, size_t *next, Record *record) {
    constexpr size_t COUNT = sizeof(Record) / sizeof(int64_t);
    if (numbers.size() - *next < COUNT) return false;
    std::memcpy(record, numbers.data() + *next, sizeof(Record));
    *next += COUNT;
    return true;
}

inline bool is_within(std::initializer_list<int64_t> numbers, int64_t least, int64_t most) {
    for (int64_t n : numbers) {
        if (n < least || n > most) return false;
    }
    return true;
}

#define ORT_TRY(expression) \
    do { \
        if (OrtStatus *status_ = (expression)) return status_; \
    } while (0)

/* Runs job(i) for i < count on the session's threads, which no exception may leave. */
template <typename Job>
OrtStatus *parallel(OrtKernelContext *context, size_t count, Job &job) {
    struct Shared {
        Job &job;
        std::atomic<bool> has_failed{false};
    } shared{job};
    auto call = [](void *data, size_t i) {
        auto &own = *static_cast<Shared *>(data);
        try {
            own.job(i);
        } catch (const std::exception &) {
            own.has_failed = true;
        }
    };
    if (count == 1) call(&shared, 0);
    else ORT_TRY(api.KernelContext_ParallelFor(context, call, count, 0, &shared));
    return shared.has_failed ? refuse("a task has no memory to work in") : nullptr;
}

/* No exception may reach the runtime, which is another library. */
template <typename Work>
OrtStatus *guarded(Work work) {
    try {
        return work();
    } catch (const std::exception &error) {
        return refuse("%s", error.what());
    }
}

/* Lets an operator's kernels be made and run by these functions. */
template <typename Kernel, OrtStatus *(*make)(const OrtKernelInfo *, void **),
          OrtStatus *(*run)(const Kernel &, OrtKernelContext *)>
void use_kernel(CustomOp *op) {
    op->CreateKernelV2 = [](const CustomOp *, const OrtApi *, const OrtKernelInfo *info,
                            void **kernel) { return guarded([&] { return make(info, kernel); }); };
    op->KernelComputeV2 = [](void *kernel, OrtKernelContext *context) {
        return guarded([&] { return run(*static_cast<const Kernel *>(kernel), context); });
    };
    op->KernelDestroy = [](void *kernel) { delete static_cast<Kernel *>(kernel); };
}

/* An operator of required floats to one result of floats, as far as nothing else is said. */
template <typename Kernel, OrtStatus *(*make)(const OrtKernelInfo *, void **),
          OrtStatus *(*run)(const Kernel &, OrtKernelContext *)>
CustomOp described() {
    CustomOp op = {};
    op.version = OLDEST_API;
    op.GetExecutionProviderType = [](const CustomOp *) -> const char * { return nullptr; };
    op.GetInputType = op.GetOutputType = [](const CustomOp *, size_t) { return FLOAT; };
    op.GetOutputTypeCount = [](const CustomOp *) -> size_t { return 1; };
    op.GetInputCharacteristic = op.GetOutputCharacteristic = [](const CustomOp *, size_t) {
        return REQUIRED;
    };
    op.GetInputMemoryType = [](const CustomOp *, size_t) { return 0; };
    op.GetStartVersion = [](const CustomOp *) { return 1; };
    op.GetEndVersion = [](const CustomOp *) { return 0x7fffffff; };
    use_kernel<Kernel, make, run>(&op);
    return op;
}

/* Lets sessions with these options have the operators, which are the same in every call. */
OrtStatus *add_operators(OrtSessionOptions *options, const OrtApiBase *base,
                         const std::vector<const CustomOp *> &operators);

/* The rows of the operator table. */
const CustomOp *fused_operator();
const CustomOp *channels_operator();
const CustomOp *cross_entropy_operator();
const CustomOp *rows_operator(int which); /* 0: look up, 1: add, 2: put, 3: add named */
const CustomOp *transpose_operator();
const CustomOp *pool_operator(int which); /* 0: forward, 1: gradient */
const CustomOp *product_operator();
const CustomOp *packed_operator(int which); /* 0: pack, 1: multiply */
const CustomOp *recurrence_operator(int which); /* 0: forward, 1: gradient */
const CustomOp *attention_operator(int which);  /* 0: forward, 1: gradient */
const CustomOp *conv_operator(int which); /* 0: forward, 1: input gradient, 2: weight gradient */

} // namespace ort

#endif
