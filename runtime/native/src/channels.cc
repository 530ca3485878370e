/* The operator `FusedChannels`: programs that read sums over channels which they make themselves.
 *
 * Tensors lie as [outer, channels, inner]. What a program holds of one channel, a number, is a
 * cell; what it holds of all elements is seen in tiles. A program has stages. Each computes on
 * cells, then on every tile of a few channels, of which it may sum up some into cells for the next
 * stage. All stages run for a few channels before the next channels come: what the first has read
 * is in the cache for the others. What a stage computes on tiles is gone after it, but for cells and
 * what is kept for a later one.
 *
 * The attribute `plan` is checked in full when the kernel is made, the tensors in every call.
 */
#include <algorithm>
#include <memory>
#include <vector>

#include "machine.h"
#include "ort.h"
#include "tile.h"

namespace {

using ort::Tensor;

using abi::Link;
using abi::Step;
using namespace abi::kind;

constexpr int64_t TILE = abi::CHANNEL_TILE;
constexpr int64_t CHUNK = 65536; /* elements that one task of the thread pool takes at least */
constexpr int64_t MOST = 1 << 16;
constexpr int64_t MOST_KEPT = 1 << 24; /* elements of a block of channels */

struct Operand : abi::ChannelsOperand {
    std::vector<int64_t> dims; /* of outputs */
};

struct Stage {
    std::vector<Step> cell_code;
    std::vector<Link> reads, spreads, writes; /* input, cell, output -> place */
    std::vector<Link> recalls, keeps;         /* what is kept -> place */
    std::vector<Step> code;
    std::vector<Link> sums; /* place -> cell */
};

struct Plan {
    int64_t outer = 0, channels = 0, inner = 0, places = 0, cells = 0, kept = 0;
    std::vector<Operand> inputs, outputs;
    std::vector<int64_t> constants; /* the cells that hold them */
    std::vector<Stage> stages;
    std::vector<float> values; /* of the constants */

    int64_t width() const { return inner >= TILE ? 1 : std::min(channels, TILE / inner); }
    int64_t tile() const { return std::min(TILE, width() * inner); }
    int64_t block() const { return outer * width() * inner; }
    int64_t total() const { return outer * channels * inner; }
};

/* Reads the numbers of an attribute one after another; `is_sound` falls with the first bad one. */
struct Reader {
    const std::vector<int64_t> &numbers;
    size_t next = 0;
    bool is_sound = true;

    template <typename Record>
    Record take() {
        Record record{};
        is_sound = is_sound && ort::take(numbers, &next, &record);
        return record;
    }
    int64_t take(int64_t low, int64_t high) {
        const auto number = take<int64_t>();
        expect({number}, low, high);
        return is_sound ? number : low;
    }
    void expect(std::initializer_list<int64_t> found, int64_t low, int64_t high) {
        is_sound = is_sound && ort::is_within(found, low, high);
    }

    std::vector<Step> steps(int64_t registers) {
        std::vector<Step> found;
        for (int64_t left = take(0, MOST); is_sound && left > 0; --left) {
            const auto s = take<Step>();
            expect({s.operation}, 0, abi::LOOP_COUNT - 1);
            expect({s.to, s.a, s.b, s.c}, 0, registers - 1);
            found.push_back(s);
        }
        return found;
    }

    std::vector<Link> links(int64_t starts, int64_t ends) {
        std::vector<Link> found;
        for (int64_t left = take(0, MOST); is_sound && left > 0; --left) {
            found.push_back(take<Link>());
            expect({found.back().start}, 0, starts - 1);
            expect({found.back().to}, 0, ends - 1);
        }
        return found;
    }

    Operand operand(const Plan &plan, bool is_output) {
        Operand o{take<abi::ChannelsOperand>(), {}};
        expect({o.kind}, FULL, is_output ? CELLS : ONE);
        expect({o.cell}, 0, plan.cells - 1);
        if (!is_output) return o;
        int64_t size = 1;
        for (int64_t left = take(0, Tensor::MOST); is_sound && left > 0; --left) {
            o.dims.push_back(take(1, plan.total()));
            if (__builtin_mul_overflow(size, o.dims.back(), &size)) is_sound = false;
        }
        is_sound = is_sound && size == (o.kind == FULL ? plan.total() : plan.channels);
        return o;
    }
};

/* Whether links are to and from what is full, and places that are other memory have one owner. */
bool is_sound(const Plan &plan, const Stage &stage) {
    std::vector<int> read(plan.places, 0), written(plan.places, 0);
    for (const Link &link : stage.reads) {
        if (plan.inputs[link.start].kind != FULL) return false;
        read[link.to] += 1;
    }
    for (const Link &link : stage.spreads) read[link.to] += 1;
    for (const Link &link : stage.recalls) read[link.to] += 1;
    for (const Link &link : stage.keeps) written[link.to] += 1;
    for (const Link &link : stage.writes) {
        if (plan.outputs[link.start].kind != FULL) return false;
        written[link.to] += 1;
    }
    for (int64_t at = 0; at < plan.places; ++at) {
        if (read[at] + written[at] > 1) return false;
    }
    return std::none_of(stage.code.begin(), stage.code.end(),
                        [&](const Step &s) { return read[s.to] > 0; });
}

/* Whether each full output is written in one stage. */
bool writes_all(const Plan &plan) {
    std::vector<int> written(plan.outputs.size(), 0);
    for (const Stage &stage : plan.stages) {
        for (const Link &link : stage.writes) written[link.start] += 1;
    }
    for (size_t i = 0; i < written.size(); ++i) {
        if (written[i] != (plan.outputs[i].kind == FULL ? 1 : 0)) return false;
    }
    return true;
}

bool read_plan(const std::vector<int64_t> &numbers, Plan *plan) {
    Reader from{numbers};
    const auto head = from.take<abi::ChannelsHead>();
    from.expect({head.outer, head.channels, head.inner}, 1, int64_t(1) << 20);
    from.expect({head.places, head.cells}, 1, 4096);
    from.expect({head.kept}, 0, 64);
    from.expect({head.inputs, head.outputs}, 1, MOST);
    from.expect({head.constants}, 0, MOST);
    from.expect({head.stages}, 1, 64);
    if (!from.is_sound) return false;
    plan->outer = head.outer;
    plan->channels = head.channels;
    plan->inner = head.inner;
    plan->places = head.places;
    plan->cells = head.cells;
    plan->kept = head.kept;
    for (int64_t i = 0; from.is_sound && i < head.inputs; ++i) {
        plan->inputs.push_back(from.operand(*plan, false));
    }
    for (int64_t i = 0; from.is_sound && i < head.outputs; ++i) {
        plan->outputs.push_back(from.operand(*plan, true));
    }
    for (int64_t i = 0; from.is_sound && i < head.constants; ++i) {
        plan->constants.push_back(from.take(0, plan->cells - 1));
    }
    if (from.is_sound && plan->kept > 0 && plan->block() > MOST_KEPT) return false;
    for (int64_t i = 0; from.is_sound && i < head.stages; ++i) {
        Stage stage;
        stage.cell_code = from.steps(plan->cells);
        stage.reads = from.links(head.inputs, plan->places);
        stage.spreads = from.links(plan->cells, plan->places);
        stage.writes = from.links(head.outputs, plan->places);
        stage.recalls = from.links(plan->kept, plan->places);
        stage.keeps = from.links(plan->kept, plan->places);
        stage.code = from.steps(plan->places);
        stage.sums = from.links(plan->places, plan->cells);
        if (!from.is_sound || !is_sound(*plan, stage)) return false;
        plan->stages.push_back(std::move(stage));
    }
    return from.is_sound && from.next == numbers.size() && writes_all(*plan);
}

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

OrtStatus *check(const Plan &plan, size_t i, const Tensor &tensor) {
    const int64_t kind = plan.inputs[i].kind;
    const int64_t wanted = kind == FULL ? plan.total() : kind == CELLS ? plan.channels : 1;
    if (tensor.type != ort::FLOAT || tensor.size() != wanted) {
        return ort::refuse("FusedChannels: input %zu has %lld elements of type %d, the program was "
                           "made for %lld of type %d",
                           i, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(wanted), ort::FLOAT);
    }
    return nullptr;
}

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
        ORT_TRY(check(plan, i, tensor));
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
    std::vector<int64_t> numbers;
    ORT_TRY(ort::integers(info, "plan", &numbers));
    auto plan = std::make_unique<Plan>();
    if (!read_plan(numbers, plan.get())) {
        return ort::refuse("FusedChannels: the plan is no sound program");
    }
    if (!plan->constants.empty()) ORT_TRY(ort::floats(info, "values", &plan->values));
    if (plan->values.size() != plan->constants.size()) {
        return ort::refuse("FusedChannels: %zu values for %zu constants", plan->values.size(),
                           plan->constants.size());
    }
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
