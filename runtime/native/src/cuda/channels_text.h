/* The kernel text of `FusedChannels` programs: a kernel for each stage. */
#ifndef FLOW2ONNX_NATIVE_CUDA_CHANNELS_TEXT_H
#define FLOW2ONNX_NATIVE_CUDA_CHANNELS_TEXT_H

#include <string>

#include "../channels_plan.h"

namespace cuda {

/* How a program is shared out: a block has a slice of the elements of one channel. */
struct ChannelsLayout {
    int64_t slices = 1;
    int64_t sums = 0;             /* of all stages */
    int64_t kept = 0;             /* the offset of what is kept, in floats behind partial sums */
    int64_t scratch = 0;          /* floats */
    std::vector<int64_t> stages;  /* those that have a kernel */
    bool has_cell_kernel = false; /* a last one, that writes cells and nothing else */
};

constexpr int64_t CHANNEL_THREADS = 256, CELL_THREADS = 32;
constexpr int64_t CHANNELS_LAST_WORDS = 1; /* of the argument, behind inputs and outputs: scratch */

ChannelsLayout channels_layout(const channels::Plan &plan, int64_t processors);

std::string channels_text(const channels::Plan &plan, const ChannelsLayout &layout);

/* The kernel of a stage; -1 is that of cells. */
std::string channels_kernel(int64_t stage);

} // namespace cuda

#endif
