/* Where a model says that its tensors lie in other files, and whether it may. Older versions of ONNX
 * Runtime read whatever file a model names. */

#include "internal.h"

#define ENTRY_FIELD 13u /* of a tensor in onnx.proto */

INTERNAL f2o_status no_model(const Home *home, f2o_error *error) {
    return fail(error, F2O_BUNDLE_ERROR, "it is damaged", "%s: is no ONNX model", home->path);
}

static bool read_number(Span *span, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 70 && span->at < span->end; shift += 7) {
        unsigned char byte = *span->at++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Step over the next field; `inner` is what it holds if it has a length. False for what is none. */
INTERNAL bool read_field(Span *span, uint64_t *number, Span *inner) {
    uint64_t tag, size = 0;
    *inner = (Span){NULL, NULL};
    /* protobuf would take the lower half of a larger tag. */
    if (!read_number(span, &tag) || tag > UINT32_MAX) return false;
    *number = tag >> 3;
    switch (tag & 7) {
    case 0: return read_number(span, &size);
    case 1: size = 8; break;
    case 2:
        if (!read_number(span, &size)) return false;
        break;
    case 5: size = 4; break;
    default: return false;
    }
    if (size > (uint64_t)(span->end - span->at)) return false;
    if ((tag & 7) == 2) *inner = (Span){span->at, span->at + size};
    span->at += size;
    return true;
}

/* ---- Locations ------------------------------------------------------------------------------- */

static bool is_relative(const char *location) {
    if (*location == 0 || *location == '/' || strchr(location, '\\') != NULL) return false;
    for (const char *part = location; part != NULL; part = strchr(part, '/')) {
        while (*part == '/') part++;
        if (strncmp(part, "..", 2) == 0 && (part[2] == 0 || part[2] == '/')) return false;
    }
    return true;
}

static bool is_inside(const char *folder, const char *location) {
    char path[PATH_MAX], real[PATH_MAX];
    struct stat about;
    size_t size = strlen(folder);
    int length = snprintf(path, sizeof path, "%s/%s", folder, location);
    if (length <= 0 || (size_t)length >= sizeof path || realpath(path, real) == NULL) return false;
    bool below = strncmp(real, folder, size) == 0 && (real[size] == '/' || size == 1);
    return below && stat(real, &about) == 0 && S_ISREG(about.st_mode);
}

static f2o_status check_location(const Home *home, Span text, f2o_error *error) {
    char location[PATH_MAX];
    size_t size = (size_t)(text.end - text.at);
    bool fits = size < sizeof location && memchr(text.at, 0, size) == NULL;
    if (fits) memcpy(location, text.at, size);
    location[fits ? size : 0] = 0;
    if (is_relative(location) &&
        (is_inside(home->folders[0], location) || is_inside(home->folders[1], location))) {
        return F2O_OK;
    }
    return fail(error, F2O_BUNDLE_ERROR, "copy the file itself beside the model",
                "%s: has values in another file, '%.200s', which is no regular file inside its "
                "folder",
                home->path, location);
}

static bool is_text(Span span, const char *text) {
    size_t size = strlen(text);
    return (size_t)(span.end - span.at) == size && memcmp(span.at, text, size) == 0;
}

static f2o_status check_entry(const Home *home, Span span, f2o_error *error) {
    static const unsigned char nothing[1] = {0};
    Span key = {nothing, nothing}, value = {nothing, nothing}, inner;
    uint64_t number;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(home, error);
        if (inner.at == NULL) continue;
        if (number == 1) key = inner;
        if (number == 2) value = inner;
    }
    return is_text(key, "location") ? check_location(home, value, error) : F2O_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Refuse a tensor with values where the model may not name any. */
INTERNAL f2o_status check_tensor(const Home *home, Span span, f2o_error *error) {
    Span inner;
    uint64_t number;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(home, error);
        if (number == ENTRY_FIELD && inner.at != NULL) TRY(check_entry(home, inner, error));
    }
    return F2O_OK;
}

/* The folder that a path is in, links resolved. */
static bool find_folder(const char *path, char folder[PATH_MAX]) {
    char whole[PATH_MAX];
    size_t size = strlen(path);
    if (size >= sizeof whole) return false;
    memcpy(whole, path, size + 1);
    char *slash = strrchr(whole, '/');
    if (slash != NULL) slash[slash == whole ? 1 : 0] = 0;
    return realpath(slash == NULL ? "." : whole, folder) != NULL;
}

/* The folders that the data of a model may lie in: beside either end if it is a link. */
INTERNAL bool find_home(const char *path, Home *home) {
    char real[PATH_MAX];
    home->path = path;
    return realpath(path, real) != NULL && find_folder(path, home->folders[0]) &&
           find_folder(real, home->folders[1]);
}
