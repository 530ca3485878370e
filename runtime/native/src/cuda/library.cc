/* What the shared library of the CUDA operators offers to others. */
#include <string>

#include "operators.h"

namespace cuda {

const char *provider(const ort::CustomOp *) {
#ifdef FLOW2ONNX_ON_HOST
    return nullptr;
#else
    return "CUDAExecutionProvider";
#endif
}

static std::vector<const ort::CustomOp *> operators() {
    return {fused_operator(0),    fused_operator(1), channels_operator(), cross_entropy_operator(),
            rows_operator(0), rows_operator(1), rows_operator(2), attention_operator(0),
            attention_operator(1), draw_operator()};
}

} // namespace cuda

/* The digest of the table that the library was built with. */
EXPORTED const char *flow2onnx_native_abi() { return abi::DIGEST; }

/* Opens the driver and NVRTC for a device; returns null, or why not. Before registering. */
EXPORTED const char *flow2onnx_native_open_cuda(const char *driver, const char *compiler,
                                                int device) {
    return cuda::open(driver, compiler, device);
}

/* The names of the operators that registering adds, with a blank behind each. */
EXPORTED const char *flow2onnx_native_operators() {
    static thread_local std::string names;
    names.clear();
    for (const ort::CustomOp *op : cuda::operators()) names += op->GetName(op) + std::string(" ");
    return names.c_str();
}

EXPORTED OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    return ort::add_operators(options, base, cuda::operators());
}
