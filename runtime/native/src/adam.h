/* The program of Adam's update, which has a loop of its own.
 *
 * Pass after pass over tiles takes a third longer, measured, though each tile asks for the next. */
#ifndef FLOW2ONNX_NATIVE_ADAM_H
#define FLOW2ONNX_NATIVE_ADAM_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi.h"

namespace adam {

/* What the loop works on: tensors, numbers, and the tensors that it makes. */
enum Operand : int64_t {
    MEAN, SLOPE, SQUARE, WEIGHT,
    KEPT_MEAN, NEW_MEAN, KEPT_SQUARE, NEW_SQUARE, EPSILON, RATE,
    NEXT_MEAN, NEXT_SQUARE, NEXT_WEIGHT,
    OPERAND_COUNT,
    FIRST_NUMBER = KEPT_MEAN,
    FIRST_RESULT = NEXT_MEAN
};

using Instruction = abi::Step; /* on registers */

/* The register that each operand is in, if code does what the update does and ends with its weight;
 * else none. */
std::vector<int64_t> registers_of(const std::vector<Instruction> &code, int64_t registers);

} // namespace adam

#endif
