/* One predictor, called from several threads at once, and stopped: threads MODEL FEEDS. */
#include "../flow2onnx_runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, CALLS = 200 };

typedef struct Work {
    const f2o_predictor *predictor;
    f2o_tensor feed;
    f2o_tensors wanted;
    int wrong;
} Work;

static void *work(void *argument) {
    Work *own = argument;
    f2o_tensors found = {0, NULL, NULL, 0};
    for (int i = 0; i < CALLS; i++) {
        f2o_status status = f2o_predictor_run(own->predictor, &own->feed, 1, &found, NULL);
        const f2o_tensor *wanted = own->wanted.items;
        own->wrong += status != F2O_OK ||
                      memcmp(found.items->data, wanted->data, f2o_tensor_bytes(wanted)) != 0;
    }
    f2o_tensors_free(&found);
    return NULL;
}

/* Calls until the predictor is stopped; wrong if one ends otherwise. */
static void *run_until_stopped(void *argument) {
    Work *own = argument;
    f2o_tensors found = {0, NULL, NULL, 0};
    f2o_status status = F2O_OK;
    while (status == F2O_OK) {
        status = f2o_predictor_run(own->predictor, &own->feed, 1, &found, NULL);
    }
    own->wrong += status != F2O_STOPPED_ERROR;
    f2o_tensors_free(&found);
    return NULL;
}

int main(int count, char **words) {
    const f2o_options options = {.threads = 1};
    f2o_predictor *predictor;
    f2o_tensors feeds = {0, NULL, NULL, 0};
    f2o_error error;
    pthread_t threads[THREADS];
    Work works[THREADS];
    size_t inputs;
    int wrong = 0;
    if (count != 3) return 2;
    if (f2o_predictor_open(words[1], NULL, &options, &predictor, &error) != F2O_OK) return 2;
    if (f2o_load_safetensors(words[2], &feeds, &error) != F2O_OK) return 2;
    const f2o_spec *specs = f2o_predictor_feeds(predictor, &inputs);
    const f2o_tensor *batches = f2o_tensors_find(&feeds, specs[0].name);
    size_t bytes = f2o_tensor_bytes(batches) / (size_t)batches->shape[0];
    for (size_t i = 0; i < THREADS; i++) {
        size_t place = i % (size_t)batches->shape[0];
        works[i] = (Work){predictor, {NULL, batches->dtype, batches->rank - 1, batches->shape + 1,
                                      (const char *)batches->data + place * bytes},
                          {0, NULL, NULL, 0}, 0};
        if (f2o_predictor_run(predictor, &works[i].feed, 1, &works[i].wanted, &error) != F2O_OK) {
            printf("%s\n", error.message);
            return 2;
        }
    }
    for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &works[i]);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, run_until_stopped, &works[i]);
    }
    f2o_predictor_stop(predictor, true);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    f2o_predictor_stop(predictor, false);
    for (size_t i = 0; i < THREADS; i++) {
        (void)work(&works[i]);
        wrong += works[i].wrong;
        f2o_tensors_free(&works[i].wanted);
    }
    f2o_tensors_free(&feeds);
    f2o_predictor_close(predictor);
    printf("%d calls, %d wrong\n", 2 * THREADS * CALLS, wrong);
    return wrong != 0;
}
