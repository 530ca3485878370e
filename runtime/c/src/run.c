/* Runs of a program: feeds checked and bound, results viewed, state committed. */

#include "internal.h"

/* Find, for each feed, which of the given tensors it is. */
INTERNAL f2o_status order_feeds(const char *file, const Specs *feeds, const f2o_tensor *given,
                                size_t count, const f2o_tensor **ordered, f2o_error *error) {
    if (count != feeds->count) {
        return fail(error, F2O_FEED_ERROR, "give each input once", "%s takes %zu feeds, got %zu",
                    file, feeds->count, count);
    }
    for (size_t i = 0; i < count; i++) ordered[i] = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *name = given[i].name == NULL ? feeds->items[i].name : given[i].name;
        const f2o_spec *spec =
            given[i].name == NULL ? &feeds->items[i] : find_spec(feeds, name);
        if (spec == NULL || ordered[spec - feeds->items] != NULL) {
            return fail(error, F2O_FEED_ERROR, "give each input once", "%s: %s %s", file,
                        spec == NULL ? "there is no input" : "given twice is", name);
        }
        ordered[spec - feeds->items] = &given[i];
    }
    return F2O_OK;
}

/* True if free sizes of one name are equal, up to and within feed `last`. */
static bool sizes_agree(const Specs *feeds, const f2o_tensor *const *given, size_t last) {
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

INTERNAL f2o_status check_feeds(const char *file, const Specs *feeds,
                                const f2o_tensor *const *given, f2o_error *error) {
    char have[SHAPE_TEXT], asked[SHAPE_TEXT];
    for (size_t i = 0; i < feeds->count; i++) {
        const f2o_spec *spec = &feeds->items[i];
        const f2o_tensor *value = given[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): order_feeds has filled each */
        const char *dtype = f2o_dtype_name(value->dtype);
        if (value->dtype != spec->dtype) {
            return fail(error, F2O_FEED_ERROR, "convert it before", "%s: %s is %s, got %s", file,
                        spec->name, f2o_dtype_name(spec->dtype), dtype ? dtype : "no known dtype");
        }
        size_t bytes =
            value->rank > RANK_LIMIT ? NONE : bytes_of(value->dtype, value->rank, value->shape);
        if (bytes == NONE || (bytes > 0 && value->data == NULL) ||
            !fits(spec, value->rank, value->shape) || !sizes_agree(feeds, given, i)) {
            size_t rank = value->rank > RANK_LIMIT ? 0 : value->rank;
            return fail(error, F2O_FEED_ERROR,
                        "the number of sizes and every fixed or repeated size must match",
                        "%s: %s has shape %s, got %s", file, spec->name,
                        show_shape(asked, sizeof asked, spec->rank, spec->shape, spec->symbols),
                        show_shape(have, sizeof have, rank, value->shape, NULL));
        }
        TRY(check_range(file, spec, value, error));
    }
    return F2O_OK;
}

/* Copy the feeds to where the bindings read them; new sizes need a new buffer. */
static f2o_status fill_feeds(Program *program, const f2o_tensor *const *given, f2o_error *error) {
    for (size_t i = 0; i < program->feeds.count; i++) {
        const f2o_tensor *value = given[i];
        Buffer *buffer = &program->feed_buffers[i];
        if (buffer->value == NULL ||
            !same_shape(value->rank, value->shape, value->rank, program->bound[i].shape)) {
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
             program->inputs.items[i].name, current_buffer(program->state, index)->value);
    }
    size_t result = 0;
    for (size_t i = 0; i < program->outputs.count; i++) {
        size_t index = program->output_state[i];
        const char *name = program->outputs.items[i].name;
        const Buffer *buffer = index == NONE ? &program->result_buffers[result++]
                                             : other_buffer(program->state, index);
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
    size_t size = program->state == NULL ? 0 : program->state->specs.count;
    set_key(program, program->key);
    for (size_t i = 0; i < program->lane_count; i++) {
        if (memcmp(program->lanes[i].key, program->key, size) == 0) {
            *found = &program->lanes[i];
            return F2O_OK;
        }
    }
    unsigned char *key = malloc(size + 1);
    if (key == NULL) return no_memory(error);
    memcpy(key, program->key, size);
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

/* View a value that the library has made; `shape` has room for RANK_LIMIT sizes. */
INTERNAL f2o_status view_value(const Runtime *runtime, OrtValue *value, const f2o_spec *spec,
                               int64_t *shape, f2o_tensor *view, const char *what,
                               f2o_error *error) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    void *data = NULL;
    const Api *api = &runtime->api;
    TRY(check_status(runtime, api->GetTensorTypeAndShape(value, &info), F2O_RUN_ERROR, what,
                     error));
    OrtStatus *status = api->GetTensorElementType(info, &type);
    if (status == NULL) status = api->GetDimensionsCount(info, &rank);
    bool known = status == NULL && rank <= RANK_LIMIT && (f2o_dtype)type == spec->dtype;
    if (known) status = api->GetDimensions(info, shape, rank);
    if (known && status == NULL) status = api->GetTensorMutableData(value, &data);
    api->ReleaseTensorTypeAndShapeInfo(info);
    TRY(check_status(runtime, status, F2O_RUN_ERROR, what, error));
    if (!known) {
        return fail(error, F2O_RUN_ERROR, NULL, "%s: %s came with another type", what, spec->name);
    }
    *view = (f2o_tensor){spec->name, spec->dtype, rank, shape, data};
    return F2O_OK;
}

/* Views of the results; those of open shape are values of the library, `values`, in model order. */
static f2o_status view_results(const Program *program, OrtValue **values, f2o_error *error) {
    size_t result = 0;
    for (size_t i = 0; i < program->outputs.count; i++) {
        if (program->output_state[i] != NONE) continue;
        const f2o_spec *spec = &program->results.items[result];
        const Buffer *buffer = &program->result_buffers[result];
        f2o_tensor *view = &program->views[result];
        if (buffer->value != NULL) {
            *view = (f2o_tensor){spec->name, spec->dtype, spec->rank, spec->shape, buffer->data};
        } else {
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): open shapes have values */
            TRY(view_value(program->runtime, values[i], spec, program->shapes[result], view,
                           program->file, error));
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
        size_t elements = is_loss && size > 0 ? f2o_tensor_bytes(&views[i]) / size : 0;
        for (size_t k = 0; k < elements; k++) {
            if (!isfinite(number_at(&views[i], k))) {
                return fail(error, F2O_NON_FINITE_ERROR,
                            "lower the learning rate, or look at this batch",
                            "the loss %s is not finite: the state is kept", views[i].name);
            }
        }
    }
    return F2O_OK;
}

/* What the library has made for the results of open shape. */
typedef struct Outcome {
    OrtValue **values;
    size_t count;
} Outcome;

static void close_outcome(const Program *program, Outcome *outcome) {
    const Api *api = &program->runtime->api;
    for (size_t i = 0; i < outcome->count; i++) api->ReleaseValue(outcome->values[i]);
    if (outcome->values != NULL) {
        OrtStatus *freed = api->AllocatorFree(program->runtime->allocator, outcome->values);
        if (freed != NULL) api->ReleaseStatus(freed);
    }
}

static f2o_status fetch_outcome(const Program *program, const Lane *lane, Outcome *outcome,
                                f2o_error *error) {
    const Runtime *runtime = program->runtime;
    size_t count = program->results.count;
    bool open = false;
    for (size_t i = 0; i < count; i++) open = open || program->result_buffers[i].value == NULL;
    if (open) {
        CALL(runtime, F2O_RUN_ERROR, program->file, error, GetBoundOutputValues, lane->binding,
             runtime->allocator, &outcome->values, &outcome->count);
    }
    return view_results(program, outcome->values, error);
}

/* Run on feeds that were checked; with `losses`, refuse a loss that is not finite. */
static f2o_status run_checked(Program *program, const f2o_tensor *const *given, const Names *losses,
                              f2o_tensors *results, f2o_error *error) {
    const Runtime *runtime = program->runtime;
    Lane *lane = NULL;
    Outcome outcome = {NULL, 0};
    TRY(check_stopped(runtime, program->file, error));
    TRY(fill_feeds(program, given, error));
    TRY(find_lane(program, &lane, error));
    TRY(bind_feeds(program, lane, error));
    TRY(rebind_open(program, lane, error));
    TRY(check_run(runtime,
                  runtime->api.RunWithBinding(program->session, runtime->run, lane->binding),
                  program->file, error));
    f2o_status status = fetch_outcome(program, lane, &outcome, error);
    size_t count = program->results.count;
    if (status == F2O_OK && losses != NULL) {
        status = check_losses(losses, program->views, count, error);
    }
    if (status == F2O_OK) status = copy_tensors(results, program->views, count, error);
    close_outcome(program, &outcome);
    return status;
}

/* Exchange the buffers of what the program wrote, but for what is frozen. */
INTERNAL void commit(const Program *program, const unsigned char *frozen) {
    for (size_t i = 0; i < program->outputs.count; i++) {
        size_t index = program->output_state[i];
        if (index != NONE && !frozen[index]) program->state->side[index] ^= 1;
    }
    program->state->changes++;
}

INTERNAL f2o_status run_program(Program *program, const f2o_tensor *feeds, size_t count,
                                const Names *losses, f2o_tensors *results, f2o_error *error) {
    const f2o_tensor **given = program->given;
    TRY(order_feeds(program->file, &program->feeds, feeds, count, given, error));
    TRY(check_feeds(program->file, &program->feeds, given, error));
    return run_checked(program, given, losses, results, error);
}
