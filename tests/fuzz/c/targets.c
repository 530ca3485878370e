/* The readers of the C runtime, given whatever bytes there are: one function for each.
 *
 * F2O_TARGET says which. Copies have the exact size, so that a byte read beyond is found.
 */

#include "flow2onnx_runtime.c" /* made of all its sources: readers that no header names */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No reader asks ONNX Runtime. */
const OrtApiBase *OrtGetApiBase(void) { return NULL; }

static unsigned char *copy_of(const uint8_t *data, size_t size) {
    unsigned char *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) abort();
    memcpy(copy, data, size);
    return copy;
}

#include "json.c"
#include "manifest.c"
#include "model.c"
#include "safetensors.c"

static const struct {
    const char *name;
    void (*run)(const uint8_t *, size_t);
} TARGETS[] = {
    {"json", fuzz_json},
    {"manifest", fuzz_manifest},
    {"model", fuzz_model},
    {"safetensors", fuzz_safetensors},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *name = getenv("F2O_TARGET");
    for (size_t i = 0; name != NULL && i < sizeof TARGETS / sizeof *TARGETS; i++) {
        if (strcmp(TARGETS[i].name, name) == 0) {
            TARGETS[i].run(data, size);
            return 0;
        }
    }
    fprintf(stderr, "F2O_TARGET names no target\n");
    abort();
}
