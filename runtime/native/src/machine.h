/* What kernels ask of the machine: memory of their thread, its cache and its instruction
 * set. */
#ifndef FLOW2ONNX_NATIVE_MACHINE_H
#define FLOW2ONNX_NATIVE_MACHINE_H

#include <cstddef>
#include <cstdint>
#include <memory>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_WIDE_LOOPS 1
#endif

namespace machine {

constexpr int64_t LINE = 64; /* bytes that come to the cache together */
constexpr int64_t LINE_FLOATS = LINE / sizeof(float);

/* The start of the first line of cache from an address on. */
inline float *line_from(float *address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return reinterpret_cast<float *>((at + LINE - 1) & ~uintptr_t(LINE - 1));
}

/* What memory is for: of each use a thread has one piece at a time. */
enum Use {
    REGISTERS, REORDERS, KEPT_POINTS, BLOCK_POINTS, STRIPS, SUMMED, TILES, LEFT_BLOCK, RIGHT_BLOCK,
    COLUMNS, PACKED_ROWS
};

/* Floats on whole lines of cache; kept, as threads come back for the next kernel. */
template <Use use>
float *scratch(size_t floats) {
    thread_local std::unique_ptr<float[]> memory;
    thread_local size_t capacity = 0;
    if (floats > capacity) {
        capacity = 0;
        memory.reset(new float[floats + LINE_FLOATS]);
        capacity = floats;
    }
    return line_from(memory.get());
}

/* Asks for memory that is used soon: a processor follows few streams by itself.
 *
 * The empty statement has to stay, and with it calls: g++ leaves out those of functions that only
 * ask. */
template <bool is_written = false>
inline void fetch(const float *from, int64_t n) {
    __asm__ volatile("");
    for (int64_t i = 0; i < n; i += LINE_FLOATS) __builtin_prefetch(from + i, is_written);
}

/* Floats that the second level of the cache holds; a small one's where the system does not tell. */
int64_t second_cache();

/* Instruction sets that loops are compiled for, from the narrowest on. */
enum class Isa { BASELINE, AVX2, AVX512 };

/* The one that loops are chosen for: the widest of the processor, or what FLOW2ONNX_NATIVE_ISA
 * names. The variable is read once. */
Isa isa();
const char *isa_name();

/* What is wrong with the variable, in words; null where nothing is. The processor decides then. */
const char *isa_problem();

/* True if the variable names a set, which oneDNN then keeps to as well. */
bool isa_is_capped();

#ifdef HAS_WIDE_LOOPS
template <typename Loops>
const Loops &widest(const Loops &avx512, const Loops &avx2, const Loops &baseline) {
    return isa() == Isa::AVX512 ? avx512 : isa() == Isa::AVX2 ? avx2 : baseline;
}
#endif

} // namespace machine

#endif
