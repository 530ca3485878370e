/* Products of a transposed left side, in blocks of both sides that are packed for the cache.
 *
 * oneDNN packs where a product is large enough, and otherwise reads a transposed matrix as it lies:
 * from one term to the next it goes a whole row further, to another page of memory. A product that
 * two threads share may be two that it does not pack, and then takes up to half as long again.
 */
#include "packed_blocks.h"

#include <algorithm>
#include <cstring>

#include "machine.h"
#include "packed_loops.h"

namespace packed {
namespace {

/* Measured on AVX2 at 16 to 1,024 rows and columns of 32 to 2,048 terms: from this sum of one by
 * the rows and one by the columns on oneDNN does not pack, and takes 1.05 to 2.6 times as long; of
 * fewer rows or columns it is the faster one. AVX-512 was not measured. */
constexpr double NOT_PACKED = 0.0038;
constexpr size_t FEWEST_ROWS = 64, FEWEST_COLUMNS = 128, FEWEST_ELEMENTS = 1 << 15;

/* A panel of the right side and a sliver of the left one stay in the first level of the cache,
 * a block of the left side in the second. */
constexpr size_t SLIVER = 6; /* rows that the loops for AVX2 compute together */
constexpr size_t BLOCK_DEPTH = 256, BLOCK_ROWS = 192, BLOCK_COLUMNS = 1024;

/* Part of a length, from `first` on. */
struct Span {
    size_t first, count;
};

template <typename Work>
void each_part(size_t length, size_t most, Work work) {
    for (size_t at = 0; at < length; at += most) work(Span{at, std::min(most, length - at)});
}

struct Blocks {
    const TransposedProduct &p;
    float *left, *right;

    /* Panels of columns, each with zeros behind the last one. Rows are read as they lie: panel
     * after panel each row would be found on another page, and lines of equal place in the cache
     * would drive each other out. */
    void pack_right(Span depth, Span columns) const {
        for (size_t k = 0; k < depth.count; ++k) {
            const float *from = p.b + (depth.first + k) * p.b_row + columns.first;
            each_part(columns.count, PANEL, [&](Span panel) {
                float *to = right + panel.first * depth.count + k * PANEL;
                if (panel.count == PANEL) {
                    std::memcpy(to, from + panel.first, PANEL * sizeof(float));
                } else {
                    std::copy_n(from + panel.first, panel.count, to);
                    std::fill(to + panel.count, to + PANEL, 0.0f);
                }
                if (p.alpha != 1) scale(to);
            });
        }
    }
    void scale(float *panel) const {
        for (size_t j = 0; j < PANEL; ++j) panel[j] *= p.alpha;
    }

    /* Slivers, the last one of the rows that are left. */
    void pack_left(Span depth, Span rows) const {
        for (size_t k = 0; k < depth.count; ++k) {
            const float *from = p.a + (depth.first + k) * p.a_row + rows.first;
            each_part(rows.count, SLIVER, [&](Span part) {
                float *to = left + part.first * depth.count + k * part.count;
                if (part.count == SLIVER) {
                    std::memcpy(to, from + part.first, SLIVER * sizeof(float));
                } else {
                    std::copy_n(from + part.first, part.count, to);
                }
            });
        }
    }

    void multiply(Span depth, Span rows, Span columns) const {
        const bool adds = p.adds || depth.first > 0;
        each_part(columns.count, PANEL, [&](Span panel) {
            each_part(rows.count, SLIVER, [&](Span part) {
                float *to = p.y + (rows.first + part.first) * p.y_row + columns.first + panel.first;
                loops().multiply({left + part.first * depth.count,
                                  right + panel.first * depth.count, adds ? to : nullptr, to,
                                  part.count, depth.count, panel.count, 0, 1, part.count, 0, PANEL,
                                  p.y_row, p.y_row, true});
            });
        });
    }
};

} // namespace

bool pays_transposed(size_t rows, size_t columns) {
    const bool is_measured = machine::isa() == machine::Isa::AVX2;
    const double overhead = 1.0 / static_cast<double>(rows) + 1.0 / static_cast<double>(columns);
    return is_measured && rows >= FEWEST_ROWS && columns >= FEWEST_COLUMNS &&
           rows * columns >= FEWEST_ELEMENTS && overhead >= NOT_PACKED;
}

void multiply_transposed(const TransposedProduct &p) {
    const size_t depth = std::min(BLOCK_DEPTH, p.depth), rows = std::min(BLOCK_ROWS, p.rows);
    const size_t columns = (std::min(BLOCK_COLUMNS, p.columns) + PANEL - 1) / PANEL * PANEL;
    const Blocks blocks = {p, machine::scratch<machine::LEFT_BLOCK>(depth * rows),
                           machine::scratch<machine::RIGHT_BLOCK>(depth * columns)};
    each_part(p.columns, BLOCK_COLUMNS, [&](Span of_columns) {
        each_part(p.depth, BLOCK_DEPTH, [&](Span of_depth) {
            blocks.pack_right(of_depth, of_columns);
            each_part(p.rows, BLOCK_ROWS, [&](Span of_rows) {
                blocks.pack_left(of_depth, of_rows);
                blocks.multiply(of_depth, of_rows, of_columns);
            });
        });
    });
}

} // namespace packed
