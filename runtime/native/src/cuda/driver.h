/* What the operators ask of the GPU: its driver and its compiler, both opened at run time.
 *
 * The library is built without CUDA: of the driver API and of NVRTC it declares what it uses.
 */
#ifndef FLOW2ONNX_NATIVE_CUDA_DRIVER_H
#define FLOW2ONNX_NATIVE_CUDA_DRIVER_H

#include <cstdint>
#include <string>
#include <vector>

#include "../ort.h"

namespace cuda {

/* Opens driver and compiler by these names or paths, and sees that a program comes about for a
 * device; null, or why not. */
const char *open(const char *driver, const char *compiler, int device);

/* The device that the calling thread works on. */
struct Device {
    void *context = nullptr;
    int major = 0, minor = 0;
    int processors = 1; /* that run blocks side by side */
};

OrtStatus *current_device(Device *device);

/* A kernel that is ready on the device of its making. */
struct Function {
    void *handle = nullptr;
};

/* The kernel `name` of a source text, which is compiled once for each kind of device. */
OrtStatus *load(const std::string &source, const char *name, Function *function);

/* Asks for a run on a stream; the arguments are copied. */
OrtStatus *launch(const Function &function, void *stream, int64_t blocks, int64_t rows,
                  int64_t threads, const void *arguments);

/* Copies between two places of the device on a stream. */
OrtStatus *copy(void *stream, void *to, const void *from, size_t bytes);

/* The stream of a call. */
OrtStatus *stream_of(OrtKernelContext *context, void **stream);

} // namespace cuda

#endif
