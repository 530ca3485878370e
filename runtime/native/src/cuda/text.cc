/* How operations and numbers are written in kernel texts. */
#include "text.h"

#include <cstdio>
#include <cstring>

#include "../ort.h"

namespace cuda {
namespace {

/* In the order of `Operation`, which abi.py has; A, B and C stand for the operands. */
const char *const EXPRESSIONS[] = {
    "A", "-A", "fabsf(A)", "sqrtf(A)", "1.0f / A", "expf(A)", "erff(A)", "sigmoid(A)", "relu(A)",
    "truth(A == 0.0f)", "truth(A != 0.0f)", "sign(A)", "gelu_slope(A)",
    "A + B", "A - B", "A * B", "A / B", "truth(A > B)", "truth(A >= B)", "truth(A < B)",
    "truth(A <= B)", "truth(A == B)", "truth(A != 0.0f && B != 0.0f)",
    "truth(A != 0.0f || B != 0.0f)", "larger(A, B)", "smaller(A, B)", "A != 0.0f ? B : C",
};
static_assert(sizeof EXPRESSIONS / sizeof *EXPRESSIONS == abi::LOOP_COUNT,
              "one for each operation");

} // namespace

const char *const PRELUDE =
#include "kernels/prelude.inc"
    ;

std::string text_of(int64_t number) { return std::to_string(number) + "ull"; }

std::string text_of(float number) {
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    char text[40];
    std::snprintf(text, sizeof text, "__uint_as_float(0x%08xu)", bits);
    return text;
}

std::string expression(int64_t operation, const std::string &a, const std::string &b,
                       const std::string &c) {
    std::string text;
    for (const char *at = EXPRESSIONS[operation]; *at != '\0'; ++at) {
        if (*at == 'A') text += a;
        else if (*at == 'B') text += b;
        else if (*at == 'C') text += c;
        else text += *at;
    }
    return text;
}

const char *real_type(int64_t type) {
    return type == ort::FLOAT16 ? "Half" : type == ort::BFLOAT16 ? "Brain" : "float";
}

std::string element(const std::string &pointer, int64_t type, const std::string &index) {
    if (type == ort::BOOL) return "truth(((const Byte *)" + pointer + ")[" + index + "] != 0)";
    return std::string("single(((const ") + real_type(type) + " *)" + pointer + ")[" + index + "])";
}

std::string store(const std::string &pointer, int64_t type, const std::string &index,
                  const std::string &value) {
    if (type == ort::BOOL) {
        return "((Byte *)" + pointer + ")[" + index + "] = " + value + " != 0.0f;";
    }
    return std::string("put(((") + real_type(type) + " *)" + pointer + ")[" + index + "], " +
           value + ");";
}

} // namespace cuda
