/* JSON, which is decoded where it stands. */
static void fuzz_json(const uint8_t *data, size_t size) {
    char *copy = (char *)copy_of(data, size);
    f2o_error error;
    Json json;
    f2o_status status = json_parse(&json, copy, size, "input", &error);
    if (status == F2O_OK) json_free(&json);
    else if (status != F2O_BUNDLE_ERROR || error.message[0] == 0) abort();
    free(copy);
}
