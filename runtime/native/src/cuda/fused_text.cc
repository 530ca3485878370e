/* Writes a `Fused` program as a kernel: its registers are variables, its steps statements. */
#include "fused_text.h"

#include "text.h"

namespace cuda {
namespace {

using fused::Instruction;
using fused::Operand;
using fused::Plan;

constexpr int64_t LONG = int64_t(1) << 31; /* elements that need an index of 64 bits */

struct Writer {
    const Plan &plan;
    const Layout &layout;
    const int64_t parts;
    std::string text = PRELUDE;
    std::vector<bool> is_number = std::vector<bool>(static_cast<size_t>(plan.registers), false);

    Writer(const Plan &p, const Layout &l, int64_t count) : plan(p), layout(l), parts(count) {
        for (const Operand &o : plan.inputs) {
            if (o.is_number()) is_number[static_cast<size_t>(o.at)] = true;
        }
        for (int64_t at : plan.constants) is_number[static_cast<size_t>(at)] = true;
    }

    bool has_parts() const { return parts > 1; }
    bool is_even() const { return !has_parts() && layout.row * layout.rows == plan.total; }

    void line(const std::string &words) { text += words + "\n"; }

    static std::string numbered(const char *name, int64_t at) { return name + std::to_string(at); }
    static std::string sum_name(size_t at) { return "s" + std::to_string(at); }

    std::string value(int64_t at) const {
        return numbered("r", at) + (is_number[static_cast<size_t>(at)] ? "" : "[k]");
    }

    void constant(const char *name, int64_t number) {
        line(std::string("constexpr Index ") + name + " = " + std::to_string(number) + ";");
    }

    void write_argument() {
        line(plan.total < LONG && !has_parts() ? "typedef unsigned Index;" : "typedef Word Index;");
        line("struct Part { const void *in[" + std::to_string(plan.inputs.size()) +
             "]; void *out[" + std::to_string(plan.outputs.size()) +
             "]; Word total, first, blocks; };");
        line("struct Arguments { Part parts[" + std::to_string(parts) +
             "]; float *partials; Word count, blocks; };");
        constant("ROW", layout.row);
        constant("GROUP", layout.group);
        constant("GROUPS", layout.groups());
        constant("TILES", layout.tiles);
        line("constexpr int ITEMS = " + std::to_string(layout.items) + ";");
    }

    /* Which part a block is of, its group of threads, and what that has. */
    void write_place() {
        if (has_parts()) {
            line("unsigned low = 0, high = (unsigned)p.count;");
            line("while (high - low > 1) {");
            line("const unsigned middle = (low + high) / 2;");
            line("if (p.parts[middle].first <= blockIdx.x) low = middle; else high = middle;");
            line("}");
            line("const Part &part = p.parts[low];");
            line("const Index total = part.total, rows = (total + ROW - 1) / ROW;");
            line("const Index slot = blockIdx.x - part.first, stride = part.blocks;");
            line("const bool is_there = true;");
        } else {
            line("const Part &part = p.parts[0];");
            constant("total", plan.total);
            constant("rows", layout.rows);
            constant("stride", layout.slices * layout.classes);
            line("const Index slot = blockIdx.x * GROUPS + threadIdx.x / GROUP;");
            line("const bool is_there = slot < " + std::to_string(layout.slots()) + ";");
        }
        line("const Index lane = threadIdx.x % GROUP, tile = slot % TILES, first = slot / TILES;");
    }

    void write_numbers() {
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            const Operand &o = plan.inputs[i];
            if (o.is_number()) {
                line("const float " + value(o.at) + " = " + element(input(i), o.element, "0") +
                     ";");
            }
        }
        for (size_t i = 0; i < plan.constants.size(); ++i) {
            line("const float " + value(plan.constants[i]) + " = " + text_of(plan.values[i]) + ";");
        }
    }

    static std::string input(size_t i) { return "part.in[" + std::to_string(i) + "]"; }
    static std::string output(size_t i) { return "part.out[" + std::to_string(i) + "]"; }

    /* A loop over the elements of a thread in a row; those beyond the end are left out. */
    void begin_items() {
        line("#pragma unroll");
        line("for (int k = 0; k < ITEMS; ++k) {");
        line("const Index j = (tile * ITEMS + k) * GROUP + lane, i = row * ROW + j;");
        line(is_even() ? "if (j >= ROW) continue;" : "if (j >= ROW || i >= total) continue;");
    }
    void end() { line("}"); }

    std::string index(const Operand &o) const {
        if (o.mode == abi::mode::FULL) return "i";
        std::string found = o.inner == 1 ? "i" : "i / " + std::to_string(o.inner);
        if (o.middle * o.inner < plan.total) found += " % " + std::to_string(o.middle);
        return found;
    }

    void write_reads() {
        std::vector<bool> is_declared = is_number;
        for (int64_t at = 0; at < plan.registers; ++at) {
            if (!is_declared[static_cast<size_t>(at)]) {
                line("float " + numbered("r", at) + "[ITEMS] = {};");
            }
        }
        begin_items();
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            const Operand &o = plan.inputs[i];
            if (!o.is_number()) {
                line(value(o.at) + " = " + element(input(i), o.element, index(o)) + ";");
            }
        }
        end();
    }

    const char *reduction() const {
        return layout.group == layout.threads ? "block_sum(sum)" : "warp_sum(sum)";
    }

    void write_reduction(const Instruction &step) {
        line("{");
        line("float sum = 0.0f;");
        begin_items();
        line("sum += " + value(step.a) + ";");
        end();
        line(std::string("sum = ") + reduction() + ";");
        if (step.operation == abi::operation::ROW_MEAN) line("sum = sum / (float)ROW;");
        begin_items();
        line(value(step.to) + " = sum;");
        end();
        line("}");
    }

    void write_steps() {
        bool is_in_loop = false;
        for (const Instruction &step : plan.code) {
            const bool is_element = step.operation < abi::LOOP_COUNT;
            if (is_element && !is_in_loop) begin_items();
            if (!is_element && is_in_loop) end();
            is_in_loop = is_element;
            if (!is_element) write_reduction(step);
            else line(value(step.to) + " = " + expression(step.operation, value(step.a),
                                                          value(step.b), value(step.c)) + ";");
        }
        if (is_in_loop) end();
    }

    void write_outputs() {
        begin_items();
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            if (o.mode == abi::mode::FULL) line(store(output(i), o.element, "i", value(o.at)));
            if (o.mode == abi::mode::PER_ROW) {
                line("if (j == 0) " + store(output(i), o.element, "row", value(o.at)));
            }
        }
        for (size_t s = 0; s < layout.sums.size(); ++s) {
            const Sum &sum = layout.sums[s];
            const std::string at = value(plan.outputs[sum.output].at);
            if (sum.kind == Sum::OF_ALL) line(sum_name(s) + " += " + at + ";");
            if (sum.kind == Sum::OF_COLUMNS) line(sum_name(s) + "[k] += " + at + ";");
        }
        end();
        for (const Sum &sum : layout.sums) {
            if (sum.kind == Sum::OF_ROWS) write_row_sum(sum);
        }
    }

    void write_row_sum(const Sum &sum) {
        line("{");
        line("float sum = 0.0f;");
        begin_items();
        line("sum += " + value(plan.outputs[sum.output].at) + ";");
        end();
        line(std::string("sum = ") + reduction() + ";");
        line("if (lane == 0) p.partials[" + text_of(sum.offset) + " + row * TILES + tile] = sum;");
        line("}");
    }

    void begin_sums() {
        for (size_t s = 0; s < layout.sums.size(); ++s) {
            const Sum::Kind kind = layout.sums[s].kind;
            if (kind == Sum::OF_ALL) line("float " + sum_name(s) + " = 0.0f;");
            if (kind == Sum::OF_COLUMNS) line("float " + sum_name(s) + "[ITEMS] = {};");
        }
    }

    void end_sums() {
        for (size_t s = 0; s < layout.sums.size(); ++s) {
            const Sum &sum = layout.sums[s];
            if (sum.kind == Sum::OF_ALL) {
                line("{");
                line("const float sum = " + sum_name(s) + ";");
                line(std::string("const float all = ") + reduction() + ";");
                line("if (lane == 0 && is_there) p.partials[" + partial_of_block(s) + "] = all;");
                line("}");
            }
            if (sum.kind == Sum::OF_COLUMNS) {
                line("for (int k = 0; is_there && k < ITEMS; ++k) {");
                line("const Index j = (tile * ITEMS + k) * GROUP + lane;");
                line("if (j < ROW) p.partials[" + text_of(sum.offset) + " + first * ROW + j] = " +
                     sum_name(s) + "[k];");
                line("}");
            }
        }
    }

    std::string partial_of_block(size_t s) const {
        if (has_parts()) return numbered("blockIdx.x + p.blocks * ", static_cast<int64_t>(s));
        return text_of(layout.sums[s].offset) + " + slot";
    }

    void write_program() {
        line("KERNEL(" + std::string(FUSED_KERNEL) + ", " + std::to_string(layout.threads) + ") {");
        write_place();
        write_numbers();
        begin_sums();
        line("for (Index row = is_there ? first : rows; row < rows; row += stride) {");
        write_reads();
        write_steps();
        write_outputs();
        end();
        end_sums();
        end();
    }

    /* The second kernel of programs that have sums. */
    void write_sums() {
        line("KERNEL(" + std::string(SUMS_KERNEL) + ", 256) {");
        if (has_parts()) write_sums_of_parts();
        else write_sums_of_one();
        end();
    }

    void write_sums_of_parts() {
        line("const Part &part = p.parts[blockIdx.x % p.count];");
        line("const float *from = p.partials + p.blocks * (blockIdx.x / p.count) + part.first;");
        line("float sum = 0.0f;");
        line("for (Word i = threadIdx.x; i < part.blocks; i += blockDim.x) sum += from[i];");
        line("sum = block_sum(sum);");
        line("if (threadIdx.x != 0) return;");
        for (size_t s = 0; s < layout.sums.size(); ++s) {
            const size_t at = layout.sums[s].output;
            line("if (blockIdx.x / p.count == " + std::to_string(s) + ") " +
                 store(output(at), plan.outputs[at].element, "0", "sum"));
        }
    }

    void write_sums_of_one() {
        line("const Part &part = p.parts[0];");
        line("unsigned block = blockIdx.x;");
        for (const Sum &sum : layout.sums) {
            line("if (block < " + std::to_string(sum.blocks) + ") {");
            line("const float *from = p.partials + " + text_of(sum.offset) + ";");
            if (sum.kind == Sum::OF_COLUMNS) write_finish_of_columns(sum);
            else write_finish_of_one(sum);
            line("return;");
            end();
            line("block -= " + std::to_string(sum.blocks) + ";");
        }
    }

    /* A block adds up what belongs to one element. */
    void write_finish_of_one(const Sum &sum) {
        const Operand &o = plan.outputs[sum.output];
        const bool is_all = sum.kind == Sum::OF_ALL;
        const int64_t side = is_all ? layout.slots() : o.inner / layout.row * layout.tiles;
        const int64_t count = is_all ? side : plan.total / (o.middle * o.inner) * side;
        line("float sum = 0.0f;");
        line("for (Index i = threadIdx.x; i < " + std::to_string(count) + "; i += blockDim.x) {");
        line("constexpr Index SIDE = " + std::to_string(side) + ";");
        line("sum += from[(i / SIDE * " + std::to_string(o.middle) +
             " + block) * SIDE + i % SIDE];");
        end();
        line("sum = block_sum(sum);");
        line("if (threadIdx.x == 0) " + store(output(sum.output), o.element, "block", "sum"));
    }

    /* A block adds up 32 elements; each of its warps has some of the slices. */
    void write_finish_of_columns(const Sum &sum) {
        const Operand &o = plan.outputs[sum.output];
        const int64_t slice = layout.classes * layout.row;
        line("SHARED float places[8][32];");
        line("const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;");
        line("const Index at = block * 32 + lane;");
        line("constexpr Index INNER = " + std::to_string(o.inner) + ", MIDDLE = " +
             std::to_string(o.middle) + ";");
        line("float sum = 0.0f;");
        line("for (Index s = warp; at < MIDDLE && s < " + std::to_string(layout.slices) +
             "; s += 8) {");
        line("for (Index v = 0; v < " + std::to_string(slice / (o.middle * o.inner)) + "; ++v) {");
        line("for (Index u = 0; u < INNER; ++u) {");
        line("sum += from[s * " + std::to_string(slice) + " + (v * MIDDLE + at) * INNER + u];");
        line("}");
        line("}");
        line("}");
        line("places[warp][lane] = sum;");
        line("__syncthreads();");
        line("if (warp != 0 || at >= MIDDLE) return;");
        line("float all = 0.0f;");
        line("for (int w = 0; w < 8; ++w) all += places[w][lane];");
        line(store(output(sum.output), o.element, "at", "all"));
    }
};

} // namespace

std::string fused_text(const Plan &plan, const Layout &layout, int64_t parts) {
    Writer writer(plan, layout, parts);
    writer.write_argument();
    writer.write_program();
    if (!layout.sums.empty()) writer.write_sums();
    return writer.text;
}

} // namespace cuda
