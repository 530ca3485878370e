/* Where ONNX Runtime's one exported function comes from: the linker, or a library opened here. */

#include "internal.h"

#ifdef FLOW2ONNX_LOAD_ORT
#include <dlfcn.h>

#ifdef __APPLE__
static const char *const LIBRARIES[] = {"libonnxruntime.1.dylib", "libonnxruntime.dylib"};
#else
static const char *const LIBRARIES[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
#endif

typedef const OrtApiBase *(*Base)(void);

static Base base_in(void *library) {
    void *found = dlsym(library, "OrtGetApiBase");
    Base base = NULL;
    /* Copied as bytes: C has no conversion from data to a function. */
    if (found != NULL) memcpy(&base, &found, sizeof base);
    return base;
}

/* Never closed: threads of the library may run as long as the process does. */
static Base open_library(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library == NULL ? NULL : base_in(library);
}

/* The library named by the options or the environment; else one that the process has, or the
 * loader finds. */
INTERNAL f2o_status find_library(const char *given, const OrtApiBase **base, f2o_error *error) {
    const char *name = given != NULL ? given : getenv("FLOW2ONNX_ORT_LIBRARY");
    Base found = NULL;
    if (name != NULL && *name != 0) {
        found = open_library(name);
    } else {
        found = base_in(RTLD_DEFAULT);
        for (size_t i = 0; found == NULL && i < sizeof LIBRARIES / sizeof *LIBRARIES; i++) {
            found = open_library(LIBRARIES[i]);
        }
    }
    if (found == NULL) {
        const char *why = dlerror();
        return fail(error, F2O_RUNTIME_ERROR,
                    "install it, or name its file: options.library, FLOW2ONNX_ORT_LIBRARY",
                    "ONNX Runtime is not found: %.700s", why == NULL ? "it is empty" : why);
    }
    *base = found();
    return F2O_OK;
}
#else
INTERNAL f2o_status find_library(const char *given, const OrtApiBase **base, f2o_error *error) {
    if (given != NULL) {
        return fail(error, F2O_OPTIONS_ERROR,
                    "leave options.library empty, or compile with -DFLOW2ONNX_LOAD_ORT",
                    "this program is linked to its ONNX Runtime; %.700s cannot be loaded", given);
    }
    *base = OrtGetApiBase();
    return F2O_OK;
}
#endif
