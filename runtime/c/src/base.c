/* Errors, memory that is freed together, growing text, element types, copies of tensors. */

#include "internal.h"

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Names come from files, and may be cut short: put a mark where the text is no UTF-8. */
static void sanitize(char *text) {
    for (size_t left = strlen(text), size; left > 0; text += size, left -= size) {
        size = utf8_size((const unsigned char *)text, left);
        if (size == 0) *text = '?';
        size = size == 0 ? 1 : size;
    }
}

/* Fill `error`; `hint`, which may be NULL, says what to do. */
INTERNAL void set_error(f2o_error *error, f2o_status status, const char *hint, const char *format,
                        ...) {
    if (error == NULL) return;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (hint != NULL && used < sizeof error->message) {
        snprintf(error->message + used, sizeof error->message - used, "\n  %s", hint);
    }
    sanitize(error->message);
}

INTERNAL f2o_status no_memory(f2o_error *error) {
    return fail(error, F2O_MEMORY_ERROR, NULL, "no memory left");
}

INTERNAL f2o_status clear_error(f2o_error *error) {
    if (error != NULL) *error = (f2o_error){F2O_OK, ""};
    return F2O_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

#define ALIGNMENT 64u /* the widest vector load of the CPU kernels */

/* `count` zeroed items of `size` bytes, or NULL. */
INTERNAL void *arena_alloc(Arena *arena, size_t count, size_t size) {
    const size_t head = (sizeof(Block) + 15) / 16 * 16;
    if (size != 0 && count > (SIZE_MAX / 2 - head) / size) return NULL;
    unsigned char *block = calloc(1, head + count * size);
    if (block == NULL) return NULL;
    ((Block *)(void *)block)->next = arena->blocks;
    arena->blocks = (Block *)(void *)block;
    return block + head;
}

INTERNAL char *arena_text(Arena *arena, const char *text) {
    char *copy = arena_alloc(arena, strlen(text) + 1, 1);
    if (copy != NULL) memcpy(copy, text, strlen(text) + 1);
    return copy;
}

INTERNAL void arena_free(Arena *arena) {
    for (Block *block = arena->blocks; block != NULL;) {
        Block *next = block->next;
        free(block);
        block = next;
    }
    arena->blocks = NULL;
}

INTERNAL void *alloc_aligned(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t rounded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    return aligned_alloc(ALIGNMENT, rounded);
}

INTERNAL void append(Text *text, const void *bytes, size_t size) {
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

INTERNAL void add(Text *text, const char *more) { append(text, more, strlen(more)); }

INTERNAL void add_number(Text *text, uint64_t number) {
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    add(text, digits);
}

/* ---- Element types --------------------------------------------------------------------------- */

static const Element ELEMENTS[] = {
    {F2O_FLOAT32, 4, "float32", "F32"},    {F2O_UINT8, 1, "uint8", "U8"},
    {F2O_INT8, 1, "int8", "I8"},           {F2O_UINT16, 2, "uint16", "U16"},
    {F2O_INT16, 2, "int16", "I16"},        {F2O_INT32, 4, "int32", "I32"},
    {F2O_INT64, 8, "int64", "I64"},        {F2O_BOOL, 1, "bool", "BOOL"},
    {F2O_FLOAT16, 2, "float16", "F16"},    {F2O_FLOAT64, 8, "float64", "F64"},
    {F2O_UINT32, 4, "uint32", "U32"},      {F2O_UINT64, 8, "uint64", "U64"},
    {F2O_BFLOAT16, 2, "bfloat16", "BF16"},
};

#define ELEMENT_COUNT (sizeof ELEMENTS / sizeof ELEMENTS[0])

INTERNAL const Element *element_of(f2o_dtype code) {
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (ELEMENTS[i].code == code) return &ELEMENTS[i];
    }
    return NULL;
}

INTERNAL const Element *find_element(const char *name, bool stored) {
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
INTERNAL size_t bytes_of(f2o_dtype dtype, size_t rank, const int64_t *shape) {
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
INTERNAL const char *show_shape(char *into, size_t size, size_t rank, const int64_t *shape,
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

/* ---- Copies of tensors ----------------------------------------------------------------------- */

static size_t round_up(size_t size) { return (size + 15) / 16 * 16; }

/* Fill `into` with copies of `views`; its memory is reused where it is large enough. */
INTERNAL f2o_status copy_tensors(f2o_tensors *into, const f2o_tensor *views, size_t count,
                                 f2o_error *error) {
    if (into == NULL) return F2O_OK;
    size_t need = round_up(count * sizeof(f2o_tensor));
    for (size_t i = 0; i < count; i++) {
        need += round_up(f2o_tensor_bytes(&views[i])) + round_up(views[i].rank * sizeof(int64_t));
        need += round_up(strlen(views[i].name) + 1);
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
    place += round_up(count * sizeof(f2o_tensor));
    for (size_t i = 0; i < count; i++) {
        const f2o_tensor view = views[i];
        size_t bytes = f2o_tensor_bytes(&view), name = strlen(view.name) + 1;
        items[i] = view;
        items[i].data = place;
        if (bytes != 0) memcpy(place, view.data, bytes);
        place += round_up(bytes);
        items[i].shape = (int64_t *)(void *)place;
        if (view.rank != 0) memcpy(place, view.shape, view.rank * sizeof(int64_t));
        place += round_up(view.rank * sizeof(int64_t));
        items[i].name = (char *)place;
        memcpy(place, view.name, name);
        place += round_up(name);
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
