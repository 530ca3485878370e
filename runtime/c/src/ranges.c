/* The whole numbers that a feed may hold: class numbers, rows of a table. ONNX Runtime reads -1 as
 * the last class, and has words of its own for a number that is too large. */

#include "internal.h"

#define SMALLEST (-9007199254740991LL) /* that any JSON parser reads */

static bool is_integer(f2o_dtype dtype) {
    const char *name = f2o_dtype_name(dtype);
    return strncmp(name, "int", 3) == 0 || strncmp(name, "uint", 4) == 0;
}

/* The range in a tensor's fields; NULL if there is none. */
INTERNAL f2o_status read_range(Arena *arena, const Fields *fields, f2o_dtype dtype,
                               const f2o_range **range) {
    const Value *object;
    Fields inner;
    char place[512];
    *range = NULL;
    if (!has_field(fields, "range")) return F2O_OK;
    TRY(field(fields, "range", OBJECT, &object));
    snprintf(place, sizeof place, "%.480s: range", fields->place);
    TRY(fields_of(fields, object, place, &inner));
    f2o_range *made = arena_alloc(arena, 1, sizeof *made);
    if (made == NULL) return no_memory(fields->error);
    TRY(number_field(&inner, "least", SMALLEST, &made->least));
    TRY(number_field(&inner, "below", SMALLEST, &made->below));
    made->has_ignored = has_field(&inner, "ignored");
    if (made->has_ignored) TRY(number_field(&inner, "ignored", SMALLEST, &made->ignored));
    TRY(optional_text(&inner, "layer", &made->layer));
    if (made->layer == NULL) made->layer = "";
    if (made->least >= made->below || !is_integer(dtype)) {
        return wrong_field(fields, "range", "is none, or not of whole numbers");
    }
    *range = made;
    return F2O_OK;
}

/* An element as a signed number; one beyond these is the largest. */
static int64_t integer_at(const f2o_tensor *value, size_t index) {
    const char *at = (const char *)value->data + index * f2o_dtype_size(value->dtype);
    union {
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } as;
    memcpy(&as, at, f2o_dtype_size(value->dtype));
    switch (value->dtype) {
    case F2O_INT8: return as.i8;
    case F2O_INT16: return as.i16;
    case F2O_INT32: return as.i32;
    case F2O_UINT8: return as.u8;
    case F2O_UINT16: return as.u16;
    case F2O_UINT32: return as.u32;
    case F2O_UINT64: return as.u64 > INT64_MAX ? INT64_MAX : (int64_t)as.u64;
    default: return as.i64;
    }
}

static bool is_within(const f2o_range *range, int64_t number) {
    if (range->has_ignored && number == range->ignored) return true;
    return number >= range->least && number < range->below;
}

/* The indices of an element, as text. */
static void show_place(char *text, size_t size, const f2o_tensor *value, size_t index) {
    int64_t places[RANK_LIMIT];
    for (size_t d = value->rank; d-- > 0;) {
        places[d] = (int64_t)(index % (size_t)value->shape[d]);
        index /= (size_t)value->shape[d];
    }
    show_shape(text, size, value->rank, places, NULL);
    char *end = strrchr(text, ')');
    *text = '[';
    if (end != NULL) *end = ']';
}

/* Refuse a feed with a number outside its range. */
INTERNAL f2o_status check_range(const char *file, const f2o_spec *spec, const f2o_tensor *value,
                                f2o_error *error) {
    const f2o_range *range = spec->range;
    char place[SHAPE_TEXT], allowed[64] = "", hint[96];
    if (range == NULL) return F2O_OK;
    size_t width = f2o_dtype_size(value->dtype), count = 0, first = 0;
    size_t size = width == 0 ? 0 : f2o_tensor_bytes(value) / width;
    for (size_t i = 0; i < size; i++) {
        if (is_within(range, integer_at(value, i))) continue;
        if (count++ == 0) first = i;
    }
    if (count == 0) return F2O_OK;
    show_place(place, sizeof place, value, first);
    if (range->has_ignored) {
        snprintf(allowed, sizeof allowed, " (or %lld)", (long long)range->ignored);
    }
    snprintf(hint, sizeof hint, "%zu of %zu are outside", count, size);
    return fail(error, F2O_FEED_ERROR, hint,
                "%s: argument %s: the %s %lld at %s is none of the %lld %s, %lld to %lld%s%s%s",
                file, spec->name, range->least < 0 ? "index" : "label",
                (long long)integer_at(value, first), place, (long long)range->below,
                range->least < 0 ? "rows" : "classes", (long long)range->least,
                (long long)range->below - 1, allowed, *range->layer == 0 ? "" : ", in ",
                range->layer);
}
