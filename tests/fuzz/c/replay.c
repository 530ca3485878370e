/* Inputs from stdin, each behind its length as four bytes, where there is no libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(void) {
    uint32_t size;
    size_t count = 0;
    for (; fread(&size, sizeof size, 1, stdin) == 1; count++) {
        uint8_t *data = malloc(size > 0 ? size : 1);
        if (data == NULL || fread(data, 1, size, stdin) != size) return 1;
        LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
    printf("%zu\n", count);
    return 0;
}
