/* Predict models exported with the present weights. */

#include "internal.h"

/* ---- Exporting a predict model --------------------------------------------------------------- */

/* A weights file in which each held tensor lies at the bytes where `weights` has it. */
static f2o_status replace_tensors(const f2o_trainer *trainer, const PredictJob *entry,
                                  const char *path, f2o_error *error) {
    const Bundle *bundle = &trainer->bundle;
    TensorFile old;
    TRY(open_weights(&bundle->manifest, bundle->folder, &old, error));
    uint64_t end = 0;
    size_t count = 0;
    for (size_t i = 0; i < entry->holds.count; i++) {
        const Stored *stored = find_stored(&old, entry->holds.items[i]);
        if (stored != NULL && stored->end > end) end = stored->end;
    }
    f2o_tensor *views = calloc(old.count + 1, sizeof *views);
    for (size_t i = 0; views != NULL && i < old.count && old.tensors[i].end <= end; i++) {
        views[count++] =
            state_view(&bundle->state, index_of(&bundle->state, old.tensors[i].view.name));
    }
    Text opening = {NULL, 0, 0, false}, header = {NULL, 0, 0, false};
    const Value *item = old.metadata == NULL ? NULL : first_of(&old.json, old.metadata);
    add(&opening, item == NULL ? "{" : "{\"" METADATA "\":{");
    for (; item != NULL; item = next_of(&old.json, item)) {
        add_json_text(&opening, item->key, false);
        add(&opening, ":");
        add_json_text(&opening, item->text, false);
        add(&opening, item->next == NO_VALUE ? "}" : ",");
    }
    f2o_status status = views == NULL || opening.failed ? no_memory(error) : F2O_OK;
    if (status == F2O_OK) {
        write_header(&header, opening.bytes, views, count, old.data - 8);
        if (!header.failed && header.size != old.data) {
            status = fail(error, F2O_BUNDLE_ERROR, "export the job again",
                          "%s: its header has no room", bundle->manifest.weights);
        }
    }
    if (status == F2O_OK) status = write_tensors(path, &header, views, count, error);
    free(opening.bytes);
    free(header.bytes);
    free(views);
    close_tensors(&old);
    return status;
}

static f2o_status copy_model(const Bundle *bundle, const char *file, const char *path,
                             f2o_error *error) {
    unsigned char *content;
    size_t size;
    char digits[DIGITS + 1];
    const FileEntry *entry = find_entry(&bundle->manifest, file);
    char *source = join_path(bundle->folder, file);
    if (source == NULL) return no_memory(error);
    f2o_status status = read_file(source, entry->size, &content, &size, error);
    if (status == F2O_OK) {
        sha_of(content, size, digits);
        Part part = {content, size};
        status = strcmp(digits, entry->sha256) == 0
                     ? replace_file(path, &part, 1, error)
                     : fail(error, F2O_BUNDLE_ERROR, "export the bundle again",
                            "%s: was changed since the manifest was written", source);
        free(content);
    }
    free(source);
    return status;
}

/* Refuse a folder with anything but an earlier export; `has_content` says whether there is one. */
static f2o_status check_folder(const char *path, const char *model, const char *weights,
                               bool *has_content, f2o_error *error) {
    struct stat about;
    *has_content = false;
    if (stat(path, &about) != 0) return F2O_OK;
    DIR *folder = S_ISDIR(about.st_mode) ? opendir(path) : NULL;
    if (folder == NULL) return unwritable(path, "it is no folder that can be read", error);
    f2o_status status = F2O_OK;
    for (struct dirent *entry; status == F2O_OK && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        *has_content = true;
        if (strcmp(name, model) != 0 && strcmp(name, weights) != 0) {
            status = fail(error, F2O_BUNDLE_ERROR,
                          "give a folder that is missing, empty, or an earlier export",
                          "%s holds %s, which would be lost", path, name);
        }
    }
    closedir(folder);
    return status;
}

static f2o_status fill_folder(const f2o_trainer *trainer, const PredictJob *entry,
                              const char *folder, f2o_error *error) {
    char *model = join_path(folder, entry->file);
    char *weights = join_path(folder, trainer->bundle.manifest.weights);
    f2o_status status = model == NULL || weights == NULL
                            ? no_memory(error)
                            : copy_model(&trainer->bundle, entry->file, model, error);
    if (status == F2O_OK) status = replace_tensors(trainer, entry, weights, error);
    free(model);
    free(weights);
    return status;
}

/* Make a folder beside the target and lock it. */
static int make_temporary(const Target *target, char path[PATH_MAX]) {
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        if (!name_temporary(target, attempt, path)) break;
        if (mkdir(path, 0777) != 0) {
            if (errno == EEXIST) continue;
            break;
        }
        int lock = open(path, O_RDONLY | O_CLOEXEC);
        if (lock >= 0 && lock_temporary(lock, path)) return lock;
        if (lock >= 0) close(lock);
    }
    return -1;
}

f2o_status f2o_trainer_export_predict(const f2o_trainer *trainer, const char *folder,
                                      const char *job, f2o_error *error) {
    const PredictJob *entry;
    Target target;
    char temporary[PATH_MAX];
    bool has_content;
    const char *weights = trainer->bundle.manifest.weights;
    TRY(clear_error(error));
    TRY(find_job(&trainer->bundle, job, &entry, error));
    if (weights == NULL || entry->holds.count == 0) {
        return fail(error, F2O_BUNDLE_ERROR, "export the job again, which writes them so",
                    "%s has no weights in a file of their own", entry->file);
    }
    TRY(check_folder(folder, entry->file, weights, &has_content, error));
    TRY(find_target(folder, &target, error));
    remove_stale(&target);
    int lock = make_temporary(&target, temporary);
    if (lock < 0) return unwritable(folder, "no folder can be made beside it", error);
    f2o_status status = fill_folder(trainer, entry, temporary, error);
    if (status == F2O_OK) {
        bool put = !has_content && rename(temporary, target.path) == 0;
        has_content = !put; /* for another writer may have been first */
        put = put || swap_paths(temporary, target.path);
        if (!put) status = unwritable(folder, strerror(errno), error);
    }
    if (status != F2O_OK || has_content) remove_path(temporary); /* by now perhaps the old one */
    close(lock);
    sync_folder(target.folder);
    return status;
}
