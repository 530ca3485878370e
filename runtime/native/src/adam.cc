/* Which programs are Adam's update. */
#include "adam.h"

#include "tile.h"

namespace adam {
namespace {

constexpr int64_t NOTHING = -1;

/* The values between operands and results. */
enum Between : int64_t {
    OLD_PART = OPERAND_COUNT, SLOPE_PART, SLOPE_SQUARE, OLD_SQUARE_PART, SQUARE_PART, ROOT, DIVISOR,
    QUOTIENT, CHANGE,
    VALUE_COUNT
};

/* The update; an operand that an operation has not is its first. */
constexpr Instruction UPDATE[] = {
    {tile::MUL, OLD_PART, MEAN, KEPT_MEAN, MEAN},
    {tile::MUL, SLOPE_PART, SLOPE, NEW_MEAN, SLOPE},
    {tile::ADD, NEXT_MEAN, OLD_PART, SLOPE_PART, OLD_PART},
    {tile::MUL, SLOPE_SQUARE, SLOPE, SLOPE, SLOPE},
    {tile::MUL, OLD_SQUARE_PART, SQUARE, KEPT_SQUARE, SQUARE},
    {tile::MUL, SQUARE_PART, SLOPE_SQUARE, NEW_SQUARE, SLOPE_SQUARE},
    {tile::ADD, NEXT_SQUARE, OLD_SQUARE_PART, SQUARE_PART, OLD_SQUARE_PART},
    {tile::SQRT, ROOT, NEXT_SQUARE, NEXT_SQUARE, NEXT_SQUARE},
    {tile::ADD, DIVISOR, ROOT, EPSILON, ROOT},
    {tile::DIV, QUOTIENT, NEXT_MEAN, DIVISOR, NEXT_MEAN},
    {tile::MUL, CHANGE, QUOTIENT, RATE, QUOTIENT},
    {tile::SUB, NEXT_WEIGHT, WEIGHT, CHANGE, WEIGHT},
};
constexpr size_t STEPS = sizeof UPDATE / sizeof *UPDATE;

/* Code whose operands and results are values, each made once, in the place of registers. */
struct Values {
    std::vector<Instruction> code; /* the first `registers` values are there before it runs */
    std::vector<int64_t> last;     /* values of registers in the end */
    int64_t registers;

    Values(const std::vector<Instruction> &given, int64_t count) : registers(count) {
        for (int64_t at = 0; at < count; ++at) last.push_back(at);
        for (const Instruction &i : given) {
            const auto made = count + static_cast<int64_t>(code.size());
            code.push_back({i.operation, made, last[i.a], last[i.b], last[i.c]});
            last[i.to] = made;
        }
    }
    const Instruction *maker(int64_t value) const {
        return value < registers ? nullptr : &code[value - registers];
    }
};

/* Which values of a program are those of the update. */
struct Comparison {
    const Values &values;
    std::vector<int64_t> found = std::vector<int64_t>(VALUE_COUNT, NOTHING);

    bool is(int64_t value, int64_t wanted) {
        if (found[wanted] != NOTHING) return found[wanted] == value;
        found[wanted] = value;
        const Instruction *made = values.maker(value);
        if (wanted < FIRST_RESULT) return made == nullptr;
        const Instruction &as = maker(wanted);
        return made != nullptr && made->operation == as.operation && is(made->a, as.a) &&
               is(made->b, as.b) && is(made->c, as.c);
    }
    static const Instruction &maker(int64_t wanted) {
        size_t i = 0;
        while (UPDATE[i].to != wanted) ++i;
        return UPDATE[i];
    }
    /* The register that has a value in the end. */
    int64_t holder(int64_t value) const {
        for (int64_t at = 0; at < values.registers; ++at) {
            if (values.last[at] == value) return at;
        }
        return NOTHING;
    }
};

} // namespace

std::vector<int64_t> registers_of(const std::vector<Instruction> &code, int64_t registers) {
    if (code.size() != STEPS) return {};
    const Values values(code, registers);
    Comparison comparison{values};
    if (!comparison.is(registers + static_cast<int64_t>(STEPS) - 1, NEXT_WEIGHT)) return {};
    std::vector<int64_t> found;
    for (int64_t operand = 0; operand < OPERAND_COUNT; ++operand) {
        found.push_back(comparison.holder(comparison.found[operand]));
        if (found.back() == NOTHING) return {};
    }
    return found;
}

} // namespace adam
