/* Which instruction set loops use, the processor's widest or one that is asked for, and how large
 * its cache is. */
#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace machine {
namespace {

const char *const NAMES[] = {"baseline", "avx2", "avx512"}; /* in the order of `Isa` */
constexpr int COUNT = sizeof NAMES / sizeof *NAMES;

struct Choice {
    Isa isa;
    bool is_capped;
    char problem[160];
};

Isa of_processor() {
#ifdef HAS_WIDE_LOOPS
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return Isa::AVX512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::AVX2;
#endif
    return Isa::BASELINE;
}

int number_of(const char *name) {
    int found = 0;
    while (found < COUNT && std::strcmp(name, NAMES[found]) != 0) ++found;
    return found;
}

Choice choose() {
    const Isa widest = of_processor();
    Choice choice = {widest, false, ""};
    const char *asked = std::getenv("FLOW2ONNX_NATIVE_ISA");
    if (asked == nullptr || *asked == '\0') return choice;
    const int found = number_of(asked), most = static_cast<int>(widest);
    if (found == COUNT) {
        std::snprintf(choice.problem, sizeof choice.problem,
                      "FLOW2ONNX_NATIVE_ISA is '%.40s', and takes baseline, avx2 or avx512", asked);
    } else if (found > most) {
        std::snprintf(choice.problem, sizeof choice.problem,
                      "FLOW2ONNX_NATIVE_ISA is %s, which this processor lacks: its widest is %s",
                      asked, NAMES[most]);
    } else {
        choice.isa = static_cast<Isa>(found);
        choice.is_capped = true;
    }
    return choice;
}

int64_t bytes_of_second_cache() {
#ifdef _SC_LEVEL2_CACHE_SIZE
    return sysconf(_SC_LEVEL2_CACHE_SIZE); /* 0 or -1: it is not known */
#else
    return 0;
#endif
}

const Choice &chosen() {
    static const Choice choice = choose();
    return choice;
}

} // namespace

int64_t second_cache() {
    constexpr int64_t SMALL = 1 << 17;
    static const int64_t floats =
        std::max(SMALL, bytes_of_second_cache() / static_cast<int64_t>(sizeof(float)));
    return floats;
}

Isa isa() { return chosen().isa; }
const char *isa_name() { return NAMES[static_cast<int>(isa())]; }
const char *isa_problem() { return *chosen().problem == '\0' ? nullptr : chosen().problem; }
bool isa_is_capped() { return chosen().is_capped; }

} // namespace machine
