/* Let each allocation fail once: starve BUNDLE FEEDS SCRATCH.
 *
 * The linker sends the runtime's allocations, not ONNX Runtime's, through the functions below. Each
 * run must end in F2O_MEMORY_ERROR, or go through where the memory was only for the error's text;
 * the sanitizers watch that nothing leaks or is used wrongly. The last run has all its memory.
 */
#include "../flow2onnx_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static long left; /* allocations until the one that fails; below 0 none does */

static int fails(void) { return left >= 0 && left-- == 0; }

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

static f2o_tensors feeds;

/* The first batch of each feed. */
static size_t first_batch(const f2o_spec *specs, size_t count, f2o_tensor *into) {
    for (size_t i = 0; i < count; i++) {
        const f2o_tensor *all = f2o_tensors_find(&feeds, specs[i].name);
        into[i] = (f2o_tensor){all->name, all->dtype, all->rank - 1, all->shape + 1, all->data};
    }
    return count;
}

static f2o_status train(f2o_trainer *trainer, const char *scratch, f2o_error *error) {
    char file[4096], folder[4096];
    f2o_tensor given[8];
    size_t count;
    f2o_tensors values = {0, NULL, NULL, 0};
    snprintf(file, sizeof file, "%s/state.safetensors", scratch);
    snprintf(folder, sizeof folder, "%s/trained", scratch);
    const f2o_spec *specs = f2o_trainer_feeds(trainer, &count);
    size_t filled = first_batch(specs, count, given);
    f2o_status status = f2o_trainer_step(trainer, given, filled, &values, error);
    if (status == F2O_OK) status = f2o_trainer_save(trainer, file, error);
    if (status == F2O_OK) status = f2o_trainer_load(trainer, file, error);
    if (status == F2O_OK) status = f2o_trainer_predict(trainer, NULL, given, 1, &values, error);
    if (status == F2O_OK) status = f2o_trainer_accumulate(trainer, given, filled, NULL, error);
    if (status == F2O_OK) status = f2o_trainer_update(trainer, error);
    if (status == F2O_OK) status = f2o_trainer_export_predict(trainer, folder, NULL, error);
    if (status == F2O_OK) {
        status = f2o_state_read(f2o_trainer_state(trainer), NULL, 0, &values, error);
    }
    if (status == F2O_OK) {
        status = f2o_state_replace(f2o_trainer_state(trainer), values.items, values.count, error);
    }
    f2o_tensors_free(&values);
    return status;
}

static f2o_status predict(const char *bundle, f2o_error *error) {
    f2o_predictor *predictor = NULL;
    f2o_tensor given[8];
    f2o_tensors values = {0, NULL, NULL, 0};
    f2o_status status = f2o_predictor_open(bundle, NULL, NULL, &predictor, error);
    if (status == F2O_OK) {
        size_t count;
        const f2o_spec *specs = f2o_predictor_feeds(predictor, &count);
        status = f2o_predictor_run(predictor, given, first_batch(specs, count, given), &values,
                                   error);
    }
    f2o_tensors_free(&values);
    f2o_predictor_close(predictor);
    return status;
}

static f2o_status all(const char *bundle, const char *scratch, f2o_error *error) {
    const f2o_options options = {.threads = 1};
    f2o_trainer *trainer = NULL;
    f2o_status status = f2o_trainer_open(bundle, &options, &trainer, error);
    if (status == F2O_OK) status = train(trainer, scratch, error);
    f2o_trainer_close(trainer);
    return status == F2O_OK ? predict(bundle, error) : status;
}

int main(int count, char **words) {
    f2o_error error;
    if (count != 4) return 2;
    left = -1;
    if (f2o_load_safetensors(words[2], &feeds, &error) != F2O_OK) return 2;
    long runs = 0, refused = 0;
    for (bool done = false; !done; runs++) {
        left = runs;
        f2o_status status = all(words[1], words[3], &error);
        done = left >= 0; /* it came to the end before the one to fail */
        if (status == F2O_MEMORY_ERROR) refused++;
        else if (status != F2O_OK) {
            printf("allocation %ld: %s\n", runs, error.message);
            return 1;
        }
    }
    f2o_tensors_free(&feeds);
    printf("%ld allocations, %ld refused\n", runs - 1, refused);
    return 0;
}
