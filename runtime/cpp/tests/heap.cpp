/* Count what ../examples/loop.cpp allocates after setup(): the linker sends the allocations of the
 * program, the C++ library in it, the binding and the C runtime through the functions below, not
 * those inside of ONNX Runtime. */
#include <cstdio>
#include <cstdlib>
#include <exception>

extern "C" {
void *__real_malloc(std::size_t size);
void *__real_calloc(std::size_t count, std::size_t size);
void *__real_realloc(void *memory, std::size_t size);
void *__real_aligned_alloc(std::size_t alignment, std::size_t size);
void *__wrap_malloc(std::size_t size);
void *__wrap_calloc(std::size_t count, std::size_t size);
void *__wrap_realloc(void *memory, std::size_t size);
void *__wrap_aligned_alloc(std::size_t alignment, std::size_t size);
}

void setup();
void loop();

static long allocations;

void *__wrap_malloc(std::size_t size) {
    allocations++;
    return __real_malloc(size);
}
void *__wrap_calloc(std::size_t count, std::size_t size) {
    allocations++;
    return __real_calloc(count, size);
}
void *__wrap_realloc(void *memory, std::size_t size) {
    allocations++;
    return __real_realloc(memory, size);
}
void *__wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
    allocations++;
    return __real_aligned_alloc(alignment, size);
}
int main() try {
    setup();
    const long before = allocations;
    for (int i = 0; i < 400; i++) loop();
    std::printf("%ld allocations in setup, %ld in 400 turns\n", before, allocations - before);
    return before == 0 || allocations != before;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
