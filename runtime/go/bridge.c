#include "bridge.h"

#include <stdlib.h>
#include <string.h>

/* The status, with a copy of the message where it is an error. */
static f2o_status tell(f2o_status status, const f2o_error *error, char **message) {
    if (status == F2O_OK) return status;
    size_t size = strlen(error->message) + 1;
    *message = malloc(size);
    if (*message != NULL) memcpy(*message, error->message, size);
    return status;
}

f2o_status bridge_call_list(enum bridge_run what, void *handle, const char *job,
                            const f2o_tensor *list, size_t count, f2o_tensors *results,
                            char **message) {
    f2o_error error;
    f2o_status status = F2O_OPTIONS_ERROR;
    switch (what) {
    case BRIDGE_STEP: status = f2o_trainer_step(handle, list, count, results, &error); break;
    case BRIDGE_EVALUATE:
        status = f2o_trainer_evaluate(handle, list, count, results, &error);
        break;
    case BRIDGE_ACCUMULATE:
        status = f2o_trainer_accumulate(handle, list, count, results, &error);
        break;
    case BRIDGE_PREDICT:
        status = f2o_trainer_predict(handle, job, list, count, results, &error);
        break;
    case BRIDGE_RUN: status = f2o_predictor_run(handle, list, count, results, &error); break;
    case BRIDGE_WRITE:
        status = f2o_state_write(f2o_trainer_state(handle), list, count, &error);
        break;
    case BRIDGE_REPLACE:
        status = f2o_state_replace(f2o_trainer_state(handle), list, count, &error);
        break;
    }
    return tell(status, &error, message);
}

f2o_status bridge_call(enum bridge_run what, void *handle, const char *job, size_t count,
                       const int64_t *about, const int64_t *shapes, const char *names,
                       const void *a0, const void *a1, const void *a2, const void *a3,
                       const void *a4, const void *a5, const void *a6, const void *a7,
                       const void *a8, const void *a9, const void *a10, const void *a11,
                       const void *a12, const void *a13, const void *a14, const void *a15,
                       f2o_tensors *results, char **message) {
    const void *data[BRIDGE_FEEDS] = {a0, a1, a2,  a3,  a4,  a5,  a6,  a7,
                                      a8, a9, a10, a11, a12, a13, a14, a15};
    f2o_tensor list[BRIDGE_FEEDS];
    for (size_t i = 0; i < count; i++) {
        const int64_t *one = about + 3 * i;
        list[i] = (f2o_tensor){one[2] < 0 ? NULL : names + one[2], (f2o_dtype)one[0],
                               (size_t)one[1], shapes, data[i]};
        shapes += one[1];
    }
    return bridge_call_list(what, handle, job, list, count, results, message);
}

f2o_tensor *bridge_list(size_t count) { return calloc(count + 1, sizeof(f2o_tensor)); }

/* One block for each tensor: the elements first, as they are the most aligned. */
bool bridge_set(f2o_tensor *list, size_t index, const char *name, int dtype, size_t rank,
                const int64_t *shape, const void *data, size_t bytes) {
    size_t elements = (bytes + 15) / 16 * 16, sizes = rank * sizeof *shape;
    size_t letters = name == NULL ? 0 : strlen(name) + 1;
    char *block = malloc(elements + sizes + letters + 1);
    if (block == NULL) return false;
    if (bytes != 0) memcpy(block, data, bytes);
    if (sizes != 0) memcpy(block + elements, shape, sizes);
    if (letters != 0) memcpy(block + elements + sizes, name, letters);
    list[index] = (f2o_tensor){name == NULL ? NULL : block + elements + sizes, (f2o_dtype)dtype,
                               rank, (int64_t *)(void *)(block + elements), block};
    return true;
}

void bridge_free(f2o_tensor *list, size_t count) {
    for (size_t i = 0; list != NULL && i < count; i++) free((void *)(uintptr_t)list[i].data);
    free(list);
}

f2o_status bridge_open_trainer(const char *bundle, const f2o_options *options,
                               f2o_trainer **trainer, char **message) {
    f2o_error error;
    return tell(f2o_trainer_open(bundle, options, trainer, &error), &error, message);
}

f2o_status bridge_open_predictor(const char *path, const char *job, const f2o_options *options,
                                 f2o_predictor **predictor, char **message) {
    f2o_error error;
    return tell(f2o_predictor_open(path, job, options, predictor, &error), &error, message);
}

f2o_status bridge_update(f2o_trainer *trainer, char **message) {
    f2o_error error;
    return tell(f2o_trainer_update(trainer, &error), &error, message);
}

f2o_status bridge_set_rate(f2o_trainer *trainer, double rate, char **message) {
    f2o_error error;
    return tell(f2o_trainer_set_rate(trainer, rate, &error), &error, message);
}

f2o_status bridge_use_schedule(f2o_trainer *trainer, char **message) {
    f2o_error error;
    return tell(f2o_trainer_use_schedule(trainer, &error), &error, message);
}

f2o_status bridge_freeze(f2o_trainer *trainer, const char *const *names, size_t count,
                         char **message) {
    f2o_error error;
    return tell(f2o_trainer_freeze(trainer, names, count, &error), &error, message);
}

f2o_status bridge_save(f2o_trainer *trainer, const char *path, char **message) {
    f2o_error error;
    return tell(f2o_trainer_save(trainer, path, &error), &error, message);
}

f2o_status bridge_load(f2o_trainer *trainer, const char *path, char **message) {
    f2o_error error;
    return tell(f2o_trainer_load(trainer, path, &error), &error, message);
}

f2o_status bridge_export_adapter(f2o_trainer *trainer, const char *path, char **message) {
    f2o_error error;
    return tell(f2o_trainer_export_adapter(trainer, path, &error), &error, message);
}

f2o_status bridge_load_adapter(f2o_trainer *trainer, const char *path, char **message) {
    f2o_error error;
    return tell(f2o_trainer_load_adapter(trainer, path, &error), &error, message);
}

f2o_status bridge_export(f2o_trainer *trainer, const char *folder, const char *job,
                         char **message) {
    f2o_error error;
    return tell(f2o_trainer_export_predict(trainer, folder, job, &error), &error, message);
}

f2o_status bridge_read(f2o_trainer *trainer, const char *const *names, size_t count,
                       f2o_tensors *values, char **message) {
    f2o_error error;
    return tell(f2o_state_read(f2o_trainer_state(trainer), names, count, values, &error), &error,
                message);
}

f2o_status bridge_load_tensors(const char *path, f2o_tensors *tensors, char **message) {
    f2o_error error;
    return tell(f2o_load_safetensors(path, tensors, &error), &error, message);
}

f2o_status bridge_save_tensors(const char *path, const f2o_tensor *list, size_t count,
                               char **message) {
    f2o_error error;
    return tell(f2o_save_safetensors(path, list, count, &error), &error, message);
}
