/* A client of a federated round in C: client FEEDS FIRST COUNT BUNDLE GIVEN LEARNT
 *
 * Loads a state, trains on so many batches of a file of stacked feeds, saves the state. */
#include "flow2onnx_runtime.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                               \
    if ((call) != F2O_OK) return fprintf(stderr, "%s\n", error.message), 1

static f2o_tensor batch_of(const f2o_tensor *all, long index) {
    const size_t bytes = f2o_tensor_bytes(all) / (size_t)all->shape[0];
    return (f2o_tensor){all->name, all->dtype, all->rank - 1, all->shape + 1,
                        (const char *)all->data + (size_t)index * bytes};
}

int main(int count, char **words) {
    if (count != 7) return fprintf(stderr, "six words are asked for\n"), 2;
    const long first = strtol(words[2], NULL, 10), batches = strtol(words[3], NULL, 10);
    f2o_error error;
    f2o_trainer *trainer;
    f2o_tensors feeds = {0}, results = {0};
    CHECK(f2o_load_safetensors(words[1], &feeds, &error));
    CHECK(f2o_trainer_open(words[4], NULL, &trainer, &error));
    CHECK(f2o_trainer_load(trainer, words[5], &error));
    const f2o_tensor *images = f2o_tensors_find(&feeds, "images");
    const f2o_tensor *labels = f2o_tensors_find(&feeds, "labels");
    long rows = 0;
    for (long i = first; i < first + batches; i++) {
        const f2o_tensor given[] = {batch_of(images, i), batch_of(labels, i)};
        CHECK(f2o_trainer_step(trainer, given, 2, &results, &error));
        rows += (long)given[0].shape[0];
    }
    CHECK(f2o_trainer_save(trainer, words[6], &error));
    printf("{\"examples\": %ld}\n", rows);
    f2o_tensors_free(&feeds);
    f2o_tensors_free(&results);
    f2o_trainer_close(trainer);
    return 0;
}
