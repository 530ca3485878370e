/* Bundles and trainers: steps, predictions, saved states. */

#include "internal.h"

/* ---- A bundle, opened ------------------------------------------------------------------------ */

INTERNAL void close_bundle(Bundle *bundle) {
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
        if (find_entry(&bundle->manifest, name) == NULL) {
            f2o_status status = fail(error, F2O_BUNDLE_ERROR, "export the bundle with .ort files",
                                     "%s holds no %s", bundle->folder, name);
            free(name);
            return status;
        }
    }
    *path = join_path(bundle->folder, name);
    free(name);
    return *path == NULL ? no_memory(error) : F2O_OK;
}

/* A model of the bundle whose signature is the manifest's. */
INTERNAL f2o_status open_model(Bundle *bundle, const char *file, f2o_state *state, bool training,
                               const Names *initializers, const Specs *feeds, const Specs *results,
                               Program *program, f2o_error *error) {
    char *path;
    TRY(model_path(bundle, file, &path, error));
    f2o_status status = open_program(program, &bundle->runtime, path, state, training,
                                     &bundle->state, initializers, error);
    free(path);
    if (status != F2O_OK) return status;
    status = check_signature(program, "inputs", &program->feeds, feeds, error);
    if (status == F2O_OK) {
        status = check_signature(program, "outputs", &program->results, results, error);
    }
    if (status != F2O_OK) {
        close_program(program);
        return status;
    }
    for (size_t i = 0; i < feeds->count; i++) {
        program->feeds.items[i].range = feeds->items[i].range;
    }
    return F2O_OK;
}

/* Replace the state by the tensors of a file, checked before. */
static f2o_status load_values(f2o_state *state, const TensorFile *file, const char *where,
                              f2o_error *error) {
    f2o_tensor *views = calloc(file->count + 1, sizeof *views);
    if (views == NULL) return no_memory(error);
    for (size_t i = 0; i < file->count; i++) views[i] = file->tensors[i].view;
    f2o_status status =
        check_values(state, views, file->count, true, where, F2O_BUNDLE_ERROR, error);
    if (status == F2O_OK) write_values(state, views, file->count);
    free(views);
    return status;
}

static f2o_status load_weights(Bundle *bundle, f2o_error *error) {
    TensorFile file;
    TRY(open_weights(&bundle->manifest, bundle->folder, &file, error));
    f2o_status status = load_values(&bundle->state, &file, bundle->manifest.weights, error);
    close_tensors(&file);
    return status;
}

static f2o_status compute_state(Bundle *bundle, f2o_error *error) {
    Program program;
    char *path;
    f2o_tensors values = {0, NULL, NULL, 0};
    TRY(model_path(bundle, bundle->manifest.init, &path, error));
    f2o_status status =
        open_program(&program, &bundle->runtime, path, NULL, false, NULL, NULL, error);
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
    if (status == F2O_OK) write_values(&bundle->state, values.items, values.count);
    f2o_tensors_free(&values);
    close_program(&program);
    return status;
}

INTERNAL f2o_status open_bundle(Bundle *bundle, const char *folder, const f2o_options *options,
                                f2o_error *error) {
    TRY(open_runtime(options, &bundle->runtime, error));
    size_t size = strlen(folder) + 1;
    bundle->folder = malloc(size);
    if (bundle->folder == NULL) return no_memory(error);
    memcpy(bundle->folder, folder, size);
    return open_manifest(folder, &bundle->manifest, error);
}

INTERNAL f2o_status fill_state(Bundle *bundle, f2o_error *error) {
    TRY(open_state(&bundle->state, &bundle->runtime, bundle->manifest.state, error));
    return bundle->manifest.weights != NULL ? load_weights(bundle, error)
                                            : compute_state(bundle, error);
}

/* The predict job of a name, the first if NULL. */
INTERNAL f2o_status find_job(const Bundle *bundle, const char *job, const PredictJob **found,
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

void f2o_trainer_close(f2o_trainer *trainer) {
    if (trainer == NULL) return;
    size_t jobs = trainer->sessions == NULL ? 0 : trainer->bundle.manifest.predict_count;
    for (size_t i = 0; i < jobs; i++) close_program(&trainer->sessions[i].program);
    close_program(&trainer->step);
    close_program(&trainer->gradients);
    close_program(&trainer->update);
    free(trainer->sessions);
    free(trainer->frozen);
    close_bundle(&trainer->bundle);
    free(trainer);
}

static f2o_status fill_trainer(f2o_trainer *trainer, const char *folder, const f2o_options *options,
                               f2o_error *error) {
    Bundle *bundle = &trainer->bundle;
    TRY(open_bundle(bundle, folder, options, error));
    TRY(fill_state(bundle, error));
    const Manifest *manifest = &bundle->manifest;
    trainer->frozen = calloc(manifest->state.count + 1, 1);
    trainer->sessions = calloc(manifest->predict_count + 1, sizeof *trainer->sessions);
    if (trainer->frozen == NULL || trainer->sessions == NULL) return no_memory(error);
    trainer->counter = NONE;
    for (size_t i = 0; i < manifest->state.count; i++) {
        if (strcmp(manifest->state.items[i].role, "counter") == 0) trainer->counter = i;
    }
    return open_model(bundle, manifest->step, &bundle->state, true, NULL, &manifest->feeds,
                      &manifest->results, &trainer->step, error);
}

f2o_status f2o_trainer_open(const char *bundle, const f2o_options *options, f2o_trainer **trainer,
                            f2o_error *error) {
    TRY(clear_error(error));
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

void f2o_trainer_stop(f2o_trainer *trainer, bool stopped) {
    set_stopped(&trainer->bundle.runtime, stopped);
}

f2o_state *f2o_trainer_state(f2o_trainer *trainer) { return &trainer->bundle.state; }

static const Names *guarded_losses(const f2o_trainer *trainer) {
    const Bundle *bundle = &trainer->bundle;
    return bundle->runtime.options.finite_losses ? &bundle->manifest.losses : NULL;
}

/* Run and commit, but for what is frozen. */
static f2o_status train(f2o_trainer *trainer, Program *program, const f2o_tensor *feeds,
                        size_t count, f2o_tensors *results, f2o_error *error) {
    char said[200];
    trainer->batches += program->results.count > 0;
    f2o_status status =
        run_program(program, feeds, count, guarded_losses(trainer), results, error);
    if (status == F2O_OK) commit(program, trainer->frozen);
    if (status != F2O_NON_FINITE_ERROR || error == NULL) return status;
    snprintf(said, sizeof said, "%.199s", error->message);
    return fail(error, status, NULL, "batch %lld: %s", trainer->batches, said);
}

f2o_status f2o_trainer_step(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                            f2o_tensors *results, f2o_error *error) {
    TRY(clear_error(error));
    TRY(train(trainer, &trainer->step, feeds, count, results, error));
    trainer->steps++;
    return F2O_OK;
}

f2o_status f2o_trainer_evaluate(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                                f2o_tensors *results, f2o_error *error) {
    TRY(clear_error(error));
    return run_program(&trainer->step, feeds, count, NULL, results, error);
}

/* Open both halves of the step, once. */
static f2o_status open_halves(f2o_trainer *trainer, f2o_error *error) {
    Bundle *bundle = &trainer->bundle;
    const Manifest *manifest = &bundle->manifest;
    static const Specs nothing = {NULL, NULL, 0};
    if (manifest->gradients == NULL) {
        return fail(error, F2O_BUNDLE_ERROR, "export it, or make it trainable, with accumulate=True",
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
    TRY(clear_error(error));
    TRY(open_halves(trainer, error));
    return train(trainer, &trainer->gradients, feeds, count, results, error);
}

int64_t f2o_trainer_accumulated(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    size_t index = index_of(state, trainer->bundle.manifest.count);
    return index == NONE ? 0 : whole_number(F2O_INT64, current_buffer(state, index)->data);
}

f2o_status f2o_trainer_update(f2o_trainer *trainer, f2o_error *error) {
    TRY(clear_error(error));
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
    TRY(clear_error(error));
    TRY(find_job(bundle, job, &entry, error));
    PredictSession *session = &trainer->sessions[entry - bundle->manifest.predict];
    bool holds = entry->holds.count > 0;
    if (holds && bundle->runtime.options.ort_format) {
        return fail(error, F2O_OPTIONS_ERROR, "open the bundle without ort_format",
                    "%s in .ort format holds weights that cannot be replaced", entry->file);
    }
    if (session->program.session == NULL ||
        (holds && session->opened_at != bundle->state.changes)) {
        close_program(&session->program);
        TRY(open_model(bundle, entry->file, &bundle->state, false, &entry->holds, &entry->feeds,
                       &entry->results, &session->program, error));
        session->opened_at = bundle->state.changes;
    }
    return run_program(&session->program, feeds, count, NULL, results, error);
}

int64_t f2o_trainer_steps(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    if (trainer->counter == NONE) return trainer->steps;
    return whole_number(state->specs.items[trainer->counter].dtype,
                        current_buffer(state, trainer->counter)->data);
}

double f2o_trainer_rate(const f2o_trainer *trainer) {
    const f2o_state *state = &trainer->bundle.state;
    size_t index = index_of(state, trainer->bundle.manifest.learning_rate);
    float rate = -1;
    if (index != NONE) memcpy(&rate, current_buffer(state, index)->data, sizeof rate);
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
    write_values(state, &value, 1);
    return F2O_OK;
}

f2o_status f2o_trainer_set_rate(f2o_trainer *trainer, double rate, f2o_error *error) {
    TRY(clear_error(error));
    if (!(rate >= 0 && rate < 3.4e38)) {
        return fail(error, F2O_STATE_ERROR, "give a number of at least 0, or use the schedule",
                    "learning rate %g", rate);
    }
    return put_rate(trainer, (float)rate, error);
}

f2o_status f2o_trainer_use_schedule(f2o_trainer *trainer, f2o_error *error) {
    TRY(clear_error(error));
    return put_rate(trainer, -1, error);
}

f2o_status f2o_trainer_freeze(f2o_trainer *trainer, const char *const *names, size_t count,
                              f2o_error *error) {
    const f2o_state *state = &trainer->bundle.state;
    const Specs *specs = &state->specs;
    TRY(clear_error(error));
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
    TRY(clear_error(error));
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
    const Stored *stored = find_stored(file, spec->name);
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
    TRY(clear_error(error));
    TRY(read_file(path, UINT64_MAX, &content, &size, error));
    bool intact = has_digest(content, size, 8, STATE_KEY);
    TRY(open_tensors(content, size, path, &file, error));
    f2o_status status = check_own(trainer, &file, path, error);
    if (status == F2O_OK && !intact) status = wrong_digest(path, error);
    if (status == F2O_OK) status = check_steps(trainer, &file, path, &steps, error);
    if (status == F2O_OK) status = load_values(&trainer->bundle.state, &file, path, error);
    if (status == F2O_OK) trainer->steps = steps;
    close_tensors(&file);
    return status;
}
