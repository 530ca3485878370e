/* The state of training: two buffers for each tensor, one of them current. */

#include "internal.h"

/* ---- State ----------------------------------------------------------------------------------- */

INTERNAL size_t index_of(const f2o_state *state, const char *name) {
    const f2o_spec *spec = name == NULL ? NULL : find_spec(&state->specs, name);
    return spec == NULL ? NONE : (size_t)(spec - state->specs.items);
}

INTERNAL Buffer *current_buffer(const f2o_state *state, size_t index) {
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): who has an index has a state */
    return &state->buffers[index][state->side[index]];
}

INTERNAL Buffer *other_buffer(const f2o_state *state, size_t index) {
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): who has an index has a state */
    return &state->buffers[index][!state->side[index]];
}

INTERNAL void close_state(f2o_state *state) {
    for (size_t i = 0; state->buffers != NULL && i < state->specs.count; i++) {
        close_buffer(state->runtime, &state->buffers[i][0]);
        close_buffer(state->runtime, &state->buffers[i][1]);
    }
    free(state->buffers);
    free(state->side);
    state->buffers = NULL;
    state->side = NULL;
}

INTERNAL f2o_status open_state(f2o_state *state, const Runtime *runtime, Specs specs,
                               f2o_error *error) {
    state->runtime = runtime;
    state->specs = specs;
    state->buffers = calloc(specs.count + 1, sizeof *state->buffers);
    state->side = calloc(specs.count + 1, 1);
    if (state->buffers == NULL || state->side == NULL) return no_memory(error);
    for (size_t i = 0; i < specs.count; i++) {
        const f2o_spec *spec = &specs.items[i];
        for (int j = 0; j < 2; j++) {
            Buffer *buffer = &state->buffers[i][j];
            TRY(open_buffer(runtime, spec->dtype, spec->rank, spec->shape, buffer, error));
            memset(buffer->data, 0, buffer->bytes);
        }
    }
    return F2O_OK;
}

INTERNAL f2o_tensor state_view(const f2o_state *state, size_t index) {
    const f2o_spec *spec = &state->specs.items[index];
    return (f2o_tensor){spec->name, spec->dtype, spec->rank, spec->shape,
                        current_buffer(state, index)->data};
}

INTERNAL bool same_shape(size_t rank, const int64_t *a, size_t other_rank, const int64_t *b) {
    return rank == other_rank && (rank == 0 || memcmp(a, b, rank * sizeof *a) == 0);
}

/* Refuse a value that is not of the shape and dtype of its state tensor. */
static f2o_status check_value(const f2o_spec *spec, const f2o_tensor *value, const char *where,
                              f2o_status code, f2o_error *error) {
    char have[SHAPE_TEXT], asked[SHAPE_TEXT];
    if (spec->dtype == value->dtype && value->rank <= RANK_LIMIT &&
        same_shape(spec->rank, spec->shape, value->rank, value->shape)) {
        return F2O_OK;
    }
    const char *dtype = f2o_dtype_name(value->dtype);
    return fail(
        error, code, "a tensor's shape and dtype are fixed by the job",
        "%s: %s is %s %s, it must be %s %s", where, spec->name, dtype ? dtype : "of no type",
        show_shape(have, sizeof have, value->rank, value->shape, NULL), f2o_dtype_name(spec->dtype),
        show_shape(asked, sizeof asked, spec->rank, spec->shape, NULL));
}

/* Refuse values that are not of this state, or, if `all`, not exactly its tensors. */
INTERNAL f2o_status check_values(const f2o_state *state, const f2o_tensor *values, size_t count,
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

INTERNAL void write_values(f2o_state *state, const f2o_tensor *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Buffer *buffer = current_buffer(state, index_of(state, values[i].name));
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
    TRY(clear_error(error));
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
    TRY(clear_error(error));
    TRY(check_values(state, values, count, false, "the state", F2O_STATE_ERROR, error));
    write_values(state, values, count);
    return F2O_OK;
}

f2o_status f2o_state_replace(f2o_state *state, const f2o_tensor *values, size_t count,
                             f2o_error *error) {
    TRY(clear_error(error));
    TRY(check_values(state, values, count, true, "the state", F2O_STATE_ERROR, error));
    write_values(state, values, count);
    return F2O_OK;
}

/* The number in a tensor of one integer. */
INTERNAL int64_t whole_number(f2o_dtype dtype, const void *data) {
    int64_t number = 0;
    int32_t small;
    switch (f2o_dtype_size(dtype)) {
    case 8: memcpy(&number, data, 8); return number;
    case 4: memcpy(&small, data, 4); return dtype == F2O_INT32 ? small : (int64_t)(uint32_t)small;
    default: memcpy(&number, data, f2o_dtype_size(dtype)); return number;
    }
}
