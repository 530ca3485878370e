/* Train and predict with flow2onnx bundles: C11, libc and ONNX Runtime's C API, nothing else.
 *
 * The nouns are those of the other runtimes: Trainer, Predictor, State, Options. Every function
 * that can fail returns a status and fills `error`, which may be NULL; a refusal changes nothing.
 * Nothing prints, exits or keeps global state.
 *
 * Threads. Different trainers and predictors may be used in different threads. One predictor may be
 * called by any number of threads at once. One trainer, with its state, is used by one thread at a
 * time; the caller sees to that. Any thread may stop either. An `f2o_tensors` belongs to one
 * thread.
 */
#ifndef FLOW2ONNX_RUNTIME_H
#define FLOW2ONNX_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum f2o_status {
    F2O_OK = 0,
    F2O_BUNDLE_ERROR,     /* a bundle, model or state file that is not what the contract asks for */
    F2O_STATE_ERROR,      /* a value or request that does not fit the state */
    F2O_FEED_ERROR,       /* arrays that do not fit a model's inputs */
    F2O_RUN_ERROR,        /* a model that was opened but could not be run on these values */
    F2O_OPTIONS_ERROR,    /* an option without meaning */
    F2O_NON_FINITE_ERROR, /* a loss that is NaN or infinite while `finite_losses` is on */
    F2O_FILE_ERROR,       /* a file that cannot be written */
    F2O_MEMORY_ERROR,     /* no memory left */
    F2O_RUNTIME_ERROR,    /* an ONNX Runtime that is missing or too old */
    F2O_STOPPED_ERROR     /* a run that was stopped */
} f2o_status;

typedef struct f2o_error {
    f2o_status status;
    char message[1024]; /* what was asked, what was got; on a second line what to do */
} f2o_error;

/* Element types; the numbers are ONNX's. */
typedef enum f2o_dtype {
    F2O_FLOAT32 = 1, F2O_UINT8 = 2, F2O_INT8 = 3, F2O_UINT16 = 4, F2O_INT16 = 5, F2O_INT32 = 6,
    F2O_INT64 = 7, F2O_BOOL = 9, F2O_FLOAT16 = 10, F2O_FLOAT64 = 11, F2O_UINT32 = 12,
    F2O_UINT64 = 13, F2O_BFLOAT16 = 16
} f2o_dtype;

const char *f2o_dtype_name(f2o_dtype dtype); /* such as "float32"; NULL for no element type */
size_t f2o_dtype_size(f2o_dtype dtype);      /* bytes of one element; 0 likewise */

/* A tensor's memory: C order, elements in the machine's byte order, half precision as its bits. */
typedef struct f2o_tensor {
    const char *name; /* as a feed NULL: the one that stands at this place */
    f2o_dtype dtype;
    size_t rank;
    const int64_t *shape;
    const void *data;
} f2o_tensor;

size_t f2o_tensor_bytes(const f2o_tensor *tensor);

/* Copies of tensors. Begin with {0}; a call that fills it reuses the memory; free it at the end. */
typedef struct f2o_tensors {
    size_t count;
    const f2o_tensor *items;
    void *memory;
    size_t capacity;
} f2o_tensors;

const f2o_tensor *f2o_tensors_find(const f2o_tensors *tensors, const char *name); /* or NULL */
void f2o_tensors_free(f2o_tensors *tensors);

/* The whole numbers that a feed may hold: from `least` on, below `below`, and `ignored` if it has
 * one. Those of classes begin with 0; rows are counted from the end of a table below 0. */
typedef struct f2o_range {
    int64_t least, below, ignored;
    bool has_ignored;
    const char *layer; /* what reads them, or "" */
} f2o_range;

/* A tensor of a model or the state: a size of -1 is free, `symbols` names it ("?" without name). */
typedef struct f2o_spec {
    const char *name;
    f2o_dtype dtype;
    size_t rank;
    const int64_t *shape;
    const char *const *symbols; /* NULL in place of fixed sizes */
    const char *role;           /* of a state tensor: variable, slot, counter; else NULL */
    const char *of;             /* a slot's variable, or NULL */
    bool trainable;
    const f2o_range *range; /* of a feed of which something is known, or NULL */
} f2o_spec;

typedef enum f2o_optimization {
    F2O_OPTIMIZE_ALL = 0,
    F2O_OPTIMIZE_EXTENDED,
    F2O_OPTIMIZE_BASIC,
    F2O_OPTIMIZE_NONE
} f2o_optimization;

/* How models are opened, on the CPU. All zeros, or NULL, is the usual choice. */
typedef struct f2o_options {
    int threads; /* of one operator; 0: one per core */
    f2o_optimization optimization;
    bool finite_losses; /* a step whose loss is not finite is refused and changes nothing */
    bool ort_format;    /* open x.ort in place of x.onnx */
    /* The file of ONNX Runtime's library, in builds that load it: NULL for that of the variable
     * FLOW2ONNX_ORT_LIBRARY, or else one that the process has or the loader finds. */
    const char *library;
} f2o_options;

/* ---- Trainer: a bundle's job with its state -------------------------------------------------- */

typedef struct f2o_trainer f2o_trainer;
typedef struct f2o_state f2o_state;

f2o_status f2o_trainer_open(const char *bundle, const f2o_options *options, f2o_trainer **trainer,
                            f2o_error *error);
void f2o_trainer_close(f2o_trainer *trainer); /* NULL is fine */

/* Of the step. Valid until the trainer is closed. */
const f2o_spec *f2o_trainer_feeds(const f2o_trainer *trainer, size_t *count);
const f2o_spec *f2o_trainer_results(const f2o_trainer *trainer, size_t *count);

/* Feeds come by place or by name, each once. `results` may be NULL. */
f2o_status f2o_trainer_step(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                            f2o_tensors *results, f2o_error *error);
/* The results of a step that is not made. */
f2o_status f2o_trainer_evaluate(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                                f2o_tensors *results, f2o_error *error);
/* Add up the gradients of a batch; make one step of the mean of those added up. */
f2o_status f2o_trainer_accumulate(f2o_trainer *trainer, const f2o_tensor *feeds, size_t count,
                                  f2o_tensors *results, f2o_error *error);
f2o_status f2o_trainer_update(f2o_trainer *trainer, f2o_error *error);
int64_t f2o_trainer_accumulated(const f2o_trainer *trainer); /* batches since the last update */
/* A predict job (NULL: the first) on the present state. */
f2o_status f2o_trainer_predict(f2o_trainer *trainer, const char *job, const f2o_tensor *feeds,
                               size_t count, f2o_tensors *results, f2o_error *error);

int64_t f2o_trainer_steps(const f2o_trainer *trainer);
/* The rate that overrides the schedule; below 0 while the schedule holds. */
double f2o_trainer_rate(const f2o_trainer *trainer);
f2o_status f2o_trainer_set_rate(f2o_trainer *trainer, double rate, f2o_error *error);
f2o_status f2o_trainer_use_schedule(f2o_trainer *trainer, f2o_error *error);
/* Freeze these variables with their slots, and no others. */
f2o_status f2o_trainer_freeze(f2o_trainer *trainer, const char *const *names, size_t count,
                              f2o_error *error);
bool f2o_trainer_is_frozen(const f2o_trainer *trainer, const char *variable);

/* A file that appears whole or not at all, also when the process is killed. */
f2o_status f2o_trainer_save(const f2o_trainer *trainer, const char *path, f2o_error *error);
f2o_status f2o_trainer_load(f2o_trainer *trainer, const char *path, f2o_error *error);
/* A predict job (NULL: the first) with the present weights; the folder is missing, empty, or holds
 * an earlier export. Any ONNX Runtime opens its model file. */
f2o_status f2o_trainer_export_predict(const f2o_trainer *trainer, const char *folder,
                                      const char *job, f2o_error *error);

/* The adapter that a bundle of adapters trains, as ONNX Runtime's file .onnx_adapter, which appears
 * whole or not at all; and going on from one of the same modules and ranks: slots stay. */
f2o_status f2o_trainer_export_adapter(const f2o_trainer *trainer, const char *path,
                                      f2o_error *error);
f2o_status f2o_trainer_load_adapter(f2o_trainer *trainer, const char *path, f2o_error *error);

/* While stopped, a run ends soon, or does not begin, with F2O_STOPPED_ERROR and the state as it
 * was; false lets runs begin again. From any thread, as long as the trainer is open. */
void f2o_trainer_stop(f2o_trainer *trainer, bool stopped);

/* ---- State: the trainer's tensors, by name --------------------------------------------------- */

f2o_state *f2o_trainer_state(f2o_trainer *trainer); /* the trainer's own: not to be freed */
const f2o_spec *f2o_state_specs(const f2o_state *state, size_t *count);
/* Copies of the tensors named; of all if `names` is NULL. */
f2o_status f2o_state_read(const f2o_state *state, const char *const *names, size_t count,
                          f2o_tensors *values, f2o_error *error);
/* Replace some tensors, or exactly all. All are checked before any is written. */
f2o_status f2o_state_write(f2o_state *state, const f2o_tensor *values, size_t count,
                           f2o_error *error);
f2o_status f2o_state_replace(f2o_state *state, const f2o_tensor *values, size_t count,
                             f2o_error *error);

/* ---- Predictor: a model file, or a predict job of a bundle with the bundle's weights --------- */

typedef struct f2o_predictor f2o_predictor;

f2o_status f2o_predictor_open(const char *model_or_bundle, const char *job,
                              const f2o_options *options, f2o_predictor **predictor,
                              f2o_error *error);
void f2o_predictor_close(f2o_predictor *predictor);
const f2o_spec *f2o_predictor_feeds(const f2o_predictor *predictor, size_t *count);
const f2o_spec *f2o_predictor_results(const f2o_predictor *predictor, size_t *count);
f2o_status f2o_predictor_run(const f2o_predictor *predictor, const f2o_tensor *feeds, size_t count,
                             f2o_tensors *results, f2o_error *error);

/* The same of all calls of a predictor. */
void f2o_predictor_stop(f2o_predictor *predictor, bool stopped);

/* ---- Files of tensors ------------------------------------------------------------------------ */

f2o_status f2o_load_safetensors(const char *path, f2o_tensors *tensors, f2o_error *error);
f2o_status f2o_save_safetensors(const char *path, const f2o_tensor *tensors, size_t count,
                                f2o_error *error);

#ifdef __cplusplus
}
#endif
#endif
