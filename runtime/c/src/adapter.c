/* Adapters in ONNX Runtime's own file: a flatbuffer of tensors by name. */

#include "internal.h"

#define ADAPTER_SCALES "flow2onnx.lora_scales"
#define ADAPTER_DTYPE "flow2onnx.lora_dtype"
#define ADAPTER_LIMIT 2147483647u /* bytes of a flatbuffer */

/* Where things stand that are the same in each file, and the bytes of either table. */
enum { ROOT_FIELDS = 8, ENTRY_FIELDS = 20, ROOT = 32, LIST_START = 52, TABLE = 20 };

/* One module's pair: the scale of its product, and the tensors of the state. */
typedef struct Pair {
    float scale;
    const f2o_spec *down, *up;
} Pair;

typedef struct Pairs {
    Pair *items;
    size_t count;
    bool is_half; /* of the served model */
    Arena arena;
} Pairs;

/* ---- What a bundle says of its adapters ------------------------------------------------------ */

/* A number as Python writes it, whatever the locale; false for anything else. */
static bool parse_scale(const char *text, size_t size, float *scale) {
    char copy[40], *rest;
    double digits = 0;
    long exponent = 0;
    bool negative = size > 0 && *text == '-', pointed = false, any = false;
    if (size >= sizeof copy) return false;
    memcpy(copy, text, size);
    copy[size] = 0;
    char *at = copy + (negative ? 1 : 0);
    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !pointed); at++) {
        if (*at == '.') {
            pointed = true;
            continue;
        }
        digits = 10 * digits + (*at - '0');
        any = true;
        exponent -= pointed ? 1 : 0;
    }
    if (any && *at == 'e') {
        exponent += strtol(at + 1, &rest, 10);
        any = rest != at + 1;
        at = rest;
    }
    double value = digits * pow(10, (double)exponent);
    *scale = (float)(negative ? -value : value);
    return any && *at == 0 && isfinite(*scale) && *scale != 0;
}

static const f2o_spec *adapter_spec(const f2o_trainer *trainer, Pairs *pairs, const char *module,
                                    size_t size, const char *end) {
    size_t length = size + strlen(end) + 1;
    char *name = arena_alloc(&pairs->arena, length, 1);
    if (name == NULL) return NULL;
    memcpy(name, module, size);
    memcpy(name + size, end, strlen(end) + 1);
    const f2o_spec *spec = find_spec(&trainer->bundle.manifest.state, name);
    return spec == NULL || spec->rank != 2 || spec->dtype != F2O_FLOAT32 ? NULL : spec;
}

static f2o_status read_pair(const f2o_trainer *trainer, Pairs *pairs, const char *text, size_t size,
                            f2o_error *error) {
    size_t split = size;
    while (split > 0 && text[split - 1] != '=') split--;
    Pair *pair = &pairs->items[pairs->count];
    if (split < 2 || !parse_scale(text + split, size - split, &pair->scale)) {
        return fail(error, F2O_BUNDLE_ERROR, "export the bundle again",
                    "manifest.json: " ADAPTER_SCALES " has %.*s, which is no scale of a module",
                    (int)(size < 200 ? size : 200), text);
    }
    pair->down = adapter_spec(trainer, pairs, text, split - 1, ".lora_A.weight");
    pair->up = adapter_spec(trainer, pairs, text, split - 1, ".lora_B.weight");
    if (pair->down == NULL || pair->up == NULL) {
        return fail(error, F2O_BUNDLE_ERROR, "export the bundle again",
                    "manifest.json: the state has no matrices of %.*s",
                    (int)(split < 200 ? split - 1 : 200), text);
    }
    pairs->count++;
    return F2O_OK;
}

/* The pairs that a bundle trains, in the order of its manifest; `pairs->arena` is to be freed. */
static f2o_status read_pairs(const f2o_trainer *trainer, Pairs *pairs, f2o_error *error) {
    const Json *json = &trainer->bundle.manifest.json;
    const Value *facts = child_of(json, &json->values[0], "metadata");
    const bool has_facts = facts != NULL && facts->kind == OBJECT;
    const Value *scales = has_facts ? child_of(json, facts, ADAPTER_SCALES) : NULL;
    const Value *dtype = has_facts ? child_of(json, facts, ADAPTER_DTYPE) : NULL;
    memset(pairs, 0, sizeof *pairs);
    if (scales == NULL) {
        return fail(error, F2O_STATE_ERROR, "make one with flow.lora",
                    "the bundle trains no adapter");
    }
    pairs->is_half = dtype != NULL && strcmp(dtype->text, "float16") == 0;
    size_t count = 1;
    for (const char *c = scales->text; *c != 0; c++) count += *c == ';' ? 1 : 0;
    pairs->items = arena_alloc(&pairs->arena, count, sizeof *pairs->items);
    if (pairs->items == NULL) return no_memory(error);
    const char *at = scales->text;
    for (size_t i = 0; i < count; i++) {
        size_t size = strcspn(at, ";");
        TRY(read_pair(trainer, pairs, at, size, error));
        at += size + 1;
    }
    return F2O_OK;
}

/* ---- Half precision -------------------------------------------------------------------------- */

/* The bits of the half nearest to a number, ties to even. */
static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);  /* no number */
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
    if (size < 0x38800000u) { /* below the least normal: in units of 2^-24 */
        double units = ldexp(fabs((double)value), 24);
        return (uint16_t)(sign | (uint32_t)nearbyint(units));
    }
    uint32_t rounded = size + 0xfffu + (size >> 13 & 1u);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

static float number_of(uint16_t half) {
    uint32_t exponent = half >> 10 & 31u, fraction = half & 1023u;
    double size = exponent == 0 ? ldexp((double)fraction, -24)
                                : ldexp(1 + (double)fraction / 1024, (int)exponent - 15);
    if (exponent == 31) size = fraction == 0 ? (double)INFINITY : (double)NAN;
    return (float)(half & 0x8000u ? -size : size);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Where the parts of one tensor stand. */
typedef struct Layout {
    const f2o_spec *spec;
    float scale;
    uint64_t table, text, dims, data, bytes;
} Layout;

static uint64_t before_eight(uint64_t at) { return (at + 4 + 7) / 8 * 8 - 4; }

static uint64_t lay_out(const Pairs *pairs, Layout *layouts) {
    uint64_t end = LIST_START + 4 + 4 * (uint64_t)(2 * pairs->count);
    for (size_t i = 0; i < 2 * pairs->count; i++) {
        const Pair *pair = &pairs->items[i / 2];
        Layout *own = &layouts[i];
        own->spec = i % 2 == 0 ? pair->down : pair->up;
        own->scale = i % 2 == 0 ? 1 : pair->scale;
        own->bytes = bytes_of(pairs->is_half ? F2O_FLOAT16 : F2O_FLOAT32, 2, own->spec->shape);
        own->table = end;
        own->text = own->table + TABLE;
        own->dims = before_eight(own->text + 4 + strlen(own->spec->name) + 1);
        own->data = before_eight(own->dims + 4 + 16);
        end = (own->data + 4 + own->bytes + 3) / 4 * 4;
    }
    return end;
}

static void put_word(unsigned char *content, uint64_t at, uint64_t word) {
    for (unsigned i = 0; i < 4; i++) content[at + i] = (unsigned char)(word >> (8 * i));
}

static void put_root(unsigned char *content, const Layout *layouts, size_t count) {
    static const unsigned char fields[12] = {12, 0, TABLE, 0, 4, 0, 8, 0, 12, 0, 16, 0};
    static const unsigned char kind[4] = {'T', 'O', 'R', 'T'}; /* of the file, without an end */
    put_word(content, 0, ROOT);
    memcpy(content + 4, kind, sizeof kind);
    memcpy(content + ROOT_FIELDS, fields, sizeof fields);
    memcpy(content + ENTRY_FIELDS, fields, sizeof fields);
    put_word(content, ROOT, ROOT - ROOT_FIELDS);
    for (unsigned i = 1; i <= 3; i++) put_word(content, ROOT + 4 * i, 1); /* versions */
    put_word(content, ROOT + 16, LIST_START - (ROOT + 16));
    put_word(content, LIST_START, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t at = LIST_START + 4 + 4 * (uint64_t)i;
        put_word(content, at, layouts[i].table - at);
    }
}

static void put_entry(unsigned char *content, const Layout *own, const float *values, bool half) {
    const uint64_t name = strlen(own->spec->name);
    put_word(content, own->table, own->table - ENTRY_FIELDS);
    put_word(content, own->table + 4, own->text - (own->table + 4));
    put_word(content, own->table + 8, own->dims - (own->table + 8));
    put_word(content, own->table + 12, half ? F2O_FLOAT16 : F2O_FLOAT32);
    put_word(content, own->table + 16, own->data - (own->table + 16));
    put_word(content, own->text, name);
    memcpy(content + own->text + 4, own->spec->name, name);
    put_word(content, own->dims, 2);
    memcpy(content + own->dims + 4, own->spec->shape, 16);
    put_word(content, own->data, own->bytes);
    unsigned char *to = content + own->data + 4;
    for (uint64_t i = 0; i < own->bytes / (half ? 2 : 4); i++) {
        const float value = values[i] * own->scale;
        const uint16_t bits = half ? half_of(value) : 0;
        if (half) memcpy(to + 2 * i, &bits, 2);
        else memcpy(to + 4 * i, &value, 4);
    }
}

static f2o_status write_pairs(const f2o_trainer *trainer, const Pairs *pairs, const char *path,
                              f2o_error *error) {
    const f2o_state *state = &trainer->bundle.state;
    Layout *layouts = calloc(2 * pairs->count + 1, sizeof *layouts);
    if (layouts == NULL) return no_memory(error);
    uint64_t size = lay_out(pairs, layouts);
    unsigned char *content = size > ADAPTER_LIMIT ? NULL : calloc(1, (size_t)size);
    f2o_status status = F2O_OK;
    if (size > ADAPTER_LIMIT) {
        status = fail(error, F2O_STATE_ERROR, "train fewer modules, or a lower rank",
                      "an adapter of %llu bytes is more than such a file holds",
                      (unsigned long long)size);
    } else if (content == NULL) {
        status = no_memory(error);
    } else {
        put_root(content, layouts, 2 * pairs->count);
        for (size_t i = 0; i < 2 * pairs->count; i++) {
            f2o_tensor view = state_view(state, index_of(state, layouts[i].spec->name));
            put_entry(content, &layouts[i], view.data, pairs->is_half);
        }
        Part part = {content, (size_t)size};
        status = replace_file(path, &part, 1, error);
    }
    free(content);
    free(layouts);
    return status;
}

f2o_status f2o_trainer_export_adapter(const f2o_trainer *trainer, const char *path,
                                      f2o_error *error) {
    Pairs pairs;
    TRY(clear_error(error));
    f2o_status status = read_pairs(trainer, &pairs, error);
    if (status == F2O_OK) status = write_pairs(trainer, &pairs, path, error);
    arena_free(&pairs.arena);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

typedef struct Flat {
    const unsigned char *bytes;
    uint64_t size;
} Flat;

/* A tensor in a file; the name is not ended by a zero. */
typedef struct Entry {
    const unsigned char *name, *data;
    uint64_t name_size, bytes;
    int64_t shape[2];
    uint64_t rank;
    int32_t dtype;
} Entry;

static bool peek(const Flat *flat, uint64_t at, void *into, uint64_t size) {
    if (at > flat->size || size > flat->size - at) return false;
    memcpy(into, flat->bytes + at, (size_t)size);
    return true;
}

/* The place of a field of a table: 0 where the table has none. */
static bool find_place(const Flat *flat, uint64_t table, unsigned index, uint64_t *place) {
    int32_t back;
    uint16_t size, offset = 0;
    if (!peek(flat, table, &back, 4)) return false;
    const uint64_t fields = table - (uint64_t)(int64_t)back; /* one below 0 is outside, too */
    if (!peek(flat, fields, &size, 2)) return false;
    const uint64_t at = 4 + 2 * (uint64_t)index;
    if (at < size && !peek(flat, fields + at, &offset, 2)) return false;
    *place = offset == 0 ? 0 : table + offset;
    return true;
}

/* Where the items of a field that is a vector begin, and how many there are. */
static bool find_vector(const Flat *flat, uint64_t table, unsigned index, uint64_t width,
                        uint64_t *start, uint64_t *count) {
    uint64_t place;
    uint32_t offset, items;
    if (!find_place(flat, table, index, &place)) return false;
    *start = *count = 0;
    if (place == 0) return true;
    if (!peek(flat, place, &offset, 4) || !peek(flat, place + offset, &items, 4)) return false;
    *start = place + offset + 4;
    *count = items;
    return *start <= flat->size && items * width <= flat->size - *start;
}

static bool find_number(const Flat *flat, uint64_t table, unsigned index, int32_t *number) {
    uint64_t place;
    *number = 0;
    return find_place(flat, table, index, &place) && (place == 0 || peek(flat, place, number, 4));
}

/* The tensor of a table; one of more than two sizes has the rank alone. */
static bool read_entry(const Flat *flat, uint64_t table, Entry *entry) {
    uint64_t name, sizes, data;
    if (!find_vector(flat, table, 0, 1, &name, &entry->name_size) ||
        !find_vector(flat, table, 1, 8, &sizes, &entry->rank) ||
        !find_number(flat, table, 2, &entry->dtype) ||
        !find_vector(flat, table, 3, 1, &data, &entry->bytes)) {
        return false;
    }
    entry->name = flat->bytes + name;
    entry->data = flat->bytes + data;
    return entry->rank != 2 || peek(flat, sizes, entry->shape, 16);
}

/* The table of the tensor `index`, and how many there are. */
static bool find_entry_table(const Flat *flat, uint64_t index, uint64_t *table, uint64_t *count) {
    uint32_t root, offset;
    uint64_t start;
    int32_t version;
    if (flat->size < 8 || memcmp(flat->bytes + 4, "TORT", 4) != 0) return false;
    if (!peek(flat, 0, &root, 4) || !find_number(flat, root, 0, &version) || version != 1) {
        return false;
    }
    if (!find_vector(flat, root, 3, 4, &start, count)) return false;
    if (index >= *count) return true;
    const uint64_t at = start + 4 * index;
    if (!peek(flat, at, &offset, 4)) return false;
    *table = at + offset;
    return true;
}

static bool is_named(const Entry *entry, const f2o_spec *spec) {
    return entry->name_size == strlen(spec->name) &&
           memcmp(entry->name, spec->name, (size_t)entry->name_size) == 0;
}

/* The values of a tensor of the state, of an entry of its shape, into `values`. */
static f2o_status take_entry(const Entry *entry, const f2o_spec *spec, float scale, float *values,
                             const char *path, f2o_error *error) {
    const bool half = entry->dtype == F2O_FLOAT16;
    if (!half && entry->dtype != F2O_FLOAT32) {
        return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: %s is of type %d, no real numbers", path,
                    spec->name, (int)entry->dtype);
    }
    if (entry->rank != 2 || entry->shape[0] != spec->shape[0] ||
        entry->shape[1] != spec->shape[1]) {
        return fail(error, F2O_STATE_ERROR, "make the bundle with the rank of this adapter",
                    "%s: %s is (%lld, %lld), the bundle trains (%lld, %lld)", path, spec->name,
                    entry->rank == 2 ? (long long)entry->shape[0] : -1LL,
                    entry->rank == 2 ? (long long)entry->shape[1] : -1LL,
                    (long long)spec->shape[0], (long long)spec->shape[1]);
    }
    const size_t wide = bytes_of(F2O_FLOAT32, 2, spec->shape);
    if (entry->bytes != (half ? wide / 2 : wide)) {
        return fail(error, F2O_BUNDLE_ERROR, "it was cut off or changed: write it again",
                    "%s is no adapter: the bytes of %s are not of its shape", path, spec->name);
    }
    for (size_t i = 0; i < wide / 4; i++) {
        uint16_t bits = 0;
        float value;
        if (half) memcpy(&bits, entry->data + 2 * i, 2);
        if (half) value = number_of(bits);
        else memcpy(&value, entry->data + 4 * i, 4);
        values[i] = value / scale;
    }
    return F2O_OK;
}

/* Find the tensor of `spec` in the file and put its value into `view`. */
static f2o_status take_tensor(const Flat *flat, const f2o_spec *spec, float scale, Pairs *pairs,
                              f2o_tensor *view, const char *path, f2o_error *error) {
    uint64_t table = 0, count = 0;
    for (uint64_t i = 0; i < 2 * (uint64_t)pairs->count; i++) {
        Entry entry;
        if (!find_entry_table(flat, i, &table, &count) || !read_entry(flat, table, &entry)) break;
        if (!is_named(&entry, spec)) continue;
        float *values = arena_alloc(&pairs->arena, bytes_of(F2O_FLOAT32, 2, spec->shape) + 1, 1);
        if (values == NULL) return no_memory(error);
        *view = (f2o_tensor){spec->name, F2O_FLOAT32, 2, spec->shape, values};
        return take_entry(&entry, spec, scale, values, path, error);
    }
    return fail(error, F2O_STATE_ERROR, "make the bundle for its modules, with targets=",
                "%s: the adapter is of other modules: it lacks %s", path, spec->name);
}

static f2o_status take_pairs(f2o_trainer *trainer, Pairs *pairs, const Flat *flat, const char *path,
                             f2o_error *error) {
    uint64_t table, count;
    if (!find_entry_table(flat, UINT64_MAX, &table, &count)) {
        return fail(error, F2O_BUNDLE_ERROR, "it was cut off or changed: write it again",
                    "%s is no adapter: it is no flatbuffer of TORT, version 1", path);
    }
    if (count != 2 * (uint64_t)pairs->count) {
        return fail(error, F2O_STATE_ERROR, "make the bundle for its modules, with targets=",
                    "%s: the adapter is of other modules: it has %llu matrices, the bundle %zu",
                    path, (unsigned long long)count, 2 * pairs->count);
    }
    f2o_tensor *views = arena_alloc(&pairs->arena, 2 * pairs->count, sizeof *views);
    if (views == NULL) return no_memory(error);
    for (size_t i = 0; i < 2 * pairs->count; i++) {
        const Pair *pair = &pairs->items[i / 2];
        const f2o_spec *spec = i % 2 == 0 ? pair->down : pair->up;
        float scale = i % 2 == 0 ? 1 : pair->scale;
        TRY(take_tensor(flat, spec, scale, pairs, &views[i], path, error));
    }
    write_values(&trainer->bundle.state, views, 2 * pairs->count);
    return F2O_OK;
}

f2o_status f2o_trainer_load_adapter(f2o_trainer *trainer, const char *path, f2o_error *error) {
    unsigned char *content = NULL;
    size_t size;
    Pairs pairs;
    TRY(clear_error(error));
    f2o_status status = read_pairs(trainer, &pairs, error);
    if (status == F2O_OK) status = read_file(path, ADAPTER_LIMIT, &content, &size, error);
    if (status == F2O_OK) {
        Flat flat = {content, size};
        status = take_pairs(trainer, &pairs, &flat, path, error);
    }
    free(content);
    arena_free(&pairs.arena);
    return status;
}
