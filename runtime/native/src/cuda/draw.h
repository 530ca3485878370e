/* Counted draws: which places of a tensor are kept, as `abi::Draw` has it. */
#ifndef FLOW2ONNX_NATIVE_CUDA_DRAW_H
#define FLOW2ONNX_NATIVE_CUDA_DRAW_H

#include <string>

#include "operators.h"
#include "text.h"

namespace cuda {

/* Reads the attribute `draw`; null, or why it is none of an operator called `name`. */
OrtStatus *read_draw(const OrtKernelInfo *info, const char *name, abi::Draw *draw);

/* The text that kernels with a draw begin with, behind the prelude. */
std::string draw_text(const abi::Draw &draw);

/* Adds the addresses of the counters, which are inputs from `at` on, to what a kernel takes. */
OrtStatus *add_counters(const abi::Draw &draw, const char *name, OrtKernelContext *context,
                        size_t at, Arguments *given);

} // namespace cuda

#endif
