/* A safetensors file, and its entries looked for by name. */
static void fuzz_safetensors(const uint8_t *data, size_t size) {
    f2o_error error;
    TensorFile file;
    f2o_status status = open_tensors(copy_of(data, size), size, "input", &file, &error);
    if (status != F2O_OK) {
        if (status != F2O_BUNDLE_ERROR || error.message[0] == 0) abort();
        return;
    }
    if (metadata_of(&file, "digest") == NULL) abort();
    for (size_t i = 0; i < file.count; i++) {
        const f2o_tensor *view = &file.tensors[i].view;
        if (find_stored(&file, view->name) == NULL) abort();
        const unsigned char *bytes = view->data, *end = bytes + f2o_tensor_bytes(view);
        for (; bytes < end; bytes++) {
            if (bytes < file.content || bytes >= file.content + file.size) abort();
        }
    }
    close_tensors(&file);
}
