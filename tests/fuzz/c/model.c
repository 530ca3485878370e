/* A model before it is opened: what it holds is counted, and where it says that its tensors lie. */
static void fuzz_model(const uint8_t *data, size_t size) {
    static Home home = {.path = "model.onnx"};
    unsigned char *copy = copy_of(data, size);
    f2o_error error;
    Span span = {copy, copy + size};
    if (home.folders[0][0] == 0 && realpath(".", home.folders[0]) == NULL) abort();
    f2o_status status = check_content(&home, span, &error);
    if (status != F2O_OK && (status != F2O_BUNDLE_ERROR || error.message[0] == 0)) abort();
    free(copy);
}
