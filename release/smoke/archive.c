/* The C archive: a bundle trains as recorded, by what is installed. archive CONFORMANCE WORK [BATCH LOSS]...
 *
 * A loss is the first number of a step's result in the trace. */
#include <flow2onnx_runtime.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                               \
    if ((call) != F2O_OK) return fprintf(stderr, "%s\n", error.message), 1

/* One batch of feeds that were stacked along a new first axis. */
static f2o_tensor batch_of(const f2o_tensor *all, long index) {
    size_t bytes = f2o_tensor_bytes(all) / (size_t)all->shape[0];
    return (f2o_tensor){all->name, all->dtype, all->rank - 1, all->shape + 1,
                        (const char *)all->data + (size_t)index * bytes};
}

int main(int count, char **words) {
    char bundle[4096], feeds[4096], state[4096];
    snprintf(bundle, sizeof bundle, "%s/mlp/bundle", words[1]);
    snprintf(feeds, sizeof feeds, "%s/mlp/feeds.safetensors", words[1]);
    snprintf(state, sizeof state, "%s/state-c.safetensors", words[2]);

    f2o_error error;
    f2o_trainer *trainer;
    f2o_tensors stacked = {0}, results = {0};
    CHECK(f2o_load_safetensors(feeds, &stacked, &error));
    CHECK(f2o_trainer_open(bundle, NULL, &trainer, &error));
    const f2o_tensor *images = f2o_tensors_find(&stacked, "images");
    const f2o_tensor *labels = f2o_tensors_find(&stacked, "labels");
    if (!images || !labels) return fprintf(stderr, "the feeds have other names\n"), 1;
    double worst = 0;
    for (int i = 3; i + 1 < count; i += 2) {
        const long batch = strtol(words[i], NULL, 10);
        f2o_tensor given[] = {batch_of(images, batch), batch_of(labels, batch)};
        CHECK(f2o_trainer_step(trainer, given, 2, &results, &error));
        const double found = (double)((const float *)results.items[0].data)[0];
        worst = fmax(worst, fabs(found - strtod(words[i + 1], NULL)));
    }
    if (!(worst <= 1e-4)) return fprintf(stderr, "losses are %g from the trace\n", worst), 1;
    CHECK(f2o_trainer_save(trainer, state, &error));
    printf("%d steps within %.0e of the trace, saved\n", (count - 3) / 2, worst);
    f2o_tensors_free(&stacked);
    f2o_tensors_free(&results);
    f2o_trainer_close(trainer);
    return 0;
}
