/* Opening oneDNN. */
#include "onednn.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>

#include "machine.h"

namespace onednn {

Functions dnnl;
Engine *engine = nullptr;
Attributes *attributes = nullptr;

namespace {

std::mutex lock;
char problem[256];

template <typename Function>
bool find(void *library, const char *name, Function *found) {
    void *symbol = dlsym(library, name);
    std::memcpy(found, &symbol, sizeof symbol);
    return symbol != nullptr;
}

/* Lets oneDNN keep to the set that loops are capped to, before it asks the processor. */
const char *cap(void *library) {
#ifdef __x86_64__
    if (!machine::isa_is_capped()) return nullptr;
    constexpr Cap CAPS[] = {SSE41, AVX2, AVX512_CORE}; /* in the order of `machine::Isa` */
    Status (*set_most)(int) = nullptr;
    if (!find(library, "dnnl_set_max_cpu_isa", &set_most) ||
        set_most(CAPS[static_cast<int>(machine::isa())]) != SUCCESS) {
        std::snprintf(problem, sizeof problem, "it does not keep to FLOW2ONNX_NATIVE_ISA=%s",
                      machine::isa_name());
        return problem;
    }
#else
    (void)library; /* other processors have one set of loops, below which nothing is */
#endif
    return nullptr;
}

const char *fill(void *library) {
#define ONEDNN_FIND(name, result, arguments) \
    if (!find(library, "dnnl_" #name, &dnnl.name)) return "it lacks dnnl_" #name;
    ONEDNN_ROWS(ONEDNN_FIND)
#undef ONEDNN_FIND
    const Version *version = dnnl.version();
    if (version->major != MAJOR) {
        std::snprintf(problem, sizeof problem, "it is version %d.%d, and %d.x is needed",
                      version->major, version->minor, MAJOR);
        return problem;
    }
    if (const char *why = cap(library)) return why;
    if (!find(library, "omp_get_max_threads", &dnnl.get_threads) ||
        !find(library, "omp_set_num_threads", &dnnl.set_threads)) {
        dnnl.get_threads = nullptr;
        dnnl.set_threads = nullptr;
    }
    if (dnnl.engine_create(&engine, ON_CPU, 0) != SUCCESS ||
        dnnl.primitive_attr_create(&attributes) != SUCCESS ||
        dnnl.primitive_attr_set_scratchpad_mode(attributes, OWN_SCRATCHPAD) != SUCCESS) {
        engine = nullptr;
        return "it makes no engine for the CPU";
    }
    return nullptr;
}

/* oneDNN takes memory anew for every product. glibc gives large blocks back to the system when they
 * are freed, and each page then costs a fault again: 5,000 in a step of a small encoder, 6 % of its
 * time. What is large, glibc learns from the largest block freed so far, up to 32 MiB. So it is
 * told once; settings of MALLOC_* in the environment stand. */
void keep_freed_memory() {
    constexpr size_t LARGEST = (size_t(32) << 20) - (size_t(8) << 10);
    void *volatile block = std::malloc(LARGEST);
    std::free(block);
}

} // namespace

const char *open(const char *path) {
    const std::lock_guard<std::mutex> guard(lock);
    if (engine != nullptr) return nullptr;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::snprintf(problem, sizeof problem, "%s", dlerror());
        return problem;
    }
    const char *why = fill(library);
    if (why != nullptr) dlclose(library);
    else keep_freed_memory();
    return why;
}

bool is_loaded() { return engine != nullptr; }

OneThread::OneThread() {
    if (dnnl.set_threads == nullptr) return;
    before = dnnl.get_threads();
    dnnl.set_threads(1);
}

OneThread::~OneThread() {
    if (before > 0) dnnl.set_threads(before);
}

} // namespace onednn
