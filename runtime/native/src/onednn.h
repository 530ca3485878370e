/* oneDNN through its C functions, opened at run time: the library is useful without it.
 *
 * Declared here in our own words, for the major version 3, within which the numbers stay.
 */
#ifndef FLOW2ONNX_NATIVE_ONEDNN_H
#define FLOW2ONNX_NATIVE_ONEDNN_H

#include <cstddef>
#include <cstdint>

namespace onednn {

struct Engine;
struct Stream;
struct Attributes;
struct Layout;      /* what oneDNN calls a memory descriptor */
struct Memory;
struct Description; /* of a primitive */
struct Primitive;

constexpr int MAJOR = 3;
constexpr int MOST_DIMS = 12;
using Dims = int64_t[MOST_DIMS];

enum Status : int { SUCCESS = 0 };
enum : int {
    ON_CPU = 1, IN_ORDER = 1, SINGLE_PRECISION = 3, OWN_SCRATCHPAD = 1,
    ANY_ORDER = 1, FORWARD = 64, DIRECT = 1
};
enum Order : int { ORDER_ANY = 1 };
enum Query : int {
    IMPLEMENTATION = 8, SRC_LAYOUT = 129, DIFF_SRC_LAYOUT = 130, WEIGHTS_LAYOUT = 131,
    DIFF_WEIGHTS_LAYOUT = 132, DST_LAYOUT = 133, DIFF_DST_LAYOUT = 134, SCRATCHPAD_LAYOUT = 136
};
enum Argument : int {
    SRC = 1, DST = 17, WEIGHTS = 33, BIAS = 41, SCRATCHPAD = 80, DIFF_SRC = 129, DIFF_DST = 145,
    DIFF_WEIGHTS = 161
};

/* Instruction sets, as dnnl_set_max_cpu_isa takes them. */
enum Cap : int { SSE41 = 0x1, AVX2 = 0x7, AVX512_CORE = 0x27 };

struct Given {
    int argument;
    Memory *memory;
};

struct Version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
};

/* name, result, arguments; the library's functions have the prefix dnnl_ */
#define ONEDNN_ROWS(X) \
    X(version, const Version *, ()) \
    X(engine_create, Status, (Engine **, int, size_t)) \
    X(stream_create, Status, (Stream **, Engine *, unsigned)) \
    X(stream_wait, Status, (Stream *)) \
    X(stream_destroy, Status, (Stream *)) \
    X(sgemm, Status, \
      (char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, \
       int64_t, float, float *, int64_t)) \
    X(primitive_attr_create, Status, (Attributes **)) \
    X(primitive_attr_set_scratchpad_mode, Status, (Attributes *, int)) \
    X(memory_desc_create_with_tag, Status, (Layout **, int, const int64_t *, int, int)) \
    X(memory_desc_create_with_strides, Status, \
      (Layout **, int, const int64_t *, int, const int64_t *)) \
    X(memory_desc_destroy, Status, (Layout *)) \
    X(memory_desc_equal, int, (const Layout *, const Layout *)) \
    X(memory_desc_get_size, size_t, (const Layout *)) \
    X(memory_create, Status, (Memory **, const Layout *, Engine *, void *)) \
    X(memory_destroy, Status, (Memory *)) \
    X(primitive_desc_query, Status, (const Description *, int, int, void *)) \
    X(primitive_desc_query_md, const Layout *, (const Description *, int, int)) \
    X(primitive_desc_destroy, Status, (Description *)) \
    X(primitive_create, Status, (Primitive **, const Description *)) \
    X(primitive_execute, Status, (const Primitive *, Stream *, int, const Given *)) \
    X(primitive_destroy, Status, (Primitive *)) \
    X(reorder_primitive_desc_create, Status, \
      (Description **, const Layout *, Engine *, const Layout *, Engine *, const Attributes *)) \
    X(convolution_forward_primitive_desc_create, Status, \
      (Description **, Engine *, int, int, const Layout *, const Layout *, const Layout *, \
       const Layout *, const int64_t *, const int64_t *, const int64_t *, const int64_t *, \
       const Attributes *)) \
    X(convolution_backward_data_primitive_desc_create, Status, \
      (Description **, Engine *, int, const Layout *, const Layout *, const Layout *, \
       const int64_t *, const int64_t *, const int64_t *, const int64_t *, const Description *, \
       const Attributes *)) \
    X(convolution_backward_weights_primitive_desc_create, Status, \
      (Description **, Engine *, int, const Layout *, const Layout *, const Layout *, \
       const Layout *, const int64_t *, const int64_t *, const int64_t *, const int64_t *, \
       const Description *, const Attributes *))

struct Functions {
#define ONEDNN_DECLARE(name, result, arguments) result(*name) arguments;
    ONEDNN_ROWS(ONEDNN_DECLARE)
#undef ONEDNN_DECLARE
    int (*get_threads)(); /* of OpenMP; null in builds that do without */
    void (*set_threads)(int);
};

extern Functions dnnl;
extern Engine *engine;
extern Attributes *attributes; /* scratchpads are given by the caller */

const char *open(const char *path); /* null, or why it cannot be used */
bool is_loaded();

/* While it lives, oneDNN works in the calling thread alone: the tasks are ours to distribute. */
struct OneThread {
    int before = 0;
    OneThread();
    ~OneThread();
    OneThread(const OneThread &) = delete;
    OneThread &operator=(const OneThread &) = delete;
};

} // namespace onednn

#endif
