/* The natives of PersonalDigits.java: an Error of C++ is a RuntimeException of Java. */
#include "personal_digits.hpp"

#include <jni.h>

#include <memory>

namespace {

PersonalDigits &of(jlong handle) { return *reinterpret_cast<PersonalDigits *>(handle); }

std::string text(JNIEnv *env, jstring given) {
    const char *found = env->GetStringUTFChars(given, nullptr);
    std::string copy(found);
    env->ReleaseStringUTFChars(given, found);
    return copy;
}

/* What the work gives; where it throws, 0, and the exception waits in Java. */
template <class Work> auto guarded(JNIEnv *env, Work work) -> decltype(work()) {
    const char *kind = "java/lang/RuntimeException";
    std::string said;
    try {
        return work();
    } catch (const flow2onnx::StoppedError &error) {
        kind = "java/lang/InterruptedException";
        said = error.what();
    } catch (const flow2onnx::Error &error) {
        said = std::string(error.what()) + "\n" + error.hint();
    } catch (const std::exception &error) {
        said = error.what();
    }
    env->ThrowNew(env->FindClass(kind), said.c_str());
    return decltype(work())();
}

/* The numbers of an image; those that are missing are 0. */
std::array<float, PersonalDigits::Pixels> image(JNIEnv *env, jfloatArray pixels) {
    std::array<float, PersonalDigits::Pixels> copy{};
    const jsize count = std::min(env->GetArrayLength(pixels), jsize(copy.size()));
    env->GetFloatArrayRegion(pixels, 0, count, copy.data());
    return copy;
}

} // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_flow2onnx_digits_PersonalDigits_open(JNIEnv *env, jclass, jstring bundle,
                                                                  jstring folder) {
    return guarded(env, [&] {
        auto opened = std::make_unique<PersonalDigits>(text(env, bundle), text(env, folder));
        return reinterpret_cast<jlong>(opened.release());
    });
}

JNIEXPORT void JNICALL Java_flow2onnx_digits_PersonalDigits_reload(JNIEnv *env, jclass,
                                                                   jlong digits) {
    guarded(env, [&] { of(digits).reload(); });
}

JNIEXPORT void JNICALL Java_flow2onnx_digits_PersonalDigits_collect(JNIEnv *env, jclass, jlong digits,
                                                                    jfloatArray pixels, jint digit) {
    guarded(env, [&] { of(digits).collect(image(env, pixels).data(), digit); });
}

JNIEXPORT jdouble JNICALL Java_flow2onnx_digits_PersonalDigits_train(JNIEnv *env, jclass, jlong digits,
                                                                     jint times) {
    return guarded(env, [&] { return of(digits).train(times); });
}

JNIEXPORT jint JNICALL Java_flow2onnx_digits_PersonalDigits_predict(JNIEnv *env, jclass, jlong digits,
                                                                    jfloatArray pixels) {
    return guarded(env, [&] { return of(digits).predict(image(env, pixels).data()); });
}

JNIEXPORT jlong JNICALL Java_flow2onnx_digits_PersonalDigits_steps(JNIEnv *, jclass, jlong digits) {
    return of(digits).steps();
}

JNIEXPORT void JNICALL Java_flow2onnx_digits_PersonalDigits_stop(JNIEnv *, jclass, jlong digits) {
    of(digits).stop();
}

JNIEXPORT void JNICALL Java_flow2onnx_digits_PersonalDigits_close(JNIEnv *, jclass, jlong digits) {
    delete &of(digits);
}

} // extern "C"
