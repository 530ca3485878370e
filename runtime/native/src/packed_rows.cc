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

/* Measured on AVX-512 only, of a transposed left side: whose rows share sets, sgemm takes 6 to 17 %
 * less time for blocks that are packed, down to 64 rows and terms; of other long rows, 3 to 11 %.
 * Of fewer columns or more beside it there is no gain. */
constexpr int64_t BLOCK_TERMS = 512, BLOCK_ROWS = 128;
constexpr int64_t BLOCK_PITCH = BLOCK_ROWS + machine::LINE_FLOATS;
constexpr int64_t FEWEST_OF_BLOCK = 64, FEWEST_BESIDE = 64, MOST_BESIDE = 768;
constexpr int64_t LONG = 4096, FEWEST_BESIDE_LONG = 256, MOST_BESIDE_LONG = 512;

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

void pack(const float *from, int64_t row, int64_t rows, int64_t count, float *to, int64_t pitch) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * row, count, to + i * pitch);
}

onednn::Status multiply_parts(const Sides &p) {
    const auto floats = static_cast<size_t>((p.rows + p.columns) * PITCH);
    float *a = machine::scratch<machine::PACKED_ROWS>(floats);
    float *b = a + p.rows * PITCH;
    for (int64_t k = 0; k < p.depth; k += PART) {
        const int64_t terms = std::min(PART, p.depth - k);
        pack(p.a + k, p.a_row, p.rows, terms, a, PITCH);
        pack(p.b + k, p.b_row, p.columns, terms, b, PITCH);
        const onednn::Status failed =
            onednn::dnnl.sgemm('N', 'T', p.rows, p.columns, terms, p.alpha, a, PITCH, b, PITCH,
                               k > 0 ? 1 : p.beta, p.y, p.y_row);
        if (failed != onednn::SUCCESS) return failed;
    }
    return onednn::SUCCESS;
}

onednn::Status multiply_transpose(const Sides &p) {
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

bool pays_columns(int64_t rows, int64_t columns, int64_t depth, int64_t a_row) {
    if (machine::isa() != machine::Isa::AVX512 || std::min(rows, depth) < FEWEST_OF_BLOCK) {
        return false;
    }
    if (a_row % SHARED_SET == 0) return columns >= FEWEST_BESIDE && columns <= MOST_BESIDE;
    return a_row >= LONG && columns >= FEWEST_BESIDE_LONG && columns <= MOST_BESIDE_LONG;
}

onednn::Status multiply_columns(const Sides &p) {
    float *a = machine::scratch<machine::PACKED_ROWS>(size_t(BLOCK_TERMS * BLOCK_PITCH));
    for (int64_t i = 0; i < p.rows; i += BLOCK_ROWS) {
        const int64_t rows = std::min(BLOCK_ROWS, p.rows - i);
        for (int64_t k = 0; k < p.depth; k += BLOCK_TERMS) {
            const int64_t terms = std::min(BLOCK_TERMS, p.depth - k);
            pack(p.a + k * p.a_row + i, p.a_row, terms, rows, a, BLOCK_PITCH);
            const onednn::Status failed = onednn::dnnl.sgemm(
                'T', 'N', rows, p.columns, terms, p.alpha, a, BLOCK_PITCH, p.b + k * p.b_row,
                p.b_row, k > 0 ? 1 : p.beta, p.y + i * p.y_row, p.y_row);
            if (failed != onednn::SUCCESS) return failed;
        }
    }
    return onednn::SUCCESS;
}

onednn::Status multiply_rows(const Sides &p) {
    static_assert(MOST < MANY, "rows tell which of the two pays, also where a call has some terms");
    return p.rows >= MANY ? multiply_transpose(p) : multiply_parts(p);
}

} // namespace packed
