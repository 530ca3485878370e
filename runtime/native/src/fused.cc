/* The operator `Fused`: a program of elementwise operations in one pass over memory.
 *
 * A program works on registers, each a tile of floats, and runs once for every tile of the common
 * number of elements. Inputs of that size are read, and outputs of that size written, where they
 * lie; smaller inputs are spread out per tile: element i of the tile is element
 * (i / inner) % middle of the input. With a row length the tiles are whole rows, and rows can be
 * summed up. Outputs may also be one element of each row, or sums over all that shares an index
 * (i / inner) % middle.
 *
 * The attribute `plan` is checked in full when the kernel is made, the tensors in every call.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "adam.h"
#include "fused_plan.h"
#include "machine.h"
#include "tile.h"

namespace {

using fused::Instruction;
using fused::Operand;
using ort::Tensor;
using namespace abi::mode;

constexpr int64_t TILE = 256;       /* elements: twenty registers fit in the first cache level */
constexpr int64_t CHUNK = 65536;    /* elements that one task of the thread pool takes at least */
constexpr int64_t MOST_SUMMING = 16; /* tasks, where each has sums of its own */

struct Program : fused::Plan {
    int64_t tile = TILE;
    std::vector<int64_t> adam; /* the registers of Adam's loop, if it is what the program does */
};

/* The registers of Adam's loop, if it computes what the program does. */
std::vector<int64_t> find_adam(const Program &plan) {
    const std::vector<int64_t> found = adam::registers_of(plan.code, plan.registers);
    std::vector<int> is_read(plan.registers, 0), is_number(plan.registers, 0),
        is_written(plan.registers, 0);
    for (const Operand &o : plan.inputs) {
        is_read[o.at] = o.is_stream();
        is_number[o.at] = o.is_number();
        if (!is_read[o.at] && !is_number[o.at]) return {}; /* it has room for a tile alone */
    }
    for (int64_t at : plan.constants) is_number[at] = 1;
    for (const Operand &o : plan.outputs) is_written[o.at] = o.is_stream();
    const bool has_three = plan.outputs.size() == adam::OPERAND_COUNT - adam::FIRST_RESULT;
    for (size_t i = 0; i < found.size(); ++i) {
        const auto operand = static_cast<int64_t>(i);
        const auto &is_there = operand >= adam::FIRST_RESULT   ? is_written
                               : operand >= adam::FIRST_NUMBER ? is_number
                                                               : is_read;
        if (!has_three || !is_there[found[i]]) return {};
    }
    return found;
}

/* One call: where everything lies, and the work of one task. */
struct Call {
    const Program &plan;
    const tile::Loops &loops;
    std::vector<const void *> inputs;
    std::vector<void *> outputs;
    std::vector<float> memory_of_sums;
    int64_t sum_width = 0, tasks = 1, task_tiles = 1; /* the width is of all summed outputs */

    Call(const Program &p, const tile::Loops &l) : plan(p), loops(l) {
        const int64_t tiles = (plan.total + plan.tile - 1) / plan.tile;
        int64_t least = std::max<int64_t>(1, CHUNK / plan.tile);
        for (const Operand &o : plan.outputs) {
            if (o.mode == SUMMED) {
                sum_width += o.middle;
                least = std::max(least, (tiles + MOST_SUMMING - 1) / MOST_SUMMING);
            }
        }
        task_tiles = std::min(least, tiles);
        tasks = (tiles + task_tiles - 1) / task_tiles;
    }

    void operator()(size_t task) {
        const int64_t width = plan.tile;
        const auto size = static_cast<size_t>(plan.registers * width);
        float *memory = machine::scratch<machine::REGISTERS>(size);
        std::vector<float *> where(plan.registers);
        for (int64_t r = 0; r < plan.registers; ++r) where[r] = memory + r * width;
        for (size_t i = 0; i < plan.constants.size(); ++i) {
            loops.fill(where[plan.constants[i]], plan.values[i], width);
        }
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            const Operand &o = plan.inputs[i];
            if (o.is_number()) {
                loops.fill(where[o.at], value_of(i, 0), width);
            }
        }
        const int64_t first = static_cast<int64_t>(task) * task_tiles * width;
        const int64_t end = std::min(first + task_tiles * width, plan.total);
        if (!plan.adam.empty()) return run_adam(where, memory, first, end - first);
        for (int64_t start = first; start < end; start += width) {
            run_tile(where, memory, task, start, std::min(width, end - start));
        }
    }

    /* The sums of a task, on lines of the cache that no other task writes to. */
    float *sums_of(int64_t task) {
        return machine::line_from(memory_of_sums.data()) + task * sum_step();
    }
    int64_t sum_step() const {
        return (sum_width + machine::LINE_FLOATS - 1) / machine::LINE_FLOATS * machine::LINE_FLOATS;
    }
    void clear_sums() {
        memory_of_sums.assign(static_cast<size_t>(tasks * sum_step() + machine::LINE_FLOATS), 0.0f);
    }

    float value_of(size_t input, int64_t i) const {
        if (plan.inputs[input].element == ort::BOOL) {
            return static_cast<const uint8_t *>(inputs[input])[i] ? 1.0f : 0.0f;
        }
        return static_cast<const float *>(inputs[input])[i];
    }

    void run_adam(std::vector<float *> &where, float *memory, int64_t start, int64_t n) const {
        find_registers(where, memory, start, n);
        float *operands[adam::OPERAND_COUNT];
        for (size_t i = 0; i < plan.adam.size(); ++i) operands[i] = where[plan.adam[i]];
        loops.adam(operands, static_cast<size_t>(n));
    }

    /* Registers that are other memory. */
    void find_registers(std::vector<float *> &where, float *memory, int64_t start,
                        int64_t n) const {
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            float *own = memory + plan.inputs[i].at * plan.tile;
            where[plan.inputs[i].at] = read(i, own, start, n);
        }
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            if (o.is_stream()) where[o.at] = static_cast<float *>(outputs[i]) + start;
        }
    }

    void run_tile(std::vector<float *> &where, float *memory, size_t task, int64_t start,
                  int64_t n) {
        find_registers(where, memory, start, n);
        fetch_ahead(start + n);
        for (const Instruction &step : plan.code) execute(step, where, n);
        float *sum = sums_of(static_cast<int64_t>(task));
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            write(o, outputs[i], where[o.at], sum, start, n);
            if (o.mode == SUMMED) sum += o.middle;
        }
    }

    /* Asks for the next tile. */
    void fetch_ahead(int64_t start) const {
        const int64_t n = std::min(plan.tile, plan.total - start);
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            if (!plan.inputs[i].is_stream()) continue;
            machine::fetch(static_cast<const float *>(inputs[i]) + start, n);
        }
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            if (!plan.outputs[i].is_stream()) continue;
            machine::fetch<true>(static_cast<const float *>(outputs[i]) + start, n);
        }
    }

    /* The tile of an input: where it lies if that is possible, else spread out into `own`. */
    float *read(size_t input, float *own, int64_t start, int64_t n) const {
        const Operand &o = plan.inputs[input];
        if (o.is_number()) return own;
        if (o.element == ort::BOOL) {
            const auto *bytes = static_cast<const uint8_t *>(inputs[input]);
            if (o.mode == FULL) loops.from_bytes(own, bytes + start, n);
            else for (int64_t i = 0; i < n; ++i) own[i] = value_of(input, plan.index(o, start + i));
            return own;
        }
        /* never written: `has_owners` has seen to it */
        auto *floats = const_cast<float *>(static_cast<const float *>(inputs[input]));
        if (o.mode == FULL) return floats + start;
        const int64_t at = plan.index(o, start);
        if (o.inner == 1 && at + n <= o.middle) return floats + at;
        for_runs(o, start, n, [&](int64_t i, int64_t k, int64_t count) {
            if (o.inner > 1) loops.fill(own + i, floats[k], count);
            else std::copy_n(floats + k, count, own + i);
        });
        return own;
    }

    /* Calls visit(offset in the tile, index, count) for each stretch of equal or rising index. */
    template <typename Visit>
    void for_runs(const Operand &o, int64_t start, int64_t n, Visit visit) const {
        for (int64_t i = 0; i < n;) {
            const int64_t at = plan.index(o, start + i);
            const int64_t left = o.inner > 1 ? o.inner - (start + i) % o.inner : o.middle - at;
            const int64_t count = std::min(left, n - i);
            visit(i, at, count);
            i += count;
        }
    }

    void execute(const Instruction &step, const std::vector<float *> &where, int64_t n) const {
        float *to = where[step.to];
        const float *a = where[step.a];
        if (step.operation < tile::LOOP_COUNT) {
            loops.operations[step.operation](to, a, where[step.b], where[step.c], n);
            return;
        }
        for (int64_t i = 0; i < n; i += plan.row) {
            float sum = loops.total(a + i, plan.row);
            if (step.operation == tile::ROW_MEAN) sum /= static_cast<float>(plan.row);
            loops.fill(to + i, sum, plan.row);
        }
    }

    void write(const Operand &o, void *output, const float *from, float *sum, int64_t start,
               int64_t n) const {
        if (o.mode == SUMMED) {
            for_runs(o, start, n, [&](int64_t i, int64_t k, int64_t count) {
                if (o.inner > 1) sum[k] += loops.total(from + i, count);
                else loops.add_to(sum + k, from + i, count);
            });
        } else if (o.mode == PER_ROW) {
            float *rows = static_cast<float *>(output) + start / plan.row;
            for (int64_t i = 0; i < n; i += plan.row) rows[i / plan.row] = from[i];
        } else if (o.element == ort::BOOL) {
            loops.to_bytes(static_cast<uint8_t *>(output) + start, from, n);
        }
    }

    /* Adds up what the tasks summed, in their order. */
    void finish() {
        int64_t offset = 0;
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            if (o.mode != SUMMED) continue;
            auto *to = static_cast<float *>(outputs[i]);
            std::copy_n(sums_of(0) + offset, o.middle, to);
            for (int64_t t = 1; t < tasks; ++t) {
                loops.add_to(to, sums_of(t) + offset, o.middle);
            }
            offset += o.middle;
        }
    }
};

OrtStatus *compute(const Program &plan, OrtKernelContext *context) {
    size_t inputs = 0, outputs = 0;
    ORT_TRY(ort::api.KernelContext_GetInputCount(context, &inputs));
    ORT_TRY(ort::api.KernelContext_GetOutputCount(context, &outputs));
    if (inputs < plan.inputs.size() || outputs != plan.outputs.size()) {
        return ort::refuse("Fused: %zu inputs and %zu outputs, the program has %zu and %zu", inputs,
                           outputs, plan.inputs.size(), plan.outputs.size());
    }
    Call call(plan, tile::loops());
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
        Tensor tensor;
        ORT_TRY(ort::input(context, i, &tensor));
        ORT_TRY(fused::check_input("Fused", plan, i, tensor));
        call.inputs.push_back(tensor.data);
    }
    for (size_t i = 0; i < outputs; ++i) {
        void *data = nullptr;
        ORT_TRY(ort::output_of(static_cast<ort::Element>(plan.outputs[i].element), context, i,
                               plan.outputs[i].dims, &data));
        call.outputs.push_back(data);
    }
    call.clear_sums();
    ORT_TRY(ort::parallel(context, static_cast<size_t>(call.tasks), call));
    call.finish();
    return nullptr;
}

OrtStatus *create(const OrtKernelInfo *info, void **kernel) {
    std::vector<int64_t> numbers;
    ORT_TRY(ort::integers(info, "plan", &numbers));
    auto plan = std::make_unique<Program>();
    size_t read = 0;
    const bool is_sound = fused::read_plan(numbers, ort::Reals::SINGLE, &read, plan.get());
    if (!is_sound || read != numbers.size()) {
        return ort::refuse("Fused: the plan is no sound program");
    }
    if (plan->row > 0) plan->tile = std::max<int64_t>(1, TILE / plan->row) * plan->row;
    plan->adam = find_adam(*plan);
    if (!plan->constants.empty()) ORT_TRY(ort::floats(info, "values", &plan->values));
    if (plan->values.size() != plan->constants.size()) {
        return ort::refuse("Fused: %zu values for %zu constants", plan->values.size(),
                           plan->constants.size());
    }
    *kernel = plan.release();
    return nullptr;
}

ort::Element any_element(const ort::CustomOp *, size_t) { return ort::ANY; }
int at_least_one(const ort::CustomOp *) { return 1; }
int never(const ort::CustomOp *) { return 0; }
ort::Arity variadic(const ort::CustomOp *, size_t) { return ort::VARIADIC; }

} // namespace

const ort::CustomOp *ort::fused_operator() {
    static const CustomOp op = [] {
        CustomOp o = described<Program, create, compute>();
        o.GetName = [](const CustomOp *) { return "Fused"; };
        o.GetInputType = o.GetOutputType = any_element;
        o.GetInputTypeCount = [](const CustomOp *) -> size_t { return 1; };
        o.GetInputCharacteristic = o.GetOutputCharacteristic = variadic;
        o.GetVariadicInputMinArity = o.GetVariadicOutputMinArity = at_least_one;
        o.GetVariadicInputHomogeneity = o.GetVariadicOutputHomogeneity = never;
        return o;
    }();
    return &op;
}
