/* manifest.json, of which the input is what follows the digest. */
static void fuzz_manifest(const uint8_t *data, size_t size) {
    const size_t key = sizeof MANIFEST_KEY - 1, total = key + DIGITS + size;
    char digits[DIGITS + 1];
    f2o_error error;
    Manifest manifest;
    memset(&manifest, 0, sizeof manifest);
    manifest.text = malloc(total);
    if (manifest.text == NULL) abort();
    sha_of(data, size, digits);
    memcpy(manifest.text, MANIFEST_KEY, key);
    memcpy(manifest.text + key, digits, DIGITS);
    memcpy(manifest.text + key + DIGITS, data, size);
    f2o_status status = parse_manifest(&manifest, total, "manifest.json", &error);
    if (status != F2O_OK && (status != F2O_BUNDLE_ERROR || error.message[0] == 0)) abort();
    close_manifest(&manifest);
}
