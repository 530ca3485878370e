#include "rows_by_rows.h"

#include <algorithm>

#include "machine.h"

namespace rows_by_rows {

namespace {

/* Rows a multiple of 4 KiB apart have the same places in the first level of the cache, and of few
 * rows sgemm makes no copy that would part them. Measured: 16 x 4096 by 4096 x 64 takes 2.7 times
 * as long as with copies. */
constexpr int64_t SAME_PLACE = 1024; /* floats */
constexpr int64_t FEWEST = 9, FEWEST_OF_MORE = 32, MOST = 256; /* rows on either side */
constexpr int64_t PART = 512, PITCH = PART + machine::LINE_FLOATS; /* terms at once, in copies */

void copy(Rows from, int64_t rows, int64_t terms, float *to) {
    for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(from.first + i * from.pitch, terms, to + i * PITCH);
    }
}

} // namespace

bool pays_to_copy(int64_t rows, int64_t columns, int64_t terms, int64_t left, int64_t right) {
    const auto [fewer, more] = std::minmax(rows, columns);
    const bool have_same_place = left % SAME_PLACE == 0 && right % SAME_PLACE == 0;
    return have_same_place && terms >= SAME_PLACE && fewer >= FEWEST && more >= FEWEST_OF_MORE &&
           more <= MOST;
}

onednn::Status multiply_copies(int64_t rows, int64_t columns, int64_t terms, float alpha, Rows left,
                               Rows right, float beta, float *to, int64_t pitch) {
    const auto floats = static_cast<size_t>((rows + columns) * PITCH);
    float *lefts = machine::scratch<machine::BLOCK_POINTS>(floats);
    float *rights = lefts + rows * PITCH;
    for (int64_t k = 0; k < terms; k += PART) {
        const int64_t n = std::min(PART, terms - k);
        copy({left.first + k, left.pitch}, rows, n, lefts);
        copy({right.first + k, right.pitch}, columns, n, rights);
        const onednn::Status failed =
            onednn::dnnl.sgemm('N', 'T', rows, columns, n, alpha, lefts, PITCH, rights, PITCH,
                               k > 0 ? 1 : beta, to, pitch);
        if (failed != onednn::SUCCESS) return failed;
    }
    return onednn::SUCCESS;
}

} // namespace rows_by_rows
