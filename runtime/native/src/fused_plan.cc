/* How plans of `Fused` are read: every number is checked before anything runs. */
#include "fused_plan.h"

#include <algorithm>

namespace {

using fused::Instruction;
using fused::Operand;
using fused::Plan;
using ort::is_within;
using ort::Tensor;
using namespace abi::mode;

/* Reads the numbers of an attribute one after another; none is left where they end too early. */
struct Reader {
    const std::vector<int64_t> &numbers;
    const ort::Reals reals;
    size_t next;

    template <typename Record>
    bool take(Record *record) {
        return ort::take(numbers, &next, record);
    }
    bool is_real(int64_t element) const { return ort::is_real(element, reals); }
};

bool read_dims(Reader &from, const Plan &plan, Operand *o) {
    int64_t size = 1, rank = 0;
    if (!from.take(&rank) || !is_within({rank}, 0, Tensor::MOST)) return false;
    o->dims.resize(static_cast<size_t>(rank));
    for (int64_t &dim : o->dims) {
        if (!from.take(&dim) || !is_within({dim}, 1, plan.total)) return false;
        if (__builtin_mul_overflow(size, dim, &size)) return false;
    }
    const int64_t wanted = o->mode == FULL     ? plan.total
                           : o->mode == SUMMED ? o->middle
                           : plan.row > 0      ? plan.total / plan.row
                                               : -1;
    return size == wanted && (o->mode == FULL || from.is_real(o->element));
}

bool read_operand(Reader &from, const Plan &plan, bool is_output, Operand *o) {
    const bool is_sound = from.take(static_cast<abi::FusedOperand *>(o)) &&
                          is_within({o->at}, 0, plan.registers - 1) &&
                          is_within({o->mode}, 0, is_output ? SUMMED : SPREAD) &&
                          is_within({o->middle, o->inner}, 1, plan.total) &&
                          plan.total % o->middle == 0 &&
                          plan.total / o->middle % o->inner == 0 &&
                          (o->element == ort::BOOL || from.is_real(o->element));
    return is_sound && (!is_output || read_dims(from, plan, o));
}

bool read_instruction(Reader &from, const Plan &plan, Instruction *made) {
    return from.take(made) && is_within({made->operation}, 0, abi::OPERATION_COUNT - 1) &&
           is_within({made->to, made->a, made->b, made->c}, 0, plan.registers - 1) &&
           (made->operation < abi::LOOP_COUNT || plan.row > 0);
}

/* Whether registers that are other memory are written by nobody else. */
bool has_owners(const Plan &plan) {
    std::vector<int> is_read_only(plan.registers, 0), outputs(plan.registers, 0);
    for (const Operand &o : plan.inputs) is_read_only[o.at] += 1;
    for (int64_t at : plan.constants) is_read_only[at] += 1;
    for (const Operand &o : plan.outputs) {
        if (o.is_stream()) outputs[o.at] += 1;
    }
    for (int64_t at = 0; at < plan.registers; ++at) {
        if (is_read_only[at] + outputs[at] > 1) return false;
    }
    return std::none_of(plan.code.begin(), plan.code.end(),
                        [&](const Instruction &i) { return is_read_only[i.to] > 0; });
}

bool read_head(Reader &from, Plan *plan, abi::FusedHead *head) {
    constexpr int64_t MOST = 1 << 20;
    if (!from.take(head)) return false;
    plan->total = head->total;
    plan->row = head->row;
    plan->registers = head->registers;
    return is_within({head->total}, 1, int64_t(1) << 40) &&
           is_within({head->row}, 0, abi::LONGEST_ROW) && is_within({head->registers}, 1, 4096) &&
           is_within({head->inputs, head->outputs}, 1, MOST) &&
           is_within({head->constants, head->steps}, 0, MOST) && /* sums alone have no steps */
           (head->row == 0 || head->total % head->row == 0);
}

} // namespace

bool fused::read_plan(const std::vector<int64_t> &numbers, ort::Reals reals, size_t *next,
                      Plan *plan) {
    Reader from{numbers, reals, *next};
    abi::FusedHead head;
    if (!read_head(from, plan, &head)) return false;
    for (int64_t i = 0; i < head.inputs; ++i) {
        plan->inputs.emplace_back();
        if (!read_operand(from, *plan, false, &plan->inputs.back())) return false;
    }
    for (int64_t i = 0; i < head.outputs; ++i) {
        plan->outputs.emplace_back();
        if (!read_operand(from, *plan, true, &plan->outputs.back())) return false;
    }
    for (int64_t i = 0; i < head.constants; ++i) {
        plan->constants.emplace_back();
        if (!from.take(&plan->constants.back())) return false;
        if (!is_within({plan->constants.back()}, 0, plan->registers - 1)) return false;
    }
    for (int64_t i = 0; i < head.steps; ++i) {
        plan->code.emplace_back();
        if (!read_instruction(from, *plan, &plan->code.back())) return false;
    }
    *next = from.next;
    return has_owners(*plan);
}

OrtStatus *fused::check_input(const char *name, const Plan &plan, size_t at, const Tensor &tensor) {
    const Operand &o = plan.inputs[at];
    const int64_t wanted = o.size(plan.total);
    if (tensor.type != o.element || tensor.size() != wanted) {
        return ort::refuse("%s: input %zu has %lld elements of type %d, the program was made "
                           "for %lld of type %d",
                           name, at, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(wanted), static_cast<int>(o.element));
    }
    return nullptr;
}
