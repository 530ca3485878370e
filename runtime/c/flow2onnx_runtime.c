/* Train and predict with flow2onnx bundles; see flow2onnx_runtime.h, README.md and ../CONTRACT.md.
 *
 * From the bottom up: view of the API table, errors, memory, SHA-256, files, JSON, safetensors,
 * manifest, state, programs, trainer, predictor.
 */
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

/* ---- View of ONNX Runtime's API table -----------------------------------------------------------
 *
 * The table is a struct of function pointers to which members are only ever appended, so a position
 * says which function it is, in all versions. With FLOW2ONNX_WITH_ORT_HEADER the types come from
 * the SDK's header, and the compiler compares position and type of every row below with it.
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
    ORT_DISABLE_ALL = 0, ORT_ENABLE_BASIC = 1, ORT_ENABLE_EXTENDED = 2, ORT_ENABLE_ALL = 99
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
    X(92, ReleaseEnv, void, (OrtEnv *)) \
    X(93, ReleaseStatus, void, (OrtStatus *)) \
    X(94, ReleaseMemoryInfo, void, (OrtMemoryInfo *)) \
    X(95, ReleaseSession, void, (OrtSession *)) \
    X(96, ReleaseValue, void, (OrtValue *)) \
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
#define DECLARE(position, name, result, arguments) result(*name) arguments;
    API_ROWS(DECLARE)
#undef DECLARE
} Api;

#ifdef FLOW2ONNX_WITH_ORT_HEADER
#define COMPARE(position, name, result, arguments) \
    _Static_assert(offsetof(OrtApi, name) == (position) * sizeof(Slot), #name " lies elsewhere"); \
    _Static_assert(_Generic(((const OrtApi *)0)->name, result(*) arguments: 1, default: 0), \
                   #name " has another type");
API_ROWS(COMPARE)
#undef COMPARE
#endif

static void view_table(const OrtApi *table, Api *api) {
    const unsigned char *slots = (const unsigned char *)table;
    Slot found;
    /* Copied as bytes: a pointer to one function type holds any other. */
#define COPY(position, name, result, arguments) \
    memcpy(&found, slots + (position) * sizeof found, sizeof found); \
    memcpy(&api->name, &found, sizeof found);
    API_ROWS(COPY)
#undef COPY
}

/* ---- Errors ---------------------------------------------------------------------------------- */

#define TRY(expression) \
    do { \
        f2o_status status_ = (expression); \
        if (status_ != F2O_OK) return status_; \
    } while (0)

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

static size_t utf8_size(const unsigned char *at, size_t left);

/* Names come from files, and may be cut short: put a mark where the text is no UTF-8. */
static void mend(char *text) {
    for (size_t left = strlen(text), size; left > 0; text += size, left -= size) {
        size = utf8_size((const unsigned char *)text, left);
        if (size == 0) *text = '?';
        size = size == 0 ? 1 : size;
    }
}

/* Fill `error`; `hint`, which may be NULL, says what to do. Returns `status`. */
PRINTF_LIKE(4, 5)
static f2o_status fail(f2o_error *error, f2o_status status, const char *hint, const char *format,
                       ...) {
    if (error == NULL) return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (hint != NULL && used < sizeof error->message) {
        snprintf(error->message + used, sizeof error->message - used, "\n  %s", hint);
    }
    mend(error->message);
    return status;
}

static f2o_status no_memory(f2o_error *error) {
    return fail(error, F2O_MEMORY_ERROR, NULL, "no memory left");
}

static f2o_status begin(f2o_error *error) {
    if (error != NULL) *error = (f2o_error){F2O_OK, ""};
    return F2O_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

#define ALIGNMENT 64u /* the widest vector load of the CPU kernels */
#define NONE SIZE_MAX

/* Pieces of memory that are freed together. */
typedef struct Piece {
    struct Piece *next;
} Piece;

typedef struct Arena {
    Piece *pieces;
} Arena;

/* `count` zeroed items of `size` bytes, or NULL. */
static void *take(Arena *arena, size_t count, size_t size) {
    const size_t head = (sizeof(Piece) + 15) / 16 * 16;
    if (size != 0 && count > (SIZE_MAX / 2 - head) / size) return NULL;
    unsigned char *piece = calloc(1, head + count * size);
    if (piece == NULL) return NULL;
    ((Piece *)(void *)piece)->next = arena->pieces;
    arena->pieces = (Piece *)(void *)piece;
    return piece + head;
}

static char *take_text(Arena *arena, const char *text) {
    char *copy = take(arena, strlen(text) + 1, 1);
    if (copy != NULL) memcpy(copy, text, strlen(text) + 1);
    return copy;
}

static void give(Arena *arena) {
    for (Piece *piece = arena->pieces; piece != NULL;) {
        Piece *next = piece->next;
        free(piece);
        piece = next;
    }
    arena->pieces = NULL;
}

static void *aligned(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    return aligned_alloc(ALIGNMENT, rounded);
}

/* Text that grows; `failed` stays set once there was no memory. */
typedef struct Text {
    char *bytes;
    size_t size, capacity;
    bool failed;
} Text;

static void append(Text *text, const void *bytes, size_t size) {
    if (text->failed || size > SIZE_MAX / 4 - text->size) {
        text->failed = true;
        return;
    }
    if (text->size + size + 1 > text->capacity) {
        size_t capacity = 2 * (text->size + size) + 64;
        char *grown = realloc(text->bytes, capacity);
        if (grown == NULL) {
            text->failed = true;
            return;
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

static void add(Text *text, const char *more) { append(text, more, strlen(more)); }

static void add_number(Text *text, uint64_t number) {
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    add(text, digits);
}

/* ---- Element types --------------------------------------------------------------------------- */

typedef struct Element {
    f2o_dtype code;
    unsigned size;
    const char *name, *stored; /* in manifests, in safetensors files */
} Element;

static const Element ELEMENTS[] = {
    {F2O_FLOAT32, 4, "float32", "F32"},   {F2O_UINT8, 1, "uint8", "U8"},
    {F2O_INT8, 1, "int8", "I8"},          {F2O_UINT16, 2, "uint16", "U16"},
    {F2O_INT16, 2, "int16", "I16"},       {F2O_INT32, 4, "int32", "I32"},
    {F2O_INT64, 8, "int64", "I64"},       {F2O_BOOL, 1, "bool", "BOOL"},
    {F2O_FLOAT16, 2, "float16", "F16"},   {F2O_FLOAT64, 8, "float64", "F64"},
    {F2O_UINT32, 4, "uint32", "U32"},     {F2O_UINT64, 8, "uint64", "U64"},
    {F2O_BFLOAT16, 2, "bfloat16", "BF16"},
};
#define ELEMENT_COUNT (sizeof ELEMENTS / sizeof ELEMENTS[0])

static const Element *element_of(f2o_dtype code) {
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (ELEMENTS[i].code == code) return &ELEMENTS[i];
    }
    return NULL;
}

static const Element *element_named(const char *name, bool stored) {
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (strcmp(stored ? ELEMENTS[i].stored : ELEMENTS[i].name, name) == 0) return &ELEMENTS[i];
    }
    return NULL;
}

const char *f2o_dtype_name(f2o_dtype dtype) {
    const Element *element = element_of(dtype);
    return element == NULL ? NULL : element->name;
}

size_t f2o_dtype_size(f2o_dtype dtype) {
    const Element *element = element_of(dtype);
    return element == NULL ? 0 : element->size;
}

/* The bytes of a tensor; NONE if a size is negative, the type unknown, or it is beyond memory, as
 * is an empty tensor whose other sizes are. */
static size_t bytes_of(f2o_dtype dtype, size_t rank, const int64_t *shape) {
    size_t bytes = f2o_dtype_size(dtype);
    bool empty = false;
    if (bytes == 0) return NONE;
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] < 0) return NONE;
        empty = empty || shape[i] == 0;
        if (shape[i] == 0) continue;
        if ((uint64_t)shape[i] > (SIZE_MAX / 2) / bytes) return NONE;
        bytes *= (size_t)shape[i];
    }
    return empty ? 0 : bytes;
}

size_t f2o_tensor_bytes(const f2o_tensor *tensor) {
    size_t bytes = bytes_of(tensor->dtype, tensor->rank, tensor->shape);
    return bytes == NONE ? 0 : bytes;
}

/* A shape as text: "(8, batch)". */
static const char *shown(char *into, size_t size, size_t rank, const int64_t *shape,
                         const char *const *symbols) {
    size_t used = (size_t)snprintf(into, size, "(");
    for (size_t i = 0; i < rank && used + 1 < size; i++) {
        const char *mark = i + 1 < rank ? ", " : "";
        int more = symbols != NULL && symbols[i] != NULL
                       ? snprintf(into + used, size - used, "%s%s", symbols[i], mark)
                       : snprintf(into + used, size - used, "%lld%s", (long long)shape[i], mark);
        used += more < 0 ? 0 : (size_t)more;
    }
    if (used + 1 < size) snprintf(into + used, size - used, ")");
    return into;
}

#define SHOWN 160

/* ---- Copies of tensors ----------------------------------------------------------------------- */

static size_t rounded(size_t size) { return (size + 15) / 16 * 16; }

/* Fill `into` with copies of `views`; its memory is reused where it is large enough. */
static f2o_status copy_tensors(f2o_tensors *into, const f2o_tensor *views, size_t count,
                               f2o_error *error) {
    if (into == NULL) return F2O_OK;
    size_t need = rounded(count * sizeof(f2o_tensor));
    for (size_t i = 0; i < count; i++) {
        need += rounded(f2o_tensor_bytes(&views[i])) + rounded(views[i].rank * sizeof(int64_t));
        need += rounded(strlen(views[i].name) + 1);
    }
    if (need > into->capacity) {
        void *memory = malloc(need);
        if (memory == NULL) return no_memory(error);
        free(into->memory);
        into->memory = memory;
        into->capacity = need;
    }
    unsigned char *place = into->memory;
    f2o_tensor *items = into->memory;
    place += rounded(count * sizeof(f2o_tensor));
    for (size_t i = 0; i < count; i++) {
        const f2o_tensor view = views[i];
        size_t bytes = f2o_tensor_bytes(&view), name = strlen(view.name) + 1;
        items[i] = view;
        items[i].data = place;
        if (bytes != 0) memcpy(place, view.data, bytes);
        place += rounded(bytes);
        items[i].shape = (int64_t *)(void *)place;
        if (view.rank != 0) memcpy(place, view.shape, view.rank * sizeof(int64_t));
        place += rounded(view.rank * sizeof(int64_t));
        items[i].name = (char *)place;
        memcpy(place, view.name, name);
        place += rounded(name);
    }
    into->count = count;
    into->items = items;
    return F2O_OK;
}

const f2o_tensor *f2o_tensors_find(const f2o_tensors *tensors, const char *name) {
    for (size_t i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->items[i].name, name) == 0) return &tensors->items[i];
    }
    return NULL;
}

void f2o_tensors_free(f2o_tensors *tensors) {
    if (tensors == NULL) return;
    free(tensors->memory);
    *tensors = (f2o_tensors){0, NULL, NULL, 0};
}

/* ---- SHA-256 --------------------------------------------------------------------------------- */

#define DIGITS 64u /* of a hash in hexadecimal */

typedef struct Sha {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
} Sha;

static const uint32_t SHA_ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, unsigned by) { return word >> by | word << (32 - by); }

static void sha_block(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64], s[8];
    for (size_t i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    }
    for (size_t i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) +
               (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (size_t i = 0; i < 64; i++) {
        uint32_t big = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t first = s[7] + big + choice + SHA_ROUNDS[i] + w[i];
        uint32_t small = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
        uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += first;
        s[0] = first + small + most;
    }
    for (size_t i = 0; i < 8; i++) state[i] += s[i];
}

static void sha_begin(Sha *sha) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, first, sizeof first);
    sha->size = 0;
}

static void sha_add(Sha *sha, const void *bytes, size_t size) {
    const unsigned char *from = bytes;
    size_t held = (size_t)(sha->size % 64);
    sha->size += size;
    while (size > 0) {
        if (held == 0 && size >= 64) {
            sha_block(sha->state, from);
            from += 64;
            size -= 64;
            continue;
        }
        size_t part = size < 64 - held ? size : 64 - held;
        memcpy(sha->block + held, from, part);
        from += part;
        size -= part;
        held += part;
        if (held == 64) {
            sha_block(sha->state, sha->block);
            held = 0;
        }
    }
}

static void sha_end(Sha *sha, char digits[DIGITS + 1]) {
    uint64_t bits = sha->size * 8;
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha_add(sha, "\x80", 1);
    while (sha->size % 64 != 56) sha_add(sha, "", 1);
    sha_add(sha, length, 8);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(digits + (size_t)8 * i, 9, "%08lx", (unsigned long)sha->state[i]);
    }
}

static void sha_of(const void *bytes, size_t size, char digits[DIGITS + 1]) {
    Sha sha;
    sha_begin(&sha);
    sha_add(&sha, bytes, size);
    sha_end(&sha, digits);
}

/* True if, at `start`, `key` stands and the hash of all that follows it. */
static bool has_digest(const unsigned char *content, size_t size, size_t start, const char *key) {
    char digits[DIGITS + 1];
    size_t place = start + strlen(key), end = place + DIGITS;
    if (size < end || memcmp(content + start, key, place - start) != 0) return false;
    sha_of(content + end, size - end, digits);
    return memcmp(content + place, digits, DIGITS) == 0;
}

static f2o_status wrong_digest(const char *path, f2o_error *error) {
    return fail(error, F2O_BUNDLE_ERROR,
                "the file was changed or cut off: restore it, or export or save it again",
                "%s: its digest is not that of its content", path);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static f2o_status unreadable(const char *path, const char *why, f2o_error *error) {
    return fail(error, F2O_BUNDLE_ERROR, "give the path of a file or bundle that is complete",
                "%s: cannot be read: %s", path, why);
}

/* Open a regular file; anything else, a pipe say, is refused without waiting for it. */
static f2o_status open_file(const char *path, int *descriptor, uint64_t *size, f2o_error *error) {
    struct stat about;
    int found = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (found < 0) return unreadable(path, strerror(errno), error);
    if (fstat(found, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < 0) {
        close(found);
        return unreadable(path, "it is no file", error);
    }
    *descriptor = found;
    *size = (uint64_t)about.st_size;
    return F2O_OK;
}

/* Read up to `size` bytes; the number read, short only at the end of the file, or -1. */
static ssize_t read_all(int descriptor, void *into, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t more = read(descriptor, (unsigned char *)into + done, size - done);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return -1;
        if (more == 0) break;
        done += (size_t)more;
    }
    return (ssize_t)done;
}

/* The content of a file of at most `limit` bytes; the caller frees it. A zero follows. */
static f2o_status read_file(const char *path, uint64_t limit, unsigned char **content, size_t *size,
                            f2o_error *error) {
    int descriptor;
    uint64_t bytes;
    TRY(open_file(path, &descriptor, &bytes, error));
    if (bytes > limit || bytes > SIZE_MAX / 2) {
        close(descriptor);
        return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: %llu bytes are more than such a file has",
                    path, (unsigned long long)bytes);
    }
    unsigned char *memory = malloc((size_t)bytes + 1);
    ssize_t got = memory == NULL ? -1 : read_all(descriptor, memory, (size_t)bytes);
    close(descriptor);
    if (memory == NULL) return no_memory(error);
    if (got < 0 || (uint64_t)got != bytes) {
        free(memory);
        return unreadable(path, "it became shorter while it was read", error);
    }
    memory[bytes] = 0;
    *content = memory;
    *size = (size_t)bytes;
    return F2O_OK;
}

static f2o_status hash_file(const char *path, uint64_t *size, char digits[DIGITS + 1],
                            f2o_error *error) {
    enum { PART = 1 << 14 };
    unsigned char part[PART];
    int descriptor;
    uint64_t about;
    TRY(open_file(path, &descriptor, &about, error));
    Sha sha;
    sha_begin(&sha);
    ssize_t got;
    while ((got = read_all(descriptor, part, PART)) > 0) sha_add(&sha, part, (size_t)got);
    close(descriptor);
    if (got < 0) return unreadable(path, strerror(errno), error);
    *size = sha.size;
    sha_end(&sha, digits);
    return F2O_OK;
}

/* "folder/name"; the caller frees it. NULL without memory. */
static char *joined(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

typedef struct Part {
    const void *bytes;
    size_t size;
} Part;

static f2o_status unwritable(const char *path, const char *why, f2o_error *error) {
    return fail(error, F2O_FILE_ERROR, "what was there before is as it was",
                "%s: cannot be written: %s", path, why);
}

static bool write_all(int descriptor, const Part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *from = parts[i].bytes;
        size_t left = parts[i].size;
        while (left > 0) {
            ssize_t done = write(descriptor, from, left);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) return false;
            from += done;
            left -= (size_t)done;
        }
    }
    return true;
}

/* The folder and the name of what shall be written, symbolic links followed. */
typedef struct Target {
    char folder[PATH_MAX];
    char name[NAME_MAX + 1];
    char path[PATH_MAX];
} Target;

static f2o_status find_target(const char *path, Target *target, f2o_error *error) {
    char whole[PATH_MAX], linked[PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s", path);
    if (length <= 0 || (size_t)length >= sizeof whole) {
        return unwritable(path, "no such path can be", error);
    }
    if (realpath(path, linked) != NULL) memcpy(whole, linked, sizeof whole);
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/'; end--) whole[end - 1] = 0;
    char *slash = strrchr(whole, '/');
    const char *name = slash == NULL ? whole : slash + 1;
    if (*name == 0 || strlen(name) > NAME_MAX - 20 || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0) {
        return unwritable(path, "it has no name to write to", error);
    }
    memcpy(target->name, name, strlen(name) + 1);
    if (slash != NULL) slash[slash == whole ? 1 : 0] = 0;
    if (realpath(slash == NULL ? "." : whole, target->folder) == NULL) {
        return unwritable(path, "there is no such folder", error);
    }
    length = snprintf(target->path, sizeof target->path, "%s/%s", target->folder, target->name);
    if (length <= 0 || (size_t)length >= sizeof target->path) {
        return unwritable(path, "the path is too long", error);
    }
    return F2O_OK;
}

/* Temporaries are named ".NAME.<12 hexadecimal digits>.tmp" and locked by their writer. The system
 * drops the lock when the process dies, so one that can be locked belongs to nobody any more. */

static bool is_temporary_of(const char *entry, const char *name) {
    size_t length = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, length) != 0 || entry[length + 1] != '.') {
        return false;
    }
    const char *rest = entry + length + 2;
    return strspn(rest, "0123456789abcdef") == 12 && strcmp(rest + 12, ".tmp") == 0;
}

/* Remove a file, or a folder of files. */
static void remove_path(const char *path) {
    if (unlink(path) == 0) return;
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *inner = joined(path, entry->d_name);
        if (inner != NULL) unlink(inner);
        free(inner);
    }
    closedir(folder);
    rmdir(path);
}

static void remove_stale(const Target *target) {
    DIR *folder = opendir(target->folder);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!is_temporary_of(entry->d_name, target->name)) continue;
        char *path = joined(target->folder, entry->d_name);
        int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) remove_path(path);
        if (descriptor >= 0) close(descriptor);
        free(path);
    }
    closedir(folder);
}

/* A name for a temporary beside the target that nobody else is likely to choose. */
static bool name_temporary(const Target *target, unsigned attempt, char path[PATH_MAX]) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mixed = (uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec << 20;
    mixed ^= (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)path ^ (uint64_t)attempt << 8;
    mixed = (mixed ^ mixed >> 31) * 0x9e3779b97f4a7c15u;
    int length = snprintf(path, PATH_MAX, "%s/.%s.%012llx.tmp", target->folder, target->name,
                          (unsigned long long)(mixed >> 16));
    return length > 0 && length < PATH_MAX;
}

static void sync_folder(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

/* Open a new file beside the target. */
static int open_temporary(const Target *target, char path[PATH_MAX]) {
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        if (!name_temporary(target, attempt, path)) break;
        int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0 || errno != EEXIST) return descriptor;
    }
    return -1;
}

/* Make `path` a file of `parts`, or leave it as it is, whatever happens. */
static f2o_status replace_file(const char *path, const Part *parts, size_t count,
                               f2o_error *error) {
    Target target;
    char temporary[PATH_MAX];
    struct stat about;
    TRY(find_target(path, &target, error));
    if (stat(target.path, &about) == 0 && S_ISDIR(about.st_mode)) {
        return unwritable(path, "it is a folder, not a file", error);
    }
    remove_stale(&target);
    int descriptor = open_temporary(&target, temporary);
    if (descriptor < 0) return unwritable(path, strerror(errno), error);
    (void)flock(descriptor, LOCK_EX | LOCK_NB); /* without locks, leftovers stay */
    bool done = write_all(descriptor, parts, count) && fsync(descriptor) == 0 &&
                rename(temporary, target.path) == 0;
    int why = errno;
    close(descriptor);
    if (!done) {
        unlink(temporary);
        return unwritable(path, strerror(why), error);
    }
    sync_folder(target.folder);
    return F2O_OK;
}

/* Exchange what two paths name, in one step that nobody can see half of. */
static bool swap_paths(const char *a, const char *b) {
#if defined(__linux__) && defined(SYS_renameat2)
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2u) == 0;
#elif defined(__APPLE__)
    return renamex_np(a, b, RENAME_SWAP) == 0;
#else
    (void)a;
    (void)b;
    errno = ENOSYS;
    return false;
#endif
}

/* ---- JSON ---------------------------------------------------------------------------------------
 *
 * Read strictly: UTF-8 without faults, no key twice, no depth without bound. The text is decoded in
 * place; numbers that are not whole are recognised and not converted, as nothing asks for one.
 */

#define JSON_DEPTH 100
#define JSON_VALUES (1u << 23) /* eight for each of a million tensors */
#define JSON_MOST ((UINT64_C(1) << 53) - 1) /* the largest whole number that all parsers read */
#define NO_VALUE UINT32_MAX
static const char NO_MEMORY[] = "there is no memory for it";

typedef enum { NOTHING, TRUTH, WHOLE, FRACTION, TEXT, LIST, OBJECT } Kind;

static const char *const KINDS[] = {"nothing",  "a truth value", "a number", "a number",
                                    "text", "a list",        "an object"};

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

static bool json_fault(Json *json, const char *fault) {
    if (json->fault == NULL) json->fault = fault;
    return false;
}

static void json_free(Json *json) {
    free(json->values);
    json->values = NULL;
}

static uint32_t json_new(Json *json) {
    if (json->count == json->capacity) {
        uint32_t capacity = json->capacity == 0 ? 64 : 2 * json->capacity;
        if (capacity > JSON_VALUES) {
            json_fault(json, "it holds too many values");
            return NO_VALUE;
        }
        Value *grown = realloc(json->values, capacity * sizeof *grown);
        if (grown == NULL) {
            json_fault(json, NO_MEMORY);
            return NO_VALUE;
        }
        json->values = grown;
        json->capacity = capacity;
    }
    json->values[json->count] = (Value){.first = NO_VALUE, .next = NO_VALUE};
    return json->count++;
}

static void json_space(Json *json) {
    while (json->at < json->end && strchr(" \t\n\r", *json->at) != NULL && *json->at != 0) {
        json->at++;
    }
}

static bool json_takes(Json *json, char wanted) {
    if (json->at == json->end || *json->at != wanted) return false;
    json->at++;
    return true;
}

static bool json_hex(Json *json, uint32_t *code) {
    *code = 0;
    if (json->end - json->at < 4) return json_fault(json, "a text ends within \\u");
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return json_fault(json, "\\u is not followed by four digits");
        *code = *code * 16 + digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code) {
    unsigned char bytes[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size; i-- > 1; code >>= 6) bytes[i] = (unsigned char)(0x80 | (code & 0x3f));
    bytes[0] = (unsigned char)(marks[size] | code);
    memcpy(to, bytes, size);
    return to + size;
}

static bool json_escape(Json *json, char **to) {
    static const char marks[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end) return json_fault(json, "a text does not end");
    char mark = *json->at++;
    const char *found = mark == 0 ? NULL : strchr(marks, mark);
    if (found != NULL) {
        *(*to)++ = meanings[found - marks];
        return true;
    }
    uint32_t code, low;
    if (mark != 'u') return json_fault(json, "a text has an unknown escape");
    if (!json_hex(json, &code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') {
            return json_fault(json, "a text holds half a character");
        }
        json->at += 2;
        if (!json_hex(json, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return json_fault(json, "a text holds half a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return json_fault(json, "a text holds half a character");
    }
    *to = put_utf8(*to, code);
    return true;
}

/* The bytes of one UTF-8 character at `at`, 0 if it is none. */
static size_t utf8_size(const unsigned char *at, size_t left) {
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (size == 0 || at[0] > 0xf4 || size > left) return 0;
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (size == 3 && at[0] == 0xe0 && at[1] < 0xa0) return 0; /* longer than needed */
    if (size == 3 && at[0] == 0xed && at[1] > 0x9f) return 0; /* half a character */
    if (size == 4 && at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (size == 4 && at[0] == 0xf4 && at[1] > 0x8f) return 0; /* beyond the last */
    return size;
}

/* A text, decoded where it stands, with a zero behind. */
static bool json_text(Json *json, const char **text, size_t *size) {
    if (!json_takes(json, '"')) return json_fault(json, "a text is missing");
    char *start = json->at, *to = json->at;
    for (;;) {
        if (json->at == json->end) return json_fault(json, "a text does not end");
        unsigned char c = (unsigned char)*json->at;
        if (c == '"') break;
        if (c < 0x20) return json_fault(json, "a text holds a control character");
        if (c == '\\') {
            json->at++;
            if (!json_escape(json, &to)) return false;
            continue;
        }
        size_t bytes = utf8_size((unsigned char *)json->at, (size_t)(json->end - json->at));
        if (bytes == 0) return json_fault(json, "a text is not UTF-8");
        memmove(to, json->at, bytes);
        to += bytes;
        json->at += bytes;
    }
    json->at++; /* the end mark: room for the zero */
    *to = 0;
    *text = start;
    *size = (size_t)(to - start);
    return true;
}

static size_t json_digits(Json *json) {
    char *start = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') json->at++;
    return (size_t)(json->at - start);
}

static bool json_number(Json *json, Value *value) {
    bool negative = json_takes(json, '-');
    char *start = json->at;
    size_t digits = json_digits(json);
    if (digits == 0 || (digits > 1 && *start == '0')) return json_fault(json, "a number is wrong");
    value->kind = WHOLE;
    uint64_t number = 0;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = (uint64_t)(start[i] - '0');
        value->beyond = value->beyond || number > (JSON_MOST - digit) / 10;
        if (!value->beyond) number = number * 10 + digit;
    }
    value->is.number = negative ? -(int64_t)number : (int64_t)number;
    if (json_takes(json, '.')) {
        value->kind = FRACTION;
        if (json_digits(json) == 0) return json_fault(json, "a number is wrong");
    }
    if (json_takes(json, 'e') || json_takes(json, 'E')) {
        value->kind = FRACTION;
        if (!json_takes(json, '-')) json_takes(json, '+');
        if (json_digits(json) == 0) return json_fault(json, "a number is wrong");
    }
    return true;
}

static bool json_word(Json *json, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(json->end - json->at) < size || memcmp(json->at, word, size) != 0) return false;
    json->at += size;
    return true;
}

typedef struct Key {
    const char *text;
    size_t size;
} Key;

static int compare_keys(const void *a, const void *b) {
    const Key *x = a, *y = b;
    size_t common = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->text, y->text, common);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static bool json_distinct(Json *json, uint32_t object) {
    uint32_t count = json->values[object].count;
    if (count < 2) return true;
    Key *keys = malloc(count * sizeof *keys);
    if (keys == NULL) return json_fault(json, NO_MEMORY);
    size_t filled = 0;
    for (uint32_t i = json->values[object].first; i != NO_VALUE; i = json->values[i].next) {
        keys[filled++] = (Key){json->values[i].key, json->values[i].key_size};
    }
    qsort(keys, filled, sizeof *keys, compare_keys);
    bool twice = false;
    for (size_t i = 1; i < filled; i++) twice |= compare_keys(&keys[i - 1], &keys[i]) == 0;
    free(keys);
    return !twice || json_fault(json, "a key appears twice");
}

static uint32_t json_value(Json *json, unsigned depth);

/* The values of a list or object, up to the end mark. */
static bool json_members(Json *json, uint32_t parent, bool keyed, char end, unsigned depth) {
    uint32_t last = NO_VALUE;
    json_space(json);
    if (json_takes(json, end)) return true;
    for (;;) {
        Key key = {NULL, 0};
        json_space(json);
        if (keyed) {
            if (!json_text(json, &key.text, &key.size)) return false;
            json_space(json);
            if (!json_takes(json, ':')) return json_fault(json, "a key has no value");
        }
        uint32_t child = json_value(json, depth + 1);
        if (child == NO_VALUE) return false;
        json->values[child].key = key.text;
        json->values[child].key_size = key.size;
        if (last == NO_VALUE) json->values[parent].first = child;
        else json->values[last].next = child;
        last = child;
        json->values[parent].count++;
        json_space(json);
        if (json_takes(json, end)) return true;
        if (!json_takes(json, ',')) return json_fault(json, "a comma is missing");
    }
}

static uint32_t json_value(Json *json, unsigned depth) {
    if (depth > JSON_DEPTH) {
        json_fault(json, "it is nested too deeply");
        return NO_VALUE;
    }
    json_space(json);
    uint32_t index = json_new(json);
    if (index == NO_VALUE) return NO_VALUE;
    Value value = json->values[index];
    bool good = true;
    if (json->at == json->end) {
        good = json_fault(json, "it ends too early");
    } else if (*json->at == '{' || *json->at == '[') {
        bool keyed = *json->at++ == '{';
        json->values[index].kind = keyed ? OBJECT : LIST;
        good = json_members(json, index, keyed, keyed ? '}' : ']', depth) &&
               (!keyed || json_distinct(json, index));
        return good ? index : NO_VALUE;
    } else if (*json->at == '"') {
        value.kind = TEXT;
        good = json_text(json, &value.text, &value.is.size);
    } else if (json_word(json, "true") || json_word(json, "false")) {
        value.kind = TRUTH;
        value.is.number = json->at[-2] == 'u';
    } else if (!json_word(json, "null")) {
        good = json_number(json, &value);
    }
    json->values[index] = value;
    return good ? index : NO_VALUE;
}

/* Read the object in `text`, which is changed and must outlive what comes of it. */
static f2o_status json_parse(Json *json, char *text, size_t size, const char *what,
                             f2o_error *error) {
    *json = (Json){.at = text, .end = text + size};
    uint32_t root = json_value(json, 0);
    json_space(json);
    if (root != NO_VALUE && json->at != json->end) json_fault(json, "something follows its end");
    if (json->fault == NULL && json->values[root].kind != OBJECT) {
        json_fault(json, "it is not an object");
    }
    if (json->fault == NULL) return F2O_OK;
    size_t place = (size_t)(json->at - text);
    json_free(json);
    if (json->fault == NO_MEMORY) return no_memory(error);
    return fail(error, F2O_BUNDLE_ERROR, "it was damaged, or is of another kind",
                "%s: not valid JSON: %s, at byte %zu", what, json->fault, place);
}

/* An object of a JSON file, to read fields of; `place` says where it stands. */
typedef struct Fields {
    const Json *json;
    const Value *value;
    const char *place;
    f2o_error *error;
} Fields;

static f2o_status wrong_field(const Fields *fields, const char *key, const char *reason) {
    return fail(fields->error, F2O_BUNDLE_ERROR, NULL, "%s: %s %s", fields->place, key, reason);
}

static const Value *child_of(const Json *json, const Value *value, const char *key) {
    for (uint32_t i = value->first; i != NO_VALUE; i = json->values[i].next) {
        const Value *child = &json->values[i];
        if (child->key_size == strlen(key) && memcmp(child->key, key, child->key_size) == 0) {
            return child;
        }
    }
    return NULL;
}

static const Value *next_of(const Json *json, const Value *value) {
    return value->next == NO_VALUE ? NULL : &json->values[value->next];
}

static const Value *first_of(const Json *json, const Value *value) {
    return value->first == NO_VALUE ? NULL : &json->values[value->first];
}

/* Whether an optional field is there, and not null. */
static bool is_there(const Fields *fields, const char *key) {
    const Value *child = child_of(fields->json, fields->value, key);
    return child != NULL && child->kind != NOTHING;
}

static f2o_status field(const Fields *fields, const char *key, Kind kind, const Value **found) {
    const Value *child = child_of(fields->json, fields->value, key);
    if (child == NULL) return wrong_field(fields, key, "is missing");
    if (child->kind != kind) {
        char reason[64];
        snprintf(reason, sizeof reason, "is %s, not %s", KINDS[child->kind], KINDS[kind]);
        return wrong_field(fields, key, reason);
    }
    *found = child;
    return F2O_OK;
}

/* A C string cannot hold a zero. */
static bool is_plain(const char *text, size_t size) { return memchr(text, 0, size) == NULL; }

static f2o_status text_field(const Fields *fields, const char *key, const char **text) {
    const Value *child;
    TRY(field(fields, key, TEXT, &child));
    if (child->is.size == 0) return wrong_field(fields, key, "is empty");
    if (!is_plain(child->text, child->is.size)) return wrong_field(fields, key, "holds a zero");
    *text = child->text;
    return F2O_OK;
}

static f2o_status optional_text(const Fields *fields, const char *key, const char **text) {
    *text = NULL;
    return is_there(fields, key) ? text_field(fields, key, text) : F2O_OK;
}

static f2o_status number_field(const Fields *fields, const char *key, int64_t least,
                               int64_t *number) {
    const Value *child;
    TRY(field(fields, key, WHOLE, &child));
    if (child->beyond || child->is.number < least) {
        return wrong_field(fields, key, "is no such number as it must be");
    }
    *number = child->is.number;
    return F2O_OK;
}

static f2o_status truth_field(const Fields *fields, const char *key, bool *truth) {
    const Value *child;
    TRY(field(fields, key, TRUTH, &child));
    *truth = child->is.number != 0;
    return F2O_OK;
}

static bool is_size(const Value *value) {
    return value->kind == WHOLE && !value->beyond && value->is.number >= 0;
}

/* The fields of a value that must be an object; `place` is where it is said to stand. */
static f2o_status fields_of(const Fields *outer, const Value *value, const char *place,
                            Fields *fields) {
    *fields = (Fields){outer->json, value, place, outer->error};
    if (value->kind == OBJECT) return F2O_OK;
    return fail(outer->error, F2O_BUNDLE_ERROR, NULL, "%s: is %s, not an object", place,
                KINDS[value->kind]);
}

/* Text as JSON has it; beyond ASCII as \uXXXX if `escaped`, as it is otherwise. */
static void add_json_text(Text *to, const char *text, bool escaped) {
    char code[16];
    add(to, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        static const char marks[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        const char *mark = *c < 0x80 ? strchr(marks, *c) : NULL;
        size_t size = utf8_size(c, strlen((const char *)c));
        if (size == 0) size = 1; /* names that a caller gives may be no UTF-8 */
        if (mark != NULL) {
            snprintf(code, sizeof code, "\\%c", letters[mark - marks]);
            add(to, code);
        } else if (*c < 0x20 || (escaped && *c == 0x7f)) {
            snprintf(code, sizeof code, "\\u%04x", (unsigned)*c);
            add(to, code);
        } else if (!escaped || size == 1) {
            append(to, c, size);
        } else {
            uint32_t point = (uint32_t)(*c & (0xff >> (size + 1)));
            for (size_t i = 1; i < size; i++) point = point << 6 | (c[i] & 0x3fu);
            if (point < 0x10000) {
                snprintf(code, sizeof code, "\\u%04x", (unsigned)point);
            } else {
                point -= 0x10000;
                snprintf(code, sizeof code, "\\u%04x\\u%04x", (unsigned)(0xd800 + (point >> 10)),
                         (unsigned)(0xdc00 + (point & 0x3ff)));
            }
            add(to, code);
        }
        c += size;
    }
    add(to, "\"");
}

/* ---- Safetensors ----------------------------------------------------------------------------- */

#define HEADER_LIMIT 100000000u /* the format's own */
#define RANK_LIMIT 64u
#define METADATA "__metadata__"

static const char STATE_KEY[] = "{\"__metadata__\":{\"digest\":\"";
#define STATE_DIGEST (8 + sizeof STATE_KEY - 1) /* where it stands */

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

static void close_tensors(TensorFile *file) {
    free(file->content);
    json_free(&file->json);
    give(&file->arena);
    memset(file, 0, sizeof *file);
}

static int compare_places(const void *a, const void *b) {
    const Stored *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static f2o_status read_stored(TensorFile *file, const Fields *fields, Stored *stored) {
    const Value *shape, *offsets, *item;
    const char *dtype;
    TRY(text_field(fields, "dtype", &dtype));
    TRY(field(fields, "shape", LIST, &shape));
    TRY(field(fields, "data_offsets", LIST, &offsets));
    const Element *element = element_named(dtype, true);
    if (element == NULL) return wrong_field(fields, "dtype", "is none that a tensor can have");
    if (shape->count > RANK_LIMIT || offsets->count != 2) {
        return wrong_field(fields, "shape", "or data_offsets has another number of sizes");
    }
    int64_t *sizes = take(&file->arena, shape->count, sizeof *sizes), places[2];
    if (sizes == NULL) return no_memory(fields->error);
    size_t rank = 0;
    for (item = first_of(fields->json, shape); item; item = next_of(fields->json, item)) {
        if (!is_size(item)) return wrong_field(fields, "shape", "holds what is no size");
        sizes[rank++] = item->is.number;
    }
    size_t place = 0;
    for (item = first_of(fields->json, offsets); item; item = next_of(fields->json, item)) {
        if (!is_size(item)) return wrong_field(fields, "data_offsets", "holds what is no size");
        places[place++] = item->is.number;
    }
    size_t bytes = bytes_of(element->code, rank, sizes);
    if (bytes == NONE || places[1] < places[0] || (uint64_t)(places[1] - places[0]) != bytes) {
        return wrong_field(fields, "data_offsets", "is not the size of dtype and shape");
    }
    stored->view = (f2o_tensor){NULL, element->code, rank, sizes, NULL};
    stored->start = (uint64_t)places[0];
    stored->end = (uint64_t)places[1];
    return F2O_OK;
}

/* Tensors lie one behind the other and fill the file: no gap, no overlap, nothing behind. */
static f2o_status check_layout(TensorFile *file, const char *path, f2o_error *error) {
    uint64_t position = 0, size = file->size - file->data;
    if (file->count > 1) qsort(file->tensors, file->count, sizeof(Stored), compare_places);
    for (size_t i = 0; i < file->count; i++) {
        Stored *stored = &file->tensors[i];
        if (stored->start != position || stored->end > size) {
            return fail(error, F2O_BUNDLE_ERROR, "the file was damaged or cut off",
                        "%s: tensor %s takes bytes %llu to %llu, expected to begin at %llu of %llu",
                        path, stored->view.name, (unsigned long long)stored->start,
                        (unsigned long long)stored->end, (unsigned long long)position,
                        (unsigned long long)size);
        }
        position = stored->end;
        stored->view.data = file->content + file->data + stored->start;
        if (stored->view.dtype != F2O_BOOL) continue;
        for (const unsigned char *b = stored->view.data; b < file->content + file->data + position;
             b++) {
            if (*b > 1) {
                return fail(error, F2O_BUNDLE_ERROR, NULL,
                            "%s: the bool tensor %s holds bytes other than 0 and 1", path,
                            stored->view.name);
            }
        }
    }
    if (position == size) return F2O_OK;
    return fail(error, F2O_BUNDLE_ERROR, "it is cut off, or something was appended",
                "%s: the tensors take %llu bytes, the file holds %llu", path,
                (unsigned long long)position, (unsigned long long)size);
}

static f2o_status check_metadata(const TensorFile *file, const char *path, f2o_error *error) {
    bool texts = file->metadata == NULL || file->metadata->kind == OBJECT;
    const Value *item = file->metadata != NULL ? first_of(&file->json, file->metadata) : NULL;
    for (; texts && item != NULL; item = next_of(&file->json, item)) {
        texts = item->kind == TEXT && is_plain(item->text, item->is.size) &&
                is_plain(item->key, item->key_size);
    }
    if (texts) return F2O_OK;
    return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: %s is not an object of texts", path, METADATA);
}

static f2o_status read_entries(TensorFile *file, const char *path, f2o_error *error) {
    char place[PATH_MAX + 128];
    Fields root = {&file->json, &file->json.values[0], path, error}, fields;
    file->metadata = child_of(&file->json, root.value, METADATA);
    TRY(check_metadata(file, path, error));
    file->tensors = take(&file->arena, root.value->count, sizeof(Stored));
    if (file->tensors == NULL) return no_memory(error);
    const Value *item = first_of(&file->json, root.value);
    for (; item != NULL; item = next_of(&file->json, item)) {
        if (item == file->metadata) continue;
        snprintf(place, sizeof place, "%s: tensor %.100s", path, item->key);
        if (!is_plain(item->key, item->key_size)) {
            return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: its name holds a zero", place);
        }
        TRY(fields_of(&root, item, place, &fields));
        Stored *stored = &file->tensors[file->count];
        TRY(read_stored(file, &fields, stored));
        stored->view.name = item->key;
        file->count++;
    }
    return check_layout(file, path, error);
}

static f2o_status parse_tensors(TensorFile *file, const char *path, f2o_error *error) {
    uint64_t length = 0;
    if (file->size < 8) {
        return fail(error, F2O_BUNDLE_ERROR, "it is cut off",
                    "%s: %zu bytes are no safetensors file", path, file->size);
    }
    for (unsigned i = 8; i-- > 0;) length = length << 8 | file->content[i];
    if (length > HEADER_LIMIT || length > file->size - 8) {
        return fail(error, F2O_BUNDLE_ERROR, "it is cut off, or no safetensors file",
                    "%s: the header should be %llu bytes long, the file has %zu", path,
                    (unsigned long long)length, file->size);
    }
    if (length == 0 || file->content[8] != '{') {
        return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: the header does not begin with an object",
                    path);
    }
    file->data = 8 + (size_t)length;
    TRY(json_parse(&file->json, (char *)file->content + 8, (size_t)length, path, error));
    return read_entries(file, path, error);
}

/* Read a safetensors file of which `content` is the whole; takes `content`. */
static f2o_status open_tensors(unsigned char *content, size_t size, const char *path,
                               TensorFile *file, f2o_error *error) {
    memset(file, 0, sizeof *file);
    file->content = content;
    file->size = size;
    f2o_status status = parse_tensors(file, path, error);
    if (status != F2O_OK) close_tensors(file);
    return status;
}

static const char *metadata_of(const TensorFile *file, const char *key) {
    const Value *found = file->metadata ? child_of(&file->json, file->metadata, key) : NULL;
    return found == NULL ? "" : found->text;
}

static const Stored *stored_named(const TensorFile *file, const char *name) {
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].view.name, name) == 0) return &file->tensors[i];
    }
    return NULL;
}

f2o_status f2o_load_safetensors(const char *path, f2o_tensors *tensors, f2o_error *error) {
    unsigned char *content;
    size_t size;
    TensorFile file;
    TRY(begin(error));
    TRY(read_file(path, UINT64_MAX, &content, &size, error));
    TRY(open_tensors(content, size, path, &file, error));
    f2o_tensor *views = take(&file.arena, file.count, sizeof *views);
    f2o_status status = views == NULL ? no_memory(error) : F2O_OK;
    for (size_t i = 0; status == F2O_OK && i < file.count; i++) views[i] = file.tensors[i].view;
    if (status == F2O_OK) status = copy_tensors(tensors, views, file.count, error);
    close_tensors(&file);
    return status;
}

static void add_entry(Text *text, const f2o_tensor *tensor, uint64_t start) {
    add(text, text->size > 9 ? "," : ""); /* behind the length and the first mark */
    add_json_text(text, tensor->name, false);
    add(text, ":{\"dtype\":\"");
    add(text, element_of(tensor->dtype)->stored);
    add(text, "\",\"shape\":[");
    for (size_t i = 0; i < tensor->rank; i++) {
        if (i > 0) add(text, ",");
        add_number(text, (uint64_t)tensor->shape[i]);
    }
    add(text, "],\"data_offsets\":[");
    add_number(text, start);
    add(text, ",");
    add_number(text, start + f2o_tensor_bytes(tensor));
    add(text, "]}");
}

/* A header, its length before it; `opening` is its text up to the first tensor. It is filled up
 * with spaces to `length`, or to a multiple of eight if that is 0. */
static void write_header(Text *text, const char *opening, const f2o_tensor *tensors, size_t count,
                         size_t length) {
    append(text, "\0\0\0\0\0\0\0", 8);
    add(text, opening);
    uint64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        add_entry(text, &tensors[i], start);
        start += f2o_tensor_bytes(&tensors[i]);
    }
    add(text, "}");
    while (length == 0 ? text->size % 8 != 0 : text->size < 8 + length) {
        add(text, " ");
        if (text->failed) return;
    }
    if (text->failed) return;
    uint64_t size = text->size - 8;
    for (unsigned i = 0; i < 8; i++) text->bytes[i] = (char)(size >> (8 * i));
}

/* Widest elements first, so that each tensor is aligned to its element; then by name. */
static int compare_tensors(const void *a, const void *b) {
    const f2o_tensor *x = a, *y = b;
    size_t i = f2o_dtype_size(x->dtype), j = f2o_dtype_size(y->dtype);
    return i != j ? (i > j ? -1 : 1) : strcmp(x->name, y->name);
}

/* Write a header and tensors; the header gets its digest if it has a place for one. */
static f2o_status write_tensors(const char *path, Text *header, const f2o_tensor *tensors,
                                size_t count, f2o_error *error) {
    Part *parts = calloc(count + 1, sizeof *parts);
    if (parts == NULL || header->failed) {
        free(parts);
        return no_memory(error);
    }
    parts[0] = (Part){header->bytes, header->size};
    for (size_t i = 0; i < count; i++) {
        parts[i + 1] = (Part){tensors[i].data, f2o_tensor_bytes(&tensors[i])};
    }
    const size_t behind = STATE_DIGEST + DIGITS;
    if (header->size > behind &&
        memcmp(header->bytes + 8, STATE_KEY, sizeof STATE_KEY - 1) == 0) {
        char digits[DIGITS + 1];
        Sha sha;
        sha_begin(&sha);
        sha_add(&sha, header->bytes + behind, header->size - behind);
        for (size_t i = 1; i <= count; i++) sha_add(&sha, parts[i].bytes, parts[i].size);
        sha_end(&sha, digits);
        memcpy(header->bytes + STATE_DIGEST, digits, DIGITS);
    }
    f2o_status status = replace_file(path, parts, count + 1, error);
    free(parts);
    return status;
}

f2o_status f2o_save_safetensors(const char *path, const f2o_tensor *tensors, size_t count,
                                f2o_error *error) {
    TRY(begin(error));
    f2o_tensor *sorted = calloc(count + 1, sizeof *sorted);
    if (sorted == NULL) return no_memory(error);
    for (size_t i = 0; i < count; i++) sorted[i] = tensors[i];
    for (size_t i = 0; i < count; i++) {
        const f2o_tensor *t = &tensors[i];
        if (t->name == NULL || strcmp(t->name, METADATA) == 0 || t->rank > RANK_LIMIT ||
            bytes_of(t->dtype, t->rank, t->shape) == NONE) {
            free(sorted);
            return fail(error, F2O_STATE_ERROR, "give a name, a known dtype, and sizes from 0 on",
                        "%s: tensor %zu cannot be stored", path, i);
        }
    }
    if (count > 1) qsort(sorted, count, sizeof *sorted, compare_tensors);
    f2o_status status = F2O_OK;
    for (size_t i = 1; i < count && status == F2O_OK; i++) {
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0) {
            status = fail(error, F2O_STATE_ERROR, NULL, "%s: two tensors are named %s", path,
                          sorted[i].name);
        }
    }
    Text header = {NULL, 0, 0, false};
    write_header(&header, "{", sorted, count, 0);
    if (status == F2O_OK) status = write_tensors(path, &header, sorted, count, error);
    free(header.bytes);
    free(sorted);
    return status;
}

/* ---- Manifest -------------------------------------------------------------------------------- */

#define MANIFEST "manifest.json"
#define MANIFEST_LIMIT (64u << 20)
static const char MANIFEST_KEY[] = "{\n \"digest\": \""; /* begins the file */

typedef struct FileEntry {
    const char *name, *sha256;
    uint64_t size;
} FileEntry;

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const FileEntry *)a)->name, ((const FileEntry *)b)->name);
}

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

static void close_manifest(Manifest *manifest) {
    free(manifest->text);
    json_free(&manifest->json);
    give(&manifest->arena);
    memset(manifest, 0, sizeof *manifest);
}

static f2o_status wrong(f2o_error *error, const char *key, const char *name, const char *reason) {
    return fail(error, F2O_BUNDLE_ERROR, "the bundle is inconsistent: export it again",
                "%s: %s: %s %s", MANIFEST, key, name, reason);
}

static f2o_status read_spec(Manifest *manifest, const Fields *fields, bool is_state,
                            f2o_spec *spec) {
    const Value *shape;
    const char *dtype;
    TRY(text_field(fields, "name", &spec->name));
    TRY(field(fields, "shape", LIST, &shape));
    TRY(text_field(fields, "dtype", &dtype));
    const Element *element = element_named(dtype, false);
    if (element == NULL) return wrong_field(fields, "dtype", "is unknown");
    int64_t *sizes = take(&manifest->arena, shape->count, sizeof *sizes);
    const char **symbols = take(&manifest->arena, shape->count, sizeof *symbols);
    if (sizes == NULL || symbols == NULL) return no_memory(fields->error);
    if (shape->count > RANK_LIMIT) return wrong_field(fields, "shape", "has too many sizes");
    size_t rank = 0;
    const Value *item = first_of(fields->json, shape);
    for (; item != NULL; item = next_of(fields->json, item), rank++) {
        bool named = item->kind == TEXT && item->is.size > 0 && !is_state &&
                     is_plain(item->text, item->is.size);
        if (!named && !is_size(item)) return wrong_field(fields, "shape", "holds what is no size");
        sizes[rank] = named ? -1 : item->is.number;
        symbols[rank] = named ? item->text : NULL;
    }
    spec->dtype = element->code;
    spec->rank = rank;
    spec->shape = sizes;
    spec->symbols = symbols;
    if (!is_state) return F2O_OK;
    TRY(text_field(fields, "role", &spec->role));
    TRY(truth_field(fields, "trainable", &spec->trainable));
    if (bytes_of(spec->dtype, rank, sizes) == NONE) {
        return wrong_field(fields, "shape", "is beyond what memory can hold");
    }
    return optional_text(fields, "of", &spec->of);
}

static int compare_specs(const void *a, const void *b) {
    return strcmp((*(const f2o_spec *const *)a)->name, (*(const f2o_spec *const *)b)->name);
}

static const f2o_spec *spec_named(const Specs *specs, const char *name) {
    const f2o_spec key = {.name = name}, *wanted = &key;
    if (specs->count == 0) return NULL;
    const f2o_spec **found = bsearch(&wanted, specs->sorted, specs->count, sizeof wanted,
                                     compare_specs);
    return found == NULL ? NULL : *found;
}

/* Make `sorted` of the items. */
static bool sort_specs(Arena *arena, Specs *specs) {
    specs->sorted = take(arena, specs->count, sizeof *specs->sorted);
    if (specs->sorted == NULL) return false;
    for (size_t i = 0; i < specs->count; i++) specs->sorted[i] = &specs->items[i];
    if (specs->count > 1) {
        qsort(specs->sorted, specs->count, sizeof *specs->sorted, compare_specs);
    }
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuse a name that appears twice; `names` is sorted by this. */
static f2o_status check_distinct(const char **names, size_t count, const char *key,
                                 f2o_error *error) {
    if (count > 1) qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) return wrong(error, key, names[i], "stands twice");
    }
    return F2O_OK;
}

static f2o_status read_specs(Manifest *manifest, const Fields *fields, const char *key,
                             bool is_state, Specs *specs) {
    const Value *list;
    Fields inner;
    char place[512];
    TRY(field(fields, key, LIST, &list));
    specs->items = take(&manifest->arena, list->count, sizeof *specs->items);
    if (specs->items == NULL) return no_memory(fields->error);
    const Value *item = first_of(fields->json, list);
    for (; item != NULL; item = next_of(fields->json, item)) {
        snprintf(place, sizeof place, "%.400s: %s[%zu]", fields->place, key, specs->count);
        TRY(fields_of(fields, item, place, &inner));
        TRY(read_spec(manifest, &inner, is_state, &specs->items[specs->count]));
        specs->count++;
    }
    if (!sort_specs(&manifest->arena, specs)) return no_memory(fields->error);
    for (size_t i = 1; i < specs->count; i++) {
        if (compare_specs(&specs->sorted[i - 1], &specs->sorted[i]) == 0) {
            return wrong(fields->error, key, specs->sorted[i]->name, "stands twice");
        }
    }
    return F2O_OK;
}

static f2o_status read_names(Manifest *manifest, const Fields *fields, const char *key,
                             Names *names) {
    const Value *list;
    TRY(field(fields, key, LIST, &list));
    names->items = take(&manifest->arena, list->count, sizeof *names->items);
    if (names->items == NULL) return no_memory(fields->error);
    const Value *item = first_of(fields->json, list);
    for (; item != NULL; item = next_of(fields->json, item)) {
        if (item->kind != TEXT || !is_plain(item->text, item->is.size)) {
            return wrong_field(fields, key, "is not a list of names");
        }
        names->items[names->count++] = item->text;
    }
    return F2O_OK;
}

static f2o_status read_predict(Manifest *manifest, const Fields *fields) {
    const Value *list;
    Fields inner;
    char place[512];
    TRY(field(fields, "predict", LIST, &list));
    manifest->predict = take(&manifest->arena, list->count, sizeof *manifest->predict);
    const char **names = take(&manifest->arena, list->count, sizeof *names);
    if (manifest->predict == NULL || names == NULL) return no_memory(fields->error);
    const Value *item = first_of(fields->json, list);
    for (; item != NULL; item = next_of(fields->json, item)) {
        PredictJob *entry = &manifest->predict[manifest->predict_count];
        snprintf(place, sizeof place, "%.400s: predict[%zu]", fields->place,
                 manifest->predict_count);
        TRY(fields_of(fields, item, place, &inner));
        TRY(text_field(&inner, "job", &entry->job));
        TRY(text_field(&inner, "file", &entry->file));
        TRY(read_specs(manifest, &inner, "feeds", false, &entry->feeds));
        TRY(read_specs(manifest, &inner, "results", false, &entry->results));
        TRY(read_names(manifest, &inner, "reads", &entry->reads));
        TRY(read_names(manifest, &inner, "holds", &entry->holds));
        names[manifest->predict_count++] = entry->job;
    }
    return check_distinct(names, manifest->predict_count, "predict", fields->error);
}

static f2o_status read_files(Manifest *manifest, const Fields *fields) {
    const Value *object;
    Fields inner;
    char place[512];
    int64_t size;
    TRY(field(fields, "files", OBJECT, &object));
    manifest->files = take(&manifest->arena, object->count, sizeof *manifest->files);
    if (manifest->files == NULL) return no_memory(fields->error);
    const Value *item = first_of(fields->json, object);
    for (; item != NULL; item = next_of(fields->json, item)) {
        FileEntry *entry = &manifest->files[manifest->file_count];
        const char *name = item->key;
        if (*name == 0 || !is_plain(name, item->key_size) || strpbrk(name, "/\\:") != NULL ||
            strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, MANIFEST) == 0) {
            return wrong(fields->error, "files", name, "is not a plain file name");
        }
        snprintf(place, sizeof place, "%.250s: files[%.200s]", fields->place, name);
        TRY(fields_of(fields, item, place, &inner));
        TRY(number_field(&inner, "size", 0, &size));
        TRY(text_field(&inner, "sha256", &entry->sha256));
        entry->name = name;
        entry->size = (uint64_t)size;
        manifest->file_count++;
    }
    if (manifest->file_count > 1) {
        qsort(manifest->files, manifest->file_count, sizeof(FileEntry), compare_entries);
    }
    return F2O_OK;
}

/* The files are sorted by name. */
static const FileEntry *entry_of(const Manifest *manifest, const char *name) {
    const FileEntry key = {name, NULL, 0};
    return bsearch(&key, manifest->files, manifest->file_count, sizeof key, compare_entries);
}

static f2o_status check_file(const Manifest *manifest, const char *key, const char *name,
                             f2o_error *error) {
    if (name == NULL || entry_of(manifest, name) != NULL) return F2O_OK;
    return wrong(error, key, name, "is not in files");
}

static f2o_status check_single(const Manifest *manifest, const char *key, const char *name,
                               f2o_dtype dtype, f2o_error *error) {
    if (name == NULL) return F2O_OK;
    const f2o_spec *spec = spec_named(&manifest->state, name);
    if (spec != NULL && spec->rank == 1 && spec->shape[0] == 1 && spec->dtype == dtype) {
        return F2O_OK;
    }
    return wrong(error, key, name, "is no state tensor of its dtype and of shape [1]");
}

static f2o_status check_state_specs(const Manifest *manifest, f2o_error *error) {
    size_t counters = 0;
    for (size_t i = 0; i < manifest->state.count; i++) {
        const f2o_spec *spec = &manifest->state.items[i];
        bool counts = strcmp(spec->role, "counter") == 0;
        if (!counts && strcmp(spec->role, "variable") != 0 && strcmp(spec->role, "slot") != 0) {
            return wrong(error, "state", spec->name, "has an unknown role");
        }
        counters += counts;
        bool single = spec->rank == 0 || (spec->rank == 1 && spec->shape[0] == 1);
        if (counts && (counters > 1 || !single)) {
            return wrong(error, "state", spec->name, "is a second counter, or no single number");
        }
        if (spec->of == NULL) continue;
        const f2o_spec *of = spec_named(&manifest->state, spec->of);
        if (of == NULL || strcmp(of->role, "variable") != 0) {
            return wrong(error, "state", spec->name, "is of what is no variable");
        }
    }
    TRY(check_single(manifest, "learning_rate", manifest->learning_rate, F2O_FLOAT32, error));
    return check_single(manifest, "accumulate.count", manifest->count, F2O_INT64, error);
}

static f2o_status check_uses(const Manifest *manifest, const Names *names, const char *job,
                             f2o_error *error) {
    for (size_t i = 0; i < names->count; i++) {
        if (spec_named(&manifest->state, names->items[i]) == NULL) {
            return wrong(error, job, names->items[i], "is not in state");
        }
    }
    return F2O_OK;
}

/* What must hold between the fields. */
static f2o_status check_manifest(const Manifest *manifest, f2o_error *error) {
    TRY(check_file(manifest, "init", manifest->init, error));
    TRY(check_file(manifest, "step", manifest->step, error));
    TRY(check_file(manifest, "weights", manifest->weights, error));
    TRY(check_file(manifest, "gradients", manifest->gradients, error));
    TRY(check_file(manifest, "update", manifest->update, error));
    TRY(check_state_specs(manifest, error));
    for (size_t i = 0; i < manifest->predict_count; i++) {
        const PredictJob *entry = &manifest->predict[i];
        TRY(check_file(manifest, entry->job, entry->file, error));
        TRY(check_uses(manifest, &entry->reads, entry->job, error));
        TRY(check_uses(manifest, &entry->holds, entry->job, error));
    }
    for (size_t i = 0; i < manifest->losses.count; i++) {
        if (spec_named(&manifest->results, manifest->losses.items[i]) == NULL) {
            return wrong(error, "losses", manifest->losses.items[i], "is not a result");
        }
    }
    return F2O_OK;
}

static f2o_status check_version(const Fields *fields) {
    const char *format;
    int64_t version;
    TRY(text_field(fields, "format", &format));
    if (strcmp(format, "flow2onnx-bundle") != 0) {
        return wrong_field(fields, "format", "is not flow2onnx-bundle");
    }
    TRY(number_field(fields, "version", 0, &version));
    if (version == 2) return F2O_OK;
    return fail(fields->error, F2O_BUNDLE_ERROR, "use the runtime of its version",
                "%s: version is %lld; this runtime reads version 2", fields->place,
                (long long)version);
}

static f2o_status read_accumulate(Manifest *manifest, const Fields *fields) {
    const Value *object;
    Fields inner;
    if (!is_there(fields, "accumulate")) return F2O_OK;
    TRY(field(fields, "accumulate", OBJECT, &object));
    TRY(fields_of(fields, object, "manifest.json: accumulate", &inner));
    TRY(text_field(&inner, "gradients", &manifest->gradients));
    TRY(text_field(&inner, "update", &manifest->update));
    return text_field(&inner, "count", &manifest->count);
}

static f2o_status check_texts(const Fields *fields, const char *key) {
    const Value *object;
    if (!is_there(fields, key)) return F2O_OK;
    TRY(field(fields, key, OBJECT, &object));
    const Value *item = first_of(fields->json, object);
    for (; item != NULL; item = next_of(fields->json, item)) {
        if (item->kind != TEXT) return wrong_field(fields, key, "holds values that are not text");
    }
    return F2O_OK;
}

static f2o_status read_fields(Manifest *manifest, const Fields *fields) {
    const char *producer;
    int64_t opset;
    TRY(text_field(fields, "job", &manifest->job));
    TRY(text_field(fields, "producer", &producer));
    TRY(number_field(fields, "opset", 1, &opset));
    TRY(read_files(manifest, fields));
    TRY(read_specs(manifest, fields, "state", true, &manifest->state));
    TRY(read_specs(manifest, fields, "feeds", false, &manifest->feeds));
    TRY(read_specs(manifest, fields, "results", false, &manifest->results));
    TRY(read_names(manifest, fields, "losses", &manifest->losses));
    TRY(text_field(fields, "init", &manifest->init));
    TRY(text_field(fields, "step", &manifest->step));
    TRY(read_predict(manifest, fields));
    TRY(optional_text(fields, "weights", &manifest->weights));
    TRY(optional_text(fields, "learning_rate", &manifest->learning_rate));
    TRY(read_accumulate(manifest, fields));
    return check_texts(fields, "metadata");
}

/* The hash that says which states can be loaded: of the job's and the tensors' names and types. */
static f2o_status identify(Manifest *manifest, f2o_error *error) {
    size_t count = manifest->state.count;
    Text text = {NULL, 0, 0, false};
    add(&text, "[");
    add_json_text(&text, manifest->job, true);
    add(&text, ", [");
    for (size_t i = 0; i < count; i++) {
        const f2o_spec *spec = manifest->state.sorted[i];
        add(&text, i > 0 ? ", [" : "[");
        add_json_text(&text, spec->name, true);
        add(&text, ", [");
        for (size_t j = 0; j < spec->rank; j++) {
            if (j > 0) add(&text, ", ");
            add_number(&text, (uint64_t)spec->shape[j]);
        }
        add(&text, "], \"");
        add(&text, f2o_dtype_name(spec->dtype));
        add(&text, "\"]");
    }
    add(&text, "]]");
    bool failed = text.failed;
    if (!failed) sha_of(text.bytes, text.size, manifest->state_id);
    free(text.bytes);
    return failed ? no_memory(error) : F2O_OK;
}

/* Compare a file with its entry. */
static f2o_status verify_file(const char *folder, const FileEntry *entry, f2o_error *error) {
    char digits[DIGITS + 1] = "";
    uint64_t size = 0;
    int descriptor;
    char *path = joined(folder, entry->name);
    if (path == NULL) return no_memory(error);
    f2o_status status = open_file(path, &descriptor, &size, error);
    if (status == F2O_OK) close(descriptor);
    if (status == F2O_OK && size == entry->size) status = hash_file(path, &size, digits, error);
    if (status == F2O_OK && (size != entry->size || strcmp(digits, entry->sha256) != 0)) {
        status = fail(error, F2O_BUNDLE_ERROR,
                      "the file was changed or cut off: export the bundle again",
                      "%s: has %llu bytes and SHA-256 %.12s..., the manifest says %llu, %.12s...",
                      path, (unsigned long long)size, digits, (unsigned long long)entry->size,
                      entry->sha256);
    }
    free(path);
    return status;
}

static f2o_status parse_manifest(Manifest *manifest, size_t size, const char *path,
                                 f2o_error *error) {
    if (!has_digest((unsigned char *)manifest->text, size, 0, MANIFEST_KEY)) {
        return wrong_digest(path, error);
    }
    TRY(json_parse(&manifest->json, manifest->text, size, path, error));
    Fields fields = {&manifest->json, &manifest->json.values[0], path, error};
    TRY(check_version(&fields));
    TRY(read_fields(manifest, &fields));
    TRY(check_manifest(manifest, error));
    return identify(manifest, error);
}

/* Read and check the manifest of a folder, and every file that it names. */
static f2o_status open_manifest(const char *folder, Manifest *manifest, f2o_error *error) {
    unsigned char *content;
    size_t size;
    memset(manifest, 0, sizeof *manifest);
    char *path = joined(folder, MANIFEST);
    if (path == NULL) return no_memory(error);
    f2o_status status = read_file(path, MANIFEST_LIMIT, &content, &size, error);
    if (status == F2O_OK) {
        manifest->text = (char *)content;
        status = parse_manifest(manifest, size, path, error);
    }
    for (size_t i = 0; status == F2O_OK && i < manifest->file_count; i++) {
        status = verify_file(folder, &manifest->files[i], error);
    }
    free(path);
    if (status != F2O_OK) close_manifest(manifest);
    return status;
}

/* The tensors of the file `weights`, compared with its entry. */
static f2o_status open_weights(const Manifest *manifest, const char *folder, TensorFile *file,
                               f2o_error *error) {
    unsigned char *content;
    size_t size;
    char digits[DIGITS + 1];
    const FileEntry *entry = entry_of(manifest, manifest->weights);
    char *path = joined(folder, manifest->weights);
    if (path == NULL) return no_memory(error);
    f2o_status status = read_file(path, entry->size, &content, &size, error);
    if (status == F2O_OK) {
        sha_of(content, size, digits);
        if (size != entry->size || strcmp(digits, entry->sha256) != 0) {
            free(content);
            status = fail(error, F2O_BUNDLE_ERROR, "export the bundle again",
                          "%s: was changed since the manifest was written", path);
        } else {
            status = open_tensors(content, size, path, file, error);
        }
    }
    free(path);
    return status;
}

/* ---- The runtime library --------------------------------------------------------------------- */

typedef struct Runtime {
    Api api;
    OrtEnv *env;
    OrtMemoryInfo *host;
    OrtAllocator *allocator; /* the library's own */
    f2o_options options;
} Runtime;

/* F2O_OK for no status; else its message, and the status released. */
static f2o_status checked(const Runtime *runtime, OrtStatus *status, f2o_status code,
                          const char *what, f2o_error *error) {
    if (status == NULL) return F2O_OK;
    fail(error, code,
         code == F2O_RUN_ERROR ? "the state is as it was"
                               : "this ONNX Runtime must know its opset, operators and types",
         "%s: %.700s", what, runtime->api.GetErrorMessage(status));
    runtime->api.ReleaseStatus(status);
    return code;
}

#define CALL(runtime, code, what, error, name, ...) \
    TRY(checked(runtime, (runtime)->api.name(__VA_ARGS__), code, what, error))

/* Whether the table behaves as its view says: a status holds what it was made of. */
static bool is_as_viewed(const Api *api) {
    OrtStatus *probe = api->CreateStatus(ORT_FAIL, "flow2onnx");
    bool same = probe != NULL && api->GetErrorCode(probe) == ORT_FAIL &&
                strcmp(api->GetErrorMessage(probe), "flow2onnx") == 0;
    if (probe != NULL) api->ReleaseStatus(probe);
    return same;
}

static f2o_status check_options(const f2o_options *options, f2o_error *error) {
    if (options->threads < 0) {
        return fail(error, F2O_OPTIONS_ERROR, "give a number of at least 1, or 0 for one per core",
                    "threads is %d", options->threads);
    }
    if ((int)options->optimization < 0 || options->optimization > F2O_OPTIMIZE_NONE) {
        return fail(error, F2O_OPTIONS_ERROR, "choose one of f2o_optimization",
                    "optimization is %d", (int)options->optimization);
    }
    return F2O_OK;
}

static f2o_status open_runtime(const f2o_options *options, Runtime *runtime, f2o_error *error) {
    if (options != NULL) runtime->options = *options;
    TRY(check_options(&runtime->options, error));
    const OrtApiBase *base = OrtGetApiBase();
    const OrtApi *table = base->GetApi(OLDEST_API);
    if (table == NULL) {
        return fail(error, F2O_RUNTIME_ERROR, "use version 1.22 or newer",
                    "ONNX Runtime %s lacks functions that this needs", base->GetVersionString());
    }
    view_table(table, &runtime->api);
    if (!is_as_viewed(&runtime->api)) {
        return fail(error, F2O_RUNTIME_ERROR, "build against its own header",
                    "ONNX Runtime %s has another table of functions", base->GetVersionString());
    }
    const char *what = "ONNX Runtime";
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, CreateEnv, ORT_LOGGING_LEVEL_FATAL, "flow2onnx",
         &runtime->env);
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, CreateCpuMemoryInfo, OrtDeviceAllocator,
         OrtMemTypeDefault, &runtime->host);
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, GetAllocatorWithDefaultOptions,
         &runtime->allocator);
    return F2O_OK;
}

static void close_runtime(Runtime *runtime) {
    if (runtime->host != NULL) runtime->api.ReleaseMemoryInfo(runtime->host);
    if (runtime->env != NULL) runtime->api.ReleaseEnv(runtime->env);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* A tensor at a fixed, aligned address, and the value that a session binds. */
typedef struct Buffer {
    void *data;
    OrtValue *value;
    size_t bytes;
} Buffer;

static void close_buffer(const Runtime *runtime, Buffer *buffer) {
    if (buffer->value != NULL) runtime->api.ReleaseValue(buffer->value);
    free(buffer->data);
    *buffer = (Buffer){NULL, NULL, 0};
}

static f2o_status open_value(const Runtime *runtime, void *data, f2o_dtype dtype, size_t rank,
                             const int64_t *shape, OrtValue **value, f2o_error *error) {
    CALL(runtime, F2O_RUN_ERROR, "a tensor", error, CreateTensorWithDataAsOrtValue, runtime->host,
         data, bytes_of(dtype, rank, shape), shape, rank, (ONNXTensorElementDataType)dtype, value);
    return F2O_OK;
}

static f2o_status open_buffer(const Runtime *runtime, f2o_dtype dtype, size_t rank,
                              const int64_t *shape, Buffer *buffer, f2o_error *error) {
    size_t bytes = bytes_of(dtype, rank, shape);
    buffer->data = bytes == NONE ? NULL : aligned(bytes);
    if (buffer->data == NULL) return no_memory(error);
    buffer->bytes = bytes;
    memset(buffer->data, 0, bytes);
    return open_value(runtime, buffer->data, dtype, rank, shape, &buffer->value, error);
}

/* ---- State ----------------------------------------------------------------------------------- */

struct f2o_state {
    const Runtime *runtime;
    Specs specs;
    Buffer (*buffers)[2]; /* of each tensor: one is current, a step writes the other */
    unsigned char *side;  /* which of the two is current */
    uint64_t changes;     /* how often any value changed */
};

static size_t index_of(const f2o_state *state, const char *name) {
    const f2o_spec *spec = name == NULL ? NULL : spec_named(&state->specs, name);
    return spec == NULL ? NONE : (size_t)(spec - state->specs.items);
}

static Buffer *current(const f2o_state *state, size_t index) {
    return &state->buffers[index][state->side[index]];
}

static Buffer *other(const f2o_state *state, size_t index) {
    return &state->buffers[index][!state->side[index]];
}

static void close_state(f2o_state *state) {
    for (size_t i = 0; state->buffers != NULL && i < state->specs.count; i++) {
        close_buffer(state->runtime, &state->buffers[i][0]);
        close_buffer(state->runtime, &state->buffers[i][1]);
    }
    free(state->buffers);
    free(state->side);
    state->buffers = NULL;
    state->side = NULL;
}

static f2o_status open_state(f2o_state *state, const Runtime *runtime, Specs specs,
                             f2o_error *error) {
    state->runtime = runtime;
    state->specs = specs;
    state->buffers = calloc(specs.count + 1, sizeof *state->buffers);
    state->side = calloc(specs.count + 1, 1);
    if (state->buffers == NULL || state->side == NULL) return no_memory(error);
    for (size_t i = 0; i < specs.count; i++) {
        const f2o_spec *spec = &specs.items[i];
        for (int j = 0; j < 2; j++) {
            TRY(open_buffer(runtime, spec->dtype, spec->rank, spec->shape, &state->buffers[i][j],
                            error));
        }
    }
    return F2O_OK;
}

static f2o_tensor state_view(const f2o_state *state, size_t index) {
    const f2o_spec *spec = &state->specs.items[index];
    return (f2o_tensor){spec->name, spec->dtype, spec->rank, spec->shape,
                        current(state, index)->data};
}

static bool same_shape(size_t rank, const int64_t *a, size_t other_rank, const int64_t *b) {
    return rank == other_rank && (rank == 0 || memcmp(a, b, rank * sizeof *a) == 0);
}

/* Refuse a value that is not of the shape and dtype of its state tensor. */
static f2o_status check_value(const f2o_spec *spec, const f2o_tensor *value, const char *where,
                              f2o_status code, f2o_error *error) {
    char have[SHOWN], asked[SHOWN];
    if (spec->dtype == value->dtype && value->rank <= RANK_LIMIT &&
        same_shape(spec->rank, spec->shape, value->rank, value->shape)) {
        return F2O_OK;
    }
    const char *dtype = f2o_dtype_name(value->dtype);
    return fail(error, code, "a tensor's shape and dtype are fixed by the job",
                "%s: %s is %s %s, it must be %s %s", where, spec->name,
                dtype ? dtype : "of no type",
                shown(have, sizeof have, value->rank, value->shape, NULL),
                f2o_dtype_name(spec->dtype),
                shown(asked, sizeof asked, spec->rank, spec->shape, NULL));
}

/* Refuse values that are not of this state, or, if `all`, not exactly its tensors. */
static f2o_status check_values(const f2o_state *state, const f2o_tensor *values, size_t count,
                               bool all, const char *where, f2o_status code, f2o_error *error) {
    unsigned char *seen = calloc(state->specs.count + 1, 1);
    if (seen == NULL) return no_memory(error);
    f2o_status status = F2O_OK;
    for (size_t i = 0; status == F2O_OK && i < count; i++) {
        size_t index = index_of(state, values[i].name);
        if (index == NONE || seen[index]) {
            status = fail(error, code, "give tensors of the state, each once", "%s: %s is %s",
                          where, values[i].name == NULL ? "a value without name" : values[i].name,
                          index == NONE ? "no tensor of the state" : "given twice");
        } else {
            seen[index] = 1;
            status = check_value(&state->specs.items[index], &values[i], where, code, error);
        }
    }
    for (size_t i = 0; status == F2O_OK && all && i < state->specs.count; i++) {
        if (!seen[i]) {
            status = fail(error, code, "it is of another job, or another version of this one",
                          "%s: lacks %s", where, state->specs.items[i].name);
        }
    }
    free(seen);
    return status;
}

static void put_values(f2o_state *state, const f2o_tensor *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Buffer *buffer = current(state, index_of(state, values[i].name));
        if (buffer->bytes != 0) memmove(buffer->data, values[i].data, buffer->bytes);
    }
    state->changes++;
}

const f2o_spec *f2o_state_specs(const f2o_state *state, size_t *count) {
    *count = state->specs.count;
    return state->specs.items;
}

f2o_status f2o_state_read(const f2o_state *state, const char *const *names, size_t count,
                          f2o_tensors *values, f2o_error *error) {
    TRY(begin(error));
    if (names == NULL) count = state->specs.count;
    f2o_tensor *views = calloc(count + 1, sizeof *views);
    if (views == NULL) return no_memory(error);
    f2o_status status = F2O_OK;
    for (size_t i = 0; status == F2O_OK && i < count; i++) {
        size_t index = names == NULL ? i : index_of(state, names[i]);
        if (index == NONE) {
            status = fail(error, F2O_STATE_ERROR, "f2o_state_specs lists its tensors",
                          "the state has no tensor %s", names[i] == NULL ? "NULL" : names[i]);
        } else {
            views[i] = state_view(state, index);
        }
    }
    if (status == F2O_OK) status = copy_tensors(values, views, count, error);
    free(views);
    return status;
}

f2o_status f2o_state_write(f2o_state *state, const f2o_tensor *values, size_t count,
                           f2o_error *error) {
    TRY(begin(error));
    TRY(check_values(state, values, count, false, "the state", F2O_STATE_ERROR, error));
    put_values(state, values, count);
    return F2O_OK;
}

f2o_status f2o_state_replace(f2o_state *state, const f2o_tensor *values, size_t count,
                             f2o_error *error) {
    TRY(begin(error));
    TRY(check_values(state, values, count, true, "the state", F2O_STATE_ERROR, error));
    put_values(state, values, count);
    return F2O_OK;
}

/* The number in a tensor of one integer. */
static int64_t whole_number(f2o_dtype dtype, const void *data) {
    int64_t number = 0;
    int32_t small;
    switch (f2o_dtype_size(dtype)) {
    case 8: memcpy(&number, data, 8); return number;
    case 4: memcpy(&small, data, 4); return dtype == F2O_INT32 ? small : (int64_t)(uint32_t)small;
    default: memcpy(&number, data, f2o_dtype_size(dtype)); return number;
    }
}

/* ---- Programs: a model bound to a state ------------------------------------------------------ */

#define NEXT "next/" /* an output of this prefix is the next value of the state it names */
#define LANES 16u    /* combinations of buffers whose bindings are kept */

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
    Specs inputs, outputs; /* in the model's order */
    size_t *input_state, *output_state; /* which state tensor it is, or NONE */
    Specs feeds, results;
    Buffer *feed_buffers, *result_buffers; /* a result of open shape has no value */
    f2o_spec *bound;                       /* the feeds as they are bound: shapes without symbols */
    uint64_t generation;
    bool touches_state;
    Lane lanes[LANES];
    size_t lane_count, oldest;
    Buffer *inside; /* values in place of initializers, which the session reads */
    size_t inside_count;
} Program;

static void close_lane(const Program *program, Lane *lane) {
    if (lane->binding != NULL) program->runtime->api.ReleaseIoBinding(lane->binding);
    free(lane->key);
    *lane = (Lane){NULL, NULL, 0};
}

static void close_program(Program *program) {
    const Runtime *runtime = program->runtime;
    if (runtime == NULL) return; /* it was never opened */
    for (size_t i = 0; i < program->lane_count; i++) close_lane(program, &program->lanes[i]);
    if (program->session != NULL) runtime->api.ReleaseSession(program->session);
    for (size_t i = 0; program->feed_buffers != NULL && i < program->feeds.count; i++) {
        close_buffer(runtime, &program->feed_buffers[i]);
    }
    for (size_t i = 0; program->result_buffers != NULL && i < program->results.count; i++) {
        close_buffer(runtime, &program->result_buffers[i]);
    }
    for (size_t i = 0; i < program->inside_count; i++) close_buffer(runtime, &program->inside[i]);
    give(&program->arena);
    memset(program, 0, sizeof *program);
}

static GraphOptimizationLevel level_of(f2o_optimization chosen, bool trains) {
    switch (chosen) {
    case F2O_OPTIMIZE_NONE: return ORT_DISABLE_ALL;
    case F2O_OPTIMIZE_BASIC: return ORT_ENABLE_BASIC;
    case F2O_OPTIMIZE_EXTENDED: return ORT_ENABLE_EXTENDED;
    default: break;
    }
    /* The layout rewrites of the highest level only reorder tensors around pools where the weights
     * are inputs, as in a training step. */
    return trains ? ORT_ENABLE_EXTENDED : ORT_ENABLE_ALL;
}

static f2o_status set_options(const Program *program, OrtSessionOptions *options, bool trains,
                              const Names *inside, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    const char *what = "session options";
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetSessionLogSeverityLevel, options,
         ORT_LOGGING_LEVEL_FATAL);
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, DisableMemPattern, options);
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetSessionGraphOptimizationLevel, options,
         level_of(runtime->options.optimization, trains));
    if (runtime->options.threads > 0) {
        CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetIntraOpNumThreads, options,
             runtime->options.threads);
    }
    if (inside == NULL || inside->count == 0) return F2O_OK;
    const OrtValue **values = calloc(inside->count, sizeof *values);
    if (values == NULL) return no_memory(error);
    for (size_t i = 0; i < inside->count; i++) values[i] = program->inside[i].value;
    OrtStatus *status = runtime->api.AddExternalInitializers(options, inside->items, values,
                                                             inside->count);
    free(values);
    return checked(runtime, status, F2O_BUNDLE_ERROR, program->file, error);
}

static f2o_status open_session(Program *program, const char *path, bool trains,
                               const Names *inside, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    OrtSessionOptions *options = NULL;
    CALL(runtime, F2O_OPTIONS_ERROR, "session options", error, CreateSessionOptions, &options);
    f2o_status status = set_options(program, options, trains, inside, error);
    if (status == F2O_OK) {
        OrtStatus *made = runtime->api.CreateSession(runtime->env, path, options,
                                                     &program->session);
        status = checked(runtime, made, F2O_BUNDLE_ERROR, path, error);
    }
    runtime->api.ReleaseSessionOptions(options);
    return status;
}

/* The dtype and shape that `info` tells, into `spec`. */
static f2o_status read_shape(Program *program, const OrtTensorTypeAndShapeInfo *info,
                             f2o_spec *spec, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    if (info != NULL) {
        CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetTensorElementType, info, &type);
        CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetDimensionsCount, info, &rank);
    }
    spec->dtype = (f2o_dtype)type;
    if (element_of(spec->dtype) == NULL || rank > RANK_LIMIT) {
        return fail(error, F2O_BUNDLE_ERROR,
                    "only tensors of numbers and booleans can be inputs and outputs",
                    "%s: %s is of a type that this runtime does not pass", program->file,
                    spec->name);
    }
    int64_t *shape = take(&program->arena, rank, sizeof *shape);
    const char **symbols = take(&program->arena, rank, sizeof *symbols);
    if (shape == NULL || symbols == NULL) return no_memory(error);
    CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetDimensions, info, shape, rank);
    CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetSymbolicDimensions, info, symbols,
         rank);
    for (size_t i = 0; i < rank; i++) {
        const char *symbol = symbols[i] == NULL || *symbols[i] == 0 ? "?" : symbols[i];
        symbols[i] = shape[i] >= 0 ? NULL : take_text(&program->arena, symbol);
        if (shape[i] < 0 && symbols[i] == NULL) return no_memory(error);
        shape[i] = shape[i] < 0 ? -1 : shape[i];
    }
    spec->rank = rank;
    spec->shape = shape;
    spec->symbols = symbols;
    return F2O_OK;
}

static f2o_status read_argument(Program *program, bool input, size_t index, f2o_spec *spec,
                                f2o_error *error) {
    const Runtime *runtime = program->runtime;
    const Api *api = &runtime->api;
    OrtStatus *(*name_of)(const OrtSession *, size_t, OrtAllocator *, char **) =
        input ? api->SessionGetInputName : api->SessionGetOutputName;
    OrtStatus *(*type_of)(const OrtSession *, size_t, OrtTypeInfo **) =
        input ? api->SessionGetInputTypeInfo : api->SessionGetOutputTypeInfo;
    char *name = NULL;
    OrtTypeInfo *type = NULL;
    const OrtTensorTypeAndShapeInfo *info = NULL;
    TRY(checked(runtime, name_of(program->session, index, runtime->allocator, &name),
                F2O_BUNDLE_ERROR, program->file, error));
    spec->name = take_text(&program->arena, name);
    OrtStatus *freed = api->AllocatorFree(runtime->allocator, name);
    if (freed != NULL) api->ReleaseStatus(freed);
    if (spec->name == NULL) return no_memory(error);
    TRY(checked(runtime, type_of(program->session, index, &type), F2O_BUNDLE_ERROR, program->file,
                error));
    f2o_status status = checked(runtime, api->CastTypeInfoToTensorInfo(type, &info),
                                F2O_BUNDLE_ERROR, program->file, error);
    if (status == F2O_OK) status = read_shape(program, info, spec, error);
    api->ReleaseTypeInfo(type);
    return status;
}

static bool fits(const f2o_spec *spec, size_t rank, const int64_t *shape) {
    if (rank != spec->rank) return false;
    for (size_t i = 0; i < rank; i++) {
        if (spec->shape[i] >= 0 && spec->shape[i] != shape[i]) return false;
    }
    return true;
}

/* The state tensor that an input or output names, or NONE. */
static size_t state_index(const Program *program, const f2o_spec *spec, bool input) {
    if (program->state == NULL) return NONE;
    size_t prefix = input ? 0 : sizeof NEXT - 1;
    if (strncmp(spec->name, NEXT, prefix) != 0) return NONE;
    return index_of(program->state, spec->name + prefix);
}

/* Read all inputs or outputs, and tell those that are state from those that are not. */
static f2o_status read_side(Program *program, bool input, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    Specs *all = input ? &program->inputs : &program->outputs;
    Specs *free_ones = input ? &program->feeds : &program->results;
    size_t count = 0, **indices = input ? &program->input_state : &program->output_state;
    OrtStatus *(*count_of)(const OrtSession *, size_t *) =
        input ? runtime->api.SessionGetInputCount : runtime->api.SessionGetOutputCount;
    TRY(checked(runtime, count_of(program->session, &count), F2O_BUNDLE_ERROR, program->file,
                error));
    all->items = take(&program->arena, count, sizeof *all->items);
    free_ones->items = take(&program->arena, count, sizeof *free_ones->items);
    *indices = take(&program->arena, count, sizeof **indices);
    if (all->items == NULL || free_ones->items == NULL || *indices == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        f2o_spec *spec = &all->items[i];
        TRY(read_argument(program, input, i, spec, error));
        all->count++;
        size_t index = (*indices)[i] = state_index(program, spec, input);
        if (index == NONE) {
            free_ones->items[free_ones->count++] = *spec;
            continue;
        }
        program->touches_state = true;
        const f2o_spec *have = &program->state->specs.items[index];
        if (spec->dtype != have->dtype || !fits(spec, have->rank, have->shape)) {
            return fail(error, F2O_BUNDLE_ERROR, "the bundle is inconsistent: export it again",
                        "%s: %s has another shape or dtype than the state's %s", program->file,
                        spec->name, have->name);
        }
    }
    return sort_specs(&program->arena, free_ones) ? F2O_OK : no_memory(error);
}

static bool is_static(const f2o_spec *spec) {
    for (size_t i = 0; i < spec->rank; i++) {
        if (spec->shape[i] < 0) return false;
    }
    return true;
}

static f2o_status open_ends(Program *program, f2o_error *error) {
    size_t feeds = program->feeds.count, results = program->results.count;
    program->feed_buffers = take(&program->arena, feeds, sizeof(Buffer));
    program->result_buffers = take(&program->arena, results, sizeof(Buffer));
    program->bound = take(&program->arena, feeds, sizeof(f2o_spec));
    if (!program->feed_buffers || !program->result_buffers || !program->bound) {
        return no_memory(error);
    }
    for (size_t i = 0; i < feeds; i++) {
        const f2o_spec *spec = &program->feeds.items[i];
        int64_t *shape = take(&program->arena, spec->rank, sizeof *shape);
        if (shape == NULL) return no_memory(error);
        program->bound[i] = (f2o_spec){.name = spec->name, .rank = spec->rank, .shape = shape};
    }
    for (size_t i = 0; i < results; i++) {
        const f2o_spec *spec = &program->results.items[i];
        /* The library shows an output of unknown rank as one of rank 0; only a model made for a
         * state promises that its ranks are known. */
        if (!is_static(spec) || (spec->rank == 0 && !program->touches_state)) continue;
        TRY(open_buffer(program->runtime, spec->dtype, spec->rank, spec->shape,
                        &program->result_buffers[i], error));
    }
    return F2O_OK;
}

/* Copies of state tensors that a session takes in place of its initializers. */
static f2o_status copy_inside(Program *program, const f2o_state *values, const Names *inside,
                              f2o_error *error) {
    program->inside = take(&program->arena, inside->count, sizeof(Buffer));
    if (program->inside == NULL) return no_memory(error);
    for (size_t i = 0; i < inside->count; i++) {
        size_t index = index_of(values, inside->items[i]);
        const f2o_spec *spec = &values->specs.items[index];
        Buffer *copy = &program->inside[program->inside_count++];
        TRY(open_buffer(program->runtime, spec->dtype, spec->rank, spec->shape, copy, error));
        memcpy(copy->data, current(values, index)->data, copy->bytes);
    }
    return F2O_OK;
}

static f2o_status fill_program(Program *program, const char *path, bool trains,
                               const f2o_state *values, const Names *inside, f2o_error *error) {
    if (inside != NULL) TRY(copy_inside(program, values, inside, error));
    TRY(open_session(program, path, trains, inside, error));
    TRY(read_side(program, true, error));
    TRY(read_side(program, false, error));
    return open_ends(program, error);
}

/* Open a model. Inputs named like a tensor of `state` read it, an output next/v is its next value.
 * `inside`, which may be NULL, names initializers whose values are those of `values`. */
static f2o_status open_program(Program *program, const Runtime *runtime, const char *path,
                               f2o_state *state, bool trains, const f2o_state *values,
                               const Names *inside, f2o_error *error) {
    memset(program, 0, sizeof *program);
    program->runtime = runtime;
    program->state = state;
    const char *slash = strrchr(path, '/');
    program->file = take_text(&program->arena, slash == NULL ? path : slash + 1);
    f2o_status status = program->file == NULL
                            ? no_memory(error)
                            : fill_program(program, path, trains, values, inside, error);
    if (status != F2O_OK) close_program(program);
    return status;
}

/* Refuse a model whose feeds or results are not what the manifest says. */
static f2o_status check_signature(const Program *program, const char *kind, const Specs *have,
                                  const Specs *asked, f2o_error *error) {
    bool same = have->count == asked->count;
    for (size_t i = 0; same && i < have->count; i++) {
        const f2o_spec *a = &have->items[i], *b = &asked->items[i];
        same = strcmp(a->name, b->name) == 0 && a->dtype == b->dtype &&
               same_shape(a->rank, a->shape, b->rank, b->shape);
        for (size_t j = 0; same && j < a->rank; j++) {
            same = a->symbols[j] == NULL || strcmp(a->symbols[j], b->symbols[j]) == 0;
        }
    }
    if (same) return F2O_OK;
    return fail(error, F2O_BUNDLE_ERROR, "the bundle is inconsistent: export it again",
                "%s: its %s are not those that the manifest says", program->file, kind);
}

/* Find, for each feed, which of the given tensors it is. */
static f2o_status arrange(const char *file, const Specs *feeds, const f2o_tensor *given,
                          size_t count, const f2o_tensor **ordered, f2o_error *error) {
    if (count != feeds->count) {
        return fail(error, F2O_FEED_ERROR, "give each input once", "%s takes %zu feeds, got %zu",
                    file, feeds->count, count);
    }
    for (size_t i = 0; i < count; i++) ordered[i] = NULL;
    for (size_t i = 0; i < count; i++) {
        const f2o_spec *spec = given[i].name == NULL ? &feeds->items[i]
                                                     : spec_named(feeds, given[i].name);
        if (spec == NULL || ordered[spec - feeds->items] != NULL) {
            return fail(error, F2O_FEED_ERROR, "give each input once", "%s: %s %s", file,
                        spec == NULL ? "there is no input" : "given twice is",
                        given[i].name == NULL ? spec->name : given[i].name);
        }
        ordered[spec - feeds->items] = &given[i];
    }
    return F2O_OK;
}

/* Whether free sizes of one name are equal, up to and within feed `last`. */
static bool agree(const Specs *feeds, const f2o_tensor *const *given, size_t last) {
    const f2o_spec *spec = &feeds->items[last];
    for (size_t d = 0; d < spec->rank; d++) {
        if (spec->symbols[d] == NULL || strcmp(spec->symbols[d], "?") == 0) continue;
        for (size_t i = 0; i <= last; i++) {
            const f2o_spec *before = &feeds->items[i];
            for (size_t e = 0; e < before->rank; e++) {
                if (before->symbols[e] != NULL &&
                    strcmp(before->symbols[e], spec->symbols[d]) == 0 &&
                    given[i]->shape[e] != given[last]->shape[d]) {
                    return false;
                }
            }
        }
    }
    return true;
}

static f2o_status check_feeds(const char *file, const Specs *feeds, const f2o_tensor *const *given,
                              f2o_error *error) {
    char have[SHOWN], asked[SHOWN];
    for (size_t i = 0; i < feeds->count; i++) {
        const f2o_spec *spec = &feeds->items[i];
        const f2o_tensor *value = given[i];
        const char *dtype = f2o_dtype_name(value->dtype);
        if (value->dtype != spec->dtype) {
            return fail(error, F2O_FEED_ERROR, "convert it before", "%s: %s is %s, got %s", file,
                        spec->name, f2o_dtype_name(spec->dtype), dtype ? dtype : "no known dtype");
        }
        size_t bytes = value->rank > RANK_LIMIT ? NONE
                                                : bytes_of(value->dtype, value->rank, value->shape);
        if (bytes == NONE || (bytes > 0 && value->data == NULL) ||
            !fits(spec, value->rank, value->shape) || !agree(feeds, given, i)) {
            size_t rank = value->rank > RANK_LIMIT ? 0 : value->rank;
            return fail(error, F2O_FEED_ERROR,
                        "the number of sizes and every fixed or repeated size must match",
                        "%s: %s has shape %s, got %s", file, spec->name,
                        shown(asked, sizeof asked, spec->rank, spec->shape, spec->symbols),
                        shown(have, sizeof have, rank, value->shape, NULL));
        }
    }
    return F2O_OK;
}

/* Copy the feeds to where the bindings read them; new sizes need a new buffer. */
static f2o_status fill_feeds(Program *program, const f2o_tensor *const *given, f2o_error *error) {
    for (size_t i = 0; i < program->feeds.count; i++) {
        const f2o_tensor *value = given[i];
        Buffer *buffer = &program->feed_buffers[i];
        if (buffer->value == NULL || !same_shape(value->rank, value->shape, value->rank,
                                                 program->bound[i].shape)) {
            Buffer fresh = {NULL, NULL, 0};
            f2o_status status = open_buffer(program->runtime, value->dtype, value->rank,
                                            value->shape, &fresh, error);
            if (status != F2O_OK) {
                close_buffer(program->runtime, &fresh);
                return status;
            }
            close_buffer(program->runtime, buffer);
            *buffer = fresh;
            if (value->rank > 0) {
                memcpy((int64_t *)(uintptr_t)program->bound[i].shape, value->shape,
                       value->rank * sizeof(int64_t));
            }
            program->generation++;
        }
        if (buffer->bytes != 0) memcpy(buffer->data, value->data, buffer->bytes);
    }
    return F2O_OK;
}

static f2o_status bind_feeds(const Program *program, Lane *lane, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    if (lane->feeds_bound == program->generation + 1) return F2O_OK;
    for (size_t i = 0; i < program->feeds.count; i++) {
        CALL(runtime, F2O_RUN_ERROR, program->file, error, BindInput, lane->binding,
             program->feeds.items[i].name, program->feed_buffers[i].value);
    }
    lane->feeds_bound = program->generation + 1;
    return F2O_OK;
}

/* Bind state and results; an output of open shape is bound anew for each run. */
static f2o_status bind_lane(const Program *program, Lane *lane, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    CALL(runtime, F2O_RUN_ERROR, program->file, error, CreateIoBinding, program->session,
         &lane->binding);
    for (size_t i = 0; i < program->inputs.count; i++) {
        size_t index = program->input_state[i];
        if (index == NONE) continue;
        CALL(runtime, F2O_RUN_ERROR, program->file, error, BindInput, lane->binding,
             program->inputs.items[i].name, current(program->state, index)->value);
    }
    size_t result = 0;
    for (size_t i = 0; i < program->outputs.count; i++) {
        size_t index = program->output_state[i];
        const char *name = program->outputs.items[i].name;
        const Buffer *buffer = index == NONE ? &program->result_buffers[result++]
                                             : other(program->state, index);
        if (buffer->value != NULL) {
            CALL(runtime, F2O_RUN_ERROR, program->file, error, BindOutput, lane->binding, name,
                 buffer->value);
        } else { /* keeps the model's order */
            CALL(runtime, F2O_RUN_ERROR, program->file, error, BindOutputToDevice, lane->binding,
                 name, runtime->host);
        }
    }
    return F2O_OK;
}

static void set_key(const Program *program, unsigned char *key) {
    if (program->state == NULL) return;
    for (size_t i = 0; i < program->inputs.count; i++) {
        size_t index = program->input_state[i];
        if (index != NONE) key[index] = program->state->side[index];
    }
    for (size_t i = 0; i < program->outputs.count; i++) {
        size_t index = program->output_state[i];
        if (index != NONE) key[index] = program->state->side[index];
    }
}

/* The bindings for the present combination of buffers: made once, kept for the next time. */
static f2o_status find_lane(Program *program, Lane **found, f2o_error *error) {
    size_t size = program->state == NULL ? 1 : program->state->specs.count + 1;
    unsigned char *key = calloc(size, 1);
    if (key == NULL) return no_memory(error);
    set_key(program, key);
    for (size_t i = 0; i < program->lane_count; i++) {
        if (memcmp(program->lanes[i].key, key, size) == 0) {
            free(key);
            *found = &program->lanes[i];
            return F2O_OK;
        }
    }
    Lane lane = {key, NULL, 0};
    f2o_status status = bind_lane(program, &lane, error);
    if (status != F2O_OK) {
        close_lane(program, &lane);
        return status;
    }
    size_t place = program->lane_count < LANES ? program->lane_count++ : program->oldest++ % LANES;
    close_lane(program, &program->lanes[place]);
    program->lanes[place] = lane;
    *found = &program->lanes[place];
    return F2O_OK;
}

static f2o_status rebind_open(const Program *program, const Lane *lane, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    for (size_t i = 0; i < program->results.count; i++) {
        if (program->result_buffers[i].value != NULL) continue;
        /* left bound it keeps the last run's shape and refuses any other */
        CALL(runtime, F2O_RUN_ERROR, program->file, error, BindOutputToDevice, lane->binding,
             program->results.items[i].name, runtime->host);
    }
    return F2O_OK;
}

/* What a value that the library has made holds; `shape` has room for RANK_LIMIT sizes. */
static f2o_status view_value(const Runtime *runtime, OrtValue *value, const f2o_spec *spec,
                             int64_t *shape, f2o_tensor *view, const char *what,
                             f2o_error *error) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    void *data = NULL;
    const Api *api = &runtime->api;
    TRY(checked(runtime, api->GetTensorTypeAndShape(value, &info), F2O_RUN_ERROR, what, error));
    OrtStatus *status = api->GetTensorElementType(info, &type);
    if (status == NULL) status = api->GetDimensionsCount(info, &rank);
    bool known = status == NULL && rank <= RANK_LIMIT && (f2o_dtype)type == spec->dtype;
    if (known) status = api->GetDimensions(info, shape, rank);
    if (known && status == NULL) status = api->GetTensorMutableData(value, &data);
    api->ReleaseTensorTypeAndShapeInfo(info);
    TRY(checked(runtime, status, F2O_RUN_ERROR, what, error));
    if (!known) {
        return fail(error, F2O_RUN_ERROR, NULL, "%s: %s came with another type", what, spec->name);
    }
    *view = (f2o_tensor){spec->name, spec->dtype, rank, shape, data};
    return F2O_OK;
}

/* Views of the results; those of open shape are values of the library, `values`, in model order. */
static f2o_status view_results(const Program *program, OrtValue **values, f2o_tensor *views,
                               int64_t (*shapes)[RANK_LIMIT], f2o_error *error) {
    size_t result = 0;
    for (size_t i = 0; i < program->outputs.count; i++) {
        if (program->output_state[i] != NONE) continue;
        const f2o_spec *spec = &program->results.items[result];
        const Buffer *buffer = &program->result_buffers[result];
        f2o_tensor *view = &views[result];
        if (buffer->value != NULL) {
            *view = (f2o_tensor){spec->name, spec->dtype, spec->rank, spec->shape, buffer->data};
        } else {
            TRY(view_value(program->runtime, values[i], spec, shapes[result], view, program->file,
                           error));
        }
        result++;
    }
    return F2O_OK;
}

static double number_at(const f2o_tensor *view, size_t index) {
    float narrow;
    double wide;
    uint16_t half;
    switch (view->dtype) {
    case F2O_FLOAT32: memcpy(&narrow, (const char *)view->data + 4 * index, 4); return narrow;
    case F2O_FLOAT64: memcpy(&wide, (const char *)view->data + 8 * index, 8); return wide;
    case F2O_FLOAT16:
    case F2O_BFLOAT16:
        memcpy(&half, (const char *)view->data + 2 * index, 2);
        unsigned ones = view->dtype == F2O_FLOAT16 ? 0x7c00 : 0x7f80;
        return (half & ones) == ones ? (double)NAN : 0.0; /* all that is asked: is it finite */
    default: return 0.0;
    }
}

static f2o_status check_losses(const Names *losses, const f2o_tensor *views, size_t count,
                               f2o_error *error) {
    for (size_t i = 0; i < count; i++) {
        bool is_loss = false;
        for (size_t j = 0; j < losses->count; j++) {
            is_loss = is_loss || strcmp(losses->items[j], views[i].name) == 0;
        }
        size_t size = f2o_dtype_size(views[i].dtype);
        for (size_t k = 0; is_loss && k < f2o_tensor_bytes(&views[i]) / size; k++) {
            if (!isfinite(number_at(&views[i], k))) {
                return fail(error, F2O_NON_FINITE_ERROR,
                            "lower the learning rate, or look at this batch",
                            "the loss %s is not finite: the state is kept", views[i].name);
            }
        }
    }
    return F2O_OK;
}

/* Everything that a run needs for its results. */
typedef struct Outcome {
    f2o_tensor *views;
    int64_t (*shapes)[RANK_LIMIT];
    OrtValue **values;
    size_t count; /* of the values */
} Outcome;

static void close_outcome(const Program *program, Outcome *outcome) {
    const Api *api = &program->runtime->api;
    for (size_t i = 0; i < outcome->count; i++) api->ReleaseValue(outcome->values[i]);
    if (outcome->values != NULL) {
        OrtStatus *freed = api->AllocatorFree(program->runtime->allocator, outcome->values);
        if (freed != NULL) api->ReleaseStatus(freed);
    }
    free(outcome->views);
    free(outcome->shapes);
}

static f2o_status take_outcome(const Program *program, const Lane *lane, Outcome *outcome,
                               f2o_error *error) {
    const Runtime *runtime = program->runtime;
    size_t count = program->results.count;
    bool open = false;
    for (size_t i = 0; i < count; i++) open = open || program->result_buffers[i].value == NULL;
    outcome->views = calloc(count + 1, sizeof *outcome->views);
    outcome->shapes = calloc(open ? count : 1, sizeof *outcome->shapes);
    if (outcome->views == NULL || outcome->shapes == NULL) return no_memory(error);
    if (open) {
        CALL(runtime, F2O_RUN_ERROR, program->file, error, GetBoundOutputValues, lane->binding,
             runtime->allocator, &outcome->values, &outcome->count);
    }
    return view_results(program, outcome->values, outcome->views, outcome->shapes, error);
}

/* Run on feeds that were checked; with `losses`, refuse a loss that is not finite. */
static f2o_status run_checked(Program *program, const f2o_tensor *const *given,
                              const Names *losses, f2o_tensors *results, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    Lane *lane = NULL;
    Outcome outcome = {NULL, NULL, NULL, 0};
    TRY(fill_feeds(program, given, error));
    TRY(find_lane(program, &lane, error));
    TRY(bind_feeds(program, lane, error));
    TRY(rebind_open(program, lane, error));
    CALL(runtime, F2O_RUN_ERROR, program->file, error, RunWithBinding, program->session, NULL,
         lane->binding);
    f2o_status status = take_outcome(program, lane, &outcome, error);
    size_t count = program->results.count;
    if (status == F2O_OK && losses != NULL) {
        status = check_losses(losses, outcome.views, count, error);
    }
    if (status == F2O_OK) status = copy_tensors(results, outcome.views, count, error);
    close_outcome(program, &outcome);
    return status;
}

/* Exchange the buffers of what the program wrote, but for what is frozen. */
static void commit(const Program *program, const unsigned char *frozen) {
    for (size_t i = 0; i < program->outputs.count; i++) {
        size_t index = program->output_state[i];
        if (index != NONE && !frozen[index]) program->state->side[index] ^= 1;
    }
    program->state->changes++;
}

static f2o_status run_program(Program *program, const f2o_tensor *feeds, size_t count,
                              const Names *losses, f2o_tensors *results, f2o_error *error) {
    const f2o_tensor **ordered = calloc(count + 1, sizeof *ordered);
    if (ordered == NULL) return no_memory(error);
    f2o_status status = arrange(program->file, &program->feeds, feeds, count, ordered, error);
    if (status == F2O_OK) status = check_feeds(program->file, &program->feeds, ordered, error);
    if (status == F2O_OK) status = run_checked(program, ordered, losses, results, error);
    free(ordered);
    return status;
}

/* ---- A bundle, opened ------------------------------------------------------------------------ */

typedef struct Bundle {
    Runtime runtime;
    char *folder;
    Manifest manifest;
    f2o_state state;
} Bundle;

static void close_bundle(Bundle *bundle) {
    close_state(&bundle->state);
    close_manifest(&bundle->manifest);
    close_runtime(&bundle->runtime);
    free(bundle->folder);
}

/* The path of a model: x.onnx, or the x.ort that was asked for. The caller frees it. */
static f2o_status model_path(const Bundle *bundle, const char *file, char **path,
                             f2o_error *error) {
    size_t size = strlen(file), stem = size;
    char *name = malloc(size + 5);
    if (name == NULL) return no_memory(error);
    memcpy(name, file, size + 1);
    if (bundle->runtime.options.ort_format) {
        if (size > 5 && strcmp(file + size - 5, ".onnx") == 0) stem = size - 5;
        memcpy(name + stem, ".ort", 5);
        if (entry_of(&bundle->manifest, name) == NULL) {
            f2o_status status = fail(error, F2O_BUNDLE_ERROR, "export the bundle with .ort files",
                                     "%s holds no %s", bundle->folder, name);
            free(name);
            return status;
        }
    }
    *path = joined(bundle->folder, name);
    free(name);
    return *path == NULL ? no_memory(error) : F2O_OK;
}

/* A model of the bundle whose signature is the manifest's. */
static f2o_status open_model(Bundle *bundle, const char *file, f2o_state *state, bool trains,
                             const Names *inside, const Specs *feeds, const Specs *results,
                             Program *program, f2o_error *error) {
    char *path;
    TRY(model_path(bundle, file, &path, error));
    f2o_status status = open_program(program, &bundle->runtime, path, state, trains,
                                     &bundle->state, inside, error);
    free(path);
    if (status != F2O_OK) return status;
    status = check_signature(program, "inputs", &program->feeds, feeds, error);
    if (status == F2O_OK) {
        status = check_signature(program, "outputs", &program->results, results, error);
    }
    if (status != F2O_OK) close_program(program);
    return status;
}

/* Replace the state by the tensors of a file, checked before. */
static f2o_status take_file(f2o_state *state, const TensorFile *file, const char *where,
                            f2o_error *error) {
    f2o_tensor *views = calloc(file->count + 1, sizeof *views);
    if (views == NULL) return no_memory(error);
    for (size_t i = 0; i < file->count; i++) views[i] = file->tensors[i].view;
    f2o_status status = check_values(state, views, file->count, true, where, F2O_BUNDLE_ERROR,
                                     error);
    if (status == F2O_OK) put_values(state, views, file->count);
    free(views);
    return status;
}

static f2o_status first_weights(Bundle *bundle, f2o_error *error) {
    TensorFile file;
    TRY(open_weights(&bundle->manifest, bundle->folder, &file, error));
    f2o_status status = take_file(&bundle->state, &file, bundle->manifest.weights, error);
    close_tensors(&file);
    return status;
}

static f2o_status first_computed(Bundle *bundle, f2o_error *error) {
    Program program;
    char *path;
    f2o_tensors values = {0, NULL, NULL, 0};
    TRY(model_path(bundle, bundle->manifest.init, &path, error));
    f2o_status status = open_program(&program, &bundle->runtime, path, NULL, false, NULL, NULL,
                                     error);
    free(path);
    if (status != F2O_OK) return status;
    if (program.feeds.count > 0) {
        status = fail(error, F2O_BUNDLE_ERROR, "an init model takes none", "%s has inputs",
                      program.file);
    }
    if (status == F2O_OK) status = run_program(&program, NULL, 0, NULL, &values, error);
    if (status == F2O_OK) {
        status = check_values(&bundle->state, values.items, values.count, true, program.file,
                              F2O_BUNDLE_ERROR, error);
    }
    if (status == F2O_OK) put_values(&bundle->state, values.items, values.count);
    f2o_tensors_free(&values);
    close_program(&program);
    return status;
}

static f2o_status open_bundle(Bundle *bundle, const char *folder, const f2o_options *options,
                              f2o_error *error) {
    TRY(open_runtime(options, &bundle->runtime, error));
    size_t size = strlen(folder) + 1;
    bundle->folder = malloc(size);
    if (bundle->folder == NULL) return no_memory(error);
    memcpy(bundle->folder, folder, size);
    return open_manifest(folder, &bundle->manifest, error);
}

static f2o_status first_state(Bundle *bundle, f2o_error *error) {
    TRY(open_state(&bundle->state, &bundle->runtime, bundle->manifest.state, error));
    return bundle->manifest.weights != NULL ? first_weights(bundle, error)
                                            : first_computed(bundle, error);
}

/* The predict job of a name, the first if NULL. */
static f2o_status find_job(const Bundle *bundle, const char *job, const PredictJob **found,
                           f2o_error *error) {
    const Manifest *manifest = &bundle->manifest;
    for (size_t i = 0; i < manifest->predict_count; i++) {
        if (job != NULL && strcmp(manifest->predict[i].job, job) != 0) continue;
        *found = &manifest->predict[i];
        return F2O_OK;
    }
    return fail(error, F2O_BUNDLE_ERROR, "name a predict job when exporting",
                "%s holds no predict job%s%s", bundle->folder, job == NULL ? "" : " ",
                job == NULL ? "" : job);
}

/* ---- Trainer --------------------------------------------------------------------------------- */

typedef struct Predicting {
    Program program;
    uint64_t opened_at; /* the state's `changes` whose values it holds */
} Predicting;

struct f2o_trainer {
    Bundle bundle;
    Program step, gradients, update;
    Predicting *predicting; /* of each predict job, opened when first asked for */
    unsigned char *frozen;  /* of each state tensor, slots included */
    size_t counter;         /* which state tensor counts the steps, or NONE */
    int64_t steps;          /* of use only without it */
};

void f2o_trainer_close(f2o_trainer *trainer) {
    if (trainer == NULL) return;
    size_t jobs = trainer->predicting == NULL ? 0 : trainer->bundle.manifest.predict_count;
    for (size_t i = 0; i < jobs; i++) close_program(&trainer->predicting[i].program);
    close_program(&trainer->step);
    close_program(&trainer->gradients);
    close_program(&trainer->update);
    free(trainer->predicting);
    free(trainer->frozen);
    close_bundle(&trainer->bundle);
    free(trainer);
}

static f2o_status fill_trainer(f2o_trainer *trainer, const char *folder,
                               const f2o_options *options, f2o_error *error) {
    Bundle *bundle = &trainer->bundle;
    TRY(open_bundle(bundle, folder, options, error));
    TRY(first_state(bundle, error));
    const Manifest *manifest = &bundle->manifest;
    trainer->frozen = calloc(manifest->state.count + 1, 1);
    trainer->predicting = calloc(manifest->predict_count + 1, sizeof *trainer->predicting);
    if (trainer->frozen == NULL || trainer->predicting == NULL) return no_memory(error);
    trainer->counter = NONE;
    for (size_t i = 0; i < manifest->state.count; i++) {
        if (strcmp(manifest->state.items[i].role, "counter") == 0) trainer->counter = i;
    }
    return open_model(bundle, manifest->step, &bundle->state, true, NULL, &manifest->feeds,
                      &manifest->results, &trainer->step, error);
}

f2o_status f2o_trainer_open(const char *bundle, const f2o_options *options, f2o_trainer **trainer,
                            f2o_error *error) {
    TRY(begin(error));
    f2o_trainer *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return no_memory(error);
    f2o_status status = fill_trainer(fresh, bundle, options, error);
    if (status == F2O_OK) *trainer = fresh;
    else f2o_trainer_close(fresh);
    return status;
}

const f2o_spec *f2o_trainer_feeds(const f2o_trainer *trainer, size_t *count) {
    *count = trainer->step.feeds.count;
    return trainer->step.feeds.items;
}

const f2o_spec *f2o_trainer_results(const f2o_trainer *trainer, size_t *count) {
    *count = trainer->step.results.count;
    return trainer->step.results.items;
}

f2o_state *f2o_trainer_state(f2o_trainer *trainer) { return &trainer->bundle.state; }

static const Names *guarded(const f2o_trainer *trainer) {
    const Bundle *bundle = &trainer->bundle;
    return bundle->runtime.options.finite_losses ? &bundle->manifest.losses : NULL;
}

/* Run and commit, but for what is frozen. */
static f2o_status train(f2o_trainer *trainer, Program *program, const f2o_tensor *feeds,
                        size_t count, f2o_tensors *results, f2o_error *error) {
    TRY(run_program(program, feeds, count, guarded(trainer), results, error));
    commit(program, trainer->frozen);
    return F2O_OK;
}

f2o_status f2o_trainer_step(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                            f2o_tensors *results, f2o_error *error) {
    TRY(begin(error));
    TRY(train(trainer, &trainer->step, feeds, count, results, error));
    trainer->steps++;
    return F2O_OK;
}

f2o_status f2o_trainer_evaluate(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                                f2o_tensors *results, f2o_error *error) {
    TRY(begin(error));
    return run_program(&trainer->step, feeds, count, NULL, results, error);
}

/* Open both halves of the step, once. */
static f2o_status open_halves(f2o_trainer *trainer, f2o_error *error) {
    Bundle *bundle = &trainer->bundle;
    const Manifest *manifest = &bundle->manifest;
    static const Specs nothing = {NULL, NULL, 0};
    if (manifest->gradients == NULL) {
        return fail(error, F2O_BUNDLE_ERROR, "export it with accumulation of gradients",
                    "%s holds no step in two halves", bundle->folder);
    }
    if (trainer->update.session != NULL) return F2O_OK;
    if (trainer->gradients.session == NULL) {
        TRY(open_model(bundle, manifest->gradients, &bundle->state, true, NULL, &manifest->feeds,
                       &manifest->results, &trainer->gradients, error));
    }
    return open_model(bundle, manifest->update, &bundle->state, true, NULL, &nothing, &nothing,
                      &trainer->update, error);
}

f2o_status f2o_trainer_accumulate(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                                  f2o_tensors *results, f2o_error *error) {
    TRY(begin(error));
    TRY(open_halves(trainer, error));
    return train(trainer, &trainer->gradients, feeds, count, results, error);
}

int64_t f2o_trainer_accumulated(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    size_t index = index_of(state, trainer->bundle.manifest.count);
    return index == NONE ? 0 : whole_number(F2O_INT64, current(state, index)->data);
}

f2o_status f2o_trainer_update(f2o_trainer *trainer, f2o_error *error) {
    TRY(begin(error));
    TRY(open_halves(trainer, error));
    if (f2o_trainer_accumulated(trainer) == 0) {
        return fail(error, F2O_STATE_ERROR, "accumulate before", "no gradients to update by");
    }
    TRY(train(trainer, &trainer->update, NULL, 0, NULL, error));
    trainer->steps++;
    return F2O_OK;
}

f2o_status f2o_trainer_predict(f2o_trainer *trainer, const char *job, const f2o_tensor *feeds,
                               size_t count, f2o_tensors *results, f2o_error *error) {
    const PredictJob *entry;
    Bundle *bundle = &trainer->bundle;
    TRY(begin(error));
    TRY(find_job(bundle, job, &entry, error));
    Predicting *predicting = &trainer->predicting[entry - bundle->manifest.predict];
    bool holds = entry->holds.count > 0;
    if (holds && bundle->runtime.options.ort_format) {
        return fail(error, F2O_OPTIONS_ERROR, "open the bundle without ort_format",
                    "%s in .ort format holds weights that cannot be replaced", entry->file);
    }
    if (predicting->program.session == NULL ||
        (holds && predicting->opened_at != bundle->state.changes)) {
        close_program(&predicting->program);
        TRY(open_model(bundle, entry->file, &bundle->state, false, &entry->holds, &entry->feeds,
                       &entry->results, &predicting->program, error));
        predicting->opened_at = bundle->state.changes;
    }
    return run_program(&predicting->program, feeds, count, NULL, results, error);
}

int64_t f2o_trainer_steps(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    if (trainer->counter == NONE) return trainer->steps;
    return whole_number(state->specs.items[trainer->counter].dtype,
                        current(state, trainer->counter)->data);
}

double f2o_trainer_rate(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    size_t index = index_of(state, trainer->bundle.manifest.learning_rate);
    float rate = -1;
    if (index != NONE) memcpy(&rate, current(state, index)->data, sizeof rate);
    return rate >= 0 ? (double)rate : -1.0;
}

static f2o_status put_rate(f2o_trainer *trainer, float rate, f2o_error *error) {
    f2o_state *state = &trainer->bundle.state;
    const char *name = trainer->bundle.manifest.learning_rate;
    static const int64_t shape[] = {1};
    if (name == NULL) {
        return fail(error, F2O_STATE_ERROR, "export it for devices",
                    "the rate of this bundle cannot be set");
    }
    f2o_tensor value = {name, F2O_FLOAT32, 1, shape, &rate};
    put_values(state, &value, 1);
    return F2O_OK;
}

f2o_status f2o_trainer_set_rate(f2o_trainer *trainer, double rate, f2o_error *error) {
    TRY(begin(error));
    if (!(rate >= 0 && rate < 3.4e38)) {
        return fail(error, F2O_STATE_ERROR, "give a number of at least 0, or use the schedule",
                    "learning rate %g", rate);
    }
    return put_rate(trainer, (float)rate, error);
}

f2o_status f2o_trainer_use_schedule(f2o_trainer *trainer, f2o_error *error) {
    TRY(begin(error));
    return put_rate(trainer, -1, error);
}

f2o_status f2o_trainer_freeze(f2o_trainer *trainer, const char *const *names, size_t count,
                              f2o_error *error) {
    const f2o_state *state = &trainer->bundle.state;
    const Specs *specs = &state->specs;
    TRY(begin(error));
    if (f2o_trainer_accumulated(trainer) != 0) {
        return fail(error, F2O_STATE_ERROR, "update before", "gradients are being accumulated");
    }
    for (size_t i = 0; i < count; i++) {
        size_t index = index_of(state, names[i]);
        if (index == NONE || strcmp(specs->items[index].role, "variable") != 0) {
            return fail(error, F2O_STATE_ERROR, "f2o_state_specs lists the variables",
                        "%s is no variable", names[i] == NULL ? "NULL" : names[i]);
        }
    }
    memset(trainer->frozen, 0, specs->count);
    for (size_t i = 0; i < count; i++) trainer->frozen[index_of(state, names[i])] = 1;
    for (size_t i = 0; i < specs->count; i++) {
        size_t of = index_of(state, specs->items[i].of);
        if (of != NONE && trainer->frozen[of]) trainer->frozen[i] = 1;
    }
    return F2O_OK;
}

bool f2o_trainer_is_frozen(const f2o_trainer *trainer, const char *variable) {
    size_t index = index_of(&trainer->bundle.state, variable);
    return index != NONE && trainer->frozen[index];
}

/* ---- Saved states ---------------------------------------------------------------------------- */

/* The beginning of a saved state's header: the place of the digest, and whose state it is. */
static void write_opening(Text *text, const f2o_trainer *trainer) {
    char zeros[DIGITS + 1];
    memset(zeros, '0', DIGITS);
    zeros[DIGITS] = 0;
    add(text, STATE_KEY);
    add(text, zeros);
    add(text, "\",\"format\":\"flow2onnx-state\",\"version\":\"2\",\"job\":");
    add_json_text(text, trainer->bundle.manifest.job, false);
    add(text, ",\"state_id\":\"");
    add(text, trainer->bundle.manifest.state_id);
    add(text, "\",\"steps\":\"");
    add_number(text, (uint64_t)f2o_trainer_steps(trainer));
    add(text, "\"}");
}

f2o_status f2o_trainer_save(const f2o_trainer *trainer, const char *path, f2o_error *error) {
    const f2o_state *state = &trainer->bundle.state;
    size_t count = state->specs.count;
    TRY(begin(error));
    f2o_tensor *views = calloc(count + 1, sizeof *views);
    if (views == NULL) return no_memory(error);
    for (size_t i = 0; i < count; i++) views[i] = state_view(state, i);
    if (count > 1) qsort(views, count, sizeof *views, compare_tensors);
    Text opening = {NULL, 0, 0, false}, header = {NULL, 0, 0, false};
    write_opening(&opening, trainer);
    f2o_status status = F2O_OK;
    if (opening.failed) {
        status = no_memory(error);
    } else {
        write_header(&header, opening.bytes, views, count, 0);
        status = write_tensors(path, &header, views, count, error);
    }
    free(opening.bytes);
    free(header.bytes);
    free(views);
    return status;
}

static f2o_status check_own(const f2o_trainer *trainer, const TensorFile *file, const char *path,
                            f2o_error *error) {
    const Manifest *manifest = &trainer->bundle.manifest;
    const char *const wanted[][2] = {{"format", "flow2onnx-state"},
                                     {"version", "2"},
                                     {"job", manifest->job},
                                     {"state_id", manifest->state_id}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const char *found = metadata_of(file, wanted[i][0]);
        if (strcmp(found, wanted[i][1]) != 0) {
            return fail(error, F2O_BUNDLE_ERROR, "load a file that was saved for the same job",
                        "%s: %s is %.100s, this trainer needs %.100s", path, wanted[i][0],
                        *found == 0 ? "missing" : found, wanted[i][1]);
        }
    }
    return F2O_OK;
}

static f2o_status check_steps(const f2o_trainer *trainer, const TensorFile *file, const char *path,
                              int64_t *steps, f2o_error *error) {
    const char *text = metadata_of(file, "steps");
    size_t size = strlen(text);
    uint64_t number = 0;
    for (const char *c = text; *c >= '0' && *c <= '9' && size < 20; c++) {
        number = number * 10 + (uint64_t)(*c - '0');
    }
    if (size == 0 || size >= 20 || strspn(text, "0123456789") != size || number > INT64_MAX) {
        return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: steps is %.40s, not a number", path, text);
    }
    *steps = (int64_t)number;
    if (trainer->counter == NONE) return F2O_OK;
    const f2o_spec *spec = &trainer->bundle.state.specs.items[trainer->counter];
    const Stored *stored = stored_named(file, spec->name);
    if (stored == NULL || stored->view.dtype != spec->dtype) return F2O_OK; /* refused elsewhere */
    if (f2o_tensor_bytes(&stored->view) == f2o_dtype_size(spec->dtype) &&
        whole_number(spec->dtype, stored->view.data) == *steps) {
        return F2O_OK;
    }
    return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: steps is %s, which is not its %s", path, text,
                spec->name);
}

f2o_status f2o_trainer_load(f2o_trainer *trainer, const char *path, f2o_error *error) {
    unsigned char *content;
    size_t size;
    TensorFile file;
    int64_t steps = 0;
    TRY(begin(error));
    TRY(read_file(path, UINT64_MAX, &content, &size, error));
    bool genuine = has_digest(content, size, 8, STATE_KEY);
    TRY(open_tensors(content, size, path, &file, error));
    f2o_status status = check_own(trainer, &file, path, error);
    if (status == F2O_OK && !genuine) status = wrong_digest(path, error);
    if (status == F2O_OK) status = check_steps(trainer, &file, path, &steps, error);
    if (status == F2O_OK) status = take_file(&trainer->bundle.state, &file, path, error);
    if (status == F2O_OK) trainer->steps = steps;
    close_tensors(&file);
    return status;
}

/* ---- Exporting a predict model --------------------------------------------------------------- */

/* A weights file in which each held tensor lies at the bytes where `weights` has it. */
static f2o_status write_over(const f2o_trainer *trainer, const PredictJob *entry, const char *path,
                             f2o_error *error) {
    const Bundle *bundle = &trainer->bundle;
    TensorFile old;
    TRY(open_weights(&bundle->manifest, bundle->folder, &old, error));
    uint64_t end = 0;
    size_t count = 0;
    for (size_t i = 0; i < entry->holds.count; i++) {
        const Stored *stored = stored_named(&old, entry->holds.items[i]);
        if (stored != NULL && stored->end > end) end = stored->end;
    }
    f2o_tensor *views = calloc(old.count + 1, sizeof *views);
    for (size_t i = 0; views != NULL && i < old.count && old.tensors[i].end <= end; i++) {
        views[count++] = state_view(&bundle->state, index_of(&bundle->state,
                                                             old.tensors[i].view.name));
    }
    Text opening = {NULL, 0, 0, false}, header = {NULL, 0, 0, false};
    const Value *item = old.metadata == NULL ? NULL : first_of(&old.json, old.metadata);
    add(&opening, item == NULL ? "{" : "{\"" METADATA "\":{");
    for (; item != NULL; item = next_of(&old.json, item)) {
        add_json_text(&opening, item->key, false);
        add(&opening, ":");
        add_json_text(&opening, item->text, false);
        add(&opening, item->next == NO_VALUE ? "}" : ",");
    }
    f2o_status status = views == NULL || opening.failed ? no_memory(error) : F2O_OK;
    if (status == F2O_OK) {
        write_header(&header, opening.bytes, views, count, old.data - 8);
        if (!header.failed && header.size != old.data) {
            status = fail(error, F2O_BUNDLE_ERROR, "export the job again",
                          "%s: its header has no room", bundle->manifest.weights);
        }
    }
    if (status == F2O_OK) status = write_tensors(path, &header, views, count, error);
    free(opening.bytes);
    free(header.bytes);
    free(views);
    close_tensors(&old);
    return status;
}

static f2o_status copy_model(const Bundle *bundle, const char *file, const char *path,
                             f2o_error *error) {
    unsigned char *content;
    size_t size;
    char digits[DIGITS + 1];
    const FileEntry *entry = entry_of(&bundle->manifest, file);
    char *source = joined(bundle->folder, file);
    if (source == NULL) return no_memory(error);
    f2o_status status = read_file(source, entry->size, &content, &size, error);
    if (status == F2O_OK) {
        sha_of(content, size, digits);
        Part part = {content, size};
        status = strcmp(digits, entry->sha256) == 0
                     ? replace_file(path, &part, 1, error)
                     : fail(error, F2O_BUNDLE_ERROR, "export the bundle again",
                            "%s: was changed since the manifest was written", source);
        free(content);
    }
    free(source);
    return status;
}

/* Refuse a folder with anything but an earlier export; `has_content` says whether there is one. */
static f2o_status check_folder(const char *path, const char *model, const char *weights,
                               bool *has_content, f2o_error *error) {
    struct stat about;
    *has_content = false;
    if (stat(path, &about) != 0) return F2O_OK;
    DIR *folder = S_ISDIR(about.st_mode) ? opendir(path) : NULL;
    if (folder == NULL) return unwritable(path, "it is no folder that can be read", error);
    f2o_status status = F2O_OK;
    for (struct dirent *entry; status == F2O_OK && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        *has_content = true;
        if (strcmp(name, model) != 0 && strcmp(name, weights) != 0) {
            status = fail(error, F2O_BUNDLE_ERROR,
                          "give a folder that is missing, empty, or an earlier export",
                          "%s holds %s, which would be lost", path, name);
        }
    }
    closedir(folder);
    return status;
}

static f2o_status fill_folder(const f2o_trainer *trainer, const PredictJob *entry,
                              const char *folder, f2o_error *error) {
    char *model = joined(folder, entry->file);
    char *weights = joined(folder, trainer->bundle.manifest.weights);
    f2o_status status = model == NULL || weights == NULL
                            ? no_memory(error)
                            : copy_model(&trainer->bundle, entry->file, model, error);
    if (status == F2O_OK) status = write_over(trainer, entry, weights, error);
    free(model);
    free(weights);
    return status;
}

f2o_status f2o_trainer_export_predict(const f2o_trainer *trainer, const char *folder,
                                      const char *job, f2o_error *error) {
    const PredictJob *entry;
    Target target;
    char temporary[PATH_MAX];
    bool has_content, made = false;
    const char *weights = trainer->bundle.manifest.weights;
    TRY(begin(error));
    TRY(find_job(&trainer->bundle, job, &entry, error));
    if (weights == NULL || entry->holds.count == 0) {
        return fail(error, F2O_BUNDLE_ERROR, "export the job again, which writes them so",
                    "%s has no weights in a file of their own", entry->file);
    }
    TRY(check_folder(folder, entry->file, weights, &has_content, error));
    TRY(find_target(folder, &target, error));
    remove_stale(&target);
    for (unsigned attempt = 0; !made && attempt < 100; attempt++) {
        if (!name_temporary(&target, attempt, temporary)) break;
        made = mkdir(temporary, 0777) == 0;
        if (!made && errno != EEXIST) break;
    }
    if (!made) return unwritable(folder, "no folder can be made beside it", error);
    int lock = open(temporary, O_RDONLY | O_CLOEXEC);
    if (lock >= 0) (void)flock(lock, LOCK_EX | LOCK_NB);
    f2o_status status = fill_folder(trainer, entry, temporary, error);
    if (status == F2O_OK) {
        bool put = has_content ? swap_paths(temporary, target.path)
                               : rename(temporary, target.path) == 0;
        if (!put) status = unwritable(folder, strerror(errno), error);
    }
    if (status != F2O_OK || has_content) remove_path(temporary); /* by now perhaps the old one */
    if (lock >= 0) close(lock);
    sync_folder(target.folder);
    return status;
}

/* ---- Predictor ------------------------------------------------------------------------------- */

struct f2o_predictor {
    Bundle bundle; /* of a single model only its runtime is used */
    Program program;
};

void f2o_predictor_close(f2o_predictor *predictor) {
    if (predictor == NULL) return;
    close_program(&predictor->program);
    close_bundle(&predictor->bundle);
    free(predictor);
}

static f2o_status fill_predictor(f2o_predictor *predictor, const char *path, const char *job,
                                 const f2o_options *options, f2o_error *error) {
    struct stat about;
    const PredictJob *entry;
    Bundle *bundle = &predictor->bundle;
    if (stat(path, &about) != 0) return unreadable(path, strerror(errno), error);
    if (!S_ISDIR(about.st_mode)) {
        TRY(open_runtime(options, &bundle->runtime, error));
        if (!S_ISREG(about.st_mode)) return unreadable(path, "it is no file", error);
        return open_program(&predictor->program, &bundle->runtime, path, NULL, false, NULL, NULL,
                            error);
    }
    TRY(open_bundle(bundle, path, options, error));
    TRY(find_job(bundle, job, &entry, error));
    if (entry->reads.count > 0) TRY(first_state(bundle, error));
    return open_model(bundle, entry->file, entry->reads.count > 0 ? &bundle->state : NULL, false,
                      NULL, &entry->feeds, &entry->results, &predictor->program, error);
}

f2o_status f2o_predictor_open(const char *model_or_bundle, const char *job,
                              const f2o_options *options, f2o_predictor **predictor,
                              f2o_error *error) {
    TRY(begin(error));
    f2o_predictor *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return no_memory(error);
    f2o_status status = fill_predictor(fresh, model_or_bundle, job, options, error);
    if (status == F2O_OK) *predictor = fresh;
    else f2o_predictor_close(fresh);
    return status;
}

const f2o_spec *f2o_predictor_feeds(const f2o_predictor *predictor, size_t *count) {
    *count = predictor->program.feeds.count;
    return predictor->program.feeds.items;
}

const f2o_spec *f2o_predictor_results(const f2o_predictor *predictor, size_t *count) {
    *count = predictor->program.results.count;
    return predictor->program.results.items;
}

/* All that one call needs: nothing of it is shared, so that calls may overlap. */
typedef struct Call {
    Arena arena;
    const f2o_tensor **given;
    Buffer *feeds;
    const char **input_names, **output_names;
    const OrtValue **inputs;
    OrtValue **outputs;
    f2o_tensor *views;
    int64_t (*shapes)[RANK_LIMIT];
} Call;

static bool open_call(Call *call, const Program *program) {
    size_t inputs = program->inputs.count, outputs = program->outputs.count;
    call->given = take(&call->arena, inputs, sizeof *call->given);
    call->feeds = take(&call->arena, inputs, sizeof *call->feeds);
    call->input_names = take(&call->arena, inputs, sizeof *call->input_names);
    call->inputs = take(&call->arena, inputs, sizeof *call->inputs);
    call->output_names = take(&call->arena, outputs, sizeof *call->output_names);
    call->outputs = take(&call->arena, outputs, sizeof *call->outputs);
    call->views = take(&call->arena, outputs, sizeof *call->views);
    call->shapes = take(&call->arena, outputs, sizeof *call->shapes);
    return call->given && call->feeds && call->input_names && call->inputs && call->output_names &&
           call->outputs && call->views && call->shapes;
}

static f2o_status fill_call(Call *call, const Program *program, f2o_error *error) {
    size_t feed = 0;
    for (size_t i = 0; i < program->inputs.count; i++) {
        size_t index = program->input_state[i];
        call->input_names[i] = program->inputs.items[i].name;
        if (index != NONE) {
            call->inputs[i] = current(program->state, index)->value;
            continue;
        }
        const f2o_tensor *value = call->given[feed];
        Buffer *buffer = &call->feeds[feed++];
        TRY(open_buffer(program->runtime, value->dtype, value->rank, value->shape, buffer, error));
        if (buffer->bytes != 0) memcpy(buffer->data, value->data, buffer->bytes);
        call->inputs[i] = buffer->value;
    }
    for (size_t i = 0; i < program->outputs.count; i++) {
        call->output_names[i] = program->outputs.items[i].name;
    }
    return F2O_OK;
}

static f2o_status make_call(Call *call, const Program *program, const f2o_tensor *feeds,
                            size_t count, f2o_tensors *results, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    if (!open_call(call, program)) return no_memory(error);
    TRY(arrange(program->file, &program->feeds, feeds, count, call->given, error));
    TRY(check_feeds(program->file, &program->feeds, call->given, error));
    TRY(fill_call(call, program, error));
    CALL(runtime, F2O_RUN_ERROR, program->file, error, Run, program->session, NULL,
         call->input_names, call->inputs, program->inputs.count, call->output_names,
         program->outputs.count, call->outputs);
    for (size_t i = 0; i < program->outputs.count; i++) {
        TRY(view_value(runtime, call->outputs[i], &program->outputs.items[i], call->shapes[i],
                       &call->views[i], program->file, error));
    }
    return copy_tensors(results, call->views, program->outputs.count, error);
}

f2o_status f2o_predictor_run(const f2o_predictor *predictor, const f2o_tensor *feeds, size_t count,
                             f2o_tensors *results, f2o_error *error) {
    const Program *program = &predictor->program;
    const Runtime *runtime = program->runtime;
    Call call;
    TRY(begin(error));
    memset(&call, 0, sizeof call);
    f2o_status status = make_call(&call, program, feeds, count, results, error);
    for (size_t i = 0; call.feeds != NULL && i < program->feeds.count; i++) {
        close_buffer(runtime, &call.feeds[i]);
    }
    for (size_t i = 0; call.outputs != NULL && i < program->outputs.count; i++) {
        if (call.outputs[i] != NULL) runtime->api.ReleaseValue(call.outputs[i]);
    }
    give(&call.arena);
    return status;
}
