/* The plan of `FusedChannels`: a program in stages, on cells and on tiles. */
#ifndef FLOW2ONNX_NATIVE_CHANNELS_PLAN_H
#define FLOW2ONNX_NATIVE_CHANNELS_PLAN_H

#include <algorithm>
#include <vector>

#include "ort.h"

namespace channels {

using abi::Link;
using abi::Step;

struct Operand : abi::ChannelsOperand {
    std::vector<int64_t> dims; /* of outputs */
};

struct Stage {
    std::vector<Step> cell_code;
    std::vector<Link> reads, spreads, writes; /* input, cell, output -> place */
    std::vector<Link> recalls, keeps;         /* what is kept -> place */
    std::vector<Step> code;
    std::vector<Link> sums; /* place -> cell */
};

struct Plan {
    int64_t outer = 0, channels = 0, inner = 0, places = 0, cells = 0, kept = 0;
    std::vector<Operand> inputs, outputs;
    std::vector<int64_t> constants; /* the cells that hold them */
    std::vector<Stage> stages;
    std::vector<float> values; /* of the constants */

    int64_t width() const {
        return inner >= abi::CHANNEL_TILE ? 1 : std::min(channels, abi::CHANNEL_TILE / inner);
    }
    int64_t tile() const { return std::min(abi::CHANNEL_TILE, width() * inner); }
    int64_t block() const { return outer * width() * inner; }
    int64_t total() const { return outer * channels * inner; }
    /* The number of elements of an operand. */
    int64_t size(const Operand &o) const {
        return o.kind == abi::kind::FULL ? total() : o.kind == abi::kind::CELLS ? channels : 1;
    }
};

/* Reads a whole plan; false if it is no sound program of such numbers. */
bool read_plan(const std::vector<int64_t> &numbers, ort::Reals reals, Plan *plan);

/* Why a tensor is not the input `at` of a program; null if it is. */
OrtStatus *check_input(const Plan &plan, size_t at, const ort::Tensor &tensor);

/* Makes a plan of a kernel's attributes, with its constants. */
OrtStatus *create(const OrtKernelInfo *info, ort::Reals reals, Plan *plan);

} // namespace channels

#endif
