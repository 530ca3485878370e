/* What Go calls in place of the C API: Go may not hand over memory that holds pointers into its own,
 * and so gives each array as an argument, and all that describes them without pointers. */
#ifndef FLOW2ONNX_BRIDGE_H
#define FLOW2ONNX_BRIDGE_H

#include "flow2onnx_runtime.h"

#define BRIDGE_FEEDS 16 /* as many arrays as are given in place */

enum bridge_run {
    BRIDGE_STEP,
    BRIDGE_EVALUATE,
    BRIDGE_ACCUMULATE,
    BRIDGE_PREDICT,
    BRIDGE_RUN,
    BRIDGE_WRITE,
    BRIDGE_REPLACE
};

/* One call with `count` tensors. `about` holds, for each, its element type, its rank and the place
 * of its name in `names`, or -1; `shapes` the sizes of all. `message` is set where it fails, and
 * for the caller to free. */
f2o_status bridge_call(enum bridge_run what, void *handle, const char *job, size_t count,
                       const int64_t *about, const int64_t *shapes, const char *names,
                       const void *a0, const void *a1, const void *a2, const void *a3,
                       const void *a4, const void *a5, const void *a6, const void *a7,
                       const void *a8, const void *a9, const void *a10, const void *a11,
                       const void *a12, const void *a13, const void *a14, const void *a15,
                       f2o_tensors *results, char **message);

/* The same with a list in memory of C. */
f2o_status bridge_call_list(enum bridge_run what, void *handle, const char *job,
                            const f2o_tensor *list, size_t count, f2o_tensors *results,
                            char **message);

/* A list of `count` tensors to be set, or NULL; copies of what is set; the end of both. */
f2o_tensor *bridge_list(size_t count);
bool bridge_set(f2o_tensor *list, size_t index, const char *name, int dtype, size_t rank,
                const int64_t *shape, const void *data, size_t bytes);
void bridge_free(f2o_tensor *list, size_t count);

/* Calls whose error comes as `message`. */
f2o_status bridge_open_trainer(const char *bundle, const f2o_options *options,
                               f2o_trainer **trainer, char **message);
f2o_status bridge_open_predictor(const char *path, const char *job, const f2o_options *options,
                                 f2o_predictor **predictor, char **message);
f2o_status bridge_update(f2o_trainer *trainer, char **message);
f2o_status bridge_set_rate(f2o_trainer *trainer, double rate, char **message);
f2o_status bridge_use_schedule(f2o_trainer *trainer, char **message);
f2o_status bridge_freeze(f2o_trainer *trainer, const char *const *names, size_t count,
                         char **message);
f2o_status bridge_save(f2o_trainer *trainer, const char *path, char **message);
f2o_status bridge_load(f2o_trainer *trainer, const char *path, char **message);
f2o_status bridge_export_adapter(f2o_trainer *trainer, const char *path, char **message);
f2o_status bridge_load_adapter(f2o_trainer *trainer, const char *path, char **message);
f2o_status bridge_export(f2o_trainer *trainer, const char *folder, const char *job,
                         char **message);
f2o_status bridge_read(f2o_trainer *trainer, const char *const *names, size_t count,
                       f2o_tensors *values, char **message);
f2o_status bridge_load_tensors(const char *path, f2o_tensors *tensors, char **message);
f2o_status bridge_save_tensors(const char *path, const f2o_tensor *list, size_t count,
                               char **message);

#endif
