/* Predictors: a model file or a predict job, called by any number of threads. */

#include "internal.h"

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
    if (entry->reads.count > 0) TRY(fill_state(bundle, error));
    return open_model(bundle, entry->file, entry->reads.count > 0 ? &bundle->state : NULL, false,
                      NULL, &entry->feeds, &entry->results, &predictor->program, error);
}

f2o_status f2o_predictor_open(const char *model_or_bundle, const char *job,
                              const f2o_options *options, f2o_predictor **predictor,
                              f2o_error *error) {
    TRY(clear_error(error));
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

void f2o_predictor_stop(f2o_predictor *predictor, bool stopped) {
    set_stopped(&predictor->bundle.runtime, stopped);
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
    call->given = arena_alloc(&call->arena, inputs, sizeof *call->given);
    call->feeds = arena_alloc(&call->arena, inputs, sizeof *call->feeds);
    call->input_names = arena_alloc(&call->arena, inputs, sizeof *call->input_names);
    call->inputs = arena_alloc(&call->arena, inputs, sizeof *call->inputs);
    call->output_names = arena_alloc(&call->arena, outputs, sizeof *call->output_names);
    call->outputs = arena_alloc(&call->arena, outputs, sizeof *call->outputs);
    call->views = arena_alloc(&call->arena, outputs, sizeof *call->views);
    call->shapes = arena_alloc(&call->arena, outputs, sizeof *call->shapes);
    return call->given && call->feeds && call->input_names && call->inputs && call->output_names &&
           call->outputs && call->views && call->shapes;
}

static f2o_status fill_call(Call *call, const Program *program, f2o_error *error) {
    size_t feed = 0;
    for (size_t i = 0; i < program->inputs.count; i++) {
        size_t index = program->input_state[i];
        call->input_names[i] = program->inputs.items[i].name;
        if (index != NONE) {
            call->inputs[i] = current_buffer(program->state, index)->value;
            continue;
        }
        const f2o_tensor *value = call->given[feed];
        Buffer *buffer = &call->feeds[feed++];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): order_feeds has filled each */
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
    TRY(order_feeds(program->file, &program->feeds, feeds, count, call->given, error));
    TRY(check_feeds(program->file, &program->feeds, call->given, error));
    TRY(fill_call(call, program, error));
    TRY(check_stopped(runtime, program->file, error));
    OrtStatus *status = runtime->api.Run(program->session, runtime->run, call->input_names,
                                         call->inputs, program->inputs.count, call->output_names,
                                         program->outputs.count, call->outputs);
    TRY(check_run(runtime, status, program->file, error));
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
    TRY(clear_error(error));
    memset(&call, 0, sizeof call);
    f2o_status status = make_call(&call, program, feeds, count, results, error);
    for (size_t i = 0; call.feeds != NULL && i < program->feeds.count; i++) {
        close_buffer(runtime, &call.feeds[i]);
    }
    for (size_t i = 0; call.outputs != NULL && i < program->outputs.count; i++) {
        if (call.outputs[i] != NULL) runtime->api.ReleaseValue(call.outputs[i]);
    }
    arena_free(&call.arena);
    return status;
}
