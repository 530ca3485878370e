/* The CUDA driver API and NVRTC, in our own declarations, and the kernels that they made. */
#include "driver.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "text.h"

namespace cuda {
namespace {

constexpr int SUCCESS = 0;
enum Attribute : int { PROCESSORS = 16, MAJOR = 75, MINOR = 76 };

using Program = void *;

/* name in the library, name here, arguments */
#define DRIVER_ROWS(X) \
    X(cuInit, initialize, (unsigned)) \
    X(cuGetErrorString, error_text, (int, const char **)) \
    X(cuCtxGetCurrent, current_context, (void **)) \
    X(cuCtxSetCurrent, set_context, (void *)) \
    X(cuCtxGetDevice, context_device, (int *)) \
    X(cuDeviceGet, find_device, (int *, int)) \
    X(cuDevicePrimaryCtxRetain, primary_context, (void **, int)) \
    X(cuDeviceGetAttribute, attribute, (int *, Attribute, int)) \
    X(cuModuleLoadData, load_module, (void **, const void *)) \
    X(cuModuleGetFunction, find_function, (void **, void *, const char *)) \
    X(cuMemcpyDtoDAsync_v2, copy_async, (void *, const void *, size_t, void *)) \
    X(cuLaunchKernel, launch, \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, \
       void **, void **))

#define COMPILER_ROWS(X) \
    X(nvrtcCreateProgram, create, \
      (Program *, const char *, const char *, int, const char *const *, const char *const *)) \
    X(nvrtcCompileProgram, compile, (Program, int, const char *const *)) \
    X(nvrtcGetCUBINSize, size, (Program, size_t *)) \
    X(nvrtcGetCUBIN, result, (Program, char *)) \
    X(nvrtcGetProgramLogSize, log_size, (Program, size_t *)) \
    X(nvrtcGetProgramLog, log, (Program, char *)) \
    X(nvrtcDestroyProgram, destroy, (Program *))

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared takes none */
#define DECLARE(symbol, name, arguments) int(*name) arguments = nullptr;
struct Driver {
    DRIVER_ROWS(DECLARE)
};
struct Compiler {
    COMPILER_ROWS(DECLARE)
};
#undef DECLARE

Driver driver;
Compiler compiler;

template <typename Function>
bool find(void *library, const char *symbol, Function *found) {
    *found = reinterpret_cast<Function>(dlsym(library, symbol));
    return *found != nullptr;
}

/* Why a library cannot be opened with all that is needed of it; empty if it can. */
template <typename Fill>
std::string open_one(const char *name, Fill fill) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return dlerror();
    const char *missing = nullptr;
    fill(library, &missing);
    return missing == nullptr ? "" : std::string(name) + " has no function " + missing;
}

#define FILL(symbol, name, arguments) \
    if (!find(library, #symbol, &table->name)) *missing = #symbol;

std::string open_driver(const char *name, Driver *table) {
    return open_one(name, [&](void *library, const char **missing) { DRIVER_ROWS(FILL) });
}

std::string open_compiler(const char *name, Compiler *table) {
    return open_one(name, [&](void *library, const char **missing) { COMPILER_ROWS(FILL) });
}
#undef FILL

OrtStatus *expect(int code, const char *what) {
    if (code == SUCCESS) return nullptr;
    const char *text = nullptr;
    driver.error_text(code, &text);
    return ort::refuse("CUDA: %s: %s (error %d)", what, text != nullptr ? text : "unknown error",
                       code);
}

std::string log_of(Program program) {
    size_t size = 0;
    compiler.log_size(program, &size);
    std::string text(size, '\0');
    if (size > 0) compiler.log(program, text.data());
    return text.substr(0, text.find('\0'));
}

std::string architecture_of(int major, int minor) {
    return "sm_" + std::to_string(major) + std::to_string(minor);
}

/* Makes the cubin of a source text for an architecture; what went wrong, or nothing. */
std::string compile(const std::string &source, const std::string &architecture,
                    std::vector<char> *cubin) {
    const std::string target = "--gpu-architecture=" + architecture;
    /* a program rounds after every operation, as the operators it stands for do */
    const char *options[] = {target.c_str(), "--fmad=false", "--std=c++17"};
    Program program = nullptr;
    int code = compiler.create(&program, source.c_str(), "flow2onnx.cu", 0, nullptr, nullptr);
    if (code != SUCCESS) return "NVRTC takes no program (error " + std::to_string(code) + ")";
    code = compiler.compile(program, 3, options);
    size_t size = 0;
    if (code == SUCCESS) code = compiler.size(program, &size);
    cubin->resize(size);
    if (code == SUCCESS) code = compiler.result(program, cubin->data());
    const std::string log = code == SUCCESS ? "" : log_of(program);
    compiler.destroy(&program);
    if (code == SUCCESS && size > 0) return "";
    cubin->clear();
    return "NVRTC compiles no program for " + architecture + " (error " + std::to_string(code) +
           "): " + log;
}

/* Why no program comes about for a device; empty if one does. */
std::string try_compiler(int number) {
    int device = 0, major = 0, minor = 0;
    if (driver.initialize(0) != SUCCESS || driver.find_device(&device, number) != SUCCESS ||
        driver.attribute(&major, MAJOR, device) != SUCCESS ||
        driver.attribute(&minor, MINOR, device) != SUCCESS) {
        return "the CUDA driver has no device " + std::to_string(number);
    }
    std::vector<char> cubin;
    const std::string text = "struct Arguments { Word one; };\nKERNEL(flow2onnx_probe, 32) {}\n";
    return compile(PRELUDE + text, architecture_of(major, minor), &cubin);
}

/* The module of a source text in the current context; each is made once and stays. */
OrtStatus *module_of(const Device &device, const std::string &source, void **found) {
    static std::mutex lock;
    static auto &modules = *new std::map<std::pair<void *, std::string>, void *>;
    static auto &cubins = *new std::map<std::string, std::vector<char>>;
    const std::lock_guard<std::mutex> guard(lock);
    void *&module = modules[{device.context, source}];
    if (module == nullptr) {
        const std::string architecture = architecture_of(device.major, device.minor);
        std::vector<char> &cubin = cubins[architecture + "\n" + source];
        const std::string why = cubin.empty() ? compile(source, architecture, &cubin) : "";
        if (!why.empty()) return ort::refuse("%s", why.c_str());
        ORT_TRY(expect(driver.load_module(&module, cubin.data()), "a module is loaded"));
    }
    *found = module;
    return nullptr;
}

} // namespace

const char *open(const char *driver_name, const char *compiler_name, int device) {
    static std::mutex lock;
    static bool is_open = false;
    static thread_local std::string why;
    const std::lock_guard<std::mutex> guard(lock);
    why = is_open ? "" : open_driver(driver_name, &driver);
    if (why.empty() && !is_open) why = open_compiler(compiler_name, &compiler);
    is_open = why.empty();
    if (is_open) why = try_compiler(device);
    return why.empty() ? nullptr : why.c_str();
}

OrtStatus *current_device(Device *device) {
    if (compiler.compile == nullptr) return ort::refuse("the CUDA driver and NVRTC are not open");
    ORT_TRY(expect(driver.current_context(&device->context), "the context is asked for"));
    if (device->context == nullptr) {
        /* whoever computes has one: this thread makes kernels before anything else ran here */
        ORT_TRY(expect(driver.primary_context(&device->context, 0), "a context is made"));
        ORT_TRY(expect(driver.set_context(device->context), "the context is set"));
    }
    int number = 0;
    ORT_TRY(expect(driver.context_device(&number), "the device is asked for"));
    ORT_TRY(expect(driver.attribute(&device->major, MAJOR, number), "the device is asked for"));
    ORT_TRY(expect(driver.attribute(&device->minor, MINOR, number), "the device is asked for"));
    return expect(driver.attribute(&device->processors, PROCESSORS, number),
                  "the device is asked for");
}

OrtStatus *load(const std::string &source, const char *name, Function *function) {
    Device device;
    ORT_TRY(current_device(&device));
    void *module = nullptr;
    ORT_TRY(module_of(device, source, &module));
    return expect(driver.find_function(&function->handle, module, name), "a kernel is looked up");
}

OrtStatus *launch(const Function &function, void *stream, int64_t blocks, int64_t rows,
                  int64_t threads, const void *arguments) {
    void *given[] = {const_cast<void *>(arguments)};
    return expect(driver.launch(function.handle, static_cast<unsigned>(blocks),
                                static_cast<unsigned>(rows), 1, static_cast<unsigned>(threads), 1,
                                1, 0, stream, given, nullptr),
                  "a kernel is launched");
}

OrtStatus *copy(void *stream, void *to, const void *from, size_t bytes) {
    return expect(driver.copy_async(to, from, bytes, stream), "memory is copied");
}

OrtStatus *stream_of(OrtKernelContext *context, void **stream) {
    *stream = nullptr;
#ifdef FLOW2ONNX_ON_HOST
    (void)context;
    return nullptr;
#else
    return ort::api.KernelContext_GetGPUComputeStream(context, stream);
#endif
}

} // namespace cuda
