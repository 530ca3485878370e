/* manifest.json: the content of a bundle, checked when it is read. */

#include "internal.h"

/* ---- Manifest -------------------------------------------------------------------------------- */

#define MANIFEST "manifest.json"

#define MANIFEST_LIMIT (64u << 20)

static const char MANIFEST_KEY[] = "{\n \"digest\": \""; /* begins the file */

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const FileEntry *)a)->name, ((const FileEntry *)b)->name);
}

INTERNAL void close_manifest(Manifest *manifest) {
    free(manifest->text);
    json_free(&manifest->json);
    arena_free(&manifest->arena);
    memset(manifest, 0, sizeof *manifest);
}

INTERNAL f2o_status inconsistent(f2o_error *error, const char *key, const char *name,
                                 const char *reason) {
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
    const Element *element = find_element(dtype, false);
    if (element == NULL) return wrong_field(fields, "dtype", "is unknown");
    int64_t *sizes = arena_alloc(&manifest->arena, shape->count, sizeof *sizes);
    const char **symbols = arena_alloc(&manifest->arena, shape->count, sizeof *symbols);
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
    if (!is_state) return read_range(&manifest->arena, fields, spec->dtype, &spec->range);
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

INTERNAL const f2o_spec *find_spec(const Specs *specs, const char *name) {
    const f2o_spec key = {.name = name}, *wanted = &key;
    if (specs->count == 0) return NULL;
    const f2o_spec **found =
        bsearch(&wanted, specs->sorted, specs->count, sizeof wanted, compare_specs);
    return found == NULL ? NULL : *found;
}

/* Make `sorted` of the items. */
INTERNAL bool sort_specs(Arena *arena, Specs *specs) {
    specs->sorted = arena_alloc(arena, specs->count, sizeof *specs->sorted);
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
        if (strcmp(names[i - 1], names[i]) == 0)
            return inconsistent(error, key, names[i], "stands twice");
    }
    return F2O_OK;
}

static f2o_status read_specs(Manifest *manifest, const Fields *fields, const char *key,
                             bool is_state, Specs *specs) {
    const Value *list;
    Fields inner;
    char place[512];
    TRY(field(fields, key, LIST, &list));
    specs->items = arena_alloc(&manifest->arena, list->count, sizeof *specs->items);
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
            return inconsistent(fields->error, key, specs->sorted[i]->name, "stands twice");
        }
    }
    return F2O_OK;
}

static f2o_status read_names(Manifest *manifest, const Fields *fields, const char *key,
                             Names *names) {
    const Value *list;
    TRY(field(fields, key, LIST, &list));
    names->items = arena_alloc(&manifest->arena, list->count, sizeof *names->items);
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
    manifest->predict = arena_alloc(&manifest->arena, list->count, sizeof *manifest->predict);
    const char **names = arena_alloc(&manifest->arena, list->count, sizeof *names);
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
    manifest->files = arena_alloc(&manifest->arena, object->count, sizeof *manifest->files);
    if (manifest->files == NULL) return no_memory(fields->error);
    const Value *item = first_of(fields->json, object);
    for (; item != NULL; item = next_of(fields->json, item)) {
        FileEntry *entry = &manifest->files[manifest->file_count];
        const char *name = item->key;
        if (*name == 0 || !is_plain(name, item->key_size) || strpbrk(name, "/\\:") != NULL ||
            strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, MANIFEST) == 0) {
            return inconsistent(fields->error, "files", name, "is not a plain file name");
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
INTERNAL const FileEntry *find_entry(const Manifest *manifest, const char *name) {
    const FileEntry key = {name, NULL, 0};
    return bsearch(&key, manifest->files, manifest->file_count, sizeof key, compare_entries);
}

static f2o_status check_file(const Manifest *manifest, const char *key, const char *name,
                             f2o_error *error) {
    if (name == NULL || find_entry(manifest, name) != NULL) return F2O_OK;
    return inconsistent(error, key, name, "is not in files");
}

static f2o_status check_single(const Manifest *manifest, const char *key, const char *name,
                               f2o_dtype dtype, f2o_error *error) {
    if (name == NULL) return F2O_OK;
    const f2o_spec *spec = find_spec(&manifest->state, name);
    if (spec != NULL && spec->rank == 1 && spec->shape[0] == 1 && spec->dtype == dtype) {
        return F2O_OK;
    }
    return inconsistent(error, key, name, "is no state tensor of its dtype and of shape [1]");
}

static f2o_status check_state_specs(const Manifest *manifest, f2o_error *error) {
    size_t counters = 0;
    for (size_t i = 0; i < manifest->state.count; i++) {
        const f2o_spec *spec = &manifest->state.items[i];
        bool counts = strcmp(spec->role, "counter") == 0;
        if (!counts && strcmp(spec->role, "variable") != 0 && strcmp(spec->role, "slot") != 0) {
            return inconsistent(error, "state", spec->name, "has an unknown role");
        }
        counters += counts;
        bool single = spec->rank == 0 || (spec->rank == 1 && spec->shape[0] == 1);
        if (counts && (counters > 1 || !single)) {
            return inconsistent(error, "state", spec->name,
                                "is a second counter, or no single number");
        }
        if (spec->of == NULL) continue;
        const f2o_spec *of = find_spec(&manifest->state, spec->of);
        if (of == NULL || strcmp(of->role, "variable") != 0) {
            return inconsistent(error, "state", spec->name, "is of what is no variable");
        }
    }
    TRY(check_single(manifest, "learning_rate", manifest->learning_rate, F2O_FLOAT32, error));
    return check_single(manifest, "accumulate.count", manifest->count, F2O_INT64, error);
}

static f2o_status check_uses(const Manifest *manifest, const Names *names, const char *job,
                             f2o_error *error) {
    for (size_t i = 0; i < names->count; i++) {
        if (find_spec(&manifest->state, names->items[i]) == NULL) {
            return inconsistent(error, job, names->items[i], "is not in state");
        }
    }
    return F2O_OK;
}

/* Refuse fields that contradict one another. */
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
        if (find_spec(&manifest->results, manifest->losses.items[i]) == NULL) {
            return inconsistent(error, "losses", manifest->losses.items[i], "is not a result");
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
    if (!has_field(fields, "accumulate")) return F2O_OK;
    TRY(field(fields, "accumulate", OBJECT, &object));
    TRY(fields_of(fields, object, "manifest.json: accumulate", &inner));
    TRY(text_field(&inner, "gradients", &manifest->gradients));
    TRY(text_field(&inner, "update", &manifest->update));
    return text_field(&inner, "count", &manifest->count);
}

static f2o_status check_texts(const Fields *fields, const char *key) {
    const Value *object;
    if (!has_field(fields, key)) return F2O_OK;
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
static f2o_status set_state_id(Manifest *manifest, f2o_error *error) {
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
    char *path = join_path(folder, entry->name);
    if (path == NULL) return no_memory(error);
    f2o_status status = open_file(path, &descriptor, &size, error);
    if (status == F2O_OK) close(descriptor);
    if (status == F2O_OK && size == entry->size) status = hash_file(path, &size, digits, error);
    if (status == F2O_OK && (size != entry->size || strcmp(digits, entry->sha256) != 0)) {
        status = fail(
            error, F2O_BUNDLE_ERROR, "the file was changed or cut off: export the bundle again",
            "%s: has %llu bytes and SHA-256 %.12s..., the manifest says %llu, %.12s...", path,
            (unsigned long long)size, digits, (unsigned long long)entry->size, entry->sha256);
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
    return set_state_id(manifest, error);
}

/* Read and check the manifest of a folder, and every file that it names. */
INTERNAL f2o_status open_manifest(const char *folder, Manifest *manifest, f2o_error *error) {
    unsigned char *content;
    size_t size;
    memset(manifest, 0, sizeof *manifest);
    char *path = join_path(folder, MANIFEST);
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
INTERNAL f2o_status open_weights(const Manifest *manifest, const char *folder, TensorFile *file,
                                 f2o_error *error) {
    unsigned char *content;
    size_t size;
    char digits[DIGITS + 1];
    const FileEntry *entry = find_entry(manifest, manifest->weights);
    char *path = join_path(folder, manifest->weights);
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
