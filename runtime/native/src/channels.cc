/* The operator `FusedChannels`: programs that read sums over channels which they make themselves.
 *
 * Tensors lie as [outer, channels, inner]. What a program holds of one channel, a number, is a
 * cell; what it holds of all elements is seen in tiles. A program has stages. Each computes on
 * cells, then on every tile of a few channels, of which it may sum up some into cells for the next
 * stage. All stages run for a few channels before the next channels come: what the first has read
 * is in the cache for the others. What a stage computes on tiles is gone after it, but for cells
 * and what is kept for a later one.
 *
 * The attribute `plan` is checked in full when the kernel is made, the tensors in every call.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "channels_plan.h"
#include "machine.h"
#include "tile.h"

namespace {

using ort::Tensor;

using channels::Link;
using channels::Operand;
using channels::Plan;
using channels::Stage;
using channels::Step;
using namespace abi::kind;

constexpr int64_t CHUNK = 65536; /* elements that one task of the thread pool takes at least */

/* One call: where everything lies, and the work of one task. */
struct Call {
    const Plan &plan;
    const tile::Loops &loops;
    const int64_t width, tile, task_blocks, tasks;
    std::vector<const float *> inputs;
    std::vector<float *> outputs;

    Call(const Plan &p, const tile::Loops &l)
        : plan(p), loops(l), width(p.width()), tile(p.tile()),
          task_blocks(std::max<int64_t>(1, CHUNK / (p.outer * width * p.inner))),
          tasks((blocks() + task_blocks - 1) / task_blocks) {}

    int64_t blocks() const { return (plan.channels + width - 1) / width; }

    /* What one task works in. */
    struct Room {
        std::vector<float> cells;
        std::vector<double> sums;
        std::vector<float *> where; /* of each place, in this tile */
        float *memory, *kept;

        Room(const Call &call)
            : cells(call.plan.cells * call.width), sums(call.plan.cells * call.width),
              where(call.plan.places),
              memory(machine::scratch<machine::REGISTERS>(call.plan.places * call.tile +
                                   call.plan.kept * call.plan.block())),
              kept(memory + call.plan.places * call.tile) {}
    };

    void operator()(size_t task) {
        Room room(*this);
        for (size_t i = 0; i < plan.constants.size(); ++i) {
            loops.fill(cell(room, plan.constants[i]), plan.values[i], width);
        }
        const int64_t first = static_cast<int64_t>(task) * task_blocks;
        const int64_t end = std::min(first + task_blocks, blocks());
        for (int64_t block = first; block < end; ++block) run_block(room, block * width);
    }

    float *cell(Room &room, int64_t at) const { return room.cells.data() + at * width; }

    void run_block(Room &room, int64_t channel) const {
        const int64_t count = std::min(width, plan.channels - channel);
        for (size_t i = 0; i < plan.inputs.size(); ++i) {
            const Operand &o = plan.inputs[i];
            if (o.kind == CELLS) std::copy_n(inputs[i] + channel, count, cell(room, o.cell));
            if (o.kind == ONE) loops.fill(cell(room, o.cell), *inputs[i], count);
        }
        for (const Stage &stage : plan.stages) run_stage(room, stage, channel, count);
        for (size_t i = 0; i < plan.outputs.size(); ++i) {
            const Operand &o = plan.outputs[i];
            if (o.kind == CELLS) std::copy_n(cell(room, o.cell), count, outputs[i] + channel);
        }
    }

    void run_stage(Room &room, const Stage &stage, int64_t channel, int64_t count) const {
        for (const Step &s : stage.cell_code) {
            loops.operations[s.operation](cell(room, s.to), cell(room, s.a), cell(room, s.b),
                                          cell(room, s.c), count);
        }
        if (stage.writes.empty() && stage.sums.empty() && stage.keeps.empty()) return;
        place(room, stage, count);
        const int64_t run = count * plan.inner, stride = plan.channels * plan.inner;
        for (int64_t n = 0; n < plan.outer; ++n) {
            const int64_t start = n * stride + channel * plan.inner;
            for (int64_t i = 0; i < run; i += tile) {
                const int64_t next = i + tile < run ? start + i + tile : start + stride;
                for (const auto *links : {&stage.recalls, &stage.keeps}) {
                    for (const Link &link : *links) {
                        room.where[link.to] =
                            room.kept + link.start * plan.block() + n * run + i;
                    }
                }
                run_tile(room, stage, start + i, std::min(tile, run - i), next);
            }
        }
        for (const Link &link : stage.sums) {
            const double *sums = room.sums.data() + link.to * width;
            for (int64_t k = 0; k < count; ++k) {
                cell(room, link.to)[k] = static_cast<float>(sums[k]);
            }
        }
    }

    /* Gives each place its memory, spreads cells over tiles, and lets sums begin at zero. */
    void place(Room &room, const Stage &stage, int64_t count) const {
        for (int64_t at = 0; at < plan.places; ++at) room.where[at] = room.memory + at * tile;
        const int64_t length = std::min(tile, plan.inner);
        for (const Link &link : stage.spreads) {
            for (int64_t k = 0; k < count; ++k) {
                loops.fill(room.where[link.to] + k * length, cell(room, link.start)[k], length);
            }
        }
        for (const Link &link : stage.sums) {
            std::fill_n(room.sums.data() + link.to * width, count, 0.0);
        }
    }

    void run_tile(Room &room, const Stage &stage, int64_t start, int64_t n, int64_t next) const {
        const int64_t ahead = std::min(n, plan.total() - next);
        for (const Link &link : stage.reads) {
            /* never written: `is_sound` has seen to it */
            room.where[link.to] = const_cast<float *>(inputs[link.start]) + start;
            machine::fetch(inputs[link.start] + next, ahead);
        }
        for (const Link &link : stage.writes) {
            room.where[link.to] = outputs[link.start] + start;
            machine::fetch<true>(outputs[link.start] + next, ahead);
        }
        for (const Step &s : stage.code) {
            loops.operations[s.operation](room.where[s.to], room.where[s.a], room.where[s.b],
                                          room.where[s.c], n);
        }
        const int64_t length = std::min(n, plan.inner);
        for (const Link &link : stage.sums) {
            double *sums = room.sums.data() + link.to * width;
            const float *from = room.where[link.start];
            for (int64_t i = 0; i < n; i += length) *sums++ += loops.total(from + i, length);
        }
    }
};

OrtStatus *compute(const Plan &plan, OrtKernelContext *context) {
    size_t inputs = 0, outputs = 0;
    ORT_TRY(ort::api.KernelContext_GetInputCount(context, &inputs));
    ORT_TRY(ort::api.KernelContext_GetOutputCount(context, &outputs));
    if (inputs != plan.inputs.size() || outputs != plan.outputs.size()) {
        return ort::refuse("FusedChannels: %zu inputs and %zu outputs, the program has %zu and %zu",
                           inputs, outputs, plan.inputs.size(), plan.outputs.size());
    }
    Call call(plan, tile::loops());
    for (size_t i = 0; i < inputs; ++i) {
        Tensor tensor;
        ORT_TRY(ort::input(context, i, &tensor));
        ORT_TRY(channels::check_input(plan, i, tensor));
        call.inputs.push_back(tensor.floats());
    }
    for (size_t i = 0; i < outputs; ++i) {
        void *data = nullptr;
        ORT_TRY(ort::output_of(ort::FLOAT, context, i, plan.outputs[i].dims, &data));
        call.outputs.push_back(static_cast<float *>(data));
    }
    return ort::parallel(context, static_cast<size_t>(call.tasks), call);
}

OrtStatus *create(const OrtKernelInfo *info, void **kernel) {
    auto plan = std::make_unique<Plan>();
    ORT_TRY(channels::create(info, ort::Reals::SINGLE, plan.get()));
    *kernel = plan.release();
    return nullptr;
}

} // namespace

const ort::CustomOp *ort::channels_operator() {
    static const CustomOp op = [] {
        CustomOp o = *fused_operator(); /* of as many operands, of any kind */
        o.GetName = [](const CustomOp *) { return "FusedChannels"; };
        use_kernel<Plan, create, compute>(&o);
        return o;
    }();
    return &op;
}
