/* How plans of `FusedChannels` are read: every number is checked before anything runs. */
#include "channels_plan.h"

namespace {

using channels::Link;
using channels::Operand;
using channels::Plan;
using channels::Stage;
using channels::Step;
using ort::Tensor;
using namespace abi::kind;

constexpr int64_t MOST = 1 << 16;
constexpr int64_t MOST_KEPT = 1 << 24; /* elements of a block of channels */

/* Reads the numbers of an attribute one after another; `is_sound` falls with the first bad one. */
struct Reader {
    const std::vector<int64_t> &numbers;
    const ort::Reals reals;
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
        is_sound = is_sound && ort::is_real(o.element, reals);
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

} // namespace

bool channels::read_plan(const std::vector<int64_t> &numbers, ort::Reals reals, Plan *plan) {
    Reader from{numbers, reals};
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

OrtStatus *channels::check_input(const Plan &plan, size_t at, const Tensor &tensor) {
    const Operand &o = plan.inputs[at];
    const int64_t wanted = plan.size(o);
    if (tensor.type != o.element || tensor.size() != wanted) {
        return ort::refuse("FusedChannels: input %zu has %lld elements of type %d, the program was "
                           "made for %lld of type %d",
                           at, static_cast<long long>(tensor.size()), tensor.type,
                           static_cast<long long>(wanted), static_cast<int>(o.element));
    }
    return nullptr;
}

OrtStatus *channels::create(const OrtKernelInfo *info, ort::Reals reals, Plan *plan) {
    std::vector<int64_t> numbers;
    ORT_TRY(ort::integers(info, "plan", &numbers));
    if (!read_plan(numbers, reals, plan)) {
        return ort::refuse("FusedChannels: the plan is no sound program");
    }
    if (!plan->constants.empty()) ORT_TRY(ort::floats(info, "values", &plan->values));
    if (plan->values.size() != plan->constants.size()) {
        return ort::refuse("FusedChannels: %zu values for %zu constants", plan->values.size(),
                           plan->constants.size());
    }
    return nullptr;
}
