/* The plan of `Fused`: a program on registers, and what goes in and out. */
#ifndef FLOW2ONNX_NATIVE_FUSED_PLAN_H
#define FLOW2ONNX_NATIVE_FUSED_PLAN_H

#include <vector>

#include "ort.h"

namespace fused {

using Instruction = abi::Step; /* on registers */

struct Operand : abi::FusedOperand {
    std::vector<int64_t> dims; /* of outputs */

    /* Whether its tiles are worked on where they lie. */
    bool is_stream() const { return mode == abi::mode::FULL && element == ort::FLOAT; }
    /* Whether it is one number for all elements. */
    bool is_number() const { return mode == abi::mode::SPREAD && middle == 1; }
    /* The number of elements of an input of a program over `total`. */
    int64_t size(int64_t total) const { return mode == abi::mode::FULL ? total : middle; }
};

struct Plan {
    int64_t total = 0, row = 0, registers = 0;
    std::vector<Operand> inputs, outputs;
    std::vector<int64_t> constants;
    std::vector<Instruction> code;
    std::vector<float> values; /* of the constants */

    int64_t index(const Operand &o, int64_t i) const { return i / o.inner % o.middle; }
};

/* Takes a plan off numbers, from `next` on; false if it is no sound program of such numbers. */
bool read_plan(const std::vector<int64_t> &numbers, ort::Reals reals, size_t *next, Plan *plan);

/* Why a tensor is not the input `at` of a program, of the operator `name`; null if it is. */
OrtStatus *check_input(const char *name, const Plan &plan, size_t at, const ort::Tensor &tensor);

} // namespace fused

#endif
