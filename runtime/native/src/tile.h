/* The operations of fused programs and the loops that carry them out on this machine. */
#ifndef FLOW2ONNX_NATIVE_TILE_H
#define FLOW2ONNX_NATIVE_TILE_H

#include <cstddef>
#include <cstdint>

#include "abi.h"

namespace tile {

using namespace abi::operation;
using abi::LOOP_COUNT;

using Loop = void (*)(float *, const float *, const float *, const float *, size_t);

struct Loops {
    Loop operations[LOOP_COUNT];
    Loop gelu; /* of one operand */
    float (*total)(const float *, size_t);
    void (*add_to)(float *, const float *, size_t);
    void (*fill)(float *, float, size_t);
    void (*scale)(float *, float, size_t);
    void (*adam)(float *const *, size_t); /* where each `adam::Operand` lies */
    void (*from_bytes)(float *, const uint8_t *, size_t);
    void (*to_bytes)(uint8_t *, const float *, size_t);
};

const Loops &loops(); /* the widest that this processor has */

} // namespace tile

#endif
