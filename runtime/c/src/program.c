/* Programs: a model opened on a state, its signature compared with the manifest's. */

#include "internal.h"

/* ---- Programs: a model bound to a state ------------------------------------------------------ */

#define NEXT "next/" /* an output of this prefix is the next value of the state it names */

INTERNAL void close_lane(const Program *program, Lane *lane) {
    if (lane->binding != NULL) program->runtime->api.ReleaseIoBinding(lane->binding);
    free(lane->key);
    *lane = (Lane){NULL, NULL, 0};
}

INTERNAL void close_program(Program *program) {
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
    for (size_t i = 0; i < program->initializer_count; i++)
        close_buffer(runtime, &program->initializers[i]);
    arena_free(&program->arena);
    memset(program, 0, sizeof *program);
}

static GraphOptimizationLevel level_of(f2o_optimization chosen, bool training) {
    switch (chosen) {
    case F2O_OPTIMIZE_NONE: return ORT_DISABLE_ALL;
    case F2O_OPTIMIZE_BASIC: return ORT_ENABLE_BASIC;
    case F2O_OPTIMIZE_EXTENDED: return ORT_ENABLE_EXTENDED;
    default: break;
    }
    /* The layout rewrites of the highest level only reorder tensors around pools where the weights
     * are inputs, as in a training step. */
    return training ? ORT_ENABLE_EXTENDED : ORT_ENABLE_ALL;
}

static f2o_status set_options(const Program *program, OrtSessionOptions *options, bool training,
                              const Names *initializers, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    const char *what = "session options";
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetSessionLogSeverityLevel, options,
         ORT_LOGGING_LEVEL_FATAL);
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, DisableMemPattern, options);
    CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetSessionGraphOptimizationLevel, options,
         level_of(runtime->options.optimization, training));
    if (runtime->options.threads > 0) {
        CALL(runtime, F2O_OPTIONS_ERROR, what, error, SetIntraOpNumThreads, options,
             runtime->options.threads);
    }
    if (initializers == NULL || initializers->count == 0) return F2O_OK;
    const OrtValue **values = calloc(initializers->count, sizeof *values);
    if (values == NULL) return no_memory(error);
    for (size_t i = 0; i < initializers->count; i++) values[i] = program->initializers[i].value;
    OrtStatus *status = runtime->api.AddExternalInitializers(options, initializers->items, values,
                                                             initializers->count);
    free(values);
    return check_status(runtime, status, F2O_BUNDLE_ERROR, program->file, error);
}

static f2o_status open_session(Program *program, const char *path, bool training,
                               const Names *initializers, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    OrtSessionOptions *options = NULL;
    TRY(check_model(path, error));
    CALL(runtime, F2O_OPTIONS_ERROR, "session options", error, CreateSessionOptions, &options);
    f2o_status status = set_options(program, options, training, initializers, error);
    if (status == F2O_OK) {
        OrtStatus *made =
            runtime->api.CreateSession(runtime->env, path, options, &program->session);
        status = check_status(runtime, made, F2O_BUNDLE_ERROR, path, error);
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
    int64_t *shape = arena_alloc(&program->arena, rank, sizeof *shape);
    const char **symbols = arena_alloc(&program->arena, rank, sizeof *symbols);
    if (shape == NULL || symbols == NULL) return no_memory(error);
    CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetDimensions, info, shape, rank);
    CALL(runtime, F2O_BUNDLE_ERROR, program->file, error, GetSymbolicDimensions, info, symbols,
         rank);
    for (size_t i = 0; i < rank; i++) {
        const char *symbol = symbols[i] == NULL || *symbols[i] == 0 ? "?" : symbols[i];
        symbols[i] = shape[i] >= 0 ? NULL : arena_text(&program->arena, symbol);
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
    TRY(check_status(runtime, name_of(program->session, index, runtime->allocator, &name),
                     F2O_BUNDLE_ERROR, program->file, error));
    spec->name = arena_text(&program->arena, name);
    OrtStatus *freed = api->AllocatorFree(runtime->allocator, name);
    if (freed != NULL) api->ReleaseStatus(freed);
    if (spec->name == NULL) return no_memory(error);
    TRY(check_status(runtime, type_of(program->session, index, &type), F2O_BUNDLE_ERROR,
                     program->file, error));
    f2o_status status = check_status(runtime, api->CastTypeInfoToTensorInfo(type, &info),
                                     F2O_BUNDLE_ERROR, program->file, error);
    if (status == F2O_OK) status = read_shape(program, info, spec, error);
    api->ReleaseTypeInfo(type);
    return status;
}

INTERNAL bool fits(const f2o_spec *spec, size_t rank, const int64_t *shape) {
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
    TRY(check_status(runtime, count_of(program->session, &count), F2O_BUNDLE_ERROR, program->file,
                     error));
    all->items = arena_alloc(&program->arena, count, sizeof *all->items);
    free_ones->items = arena_alloc(&program->arena, count, sizeof *free_ones->items);
    *indices = arena_alloc(&program->arena, count, sizeof **indices);
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

static bool open_scratch(Program *program) {
    Arena *arena = &program->arena;
    size_t results = program->results.count;
    size_t tensors = program->state == NULL ? 0 : program->state->specs.count;
    program->given = arena_alloc(arena, program->feeds.count, sizeof *program->given);
    program->views = arena_alloc(arena, results, sizeof *program->views);
    program->shapes = arena_alloc(arena, results, sizeof *program->shapes);
    program->key = arena_alloc(arena, tensors, 1);
    return program->given && program->views && program->shapes && program->key;
}

static f2o_status open_ends(Program *program, f2o_error *error) {
    size_t feeds = program->feeds.count, results = program->results.count;
    program->feed_buffers = arena_alloc(&program->arena, feeds, sizeof(Buffer));
    program->result_buffers = arena_alloc(&program->arena, results, sizeof(Buffer));
    program->bound = arena_alloc(&program->arena, feeds, sizeof(f2o_spec));
    if (!program->feed_buffers || !program->result_buffers || !program->bound ||
        !open_scratch(program)) {
        return no_memory(error);
    }
    for (size_t i = 0; i < feeds; i++) {
        const f2o_spec *spec = &program->feeds.items[i];
        int64_t *shape = arena_alloc(&program->arena, spec->rank, sizeof *shape);
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
static f2o_status copy_initializers(Program *program, const f2o_state *values,
                                    const Names *initializers, f2o_error *error) {
    program->initializers = arena_alloc(&program->arena, initializers->count, sizeof(Buffer));
    if (program->initializers == NULL) return no_memory(error);
    for (size_t i = 0; i < initializers->count; i++) {
        size_t index = index_of(values, initializers->items[i]);
        const f2o_spec *spec = &values->specs.items[index];
        Buffer *copy = &program->initializers[program->initializer_count++];
        TRY(open_buffer(program->runtime, spec->dtype, spec->rank, spec->shape, copy, error));
        memcpy(copy->data, current_buffer(values, index)->data, copy->bytes);
    }
    return F2O_OK;
}

static f2o_status fill_program(Program *program, const char *path, bool training,
                               const f2o_state *values, const Names *initializers,
                               f2o_error *error) {
    if (initializers != NULL) TRY(copy_initializers(program, values, initializers, error));
    TRY(open_session(program, path, training, initializers, error));
    TRY(read_side(program, true, error));
    TRY(read_side(program, false, error));
    return open_ends(program, error);
}

/* Open a model. Inputs named like a tensor of `state` read it, an output next/v is its next value.
 * `initializers`, which may be NULL, names initializers whose values are those of `values`. */
INTERNAL f2o_status open_program(Program *program, const Runtime *runtime, const char *path,
                                 f2o_state *state, bool training, const f2o_state *values,
                                 const Names *initializers, f2o_error *error) {
    memset(program, 0, sizeof *program);
    program->runtime = runtime;
    program->state = state;
    const char *slash = strrchr(path, '/');
    program->file = arena_text(&program->arena, slash == NULL ? path : slash + 1);
    f2o_status status = program->file == NULL
                            ? no_memory(error)
                            : fill_program(program, path, training, values, initializers, error);
    if (status != F2O_OK) close_program(program);
    return status;
}

/* Refuse a model whose feeds or results are not what the manifest says. */
INTERNAL f2o_status check_signature(const Program *program, const char *kind, const Specs *have,
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
