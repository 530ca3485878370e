/* ONNX Runtime: its table of functions, an environment, tensors at fixed addresses. */

#include "internal.h"

#ifdef FLOW2ONNX_WITH_ORT_HEADER
#define COMPARE(position, name, result, arguments) \
    _Static_assert(offsetof(OrtApi, name) == (position) * sizeof(Slot), #name " lies elsewhere"); \
    _Static_assert(_Generic(((const OrtApi *)0)->name, result(*) arguments: 1, default: 0), \
                   #name " has another type");
API_ROWS(COMPARE)
#undef COMPARE
#endif

static void view_table(const OrtApi *table, Api *api) {
    const unsigned char *slots = (const unsigned char *)table;
    Slot found;
    /* Copied as bytes: a pointer to one function type holds any other. */
#define COPY(position, name, result, arguments) \
    memcpy(&found, slots + (position) * sizeof found, sizeof found); \
    memcpy(&api->name, &found, sizeof found);
    API_ROWS(COPY)
#undef COPY
}

/* ---- The runtime library --------------------------------------------------------------------- */

/* F2O_OK for no status; else its message, and the status released. */
INTERNAL f2o_status check_status(const Runtime *runtime, OrtStatus *status, f2o_status code,
                                 const char *what, f2o_error *error) {
    if (status == NULL) return F2O_OK;
    set_error(error, code,
              code == F2O_RUN_ERROR ? "the state is as it was"
                                    : "this ONNX Runtime must know its opset, operators and types",
              "%s: %.700s", what, runtime->api.GetErrorMessage(status));
    runtime->api.ReleaseStatus(status);
    return code;
}

/* True if the table behaves as its view says: a status holds what it was made of. */
static bool api_works(const Api *api) {
    OrtStatus *probe = api->CreateStatus(ORT_FAIL, "flow2onnx");
    bool same = probe != NULL && api->GetErrorCode(probe) == ORT_FAIL &&
                strcmp(api->GetErrorMessage(probe), "flow2onnx") == 0;
    if (probe != NULL) api->ReleaseStatus(probe);
    return same;
}

static f2o_status check_options(const f2o_options *options, f2o_error *error) {
    if (options->threads < 0) {
        return fail(error, F2O_OPTIONS_ERROR, "give a number of at least 1, or 0 for one per core",
                    "threads is %d", options->threads);
    }
    if ((int)options->optimization < 0 || options->optimization > F2O_OPTIMIZE_NONE) {
        return fail(error, F2O_OPTIONS_ERROR, "choose one of f2o_optimization",
                    "optimization is %d", (int)options->optimization);
    }
    return F2O_OK;
}

INTERNAL f2o_status open_runtime(const f2o_options *options, Runtime *runtime, f2o_error *error) {
    if (options != NULL) runtime->options = *options;
    TRY(check_options(&runtime->options, error));
    const OrtApiBase *base = NULL;
    TRY(find_library(runtime->options.library, &base, error));
    runtime->options.library = NULL; /* the caller's text */
    const OrtApi *table = base->GetApi(OLDEST_API);
    if (table == NULL) {
        return fail(error, F2O_RUNTIME_ERROR, "use version 1.22 or newer",
                    "ONNX Runtime %s lacks functions that this needs", base->GetVersionString());
    }
    view_table(table, &runtime->api);
    if (!api_works(&runtime->api)) {
        return fail(error, F2O_RUNTIME_ERROR, "build against its own header",
                    "ONNX Runtime %s has another table of functions", base->GetVersionString());
    }
    const char *what = "ONNX Runtime";
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, CreateEnv, ORT_LOGGING_LEVEL_FATAL, "flow2onnx",
         &runtime->env);
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, CreateCpuMemoryInfo, OrtDeviceAllocator,
         OrtMemTypeDefault, &runtime->host);
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, GetAllocatorWithDefaultOptions,
         &runtime->allocator);
    CALL(runtime, F2O_RUNTIME_ERROR, what, error, CreateRunOptions, &runtime->run);
    return F2O_OK;
}

/* The environment is the process's, and stays: the library deletes the last one outside its lock,
 * so that another thread that opens a runtime meanwhile would fail. */
INTERNAL void close_runtime(Runtime *runtime) {
    if (runtime->host != NULL) runtime->api.ReleaseMemoryInfo(runtime->host);
    if (runtime->run != NULL) runtime->api.ReleaseRunOptions(runtime->run);
}

INTERNAL void set_stopped(Runtime *runtime, bool stopped) {
    if (stopped) atomic_store(&runtime->stopped, true); /* before the run can end by it */
    OrtStatus *status = stopped ? runtime->api.RunOptionsSetTerminate(runtime->run)
                                : runtime->api.RunOptionsUnsetTerminate(runtime->run);
    if (status != NULL) runtime->api.ReleaseStatus(status);
    if (!stopped) atomic_store(&runtime->stopped, false);
}

static f2o_status end_stopped(const char *what, f2o_error *error) {
    return fail(error, F2O_STOPPED_ERROR, "let runs begin again by stop(false)",
                "%s was stopped: the state is as it was", what);
}

INTERNAL f2o_status check_stopped(const Runtime *runtime, const char *what, f2o_error *error) {
    return atomic_load(&runtime->stopped) ? end_stopped(what, error) : F2O_OK;
}

/* F2O_OK for a run that came to its end; else why it did not. */
INTERNAL f2o_status check_run(const Runtime *runtime, OrtStatus *status, const char *what,
                              f2o_error *error) {
    if (status != NULL && atomic_load(&runtime->stopped)) {
        runtime->api.ReleaseStatus(status);
        return end_stopped(what, error);
    }
    return check_status(runtime, status, F2O_RUN_ERROR, what, error);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

INTERNAL void close_buffer(const Runtime *runtime, Buffer *buffer) {
    if (buffer->value != NULL) runtime->api.ReleaseValue(buffer->value);
    free(buffer->data);
    *buffer = (Buffer){NULL, NULL, 0};
}

static f2o_status open_value(const Runtime *runtime, void *data, f2o_dtype dtype, size_t rank,
                             const int64_t *shape, OrtValue **value, f2o_error *error) {
    CALL(runtime, F2O_RUN_ERROR, "a tensor", error, CreateTensorWithDataAsOrtValue, runtime->host,
         data, bytes_of(dtype, rank, shape), shape, rank, (ONNXTensorElementDataType)dtype, value);
    return F2O_OK;
}

INTERNAL f2o_status open_buffer(const Runtime *runtime, f2o_dtype dtype, size_t rank,
                                const int64_t *shape, Buffer *buffer, f2o_error *error) {
    size_t bytes = bytes_of(dtype, rank, shape);
    buffer->data = bytes == NONE ? NULL : alloc_aligned(bytes);
    if (buffer->data == NULL) return no_memory(error);
    buffer->bytes = bytes;
    return open_value(runtime, buffer->data, dtype, rank, shape, &buffer->value, error);
}
