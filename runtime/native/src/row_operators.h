/* What `Rows`, `AddRows` and `PutRows` have in common on CPUs and on GPUs.
 *
 * Each takes a table of floats and indices of its rows; the last two take rows as well, and may
 * write where the table is. On CPUs there may be several tables, each with all of its operands, and
 * `AddNamedRows` takes another table and the indices of its rows.
 */
#ifndef FLOW2ONNX_NATIVE_ROW_OPERATORS_H
#define FLOW2ONNX_NATIVE_ROW_OPERATORS_H

#include <vector>

#include "ort.h"

namespace rows {

enum Which : int { LOOK_UP, ADD, PUT, ADD_NAMED };
constexpr const char *NAMES[] = {"Rows", "AddRows", "PutRows", "AddNamedRows"};

/* How many inputs a table has. */
constexpr size_t operands_of(Which which) {
    return which == LOOK_UP ? 2 : which == ADD_NAMED ? 4 : 3;
}

/* Floats in a row of a table; 0 if they cannot be counted, as tables without rows may have it. */
int64_t width_of(const ort::Tensor &table);

/* Whether a shape is that of `count` rows of a table. */
bool are_rows(const std::vector<int64_t> &shape, const ort::Tensor &table, int64_t count);

/* The inputs from `first` on of a call; an error if they are no table or no indices. */
OrtStatus *read(Which which, OrtKernelContext *context, size_t first, ort::Tensor *table,
                ort::Tensor *indices);

/* For `GetMayInplace` and `ReleaseMayInplace`: the result may be where the table is, once nobody
 * needs that any more.
 */
size_t table_to_result(int **inputs, int **outputs);
void release_places(int *inputs, int *outputs);

template <int which, typename Kernel, OrtStatus *(*make)(const OrtKernelInfo *, void **),
          OrtStatus *(*run)(const Kernel &, OrtKernelContext *)>
ort::CustomOp described() {
    using ort::CustomOp;
    CustomOp o = ort::described<Kernel, make, run>();
    o.GetName = [](const CustomOp *) { return NAMES[which]; };
    o.GetInputType = [](const CustomOp *, size_t i) { return i == 1 ? ort::ANY : ort::FLOAT; };
    o.GetInputTypeCount = [](const CustomOp *) { return operands_of(static_cast<Which>(which)); };
    if (which != LOOK_UP) {
        o.GetMayInplace = table_to_result;
        o.ReleaseMayInplace = release_places;
    }
    return o;
}

} // namespace rows

#endif
