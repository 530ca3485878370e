/* What Java cannot do with native memory by itself. */

#include <jni.h>
#include <stdint.h>
#include <string.h>

#define ADDRESS(type, number) ((type)(uintptr_t)(number))

/* 0 where the buffer is not direct. */
JNIEXPORT jlong JNICALL Java_flow2onnx_Memory_address(JNIEnv *env, jclass type, jobject buffer) {
    (void)type;
    return (jlong)(uintptr_t)(*env)->GetDirectBufferAddress(env, buffer);
}

JNIEXPORT jobject JNICALL Java_flow2onnx_Memory_view(JNIEnv *env, jclass type, jlong address,
                                                     jlong bytes) {
    (void)type;
    return (*env)->NewDirectByteBuffer(env, ADDRESS(void *, address), bytes);
}

/* The bytes of a C text. */
JNIEXPORT jbyteArray JNICALL Java_flow2onnx_Memory_bytes(JNIEnv *env, jclass type, jlong address) {
    const char *text = ADDRESS(const char *, address);
    const jsize length = (jsize)strlen(text);
    jbyteArray bytes = (*env)->NewByteArray(env, length);
    (void)type;
    if (bytes != NULL) (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)text);
    return bytes;
}

JNIEXPORT jint JNICALL Java_flow2onnx_Memory_pointerBytes(JNIEnv *env, jclass type) {
    (void)env;
    (void)type;
    return (jint)sizeof(void *);
}
