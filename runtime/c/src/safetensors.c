/* Safetensors files, read with distrust and written whole. */

#include "internal.h"

/* ---- Safetensors ----------------------------------------------------------------------------- */

#define HEADER_LIMIT 100000000u /* the format's own */

#define STATE_DIGEST (8 + sizeof STATE_KEY - 1) /* where it stands */

INTERNAL void close_tensors(TensorFile *file) {
    free(file->content);
    json_free(&file->json);
    arena_free(&file->arena);
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
    const Element *element = find_element(dtype, true);
    if (element == NULL) return wrong_field(fields, "dtype", "is none that a tensor can have");
    if (shape->count > RANK_LIMIT || offsets->count != 2) {
        return wrong_field(fields, "shape", "or data_offsets has another number of sizes");
    }
    int64_t *sizes = arena_alloc(&file->arena, shape->count, sizeof *sizes), places[2] = {0, 0};
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
    file->tensors = arena_alloc(&file->arena, root.value->count, sizeof(Stored));
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
INTERNAL f2o_status open_tensors(unsigned char *content, size_t size, const char *path,
                                 TensorFile *file, f2o_error *error) {
    memset(file, 0, sizeof *file);
    file->content = content;
    file->size = size;
    f2o_status status = parse_tensors(file, path, error);
    if (status != F2O_OK) close_tensors(file);
    return status;
}

INTERNAL const char *metadata_of(const TensorFile *file, const char *key) {
    const Value *found = file->metadata ? child_of(&file->json, file->metadata, key) : NULL;
    return found == NULL ? "" : found->text;
}

INTERNAL const Stored *find_stored(const TensorFile *file, const char *name) {
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].view.name, name) == 0) return &file->tensors[i];
    }
    return NULL;
}

f2o_status f2o_load_safetensors(const char *path, f2o_tensors *tensors, f2o_error *error) {
    unsigned char *content;
    size_t size;
    TensorFile file;
    TRY(clear_error(error));
    TRY(read_file(path, UINT64_MAX, &content, &size, error));
    TRY(open_tensors(content, size, path, &file, error));
    f2o_tensor *views = arena_alloc(&file.arena, file.count, sizeof *views);
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
INTERNAL void write_header(Text *text, const char *opening, const f2o_tensor *tensors, size_t count,
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
INTERNAL int compare_tensors(const void *a, const void *b) {
    const f2o_tensor *x = a, *y = b;
    size_t i = f2o_dtype_size(x->dtype), j = f2o_dtype_size(y->dtype);
    return i != j ? (i > j ? -1 : 1) : strcmp(x->name, y->name);
}

/* Write a header and tensors; the header gets its digest if it has a place for one. */
INTERNAL f2o_status write_tensors(const char *path, Text *header, const f2o_tensor *tensors,
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
    if (header->size > behind && memcmp(header->bytes + 8, STATE_KEY, sizeof STATE_KEY - 1) == 0) {
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
    TRY(clear_error(error));
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
