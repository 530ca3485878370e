/* What the shared library offers to others: its version, its operators, and their registration. */
#include <string>

#include "machine.h"
#include "onednn.h"
#include "ort.h"

namespace ort {

static std::vector<const CustomOp *> operators() {
    std::vector<const CustomOp *> found = {fused_operator(), channels_operator()};
    for (int which = 0; which < 4; ++which) found.push_back(rows_operator(which));
    found.push_back(transpose_operator());
    found.push_back(cross_entropy_operator());
    for (int which = 0; which < 2; ++which) found.push_back(pool_operator(which));
    for (int which = 0; which < 2; ++which) found.push_back(packed_operator(which));
    for (int which = 0; which < 2; ++which) found.push_back(recurrence_operator(which));
    for (int which = 0; which < 2; ++which) found.push_back(attention_operator(which));
    if (!onednn::is_loaded()) return found;
    for (int which = 0; which < 3; ++which) found.push_back(conv_operator(which));
    found.push_back(product_operator());
    return found;
}

} // namespace ort

/* The digest of the table that the library was built with. */
EXPORTED const char *flow2onnx_native_abi() { return abi::DIGEST; }

/* The instruction set that loops use. */
EXPORTED const char *flow2onnx_native_isa() { return machine::isa_name(); }

/* What is wrong with FLOW2ONNX_NATIVE_ISA, or null. */
EXPORTED const char *flow2onnx_native_isa_problem() { return machine::isa_problem(); }

/* Opens oneDNN, which most operators need; returns null, or why not. Before registering. */
EXPORTED const char *flow2onnx_native_open_onednn(const char *path) { return onednn::open(path); }

/* The names of the operators that registering adds, with a blank behind each. */
EXPORTED const char *flow2onnx_native_operators() {
    static thread_local std::string names;
    names.clear();
    for (const ort::CustomOp *op : ort::operators()) names += op->GetName(op) + std::string(" ");
    return names.c_str();
}

EXPORTED OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    OrtStatus *status = ort::add_operators(options, base, ort::operators());
    const char *problem = machine::isa_problem();
    return status != nullptr || problem == nullptr ? status : ort::refuse("%s", problem);
}
