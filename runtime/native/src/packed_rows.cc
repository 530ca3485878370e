#include "packed_rows.h"

#include <algorithm>

#include "machine.h"
#include "transpose_loops.h"

namespace packed {
namespace {

/* Rows a multiple of 4 KiB apart share the sets of the first level of the cache, and few of them
 * sgemm reads as they lie. Measured: 16 x 4096 by 4096 x 64 takes 2.7 times as long as packed. */
constexpr int64_t SHARED_SET = 1024; /* floats */
constexpr int64_t FEWEST = 9, FEWEST_OF_MORE = 32, MOST = 256; /* rows on either side */
constexpr int64_t PART = 512, PITCH = PART + machine::LINE_FLOATS; /* terms at once, and a line */

/* Measured on AVX-512 only: of so many rows sgemm takes 4 to 8 % less time for a right side of
 * 96 to 384 columns and as many terms or more that is not transposed, and to transpose it takes 1
 * to 3 %. There is no gain for 64 columns or 512, nor by AVX2. */
constexpr int64_t MANY = 1024, FEWEST_COLUMNS = 96, MOST_COLUMNS = 384;

bool share_sets(int64_t rows, int64_t columns, int64_t depth, int64_t a_row, int64_t b_row) {
    const auto [fewer, more] = std::minmax(rows, columns);
    return a_row % SHARED_SET == 0 && b_row % SHARED_SET == 0 && depth >= SHARED_SET &&
           fewer >= FEWEST && more >= FEWEST_OF_MORE && more <= MOST;
}

bool pays_transpose(int64_t rows, int64_t columns, int64_t depth) {
    return machine::isa() == machine::Isa::AVX512 && rows >= MANY &&
           std::min(columns, depth) >= FEWEST_COLUMNS && columns <= MOST_COLUMNS &&
           columns * depth <= machine::second_cache();
}

void pack(const float *from, int64_t row, int64_t rows, int64_t terms, float *to) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * row, terms, to + i * PITCH);
}

onednn::Status multiply_parts(const RowProduct &p) {
    const auto floats = static_cast<size_t>((p.rows + p.columns) * PITCH);
    float *a = machine::scratch<machine::PACKED_ROWS>(floats);
    float *b = a + p.rows * PITCH;
    for (int64_t k = 0; k < p.depth; k += PART) {
        const int64_t terms = std::min(PART, p.depth - k);
        pack(p.a + k, p.a_row, p.rows, terms, a);
        pack(p.b + k, p.b_row, p.columns, terms, b);
        const onednn::Status failed =
            onednn::dnnl.sgemm('N', 'T', p.rows, p.columns, terms, p.alpha, a, PITCH, b, PITCH,
                               k > 0 ? 1 : p.beta, p.y, p.y_row);
        if (failed != onednn::SUCCESS) return failed;
    }
    return onednn::SUCCESS;
}

onednn::Status multiply_transpose(const RowProduct &p) {
    float *b = machine::scratch<machine::PACKED_ROWS>(static_cast<size_t>(p.depth * p.columns));
    const auto columns = static_cast<size_t>(p.columns);
    transposes::loops().transpose({p.b, b, columns, static_cast<size_t>(p.depth),
                                   static_cast<size_t>(p.b_row), columns});
    return onednn::dnnl.sgemm('N', 'N', p.rows, p.columns, p.depth, p.alpha, p.a, p.a_row, b,
                              p.columns, p.beta, p.y, p.y_row);
}

} // namespace

bool pays_rows(int64_t rows, int64_t columns, int64_t depth, int64_t a_row, int64_t b_row) {
    return share_sets(rows, columns, depth, a_row, b_row) ||
           pays_transpose(rows, columns, depth);
}

onednn::Status multiply_rows(const RowProduct &p) {
    static_assert(MOST < MANY, "rows tell which of the two pays, also where a call has some terms");
    return p.rows >= MANY ? multiply_transpose(p) : multiply_parts(p);
}

} // namespace packed
