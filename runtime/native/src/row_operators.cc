#include "row_operators.h"

#include <algorithm>
#include <cstdlib>

namespace rows {

int64_t width_of(const ort::Tensor &table) {
    int64_t width = 1;
    for (size_t i = 1; i < table.rank; ++i) {
        if (__builtin_mul_overflow(width, table.dims[i], &width)) return 0;
    }
    return width;
}

bool are_rows(const std::vector<int64_t> &shape, const ort::Tensor &table, int64_t count) {
    const size_t inner = table.rank - 1;
    if (shape.size() < inner || !std::equal(table.dims + 1, table.dims + table.rank,
                                            shape.end() - static_cast<int64_t>(inner))) {
        return false;
    }
    int64_t named = 1;
    for (size_t i = 0; i < shape.size() - inner; ++i) {
        if (shape[i] < 0 || __builtin_mul_overflow(named, shape[i], &named)) return false;
    }
    return named == count;
}

OrtStatus *read(Which which, OrtKernelContext *context, size_t first, ort::Tensor *table,
                ort::Tensor *indices) {
    ORT_TRY(ort::input(context, first, table));
    ORT_TRY(ort::input(context, first + 1, indices));
    if (table->type != ort::FLOAT || table->rank < 1) {
        return ort::refuse("%s: the table is of type %d and has %zu dimensions; wanted are floats "
                           "and one dimension or more",
                           NAMES[which], table->type, table->rank);
    }
    if (indices->type != ort::INT32 && indices->type != ort::INT64) {
        return ort::refuse("%s: the indices are of type %d, not of int32 or int64", NAMES[which],
                           indices->type);
    }
    return nullptr;
}

size_t table_to_result(int **inputs, int **outputs) {
    *inputs = static_cast<int *>(std::calloc(1, sizeof(int)));
    *outputs = static_cast<int *>(std::calloc(1, sizeof(int)));
    return *inputs && *outputs ? 1 : 0;
}

void release_places(int *inputs, int *outputs) {
    std::free(inputs);
    std::free(outputs);
}

} // namespace rows
