/* Does what the lines of its input say and answers each with one line: for the tests.
 *
 *   open BUNDLE | optimize LEVEL | threads N | finite 0/1 | ort 0/1 | feeds FILE | close
 *   step I | evaluate I | accumulate I | predict I     batch I of the feeds; answers results
 *   update | rate X | schedule | freeze NAME... | save FILE | load FILE | export FOLDER
 *   adapter FILE | from FILE      write the adapter of a bundle of adapters, go on from one
 *   state FILE    write the state's tensors      put FILE / replace FILE    take some, all
 *   stop 0/1      the trainer and the predictor
 *   library FILE  of ONNX Runtime, in builds that load it
 *   time COUNT    steps on the first batch; answers nanoseconds of one
 *   steps | predictor PATH | run FILE | tensors FILE | copy FILE FILE
 *
 * An answer begins with "ok", or with "error N" and the message, in one line.
 */
#include "../flow2onnx_runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS 64

static f2o_trainer *trainer;
static f2o_predictor *predictor;
static f2o_options options;
static f2o_tensors feeds, results;
static f2o_error error;
static char library[4096];

static double value_at(const f2o_tensor *tensor, size_t index) {
    const char *data = tensor->data;
    if (tensor->dtype == F2O_FLOAT32) return ((const float *)(const void *)data)[index];
    if (tensor->dtype == F2O_FLOAT64) return ((const double *)(const void *)data)[index];
    if (tensor->dtype == F2O_INT64) {
        return (double)((const int64_t *)(const void *)data)[index];
    }
    if (tensor->dtype == F2O_INT32) return ((const int32_t *)(const void *)data)[index];
    return ((const unsigned char *)data)[index];
}

static void answer(f2o_status status, bool with_results) {
    if (status != F2O_OK) {
        for (char *c = error.message; *c != 0; c++) *c = *c == '\n' ? '|' : *c;
        printf("error %d %s\n", (int)status, error.message);
        return;
    }
    printf("ok");
    for (size_t i = 0; with_results && i < results.count; i++) {
        const f2o_tensor *tensor = &results.items[i];
        size_t count = f2o_tensor_bytes(tensor) / f2o_dtype_size(tensor->dtype);
        printf(" %s", tensor->name);
        for (size_t j = 0; j < count && j < 16; j++) printf(" %.9g", value_at(tensor, j));
    }
    printf("\n");
}

/* Batch `index` of each feed that `specs` names. */
static size_t batch(const f2o_spec *specs, size_t count, size_t index, f2o_tensor *into) {
    size_t filled = 0;
    for (size_t i = 0; i < count && filled < WORDS; i++) {
        const f2o_tensor *all = f2o_tensors_find(&feeds, specs[i].name);
        if (all == NULL || all->rank == 0 || index >= (size_t)all->shape[0]) continue;
        size_t bytes = f2o_tensor_bytes(all) / (size_t)all->shape[0];
        into[filled++] = (f2o_tensor){all->name, all->dtype, all->rank - 1, all->shape + 1,
                                      (const char *)all->data + index * bytes};
    }
    return filled;
}

static f2o_status train(const char *what, size_t index) {
    f2o_tensor given[WORDS];
    size_t count;
    const f2o_spec *specs = f2o_trainer_feeds(trainer, &count);
    if (strcmp(what, "predict") == 0) {
        /* those of the first predict job: a trainer does not list them, a predictor does */
        specs = f2o_predictor_feeds(predictor, &count);
        size_t filled = batch(specs, count, index, given);
        return f2o_trainer_predict(trainer, NULL, given, filled, &results, &error);
    }
    size_t filled = batch(specs, count, index, given);
    if (strcmp(what, "step") == 0) {
        return f2o_trainer_step(trainer, given, filled, &results, &error);
    }
    if (strcmp(what, "evaluate") == 0) {
        return f2o_trainer_evaluate(trainer, given, filled, &results, &error);
    }
    return f2o_trainer_accumulate(trainer, given, filled, &results, &error);
}

/* Make steps on the first batch and say what one takes. */
static void time_steps(size_t steps) {
    f2o_tensor given[WORDS];
    size_t count;
    struct timespec start, end;
    const f2o_spec *specs = f2o_trainer_feeds(trainer, &count);
    size_t filled = batch(specs, count, 0, given);
    f2o_status status = F2O_OK;
    timespec_get(&start, TIME_UTC);
    for (size_t i = 0; status == F2O_OK && i < steps; i++) {
        status = f2o_trainer_step(trainer, given, filled, &results, &error);
    }
    timespec_get(&end, TIME_UTC);
    if (status != F2O_OK) {
        answer(status, false);
        return;
    }
    double nanoseconds = 1e9 * (double)(end.tv_sec - start.tv_sec) +
                         (double)(end.tv_nsec - start.tv_nsec);
    printf("ok %.0f\n", nanoseconds / (double)steps);
}

static f2o_status open_trainer(const char *path) {
    f2o_trainer_close(trainer);
    trainer = NULL;
    return f2o_trainer_open(path, &options, &trainer, &error);
}

static f2o_status open_predictor(const char *path) {
    f2o_predictor_close(predictor);
    predictor = NULL;
    return f2o_predictor_open(path, NULL, &options, &predictor, &error);
}

static f2o_status write_state(const char *path) {
    f2o_status status = f2o_state_read(f2o_trainer_state(trainer), NULL, 0, &results, &error);
    if (status != F2O_OK) return status;
    return f2o_save_safetensors(path, results.items, results.count, &error);
}

static f2o_status take_state(const char *path, bool all) {
    f2o_status status = f2o_load_safetensors(path, &results, &error);
    if (status != F2O_OK) return status;
    f2o_state *state = f2o_trainer_state(trainer);
    return all ? f2o_state_replace(state, results.items, results.count, &error)
               : f2o_state_write(state, results.items, results.count, &error);
}

static f2o_status run_predictor(const char *path) {
    f2o_tensors given = {0, NULL, NULL, 0};
    f2o_status status = f2o_load_safetensors(path, &given, &error);
    if (status == F2O_OK) {
        status = f2o_predictor_run(predictor, given.items, given.count, &results, &error);
    }
    f2o_tensors_free(&given);
    return status;
}

static f2o_status copy(const char *from, const char *to) {
    f2o_status status = f2o_load_safetensors(from, &results, &error);
    if (status != F2O_OK) return status;
    return f2o_save_safetensors(to, results.items, results.count, &error);
}

/* Do what needs no trainer; false if `word` is none of these. */
static bool settle(char **words, size_t count) {
    const char *word = words[0], *first = count > 1 ? words[1] : "";
    if (strcmp(word, "open") == 0) answer(open_trainer(first), false);
    else if (strcmp(word, "predictor") == 0) answer(open_predictor(first), false);
    else if (strcmp(word, "feeds") == 0) answer(f2o_load_safetensors(first, &feeds, &error), false);
    else if (strcmp(word, "tensors") == 0) {
        answer(f2o_load_safetensors(first, &results, &error), true);
    } else if (strcmp(word, "copy") == 0) answer(copy(first, count > 2 ? words[2] : ""), false);
    else if (strcmp(word, "optimize") == 0) {
        options.optimization = (f2o_optimization)atoi(first);
        answer(F2O_OK, false);
    } else if (strcmp(word, "threads") == 0) {
        options.threads = atoi(first);
        answer(F2O_OK, false);
    } else if (strcmp(word, "finite") == 0) {
        options.finite_losses = atoi(first) != 0;
        answer(F2O_OK, false);
    } else if (strcmp(word, "library") == 0) {
        snprintf(library, sizeof library, "%s", first);
        options.library = library;
        answer(F2O_OK, false);
    } else if (strcmp(word, "ort") == 0) {
        options.ort_format = atoi(first) != 0;
        answer(F2O_OK, false);
    } else {
        return false;
    }
    return true;
}

static void act(char **words, size_t count) {
    const char *word = words[0], *first = count > 1 ? words[1] : "";
    if (settle(words, count)) return;
    if (strcmp(word, "run") == 0 && predictor != NULL) {
        answer(run_predictor(first), true);
        return;
    }
    if (trainer == NULL || (strcmp(word, "predict") == 0 && predictor == NULL)) {
        printf("error 99 %s: nothing is open\n", word);
        return;
    }
    if (strcmp(word, "close") == 0) {
        f2o_trainer_close(trainer);
        trainer = NULL;
        answer(F2O_OK, false);
    } else if (strcmp(word, "stop") == 0) {
        f2o_trainer_stop(trainer, atoi(first) != 0);
        if (predictor != NULL) f2o_predictor_stop(predictor, atoi(first) != 0);
        answer(F2O_OK, false);
    } else if (strcmp(word, "time") == 0) time_steps((size_t)strtoul(first, NULL, 10));
    else if (strcmp(word, "update") == 0) answer(f2o_trainer_update(trainer, &error), false);
    else if (strcmp(word, "rate") == 0) {
        answer(f2o_trainer_set_rate(trainer, atof(first), &error), false);
    } else if (strcmp(word, "schedule") == 0) {
        answer(f2o_trainer_use_schedule(trainer, &error), false);
    } else if (strcmp(word, "freeze") == 0) {
        const char *const *names = (const char *const *)(words + 1);
        answer(f2o_trainer_freeze(trainer, names, count - 1, &error), false);
    } else if (strcmp(word, "save") == 0) answer(f2o_trainer_save(trainer, first, &error), false);
    else if (strcmp(word, "load") == 0) answer(f2o_trainer_load(trainer, first, &error), false);
    else if (strcmp(word, "adapter") == 0) {
        answer(f2o_trainer_export_adapter(trainer, first, &error), false);
    } else if (strcmp(word, "from") == 0) {
        answer(f2o_trainer_load_adapter(trainer, first, &error), false);
    } else if (strcmp(word, "export") == 0) {
        answer(f2o_trainer_export_predict(trainer, first, NULL, &error), false);
    } else if (strcmp(word, "state") == 0) answer(write_state(first), false);
    else if (strcmp(word, "put") == 0) answer(take_state(first, false), false);
    else if (strcmp(word, "replace") == 0) answer(take_state(first, true), false);
    else if (strcmp(word, "steps") == 0) {
        printf("ok %lld %.9g %lld\n", (long long)f2o_trainer_steps(trainer),
               f2o_trainer_rate(trainer), (long long)f2o_trainer_accumulated(trainer));
    } else if (strcmp(word, "step") == 0 || strcmp(word, "evaluate") == 0 ||
               strcmp(word, "accumulate") == 0 || strcmp(word, "predict") == 0) {
        answer(train(word, (size_t)strtoul(first, NULL, 10)), true);
    } else {
        printf("error 99 %s is unknown\n", word);
    }
}

int main(void) {
    static char line[1 << 14];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[WORDS];
        size_t count = 0;
        for (char *word = strtok(line, " \n"); word != NULL && count < WORDS;
             word = strtok(NULL, " \n")) {
            words[count++] = word;
        }
        if (count > 0) act(words, count);
        fflush(stdout);
    }
    f2o_trainer_close(trainer);
    f2o_predictor_close(predictor);
    f2o_tensors_free(&feeds);
    f2o_tensors_free(&results);
    return 0;
}
