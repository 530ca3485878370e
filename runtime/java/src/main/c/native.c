/* The natives of Native.java, generated from the header by `python -m runtime.bindings`. */

#include "flow2onnx_runtime.h"

#include <jni.h>

#define ADDRESS(type, number) ((type)(uintptr_t)(number))
#define NUMBER(pointer) ((jlong)(uintptr_t)(pointer))

JNIEXPORT jintArray JNICALL Java_flow2onnx_Native_layout(JNIEnv *env, jclass type) {
    static const jint places[] = {
        (jint)sizeof(f2o_error),
        (jint)offsetof(f2o_error, status),
        (jint)offsetof(f2o_error, message),
        (jint)sizeof(f2o_tensor),
        (jint)offsetof(f2o_tensor, name),
        (jint)offsetof(f2o_tensor, dtype),
        (jint)offsetof(f2o_tensor, rank),
        (jint)offsetof(f2o_tensor, shape),
        (jint)offsetof(f2o_tensor, data),
        (jint)sizeof(f2o_tensors),
        (jint)offsetof(f2o_tensors, count),
        (jint)offsetof(f2o_tensors, items),
        (jint)offsetof(f2o_tensors, memory),
        (jint)offsetof(f2o_tensors, capacity),
        (jint)sizeof(f2o_range),
        (jint)offsetof(f2o_range, least),
        (jint)offsetof(f2o_range, below),
        (jint)offsetof(f2o_range, ignored),
        (jint)offsetof(f2o_range, has_ignored),
        (jint)offsetof(f2o_range, layer),
        (jint)sizeof(f2o_spec),
        (jint)offsetof(f2o_spec, name),
        (jint)offsetof(f2o_spec, dtype),
        (jint)offsetof(f2o_spec, rank),
        (jint)offsetof(f2o_spec, shape),
        (jint)offsetof(f2o_spec, symbols),
        (jint)offsetof(f2o_spec, role),
        (jint)offsetof(f2o_spec, of),
        (jint)offsetof(f2o_spec, trainable),
        (jint)offsetof(f2o_spec, range),
        (jint)sizeof(f2o_options),
        (jint)offsetof(f2o_options, threads),
        (jint)offsetof(f2o_options, optimization),
        (jint)offsetof(f2o_options, finite_losses),
        (jint)offsetof(f2o_options, ort_format),
        (jint)offsetof(f2o_options, library),
    };
    const jsize count = (jsize)(sizeof places / sizeof *places);
    jintArray layout = (*env)->NewIntArray(env, count);
    (void)type;
    if (layout != NULL) (*env)->SetIntArrayRegion(env, layout, 0, count, places);
    return layout;
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_dtypeName(
    JNIEnv *env, jclass type, jint dtype) {
    (void)env;
    (void)type;
    return NUMBER(f2o_dtype_name((f2o_dtype)dtype));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_dtypeSize(
    JNIEnv *env, jclass type, jint dtype) {
    (void)env;
    (void)type;
    return (jlong)f2o_dtype_size((f2o_dtype)dtype);
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_tensorBytes(
    JNIEnv *env, jclass type, jlong tensor) {
    (void)env;
    (void)type;
    return (jlong)f2o_tensor_bytes(ADDRESS(const f2o_tensor *, tensor));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_tensorsFind(
    JNIEnv *env, jclass type, jlong tensors, jlong name) {
    (void)env;
    (void)type;
    return NUMBER(f2o_tensors_find(ADDRESS(const f2o_tensors *, tensors), ADDRESS(const char *, name)));
}

JNIEXPORT void JNICALL Java_flow2onnx_Native_tensorsFree(
    JNIEnv *env, jclass type, jlong tensors) {
    (void)env;
    (void)type;
    f2o_tensors_free(ADDRESS(f2o_tensors *, tensors));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerOpen(
    JNIEnv *env, jclass type, jlong bundle, jlong options, jlong trainer, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_open(ADDRESS(const char *, bundle), ADDRESS(const f2o_options *, options), ADDRESS(f2o_trainer **, trainer), ADDRESS(f2o_error *, error));
}

JNIEXPORT void JNICALL Java_flow2onnx_Native_trainerClose(
    JNIEnv *env, jclass type, jlong trainer) {
    (void)env;
    (void)type;
    f2o_trainer_close(ADDRESS(f2o_trainer *, trainer));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_trainerFeeds(
    JNIEnv *env, jclass type, jlong trainer, jlong count) {
    (void)env;
    (void)type;
    return NUMBER(f2o_trainer_feeds(ADDRESS(const f2o_trainer *, trainer), ADDRESS(size_t *, count)));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_trainerResults(
    JNIEnv *env, jclass type, jlong trainer, jlong count) {
    (void)env;
    (void)type;
    return NUMBER(f2o_trainer_results(ADDRESS(const f2o_trainer *, trainer), ADDRESS(size_t *, count)));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerStep(
    JNIEnv *env, jclass type, jlong trainer, jlong feeds, jlong count, jlong results, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_step(ADDRESS(f2o_trainer *, trainer), ADDRESS(const f2o_tensor *, feeds), (size_t)count, ADDRESS(f2o_tensors *, results), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerEvaluate(
    JNIEnv *env, jclass type, jlong trainer, jlong feeds, jlong count, jlong results, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_evaluate(ADDRESS(f2o_trainer *, trainer), ADDRESS(const f2o_tensor *, feeds), (size_t)count, ADDRESS(f2o_tensors *, results), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerAccumulate(
    JNIEnv *env, jclass type, jlong trainer, jlong feeds, jlong count, jlong results, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_accumulate(ADDRESS(f2o_trainer *, trainer), ADDRESS(const f2o_tensor *, feeds), (size_t)count, ADDRESS(f2o_tensors *, results), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerUpdate(
    JNIEnv *env, jclass type, jlong trainer, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_update(ADDRESS(f2o_trainer *, trainer), ADDRESS(f2o_error *, error));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_trainerAccumulated(
    JNIEnv *env, jclass type, jlong trainer) {
    (void)env;
    (void)type;
    return (jlong)f2o_trainer_accumulated(ADDRESS(const f2o_trainer *, trainer));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerPredict(
    JNIEnv *env, jclass type, jlong trainer, jlong job, jlong feeds, jlong count, jlong results, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_predict(ADDRESS(f2o_trainer *, trainer), ADDRESS(const char *, job), ADDRESS(const f2o_tensor *, feeds), (size_t)count, ADDRESS(f2o_tensors *, results), ADDRESS(f2o_error *, error));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_trainerSteps(
    JNIEnv *env, jclass type, jlong trainer) {
    (void)env;
    (void)type;
    return (jlong)f2o_trainer_steps(ADDRESS(const f2o_trainer *, trainer));
}

JNIEXPORT jdouble JNICALL Java_flow2onnx_Native_trainerRate(
    JNIEnv *env, jclass type, jlong trainer) {
    (void)env;
    (void)type;
    return (jdouble)f2o_trainer_rate(ADDRESS(const f2o_trainer *, trainer));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerSetRate(
    JNIEnv *env, jclass type, jlong trainer, jdouble rate, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_set_rate(ADDRESS(f2o_trainer *, trainer), rate, ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerUseSchedule(
    JNIEnv *env, jclass type, jlong trainer, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_use_schedule(ADDRESS(f2o_trainer *, trainer), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerFreeze(
    JNIEnv *env, jclass type, jlong trainer, jlong names, jlong count, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_freeze(ADDRESS(f2o_trainer *, trainer), ADDRESS(const char *const *, names), (size_t)count, ADDRESS(f2o_error *, error));
}

JNIEXPORT jboolean JNICALL Java_flow2onnx_Native_trainerIsFrozen(
    JNIEnv *env, jclass type, jlong trainer, jlong variable) {
    (void)env;
    (void)type;
    return (jboolean)f2o_trainer_is_frozen(ADDRESS(const f2o_trainer *, trainer), ADDRESS(const char *, variable));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerSave(
    JNIEnv *env, jclass type, jlong trainer, jlong path, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_save(ADDRESS(const f2o_trainer *, trainer), ADDRESS(const char *, path), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerLoad(
    JNIEnv *env, jclass type, jlong trainer, jlong path, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_load(ADDRESS(f2o_trainer *, trainer), ADDRESS(const char *, path), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerExportPredict(
    JNIEnv *env, jclass type, jlong trainer, jlong folder, jlong job, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_export_predict(ADDRESS(const f2o_trainer *, trainer), ADDRESS(const char *, folder), ADDRESS(const char *, job), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerExportAdapter(
    JNIEnv *env, jclass type, jlong trainer, jlong path, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_export_adapter(ADDRESS(const f2o_trainer *, trainer), ADDRESS(const char *, path), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_trainerLoadAdapter(
    JNIEnv *env, jclass type, jlong trainer, jlong path, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_trainer_load_adapter(ADDRESS(f2o_trainer *, trainer), ADDRESS(const char *, path), ADDRESS(f2o_error *, error));
}

JNIEXPORT void JNICALL Java_flow2onnx_Native_trainerStop(
    JNIEnv *env, jclass type, jlong trainer, jboolean stopped) {
    (void)env;
    (void)type;
    f2o_trainer_stop(ADDRESS(f2o_trainer *, trainer), (bool)stopped);
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_trainerState(
    JNIEnv *env, jclass type, jlong trainer) {
    (void)env;
    (void)type;
    return NUMBER(f2o_trainer_state(ADDRESS(f2o_trainer *, trainer)));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_stateSpecs(
    JNIEnv *env, jclass type, jlong state, jlong count) {
    (void)env;
    (void)type;
    return NUMBER(f2o_state_specs(ADDRESS(const f2o_state *, state), ADDRESS(size_t *, count)));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_stateRead(
    JNIEnv *env, jclass type, jlong state, jlong names, jlong count, jlong values, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_state_read(ADDRESS(const f2o_state *, state), ADDRESS(const char *const *, names), (size_t)count, ADDRESS(f2o_tensors *, values), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_stateWrite(
    JNIEnv *env, jclass type, jlong state, jlong values, jlong count, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_state_write(ADDRESS(f2o_state *, state), ADDRESS(const f2o_tensor *, values), (size_t)count, ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_stateReplace(
    JNIEnv *env, jclass type, jlong state, jlong values, jlong count, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_state_replace(ADDRESS(f2o_state *, state), ADDRESS(const f2o_tensor *, values), (size_t)count, ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_predictorOpen(
    JNIEnv *env, jclass type, jlong model_or_bundle, jlong job, jlong options, jlong predictor, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_predictor_open(ADDRESS(const char *, model_or_bundle), ADDRESS(const char *, job), ADDRESS(const f2o_options *, options), ADDRESS(f2o_predictor **, predictor), ADDRESS(f2o_error *, error));
}

JNIEXPORT void JNICALL Java_flow2onnx_Native_predictorClose(
    JNIEnv *env, jclass type, jlong predictor) {
    (void)env;
    (void)type;
    f2o_predictor_close(ADDRESS(f2o_predictor *, predictor));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_predictorFeeds(
    JNIEnv *env, jclass type, jlong predictor, jlong count) {
    (void)env;
    (void)type;
    return NUMBER(f2o_predictor_feeds(ADDRESS(const f2o_predictor *, predictor), ADDRESS(size_t *, count)));
}

JNIEXPORT jlong JNICALL Java_flow2onnx_Native_predictorResults(
    JNIEnv *env, jclass type, jlong predictor, jlong count) {
    (void)env;
    (void)type;
    return NUMBER(f2o_predictor_results(ADDRESS(const f2o_predictor *, predictor), ADDRESS(size_t *, count)));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_predictorRun(
    JNIEnv *env, jclass type, jlong predictor, jlong feeds, jlong count, jlong results, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_predictor_run(ADDRESS(const f2o_predictor *, predictor), ADDRESS(const f2o_tensor *, feeds), (size_t)count, ADDRESS(f2o_tensors *, results), ADDRESS(f2o_error *, error));
}

JNIEXPORT void JNICALL Java_flow2onnx_Native_predictorStop(
    JNIEnv *env, jclass type, jlong predictor, jboolean stopped) {
    (void)env;
    (void)type;
    f2o_predictor_stop(ADDRESS(f2o_predictor *, predictor), (bool)stopped);
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_loadSafetensors(
    JNIEnv *env, jclass type, jlong path, jlong tensors, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_load_safetensors(ADDRESS(const char *, path), ADDRESS(f2o_tensors *, tensors), ADDRESS(f2o_error *, error));
}

JNIEXPORT jint JNICALL Java_flow2onnx_Native_saveSafetensors(
    JNIEnv *env, jclass type, jlong path, jlong tensors, jlong count, jlong error) {
    (void)env;
    (void)type;
    return (jint)f2o_save_safetensors(ADDRESS(const char *, path), ADDRESS(const f2o_tensor *, tensors), (size_t)count, ADDRESS(f2o_error *, error));
}
