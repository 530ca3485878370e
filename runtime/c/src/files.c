/* Files: their SHA-256, reading them with distrust, replacing them whole or not at all. */

#include "internal.h"

/* ---- SHA-256 --------------------------------------------------------------------------------- */

static const uint32_t SHA_ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned by) { return word >> by | word << (32 - by); }

static void sha_block(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64], s[8];
    for (size_t i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    }
    for (size_t i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (size_t i = 0; i < 64; i++) {
        uint32_t big = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t first = s[7] + big + choice + SHA_ROUNDS[i] + w[i];
        uint32_t small = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += first;
        s[0] = first + small + most;
    }
    for (size_t i = 0; i < 8; i++) state[i] += s[i];
}

INTERNAL void sha_begin(Sha *sha) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, first, sizeof first);
    sha->size = 0;
}

INTERNAL void sha_add(Sha *sha, const void *bytes, size_t size) {
    const unsigned char *from = bytes;
    size_t held = (size_t)(sha->size % 64);
    sha->size += size;
    while (size > 0) {
        if (held == 0 && size >= 64) {
            sha_block(sha->state, from);
            from += 64;
            size -= 64;
            continue;
        }
        size_t part = size < 64 - held ? size : 64 - held;
        memcpy(sha->block + held, from, part);
        from += part;
        size -= part;
        held += part;
        if (held == 64) {
            sha_block(sha->state, sha->block);
            held = 0;
        }
    }
}

INTERNAL void sha_end(Sha *sha, char digits[DIGITS + 1]) {
    uint64_t bits = sha->size * 8;
    unsigned char length[8];
    for (unsigned i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha_add(sha, "\x80", 1);
    while (sha->size % 64 != 56) sha_add(sha, "", 1);
    sha_add(sha, length, 8);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(digits + (size_t)8 * i, 9, "%08lx", (unsigned long)sha->state[i]);
    }
}

INTERNAL void sha_of(const void *bytes, size_t size, char digits[DIGITS + 1]) {
    Sha sha;
    sha_begin(&sha);
    sha_add(&sha, bytes, size);
    sha_end(&sha, digits);
}

/* True if, at `start`, `key` stands and the hash of all that follows it. */
INTERNAL bool has_digest(const unsigned char *content, size_t size, size_t start, const char *key) {
    char digits[DIGITS + 1];
    size_t place = start + strlen(key), end = place + DIGITS;
    if (size < end || memcmp(content + start, key, place - start) != 0) return false;
    sha_of(content + end, size - end, digits);
    return memcmp(content + place, digits, DIGITS) == 0;
}

INTERNAL f2o_status wrong_digest(const char *path, f2o_error *error) {
    return fail(error, F2O_BUNDLE_ERROR,
                "the file was changed or cut off: restore it, or export or save it again",
                "%s: its digest is not that of its content", path);
}

/* ---- Files ----------------------------------------------------------------------------------- */

INTERNAL f2o_status unreadable(const char *path, const char *why, f2o_error *error) {
    return fail(error, F2O_BUNDLE_ERROR, "give the path of a file or bundle that is complete",
                "%s: cannot be read: %s", path, why);
}

/* Open a regular file; anything else, a pipe say, is refused without waiting for it. */
INTERNAL f2o_status open_file(const char *path, int *descriptor, uint64_t *size, f2o_error *error) {
    struct stat about;
    int found = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (found < 0) return unreadable(path, strerror(errno), error);
    if (fstat(found, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < 0) {
        close(found);
        return unreadable(path, "it is no file", error);
    }
    *descriptor = found;
    *size = (uint64_t)about.st_size;
    return F2O_OK;
}

/* Read up to `size` bytes; the number read, short only at the end of the file, or -1. */
static ssize_t read_all(int descriptor, void *into, size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t more = read(descriptor, (unsigned char *)into + done, size - done);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return -1;
        if (more == 0) break;
        done += (size_t)more;
    }
    return (ssize_t)done;
}

/* The content of a file of at most `limit` bytes; the caller frees it. A zero follows. */
INTERNAL f2o_status read_file(const char *path, uint64_t limit, unsigned char **content,
                              size_t *size, f2o_error *error) {
    int descriptor;
    uint64_t bytes;
    TRY(open_file(path, &descriptor, &bytes, error));
    if (bytes > limit || bytes > SIZE_MAX / 2) {
        close(descriptor);
        return fail(error, F2O_BUNDLE_ERROR, NULL, "%s: %llu bytes are more than such a file has",
                    path, (unsigned long long)bytes);
    }
    unsigned char *memory = malloc((size_t)bytes + 1);
    ssize_t got = memory == NULL ? -1 : read_all(descriptor, memory, (size_t)bytes);
    close(descriptor);
    if (memory == NULL) return no_memory(error);
    if (got < 0 || (uint64_t)got != bytes) {
        free(memory);
        return unreadable(path, "it became shorter while it was read", error);
    }
    memory[bytes] = 0;
    *content = memory;
    *size = (size_t)bytes;
    return F2O_OK;
}

INTERNAL f2o_status hash_file(const char *path, uint64_t *size, char digits[DIGITS + 1],
                              f2o_error *error) {
    enum { PART = 1 << 14 };
    unsigned char part[PART];
    int descriptor;
    uint64_t about;
    TRY(open_file(path, &descriptor, &about, error));
    Sha sha;
    sha_begin(&sha);
    ssize_t got;
    while ((got = read_all(descriptor, part, PART)) > 0) sha_add(&sha, part, (size_t)got);
    close(descriptor);
    if (got < 0) return unreadable(path, strerror(errno), error);
    *size = sha.size;
    sha_end(&sha, digits);
    return F2O_OK;
}

/* "folder/name"; the caller frees it. NULL without memory. */
INTERNAL char *join_path(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path != NULL) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

INTERNAL f2o_status unwritable(const char *path, const char *why, f2o_error *error) {
    return fail(error, F2O_FILE_ERROR, "what was there before is as it was",
                "%s: cannot be written: %s", path, why);
}

static bool write_all(int descriptor, const Part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const unsigned char *from = parts[i].bytes;
        size_t left = parts[i].size;
        while (left > 0) {
            ssize_t done = write(descriptor, from, left);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) return false;
            from += done;
            left -= (size_t)done;
        }
    }
    return true;
}

INTERNAL f2o_status find_target(const char *path, Target *target, f2o_error *error) {
    char whole[PATH_MAX], linked[PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s", path);
    if (length <= 0 || (size_t)length >= sizeof whole) {
        return unwritable(path, "no such path can be", error);
    }
    if (realpath(path, linked) != NULL) memcpy(whole, linked, sizeof whole);
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/'; end--) whole[end - 1] = 0;
    char *slash = strrchr(whole, '/');
    const char *name = slash == NULL ? whole : slash + 1;
    if (*name == 0 || strlen(name) > NAME_MAX - 20 || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0) {
        return unwritable(path, "it has no name to write to", error);
    }
    memcpy(target->name, name, strlen(name) + 1);
    if (slash != NULL) slash[slash == whole ? 1 : 0] = 0;
    if (realpath(slash == NULL ? "." : whole, target->folder) == NULL) {
        return unwritable(path, "there is no such folder", error);
    }
    length = snprintf(target->path, sizeof target->path, "%s/%s", target->folder, target->name);
    if (length <= 0 || (size_t)length >= sizeof target->path) {
        return unwritable(path, "the path is too long", error);
    }
    return F2O_OK;
}

/* Temporaries are named ".NAME.<12 hexadecimal digits>.tmp" and locked by their writer. The system
 * drops the lock when the process dies, so one that can be locked is a leftover, or so new that its
 * writer has not locked it yet: that writer sees that it is gone and makes another. */

static bool is_temporary_of(const char *entry, const char *name) {
    size_t length = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, length) != 0 || entry[length + 1] != '.') {
        return false;
    }
    const char *rest = entry + length + 2;
    return strspn(rest, "0123456789abcdef") == 12 && strcmp(rest + 12, ".tmp") == 0;
}

/* Remove a file, or a folder of files. */
INTERNAL void remove_path(const char *path) {
    if (unlink(path) == 0) return;
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *inner = join_path(path, entry->d_name);
        if (inner != NULL) unlink(inner);
        free(inner);
    }
    closedir(folder);
    rmdir(path);
}

INTERNAL void remove_stale(const Target *target) {
    DIR *folder = opendir(target->folder);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!is_temporary_of(entry->d_name, target->name)) continue;
        char *path = join_path(target->folder, entry->d_name);
        int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) remove_path(path);
        if (descriptor >= 0) close(descriptor);
        free(path);
    }
    closedir(folder);
}

/* A name for a temporary beside the target that nobody else is likely to choose. */
INTERNAL bool name_temporary(const Target *target, unsigned attempt, char path[PATH_MAX]) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mixed = (uint64_t)now.tv_sec * 1000003u ^ (uint64_t)now.tv_nsec << 20;
    mixed ^= (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)path ^ (uint64_t)attempt << 8;
    mixed = (mixed ^ mixed >> 31) * 0x9e3779b97f4a7c15u;
    int length = snprintf(path, PATH_MAX, "%s/.%s.%012llx.tmp", target->folder, target->name,
                          (unsigned long long)(mixed >> 16));
    return length > 0 && length < PATH_MAX;
}

INTERNAL void sync_folder(const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
}

/* Wait for the lock of a new temporary; false if another writer took it for a leftover before. */
INTERNAL bool lock_temporary(int descriptor, const char *path) {
    struct stat opened, named;
    (void)flock(descriptor, LOCK_EX); /* without locks, leftovers stay */
    return fstat(descriptor, &opened) == 0 && stat(path, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* Open a new file beside the target, locked. */
static int open_temporary(const Target *target, char path[PATH_MAX]) {
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        if (!name_temporary(target, attempt, path)) break;
        int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno != EEXIST) return -1;
        if (descriptor < 0) continue;
        if (lock_temporary(descriptor, path)) return descriptor;
        close(descriptor);
    }
    return -1;
}

/* Make `path` a file of `parts`, or leave it as it is, whatever happens. */
INTERNAL f2o_status replace_file(const char *path, const Part *parts, size_t count,
                                 f2o_error *error) {
    Target target;
    char temporary[PATH_MAX];
    struct stat about;
    TRY(find_target(path, &target, error));
    if (stat(target.path, &about) == 0 && S_ISDIR(about.st_mode)) {
        return unwritable(path, "it is a folder, not a file", error);
    }
    remove_stale(&target);
    int descriptor = open_temporary(&target, temporary);
    if (descriptor < 0) return unwritable(path, strerror(errno), error);
    bool done = write_all(descriptor, parts, count) && fsync(descriptor) == 0 &&
                rename(temporary, target.path) == 0;
    int why = errno;
    close(descriptor);
    if (!done) {
        unlink(temporary);
        return unwritable(path, strerror(why), error);
    }
    sync_folder(target.folder);
    return F2O_OK;
}

/* Exchange what two paths name, in one step that nobody can see half of. */
INTERNAL bool swap_paths(const char *a, const char *b) {
#if defined(__linux__) && defined(SYS_renameat2)
    return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2u) == 0;
#elif defined(__APPLE__)
    return renamex_np(a, b, RENAME_SWAP) == 0;
#else
    (void)a;
    (void)b;
    errno = ENOSYS;
    return false;
#endif
}
