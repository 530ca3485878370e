/* The runtime's inside: every type and function that more than one of its files uses.
 *
 * From the bottom up; a file uses those above it. What a function does stands with its body.
 */
#ifndef FLOW2ONNX_INTERNAL_H
#define FLOW2ONNX_INTERNAL_H

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* flock, SYS_renameat2 */
#elif !defined(__linux__) && !defined(_XOPEN_SOURCE)
#define _XOPEN_SOURCE 700
#define _DARWIN_C_SOURCE 1 /* flock, renamex_np */
#endif

#include "flow2onnx_runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian; a big-endian machine would have to swap bytes"
#endif

/* Shared by the files and no further: the Makefile makes these names local to the library. */
#ifdef F2O_SINGLE_FILE
#define INTERNAL static
#else
#define INTERNAL __attribute__((visibility("hidden")))
#endif

/* ---- Errors, memory, text, element types: base.c --------------------------------------------- */

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

#define TRY(expression) \
    do { \
        f2o_status status_ = (expression); \
        if (status_ != F2O_OK) return status_; \
    } while (0)

#define NONE SIZE_MAX /* no index, or no number of bytes */

/* Pieces of memory that are freed together. */
typedef struct Block {
    struct Block *next;
} Block;

typedef struct Arena {
    Block *blocks;
} Arena;

/* Text that grows; `failed` stays set once there was no memory. */
typedef struct Text {
    char *bytes;
    size_t size, capacity;
    bool failed;
} Text;

typedef struct Element {
    f2o_dtype code;
    unsigned size;
    const char *name, *stored; /* in manifests, in safetensors files */
} Element;

#define SHAPE_TEXT 160

PRINTF_LIKE(4, 5)
INTERNAL void set_error(f2o_error *error, f2o_status status, const char *hint, const char *format,
                        ...);
/* The status, once the error is set: a macro, so that an analyser sees that it is not F2O_OK. */
#define fail(error, status, ...) (set_error(error, status, __VA_ARGS__), (f2o_status)(status))
INTERNAL f2o_status no_memory(f2o_error *error);
INTERNAL f2o_status clear_error(f2o_error *error);
INTERNAL void *arena_alloc(Arena *arena, size_t count, size_t size);
INTERNAL char *arena_text(Arena *arena, const char *text);
INTERNAL void arena_free(Arena *arena);
INTERNAL void *alloc_aligned(size_t bytes);
INTERNAL void append(Text *text, const void *bytes, size_t size);
INTERNAL void add(Text *text, const char *more);
INTERNAL void add_number(Text *text, uint64_t number);
INTERNAL const Element *element_of(f2o_dtype code);
INTERNAL const Element *find_element(const char *name, bool stored);
INTERNAL size_t bytes_of(f2o_dtype dtype, size_t rank, const int64_t *shape);
INTERNAL const char *show_shape(char *into, size_t size, size_t rank, const int64_t *shape,
                                const char *const *symbols);
INTERNAL f2o_status copy_tensors(f2o_tensors *into, const f2o_tensor *views, size_t count,
                                 f2o_error *error);

/* ---- Files and their SHA-256: files.c -------------------------------------------------------- */

#define DIGITS 64u /* of a hash in hexadecimal */

typedef struct Sha {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
} Sha;

typedef struct Part {
    const void *bytes;
    size_t size;
} Part;

/* The folder and the name of what shall be written, symbolic links followed. */
typedef struct Target {
    char folder[PATH_MAX];
    char name[NAME_MAX + 1];
    char path[PATH_MAX];
} Target;

INTERNAL void sha_begin(Sha *sha);
INTERNAL void sha_add(Sha *sha, const void *bytes, size_t size);
INTERNAL void sha_end(Sha *sha, char digits[DIGITS + 1]);
INTERNAL void sha_of(const void *bytes, size_t size, char digits[DIGITS + 1]);
INTERNAL bool has_digest(const unsigned char *content, size_t size, size_t start, const char *key);
INTERNAL f2o_status wrong_digest(const char *path, f2o_error *error);
INTERNAL f2o_status unreadable(const char *path, const char *why, f2o_error *error);
INTERNAL f2o_status open_file(const char *path, int *descriptor, uint64_t *size, f2o_error *error);
INTERNAL f2o_status read_file(const char *path, uint64_t limit, unsigned char **content,
                              size_t *size, f2o_error *error);
INTERNAL f2o_status hash_file(const char *path, uint64_t *size, char digits[DIGITS + 1],
                              f2o_error *error);
INTERNAL char *join_path(const char *folder, const char *name);
INTERNAL f2o_status unwritable(const char *path, const char *why, f2o_error *error);
INTERNAL f2o_status find_target(const char *path, Target *target, f2o_error *error);
INTERNAL void remove_path(const char *path);
INTERNAL void remove_stale(const Target *target);
INTERNAL bool name_temporary(const Target *target, unsigned attempt, char path[PATH_MAX]);
INTERNAL void sync_folder(const char *path);
INTERNAL f2o_status replace_file(const char *path, const Part *parts, size_t count,
                                 f2o_error *error);
INTERNAL bool lock_temporary(int descriptor, const char *path);
INTERNAL bool swap_paths(const char *a, const char *b);

/* ---- External data of a model: external.c ---------------------------------------------------- */

/* Bytes of a model. */
typedef struct Span {
    const unsigned char *at, *end;
} Span;

/* A model, and the folders that its data may lie in: beside either end if it is a link. */
typedef struct Home {
    const char *path;
    char folders[2][PATH_MAX];
} Home;

INTERNAL bool read_field(Span *span, uint64_t *number, Span *inner);
INTERNAL f2o_status no_model(const Home *home, f2o_error *error);
INTERNAL f2o_status check_tensor(const Home *home, Span span, f2o_error *error);
INTERNAL bool find_home(const char *path, Home *home);

/* ---- What a model may hold: limits.c --------------------------------------------------------- */

INTERNAL f2o_status check_model(const char *path, f2o_error *error);

/* ---- JSON: json.c ---------------------------------------------------------------------------- */

#define NO_VALUE UINT32_MAX

typedef enum { NOTHING, TRUTH, WHOLE, FRACTION, TEXT, LIST, OBJECT } Kind;

typedef struct Value {
    const char *key; /* in an object; a zero ends it */
    size_t key_size;
    const char *text;
    union {
        size_t size;    /* of a text */
        int64_t number; /* a truth value, or a whole number */
    } is;
    uint32_t first, next, count; /* the values inside; the one behind */
    uint8_t kind;
    bool beyond; /* a whole number that is too large */
} Value;

typedef struct Json {
    Value *values;
    uint32_t count, capacity;
    char *at, *end;
    const char *fault;
} Json;

/* An object of a JSON file, to read fields of; `place` says where it stands. */
typedef struct Fields {
    const Json *json;
    const Value *value;
    const char *place;
    f2o_error *error;
} Fields;

INTERNAL void json_free(Json *json);
INTERNAL size_t utf8_size(const unsigned char *at, size_t left);
INTERNAL f2o_status json_parse(Json *json, char *text, size_t size, const char *what,
                               f2o_error *error);
INTERNAL f2o_status wrong_field(const Fields *fields, const char *key, const char *reason);
INTERNAL const Value *child_of(const Json *json, const Value *value, const char *key);
INTERNAL const Value *next_of(const Json *json, const Value *value);
INTERNAL const Value *first_of(const Json *json, const Value *value);
INTERNAL bool has_field(const Fields *fields, const char *key);
INTERNAL f2o_status field(const Fields *fields, const char *key, Kind kind, const Value **found);
INTERNAL bool is_plain(const char *text, size_t size);
INTERNAL f2o_status text_field(const Fields *fields, const char *key, const char **text);
INTERNAL f2o_status optional_text(const Fields *fields, const char *key, const char **text);
INTERNAL f2o_status number_field(const Fields *fields, const char *key, int64_t least,
                                 int64_t *number);
INTERNAL f2o_status truth_field(const Fields *fields, const char *key, bool *truth);
INTERNAL bool is_size(const Value *value);
INTERNAL f2o_status fields_of(const Fields *outer, const Value *value, const char *place,
                              Fields *fields);
INTERNAL void add_json_text(Text *to, const char *text, bool escaped);

/* ---- Safetensors: safetensors.c -------------------------------------------------------------- */

#define RANK_LIMIT 64u

#define METADATA "__metadata__"
#define STATE_KEY "{\"" METADATA "\":{\"digest\":\"" /* begins the header of a saved state */

typedef struct Stored {
    f2o_tensor view; /* its data lie in the file's content */
    uint64_t start, end;
} Stored;

/* A file in memory, checked. */
typedef struct TensorFile {
    unsigned char *content;
    size_t size, data; /* where the tensors begin */
    Json json;
    Arena arena;
    const Value *metadata; /* or NULL */
    Stored *tensors;       /* in the order in which they lie */
    size_t count;
} TensorFile;

INTERNAL void close_tensors(TensorFile *file);
INTERNAL f2o_status open_tensors(unsigned char *content, size_t size, const char *path,
                                 TensorFile *file, f2o_error *error);
INTERNAL const char *metadata_of(const TensorFile *file, const char *key);
INTERNAL const Stored *find_stored(const TensorFile *file, const char *name);
INTERNAL void write_header(Text *text, const char *opening, const f2o_tensor *tensors, size_t count,
                           size_t length);
INTERNAL int compare_tensors(const void *a, const void *b);
INTERNAL f2o_status write_tensors(const char *path, Text *header, const f2o_tensor *tensors,
                                  size_t count, f2o_error *error);

/* ---- The numbers that feeds may hold: ranges.c ----------------------------------------------- */

INTERNAL f2o_status read_range(Arena *arena, const Fields *fields, f2o_dtype dtype,
                               const f2o_range **range);
INTERNAL f2o_status check_range(const char *file, const f2o_spec *spec, const f2o_tensor *value,
                                f2o_error *error);

/* ---- The manifest of a bundle: manifest.c ---------------------------------------------------- */

typedef struct FileEntry {
    const char *name, *sha256;
    uint64_t size;
} FileEntry;

typedef struct Names {
    const char **items;
    size_t count;
} Names;

/* Tensors in their order, and sorted by name, to find one of very many. */
typedef struct Specs {
    f2o_spec *items;
    const f2o_spec **sorted;
    size_t count;
} Specs;

typedef struct PredictJob {
    const char *job, *file;
    Specs feeds, results;
    Names reads, holds;
} PredictJob;

typedef struct Manifest {
    Arena arena;
    char *text; /* which all names point into */
    Json json;
    const char *job, *init, *step, *weights, *learning_rate;
    const char *gradients, *update, *count; /* NULL without accumulation */
    FileEntry *files;
    size_t file_count;
    Specs state, feeds, results;
    Names losses;
    PredictJob *predict;
    size_t predict_count;
    char state_id[DIGITS + 1];
} Manifest;

INTERNAL void close_manifest(Manifest *manifest);
INTERNAL f2o_status inconsistent(f2o_error *error, const char *key, const char *name,
                                 const char *reason);
INTERNAL const f2o_spec *find_spec(const Specs *specs, const char *name);
INTERNAL bool sort_specs(Arena *arena, Specs *specs);
INTERNAL const FileEntry *find_entry(const Manifest *manifest, const char *name);
INTERNAL f2o_status open_manifest(const char *folder, Manifest *manifest, f2o_error *error);
INTERNAL f2o_status open_weights(const Manifest *manifest, const char *folder, TensorFile *file,
                                 f2o_error *error);

/* ---- ONNX Runtime and its memory: ort.c ------------------------------------------------------ */

/* ONNX Runtime's table of functions is a struct of pointers to which members are only ever
 * appended, so a position says which function it is, in all versions. With
 * FLOW2ONNX_WITH_ORT_HEADER the types come from the SDK's header, and ort.c compares position and
 * type of each row below with it while it is compiled.
 */

#define OLDEST_API 22 /* ONNX Runtime 1.22 */

#ifdef FLOW2ONNX_WITH_ORT_HEADER
#include <onnxruntime_c_api.h>
#else
typedef struct OrtApi OrtApi;
typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtIoBinding OrtIoBinding;
typedef enum { ORT_FAIL = 1 } OrtErrorCode;
typedef enum { ORT_LOGGING_LEVEL_FATAL = 4 } OrtLoggingLevel;
typedef enum {
    ORT_DISABLE_ALL = 0,
    ORT_ENABLE_BASIC = 1,
    ORT_ENABLE_EXTENDED = 2,
    ORT_ENABLE_ALL = 99
} GraphOptimizationLevel;
typedef enum { ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0 } ONNXTensorElementDataType;
typedef enum { OrtInvalidAllocator = -1, OrtDeviceAllocator = 0 } OrtAllocatorType;
typedef enum { OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 } OrtMemType;
typedef struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;
const OrtApiBase *OrtGetApiBase(void);
#endif

/* position, name, result, arguments */
#define API_ROWS(X) \
    X(0, CreateStatus, OrtStatus *, (OrtErrorCode, const char *)) \
    X(1, GetErrorCode, OrtErrorCode, (const OrtStatus *)) \
    X(2, GetErrorMessage, const char *, (const OrtStatus *)) \
    X(3, CreateEnv, OrtStatus *, (OrtLoggingLevel, const char *, OrtEnv **)) \
    X(7, CreateSession, OrtStatus *, \
      (const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **)) \
    X(9, Run, OrtStatus *, \
      (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, \
       const char *const *, size_t, OrtValue **)) \
    X(10, CreateSessionOptions, OrtStatus *, (OrtSessionOptions **)) \
    X(17, DisableMemPattern, OrtStatus *, (OrtSessionOptions *)) \
    X(22, SetSessionLogSeverityLevel, OrtStatus *, (OrtSessionOptions *, int)) \
    X(23, SetSessionGraphOptimizationLevel, OrtStatus *, \
      (OrtSessionOptions *, GraphOptimizationLevel)) \
    X(24, SetIntraOpNumThreads, OrtStatus *, (OrtSessionOptions *, int)) \
    X(30, SessionGetInputCount, OrtStatus *, (const OrtSession *, size_t *)) \
    X(31, SessionGetOutputCount, OrtStatus *, (const OrtSession *, size_t *)) \
    X(33, SessionGetInputTypeInfo, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
    X(34, SessionGetOutputTypeInfo, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **)) \
    X(36, SessionGetInputName, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
    X(37, SessionGetOutputName, OrtStatus *, \
      (const OrtSession *, size_t, OrtAllocator *, char **)) \
    X(39, CreateRunOptions, OrtStatus *, (OrtRunOptions **)) \
    X(46, RunOptionsSetTerminate, OrtStatus *, (OrtRunOptions *)) \
    X(47, RunOptionsUnsetTerminate, OrtStatus *, (OrtRunOptions *)) \
    X(49, CreateTensorWithDataAsOrtValue, OrtStatus *, \
      (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, ONNXTensorElementDataType, \
       OrtValue **)) \
    X(51, GetTensorMutableData, OrtStatus *, (OrtValue *, void **)) \
    X(55, CastTypeInfoToTensorInfo, OrtStatus *, \
      (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **)) \
    X(60, GetTensorElementType, OrtStatus *, \
      (const OrtTensorTypeAndShapeInfo *, ONNXTensorElementDataType *)) \
    X(61, GetDimensionsCount, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, size_t *)) \
    X(62, GetDimensions, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t)) \
    X(63, GetSymbolicDimensions, OrtStatus *, \
      (const OrtTensorTypeAndShapeInfo *, const char **, size_t)) \
    X(65, GetTensorTypeAndShape, OrtStatus *, (const OrtValue *, OrtTensorTypeAndShapeInfo **)) \
    X(69, CreateCpuMemoryInfo, OrtStatus *, (OrtAllocatorType, OrtMemType, OrtMemoryInfo **)) \
    X(76, AllocatorFree, OrtStatus *, (OrtAllocator *, void *)) \
    X(78, GetAllocatorWithDefaultOptions, OrtStatus *, (OrtAllocator **)) \
    X(93, ReleaseStatus, void, (OrtStatus *)) \
    X(94, ReleaseMemoryInfo, void, (OrtMemoryInfo *)) \
    X(95, ReleaseSession, void, (OrtSession *)) \
    X(96, ReleaseValue, void, (OrtValue *)) \
    X(97, ReleaseRunOptions, void, (OrtRunOptions *)) \
    X(98, ReleaseTypeInfo, void, (OrtTypeInfo *)) \
    X(99, ReleaseTensorTypeAndShapeInfo, void, (OrtTensorTypeAndShapeInfo *)) \
    X(100, ReleaseSessionOptions, void, (OrtSessionOptions *)) \
    X(133, RunWithBinding, OrtStatus *, \
      (OrtSession *, const OrtRunOptions *, const OrtIoBinding *)) \
    X(134, CreateIoBinding, OrtStatus *, (OrtSession *, OrtIoBinding **)) \
    X(135, ReleaseIoBinding, void, (OrtIoBinding *)) \
    X(136, BindInput, OrtStatus *, (OrtIoBinding *, const char *, const OrtValue *)) \
    X(137, BindOutput, OrtStatus *, (OrtIoBinding *, const char *, const OrtValue *)) \
    X(138, BindOutputToDevice, OrtStatus *, (OrtIoBinding *, const char *, const OrtMemoryInfo *)) \
    X(140, GetBoundOutputValues, OrtStatus *, \
      (const OrtIoBinding *, OrtAllocator *, OrtValue ***, size_t *)) \
    X(210, AddExternalInitializers, OrtStatus *, \
      (OrtSessionOptions *, const char *const *, const OrtValue *const *, size_t))

typedef void (*Slot)(void);

typedef struct Api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes no more of them */
#define DECLARE(position, name, result, arguments) result(*name) arguments;
    API_ROWS(DECLARE)
#undef DECLARE
} Api;

typedef struct Runtime {
    Api api;
    OrtEnv *env;
    OrtMemoryInfo *host;
    OrtAllocator *allocator; /* the library's own */
    OrtRunOptions *run; /* of every run: by it they are stopped */
    atomic_bool stopped;
    f2o_options options;
} Runtime;

#define CALL(runtime, code, what, error, name, ...) \
    TRY(check_status(runtime, (runtime)->api.name(__VA_ARGS__), code, what, error))

/* A tensor at a fixed, aligned address, and the value that a session binds. */
typedef struct Buffer {
    void *data;
    OrtValue *value;
    size_t bytes;
} Buffer;

INTERNAL f2o_status find_library(const char *given, const OrtApiBase **base, f2o_error *error);
INTERNAL f2o_status check_status(const Runtime *runtime, OrtStatus *status, f2o_status code,
                                 const char *what, f2o_error *error);
INTERNAL f2o_status open_runtime(const f2o_options *options, Runtime *runtime, f2o_error *error);
INTERNAL void close_runtime(Runtime *runtime);
INTERNAL void set_stopped(Runtime *runtime, bool stopped);
INTERNAL f2o_status check_stopped(const Runtime *runtime, const char *what, f2o_error *error);
INTERNAL f2o_status check_run(const Runtime *runtime, OrtStatus *status, const char *what,
                              f2o_error *error);
INTERNAL void close_buffer(const Runtime *runtime, Buffer *buffer);
INTERNAL f2o_status open_buffer(const Runtime *runtime, f2o_dtype dtype, size_t rank,
                                const int64_t *shape, Buffer *buffer, f2o_error *error);

/* ---- State: state.c -------------------------------------------------------------------------- */

struct f2o_state {
    const Runtime *runtime;
    Specs specs;
    Buffer (*buffers)[2]; /* of each tensor: one is current, a step writes the other */
    unsigned char *side;  /* which of the two is current */
    uint64_t changes;     /* how often any value changed */
};

INTERNAL size_t index_of(const f2o_state *state, const char *name);
INTERNAL Buffer *current_buffer(const f2o_state *state, size_t index);
INTERNAL Buffer *other_buffer(const f2o_state *state, size_t index);
INTERNAL void close_state(f2o_state *state);
INTERNAL f2o_status open_state(f2o_state *state, const Runtime *runtime, Specs specs,
                               f2o_error *error);
INTERNAL f2o_tensor state_view(const f2o_state *state, size_t index);
INTERNAL bool same_shape(size_t rank, const int64_t *a, size_t other_rank, const int64_t *b);
INTERNAL f2o_status check_values(const f2o_state *state, const f2o_tensor *values, size_t count,
                                 bool all, const char *where, f2o_status code, f2o_error *error);
INTERNAL void write_values(f2o_state *state, const f2o_tensor *values, size_t count);
INTERNAL int64_t whole_number(f2o_dtype dtype, const void *data);

/* ---- Programs, models bound to a state: program.c -------------------------------------------- */

#define LANES 16u /* combinations of buffers whose bindings are kept */

typedef struct Lane {
    unsigned char *key; /* the sides of the state that it is bound to */
    OrtIoBinding *binding;
    uint64_t feeds_bound; /* the `generation` of the feeds it is bound to */
} Lane;

typedef struct Program {
    const Runtime *runtime;
    f2o_state *state; /* or NULL */
    const char *file;
    Arena arena;
    OrtSession *session;
    Specs inputs, outputs;              /* in the model's order */
    size_t *input_state, *output_state; /* which state tensor it is, or NONE */
    Specs feeds, results;
    Buffer *feed_buffers, *result_buffers; /* a result of open shape has no value */
    f2o_spec *bound;                       /* the feeds as they are bound: shapes without symbols */
    uint64_t generation;
    bool touches_state;
    /* What a run works on, made once so that a step allocates nothing. */
    const f2o_tensor **given;
    f2o_tensor *views;
    int64_t (*shapes)[RANK_LIMIT];
    unsigned char *key;
    Lane lanes[LANES];
    size_t lane_count, oldest;
    Buffer *initializers; /* values in place of initializers, which the session reads */
    size_t initializer_count;
} Program;

INTERNAL void close_lane(const Program *program, Lane *lane);
INTERNAL void close_program(Program *program);
INTERNAL bool fits(const f2o_spec *spec, size_t rank, const int64_t *shape);
INTERNAL f2o_status open_program(Program *program, const Runtime *runtime, const char *path,
                                 f2o_state *state, bool training, const f2o_state *values,
                                 const Names *initializers, f2o_error *error);
INTERNAL f2o_status check_signature(const Program *program, const char *kind, const Specs *have,
                                    const Specs *asked, f2o_error *error);

/* ---- Runs of programs: run.c ----------------------------------------------------------------- */

INTERNAL f2o_status order_feeds(const char *file, const Specs *feeds, const f2o_tensor *given,
                                size_t count, const f2o_tensor **ordered, f2o_error *error);
INTERNAL f2o_status check_feeds(const char *file, const Specs *feeds,
                                const f2o_tensor *const *given, f2o_error *error);
INTERNAL f2o_status view_value(const Runtime *runtime, OrtValue *value, const f2o_spec *spec,
                               int64_t *shape, f2o_tensor *view, const char *what,
                               f2o_error *error);
INTERNAL void commit(const Program *program, const unsigned char *frozen);
INTERNAL f2o_status run_program(Program *program, const f2o_tensor *feeds, size_t count,
                                const Names *losses, f2o_tensors *results, f2o_error *error);

/* ---- Bundles and trainers: trainer.c --------------------------------------------------------- */

typedef struct Bundle {
    Runtime runtime;
    char *folder;
    Manifest manifest;
    f2o_state state;
} Bundle;

typedef struct PredictSession {
    Program program;
    uint64_t opened_at; /* the state's `changes` whose values it holds */
} PredictSession;

struct f2o_trainer {
    Bundle bundle;
    Program step, gradients, update;
    PredictSession *sessions; /* of each predict job, opened when first asked for */
    unsigned char *frozen;    /* of each state tensor, slots included */
    size_t counter;           /* which state tensor counts the steps, or NONE */
    int64_t steps;            /* of use only without it */
    long long batches;        /* given since it was opened */
};

INTERNAL void close_bundle(Bundle *bundle);
INTERNAL f2o_status open_model(Bundle *bundle, const char *file, f2o_state *state, bool training,
                               const Names *initializers, const Specs *feeds, const Specs *results,
                               Program *program, f2o_error *error);
INTERNAL f2o_status open_bundle(Bundle *bundle, const char *folder, const f2o_options *options,
                                f2o_error *error);
INTERNAL f2o_status fill_state(Bundle *bundle, f2o_error *error);
INTERNAL f2o_status find_job(const Bundle *bundle, const char *job, const PredictJob **found,
                             f2o_error *error);

#endif
