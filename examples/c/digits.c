/* Learn handwritten digits on a device: digits FOLDER [EPOCHS].
 *
 * FOLDER holds bundle/ and digits.safetensors, as examples/c/prepare.py writes them. Training goes
 * on from FOLDER/state.safetensors if there is one, and leaves the trained model in FOLDER/trained.
 */
#include "flow2onnx_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Digits {
    f2o_tensors all;
    const f2o_tensor *images, *labels, *tests, *answers; /* batch by batch */
} Digits;

/* One batch of a tensor of batches. */
static f2o_tensor batch_of(const f2o_tensor *all, size_t index) {
    size_t bytes = f2o_tensor_bytes(all) / (size_t)all->shape[0];
    return (f2o_tensor){NULL, all->dtype, all->rank - 1, all->shape + 1,
                        (const char *)all->data + index * bytes};
}

static double mean(const f2o_tensor *tensor) {
    const float *values = tensor->data;
    size_t count = f2o_tensor_bytes(tensor) / sizeof *values;
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i];
    return sum / (double)count;
}

static int largest(const float *values) {
    int best = 0;
    for (int i = 1; i < 10; i++) best = values[i] > values[best] ? i : best;
    return best;
}

static f2o_status load_digits(const char *path, Digits *digits, f2o_error *error) {
    f2o_status status = f2o_load_safetensors(path, &digits->all, error);
    if (status != F2O_OK) return status;
    digits->images = f2o_tensors_find(&digits->all, "images");
    digits->labels = f2o_tensors_find(&digits->all, "labels");
    digits->tests = f2o_tensors_find(&digits->all, "tests");
    digits->answers = f2o_tensors_find(&digits->all, "answers");
    if (digits->images && digits->labels && digits->tests && digits->answers) return F2O_OK;
    snprintf(error->message, sizeof error->message, "%.900s: not the file of prepare.py", path);
    return F2O_BUNDLE_ERROR;
}

static f2o_status train(f2o_trainer *trainer, const Digits *digits, int epochs, f2o_error *error) {
    f2o_tensors results = {0, NULL, NULL, 0};
    f2o_status status = F2O_OK;
    size_t batches = (size_t)digits->images->shape[0];
    for (int epoch = 0; status == F2O_OK && epoch < epochs; epoch++) {
        double loss = 0;
        for (size_t i = 0; status == F2O_OK && i < batches; i++) {
            f2o_tensor feeds[] = {batch_of(digits->images, i), batch_of(digits->labels, i)};
            status = f2o_trainer_step(trainer, feeds, 2, &results, error);
            if (status == F2O_OK) loss += mean(&results.items[0]) / (double)batches;
        }
        if (status == F2O_OK) printf("epoch %d: loss %.4f\n", epoch + 1, loss);
    }
    f2o_tensors_free(&results);
    return status;
}

static f2o_status test(f2o_trainer *trainer, const Digits *digits, f2o_error *error) {
    f2o_tensors results = {0, NULL, NULL, 0};
    f2o_status status = F2O_OK;
    size_t right = 0, batches = (size_t)digits->tests->shape[0], rows = 0;
    for (size_t i = 0; status == F2O_OK && i < batches; i++) {
        f2o_tensor images = batch_of(digits->tests, i), answers = batch_of(digits->answers, i);
        status = f2o_trainer_predict(trainer, NULL, &images, 1, &results, error);
        const int32_t *answer = answers.data;
        for (size_t row = 0; status == F2O_OK && row < (size_t)answers.shape[0]; row++, rows++) {
            const float *chances = results.items[0].data;
            right += largest(chances + 10 * row) == answer[row];
        }
    }
    if (status == F2O_OK) printf("accuracy: %.2f %%\n", 100.0 * (double)right / (double)rows);
    f2o_tensors_free(&results);
    return status;
}

/* Draw the first test digit, and say what a predictor of the exported model takes it for. */
static f2o_status recognise(const char *model, const Digits *digits, f2o_error *error) {
    f2o_predictor *predictor = NULL;
    f2o_tensors results = {0, NULL, NULL, 0};
    f2o_tensor images = batch_of(digits->tests, 0);
    const float *pixels = images.data;
    for (int row = 0; row < 28; row += 2) {
        for (int column = 0; column < 28; column++) {
            putchar(" .:*#"[(int)(4.0f * pixels[28 * row + column])]);
        }
        putchar('\n');
    }
    f2o_status status = f2o_predictor_open(model, NULL, NULL, &predictor, error);
    if (status == F2O_OK) status = f2o_predictor_run(predictor, &images, 1, &results, error);
    if (status == F2O_OK) {
        const int32_t *answers = digits->answers->data;
        printf("this is a %d, it is taken for a %d\n", (int)answers[0],
               largest(results.items[0].data));
    }
    f2o_tensors_free(&results);
    f2o_predictor_close(predictor);
    return status;
}

static f2o_status learn(const char *folder, int epochs, f2o_error *error) {
    char bundle[4096], data[4096], state[4096], trained[4096], model[4096 + 16];
    snprintf(bundle, sizeof bundle, "%s/bundle", folder);
    snprintf(data, sizeof data, "%s/digits.safetensors", folder);
    snprintf(state, sizeof state, "%s/state.safetensors", folder);
    snprintf(trained, sizeof trained, "%s/trained", folder);
    snprintf(model, sizeof model, "%s/predict.onnx", trained);
    Digits digits = {{0, NULL, NULL, 0}, NULL, NULL, NULL, NULL};
    f2o_trainer *trainer = NULL;
    f2o_status status = load_digits(data, &digits, error);
    if (status == F2O_OK) status = f2o_trainer_open(bundle, NULL, &trainer, error);
    FILE *earlier = status == F2O_OK ? fopen(state, "rb") : NULL;
    if (earlier != NULL) {
        fclose(earlier);
        status = f2o_trainer_load(trainer, state, error);
        printf("going on after step %lld\n", (long long)f2o_trainer_steps(trainer));
    }
    if (status == F2O_OK) status = train(trainer, &digits, epochs, error);
    if (status == F2O_OK) status = test(trainer, &digits, error);
    if (status == F2O_OK) status = f2o_trainer_save(trainer, state, error);
    if (status == F2O_OK) status = f2o_trainer_export_predict(trainer, trained, NULL, error);
    if (status == F2O_OK) status = recognise(model, &digits, error);
    f2o_trainer_close(trainer);
    f2o_tensors_free(&digits.all);
    return status;
}

int main(int count, char **words) {
    f2o_error error = {F2O_OK, ""};
    int epochs = count > 2 ? atoi(words[2]) : 10;
    if (count < 2) {
        fprintf(stderr, "usage: %s FOLDER [EPOCHS]\n", words[0]);
        return 2;
    }
    if (learn(words[1], epochs, &error) == F2O_OK) return 0;
    fprintf(stderr, "%s\n", error.message);
    return 1;
}
