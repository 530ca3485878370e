/* The kernel text of `Fused` programs. */
#ifndef FLOW2ONNX_NATIVE_CUDA_FUSED_TEXT_H
#define FLOW2ONNX_NATIVE_CUDA_FUSED_TEXT_H

#include <string>

#include "fused_layout.h"

namespace cuda {

constexpr const char *FUSED_KERNEL = "flow2onnx_fused";
constexpr const char *SUMS_KERNEL = "flow2onnx_sums";

/* Words of the argument: for each part its inputs, its outputs and these; then the last three. */
enum PartWord : int64_t { TOTAL, FIRST_BLOCK, BLOCKS, PART_WORDS };
constexpr int64_t LAST_WORDS = 3; /* partial sums, parts, blocks of all parts */

/* The text of a program. With `parts` above 1 the argument holds up to as many that differ in the
 * number of their elements alone, side by side. */
std::string fused_text(const fused::Plan &plan, const Layout &layout, int64_t parts);

} // namespace cuda

#endif
