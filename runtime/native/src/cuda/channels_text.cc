/* Writes a `FusedChannels` program as kernels: one for each stage that computes on elements.
 *
 * A block computes all cells of its channel anew, those of earlier stages too, from the partial
 * sums that their kernels left; that is a few numbers. What a later stage recalls lies in memory.
 */
#include "channels_text.h"

#include "text.h"

namespace cuda {
namespace {

using abi::Link;
using abi::Step;
using channels::Operand;
using channels::Plan;
using channels::Stage;
using namespace abi::kind;

constexpr int64_t LONG = int64_t(1) << 31; /* elements that need an index of 64 bits */
constexpr int64_t FEWEST = 4096;           /* elements of a slice */
constexpr int64_t BLOCKS_EACH = 4;         /* for a processor */
constexpr int64_t MOST_SLICES = 64;

bool has_elements(const Stage &stage) {
    return !stage.writes.empty() || !stage.sums.empty() || !stage.keeps.empty();
}

std::string numbered(const char *name, int64_t at) { return name + std::to_string(at); }

struct Writer {
    const Plan &plan;
    const ChannelsLayout &layout;
    std::string text = PRELUDE;

    void line(const std::string &words) { text += words + "\n"; }

    void write_argument() {
        line(plan.total() < LONG ? "typedef unsigned Index;" : "typedef Word Index;");
        line("struct Arguments { const void *in[" + std::to_string(plan.inputs.size()) +
             "]; void *out[" + std::to_string(plan.outputs.size()) + "]; float *scratch; };");
        constant("INNER", plan.inner);
        constant("CHANNELS", plan.channels);
        constant("COUNT", plan.outer * plan.inner);
        constant("SLICES", layout.slices);
    }

    void constant(const char *name, int64_t number) {
        line(std::string("constexpr Index ") + name + " = " + std::to_string(number) + ";");
    }

    std::string input(int64_t i, const char *index) const {
        const int64_t type = plan.inputs[static_cast<size_t>(i)].element;
        return element("p.in[" + std::to_string(i) + "]", type, index);
    }
    std::string write(int64_t i, const char *index, const std::string &value) const {
        const int64_t type = plan.outputs[static_cast<size_t>(i)].element;
        return store("p.out[" + std::to_string(i) + "]", type, index, value);
    }

    void write_cells_at_first() {
        line("const Index channel = blockIdx.x, slice = blockIdx.y;");
        std::string names;
        for (int64_t at = 0; at < plan.cells; ++at) {
            names += (at == 0 ? "float " : ", ") + numbered("c", at) + " = 0.0f";
        }
        line(names + ";");
        for (size_t i = 0; i < plan.constants.size(); ++i) {
            line(numbered("c", plan.constants[i]) + " = " + text_of(plan.values[i]) + ";");
        }
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            const Operand &o = plan.inputs[i];
            if (o.kind == FULL) continue;
            line(numbered("c", o.cell) + " = " +
                 input(static_cast<int64_t>(i), o.kind == CELLS ? "channel" : "0") + ";");
        }
    }

    /* The place of a partial sum: `at` counts the sums of all stages. */
    std::string partial(int64_t at, const std::string &slice) const {
        return "p.scratch[(" + std::to_string(at) + " * CHANNELS + channel) * SLICES + " + slice +
               "]";
    }

    /* The cells of the stages up to one, with what those before `summed` have summed. */
    void write_cells(int64_t last, int64_t summed) {
        int64_t sum = 0;
        for (int64_t s = 0; s <= last; ++s) {
            const Stage &stage = plan.stages[static_cast<size_t>(s)];
            for (const Step &step : stage.cell_code) {
                line(numbered("c", step.to) + " = " +
                     expression(step.operation, numbered("c", step.a), numbered("c", step.b),
                                numbered("c", step.c)) + ";");
            }
            for (const Link &link : stage.sums) {
                if (s < summed) {
                    const std::string cell = numbered("c", link.to);
                    line(cell + " = 0.0f;");
                    line("for (Index i = 0; i < SLICES; ++i) " + cell + " += " +
                         partial(sum, "i") + ";");
                }
                ++sum;
            }
        }
    }

    void write_elements(const Stage &stage) {
        for (size_t i = 0; i < stage.sums.size(); ++i) {
            line("float " + numbered("s", static_cast<int64_t>(i)) + " = 0.0f;");
        }
        line("for (Index e = slice * blockDim.x + threadIdx.x; e < COUNT; "
             "e += SLICES * blockDim.x) {");
        line("const Index i = (e / INNER * CHANNELS + channel) * INNER + e % INNER;");
        for (int64_t at = 0; at < plan.places; ++at) {
            line("float " + numbered("r", at) + " = 0.0f;");
        }
        for (const Link &link : stage.reads) {
            line(numbered("r", link.to) + " = " + input(link.start, "i") + ";");
        }
        for (const Link &link : stage.spreads) {
            line(numbered("r", link.to) + " = " + numbered("c", link.start) + ";");
        }
        for (const Link &link : stage.recalls) {
            line(numbered("r", link.to) + " = " + kept(link.start) + ";");
        }
        for (const Step &step : stage.code) {
            line(numbered("r", step.to) + " = " +
                 expression(step.operation, numbered("r", step.a), numbered("r", step.b),
                            numbered("r", step.c)) + ";");
        }
        for (const Link &link : stage.writes) {
            line(write(link.start, "i", numbered("r", link.to)));
        }
        for (const Link &link : stage.keeps) {
            line(kept(link.start) + " = " + numbered("r", link.to) + ";");
        }
        for (size_t i = 0; i < stage.sums.size(); ++i) {
            line(numbered("s", static_cast<int64_t>(i)) + " += " +
                 numbered("r", stage.sums[i].start) + ";");
        }
        line("}");
    }

    std::string kept(int64_t at) const {
        return "p.scratch[" + text_of(layout.kept + at * plan.total()) + " + i]";
    }

    void write_partial_sums(int64_t number) {
        int64_t before = 0;
        for (int64_t s = 0; s < number; ++s) {
            before += static_cast<int64_t>(plan.stages[static_cast<size_t>(s)].sums.size());
        }
        const Stage &stage = plan.stages[static_cast<size_t>(number)];
        for (size_t i = 0; i < stage.sums.size(); ++i) {
            const auto at = static_cast<int64_t>(i);
            line(numbered("s", at) + " = block_sum(" + numbered("s", at) + ");");
            line("if (threadIdx.x == 0) " + partial(before + at, "slice") + " = " +
                 numbered("s", at) + ";");
        }
    }

    void write_cell_outputs() {
        line("if (slice != 0 || threadIdx.x != 0) return;");
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            if (o.kind == CELLS) {
                line(write(static_cast<int64_t>(i), "channel", numbered("c", o.cell)));
            }
        }
    }

    void write_stage(int64_t number) {
        line("KERNEL(" + channels_kernel(number) + ", " + std::to_string(CHANNEL_THREADS) + ") {");
        write_cells_at_first();
        write_cells(number, number);
        write_elements(plan.stages[static_cast<size_t>(number)]);
        write_partial_sums(number);
        line("}");
    }

    /* All cells, when every sum is there. */
    void write_cell_kernel() {
        line("KERNEL(" + channels_kernel(-1) + ", " + std::to_string(CELL_THREADS) + ") {");
        write_cells_at_first();
        const auto stages = static_cast<int64_t>(plan.stages.size());
        write_cells(stages - 1, stages);
        write_cell_outputs();
        line("}");
    }
};

} // namespace

std::string channels_kernel(int64_t stage) {
    return stage < 0 ? "flow2onnx_cells" : numbered("flow2onnx_stage", stage);
}

ChannelsLayout channels_layout(const Plan &plan, int64_t processors) {
    ChannelsLayout made;
    const int64_t count = plan.outer * plan.inner;
    const int64_t wanted = (processors * BLOCKS_EACH + plan.channels - 1) / plan.channels;
    made.slices = std::max<int64_t>(1, std::min({wanted, count / FEWEST, MOST_SLICES}));
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        made.sums += static_cast<int64_t>(plan.stages[s].sums.size());
        if (has_elements(plan.stages[s])) made.stages.push_back(static_cast<int64_t>(s));
    }
    made.has_cell_kernel = std::any_of(plan.outputs.begin(), plan.outputs.end(),
                                       [](const Operand &o) { return o.kind == CELLS; });
    made.kept = made.sums * plan.channels * made.slices;
    made.scratch = made.kept + plan.kept * plan.total();
    return made;
}

std::string channels_text(const Plan &plan, const ChannelsLayout &layout) {
    Writer writer{plan, layout};
    writer.write_argument();
    for (int64_t stage : layout.stages) writer.write_stage(stage);
    if (layout.has_cell_kernel) writer.write_cell_kernel();
    return writer.text;
}

} // namespace cuda
