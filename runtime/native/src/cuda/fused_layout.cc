/* The choice of rows, tiles and slices for `Fused` programs. */
#include "fused_layout.h"

#include <algorithm>
#include <numeric>

namespace cuda {
namespace {

using fused::Operand;
using fused::Plan;

constexpr int64_t WARP = 32, BLOCK = 256, LARGE_BLOCK = 1024;
constexpr int64_t LONGEST_OF_WARP = 1024, LONGEST_OF_BLOCK = 8192; /* rows that are reduced */
constexpr int64_t ITEMS = 4;       /* elements of a thread where nothing is reduced */
constexpr int64_t SHORT = 32;      /* columns; fewer leave threads idle */
constexpr int64_t BLOCKS_EACH = 4; /* for a processor, where each has partial sums */
constexpr int64_t FEWEST_ROWS = 4; /* of a slice */

/* The largest multiple of `width` up to `most` elements of which `total` is made. */
int64_t widened(int64_t width, int64_t total, int64_t most) {
    int64_t factor = std::max<int64_t>(1, most / width);
    while (total / width % factor != 0) --factor;
    return width * factor;
}

/* The row of a program that reduces none: one by which its sums come about easily. */
int64_t chosen_row(const Plan &plan) {
    for (const Operand &o : plan.outputs) {
        if (o.mode != abi::mode::SUMMED || o.middle == 1) continue;
        if (o.inner == 1) {
            return o.middle < SHORT ? widened(o.middle, plan.total, BLOCK * ITEMS) : o.middle;
        }
        return o.inner < SHORT ? widened(o.middle * o.inner, plan.total, BLOCK * ITEMS) : o.inner;
    }
    return std::min(plan.total, BLOCK * ITEMS); /* the last may be shorter */
}

int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The rows after which an index begins anew. */
int64_t classes_of(const Operand &o, int64_t row) {
    const int64_t period = o.middle * o.inner;
    return period / std::gcd(period, row);
}

void share_threads(const Plan &plan, Layout *made) {
    const bool has_rows = plan.row > 0;
    const int64_t longest = has_rows ? LONGEST_OF_WARP : WARP * ITEMS;
    const bool is_of_warp = made->row <= longest;
    made->threads = has_rows && made->row > LONGEST_OF_BLOCK ? LARGE_BLOCK : BLOCK;
    made->group = is_of_warp ? WARP : made->threads;
    made->items = ceiling(made->row, made->group);
    if (!has_rows) made->items = std::min(made->items, ITEMS);
    made->tiles = ceiling(made->row, made->group * made->items);
}

void find_sums(const Plan &plan, Layout *made) {
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
        const Operand &o = plan.outputs[i];
        if (o.mode != abi::mode::SUMMED) continue;
        Sum sum{i, Sum::OF_COLUMNS};
        if (o.middle == 1) sum.kind = Sum::OF_ALL;
        else if (o.inner % made->row == 0) sum.kind = Sum::OF_ROWS;
        else made->classes = std::lcm(made->classes, classes_of(o, made->row));
        made->sums.push_back(sum);
    }
}

void choose_slices(int64_t processors, Layout *made) {
    const int64_t most = ceiling(made->rows, made->classes); /* one row each */
    const int64_t wanted = ceiling(processors * BLOCKS_EACH * made->groups(),
                                   made->classes * made->tiles);
    const bool leaves_partials = std::any_of(made->sums.begin(), made->sums.end(), [](auto &s) {
        return s.kind != Sum::OF_ROWS;
    });
    if (!leaves_partials) made->slices = most;
    else made->slices = std::min(std::max<int64_t>(1, most / FEWEST_ROWS), wanted);
}

void place_partials(const Plan &plan, Layout *made) {
    for (Sum &sum : made->sums) {
        const Operand &o = plan.outputs[sum.output];
        sum.offset = made->partials;
        const bool is_columns = sum.kind == Sum::OF_COLUMNS;
        sum.blocks = is_columns ? ceiling(o.middle, WARP) : o.middle;
        if (sum.kind == Sum::OF_ALL) made->partials += made->slots();
        else if (sum.kind == Sum::OF_ROWS) made->partials += made->rows * made->tiles;
        else made->partials += made->slices * made->classes * made->row;
    }
}

} // namespace

int64_t Layout::finishing_blocks() const {
    int64_t count = 0;
    for (const Sum &sum : sums) count += sum.blocks;
    return count;
}

bool can_be_part(const Plan &plan) {
    const auto is_simple = [](const Operand &o) {
        return o.mode == abi::mode::FULL || o.middle == 1;
    };
    return plan.row == 0 && std::all_of(plan.inputs.begin(), plan.inputs.end(), is_simple) &&
           std::all_of(plan.outputs.begin(), plan.outputs.end(), is_simple);
}

Layout layout_of_parts(const Plan &plan) {
    Layout made;
    made.row = BLOCK * ITEMS;
    made.group = made.threads = BLOCK;
    made.items = ITEMS;
    find_sums(plan, &made);
    return made;
}

int64_t blocks_of_part(const Layout &layout, int64_t total, int64_t processors) {
    const int64_t rows = ceiling(total, layout.row);
    return layout.sums.empty() ? rows : std::min(rows, processors * BLOCKS_EACH);
}

Layout layout_of(const Plan &plan, int64_t processors) {
    Layout made;
    made.row = plan.row > 0 ? plan.row : chosen_row(plan);
    made.rows = ceiling(plan.total, made.row);
    share_threads(plan, &made);
    find_sums(plan, &made);
    choose_slices(processors, &made);
    place_partials(plan, &made);
    return made;
}

} // namespace cuda
