/* The operators on the GPU, each described as its twin on the CPU is. */
#ifndef FLOW2ONNX_NATIVE_CUDA_OPERATORS_H
#define FLOW2ONNX_NATIVE_CUDA_OPERATORS_H

#include "../ort.h"
#include "driver.h"

namespace cuda {

/* The provider that runs them: CUDA's, or, in a build for tests, the CPU's. */
const char *provider(const ort::CustomOp *op);

/* An operator of as many operands as its plan says, of any type. */
template <typename Kernel, OrtStatus *(*make)(const OrtKernelInfo *, void **),
          OrtStatus *(*run)(const Kernel &, OrtKernelContext *)>
ort::CustomOp of_any_operands() {
    ort::CustomOp op = ort::described<Kernel, make, run>();
    op.GetExecutionProviderType = provider;
    op.GetInputType = op.GetOutputType = [](const ort::CustomOp *, size_t) { return ort::ANY; };
    op.GetInputTypeCount = [](const ort::CustomOp *) -> size_t { return 1; };
    op.GetInputCharacteristic = op.GetOutputCharacteristic = [](const ort::CustomOp *, size_t) {
        return ort::VARIADIC;
    };
    op.GetVariadicInputMinArity = op.GetVariadicOutputMinArity = [](const ort::CustomOp *) {
        return 1;
    };
    op.GetVariadicInputHomogeneity = op.GetVariadicOutputHomogeneity = [](const ort::CustomOp *) {
        return 0;
    };
    return op;
}

const ort::CustomOp *fused_operator(int which); /* 0: one program, 1: several of one kind */
const ort::CustomOp *channels_operator();
const ort::CustomOp *cross_entropy_operator();
const ort::CustomOp *attention_operator(int which); /* 0: forward, 1: gradient */
const ort::CustomOp *draw_operator();
const ort::CustomOp *rows_operator(int which); /* 0: look up, 1: add, 2: put */

} // namespace cuda

#endif
