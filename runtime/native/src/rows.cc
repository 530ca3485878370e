/* Rows of a table: `Rows` looks them up, `AddRows` adds to them, `PutRows` puts others there.
 *
 * A row of a large table is in no cache, and waiting for it takes far longer than the rest. So rows
 * are asked for some time before their turn. Indices are checked before anything is written.
 *
 * Looking up, the tasks share the indices. Writing, they share the rows: all that happens to one is
 * done by one task in the order of the indices, so results are the same for any number of tasks.
 */
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "machine.h"
#include "row_operators.h"
#include "tile.h"

namespace {

using ort::Tensor;
using rows::are_rows, rows::NAMES, rows::Which;
using rows::ADD, rows::LOOK_UP, rows::PUT;
using abi::MOST_TASKS;
constexpr int64_t AHEAD = 16384;      /* bytes that are on their way at a time */
constexpr int64_t FARTHEST = 128;     /* rows */
constexpr int64_t ASKED_FOR = 128;    /* floats of a row; the processor sees where this leads */
constexpr int64_t CHUNK = 1024;       /* indices that a task picks its own from at a time */
constexpr int64_t TASK_BYTES = 65536; /* less is not worth waking a thread */
constexpr int64_t SHORT = 64;         /* floats that no function is called for */

struct Kernel {
    int64_t tasks = 1;
    std::vector<int64_t> shape = {}; /* of what is looked up */
};

struct Table {
    int64_t height, width; /* floats in a row */

    explicit Table(const Tensor &tensor)
        : height(tensor.dims[0]), width(rows::width_of(tensor)) {}
    int64_t distance() const {
        const int64_t bytes = width * static_cast<int64_t>(sizeof(float));
        return std::max<int64_t>(1, std::min(FARTHEST, AHEAD / std::max<int64_t>(bytes, 1)));
    }
};

/* Rows need not begin with a line of the cache: the last float is asked for by itself. */
template <bool is_written>
inline void ask_for(const float *row, int64_t width) {
    const int64_t last = std::min(width - 1, ASKED_FOR);
    machine::fetch<is_written>(row, last);
    machine::fetch<is_written>(row + last, 1);
}

inline void copy_row(float *to, const float *from, int64_t width) {
    if (width > SHORT) {
        std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
        return;
    }
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) std::memcpy(to + i, from + i, 64);
    for (; i + 4 <= width; i += 4) std::memcpy(to + i, from + i, 16);
    for (; i < width; ++i) to[i] = from[i];
}

template <int count>
inline void add_some(float *to, const float *from) {
    float sums[count];
    for (int i = 0; i < count; ++i) sums[i] = to[i] + from[i];
    std::memcpy(to, sums, sizeof sums);
}

inline void add_row(float *to, const float *from, int64_t width, const tile::Loops &loops) {
    if (width > SHORT) {
        loops.add_to(to, from, static_cast<size_t>(width));
        return;
    }
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) add_some<16>(to + i, from + i);
    for (; i + 4 <= width; i += 4) add_some<4>(to + i, from + i);
    for (; i < width; ++i) to[i] += from[i];
}

template <typename Index>
inline int64_t row_of(Index index, int64_t height) {
    return index < 0 ? index + height : index;
}

/* The position of the first index that names no row; -1 if all do. */
template <typename Index>
int64_t first_outside(const Index *indices, int64_t count, int64_t height) {
    using Limits = std::numeric_limits<Index>;
    const auto low = static_cast<Index>(std::max<int64_t>(-height, Limits::min()));
    const auto high = static_cast<Index>(std::min<int64_t>(height - 1, Limits::max()));
    Index outside = 0;
    for (int64_t i = 0; i < count; ++i) outside |= indices[i] < low || indices[i] > high;
    if (outside == 0) return -1;
    return std::find_if(indices, indices + count,
                        [=](Index i) { return i < low || i > high; }) - indices;
}

template <typename Index>
struct LookUp {
    Table table;
    const float *from;
    const Index *indices;
    float *to;
    int64_t count, tasks;

    void operator()(size_t task) const {
        const int64_t share = (count + tasks - 1) / tasks, distance = table.distance();
        const int64_t begin = std::min(count, share * static_cast<int64_t>(task));
        const int64_t end = std::min(count, begin + share);
        const auto row = [&](int64_t i) {
            return from + row_of(indices[i], table.height) * table.width;
        };
        for (int64_t i = begin; i < std::min(end, begin + distance); ++i) {
            ask_for<false>(row(i), table.width);
        }
        for (int64_t i = begin; i < end; ++i) {
            if (i + distance < end) ask_for<false>(row(i + distance), table.width);
            copy_row(to + i * table.width, row(i), table.width);
        }
    }
};

/* Rows that share a line are of one task. Others are dealt out at random, as low indices are often
 * the frequent ones. */
struct Owners {
    int64_t tasks;
    int shift = 0;

    Owners(int64_t tasks, int64_t width) : tasks(tasks) {
        while ((width << shift) * static_cast<int64_t>(sizeof(float)) < machine::LINE) ++shift;
    }
    int64_t of(int64_t row) const {
        const uint32_t mixed = static_cast<uint32_t>(row >> shift) * 2654435769u;
        return static_cast<int64_t>((mixed * static_cast<uint64_t>(tasks)) >> 32);
    }
};

template <typename Index, bool adds>
struct Write {
    Table table;
    float *to;
    const Index *indices;
    const float *from;
    int64_t count, tasks;
    const tile::Loops &loops;

    void operator()(size_t task) const {
        const Owners owners(tasks, table.width);
        int64_t rows[CHUNK], positions[CHUNK];
        for (int64_t start = 0; start < count; start += CHUNK) {
            const int64_t end = std::min(count, start + CHUNK);
            int64_t own = 0;
            for (int64_t i = start; i < end; ++i) {
                const int64_t row = row_of(indices[i], table.height);
                rows[own] = row;
                positions[own] = i;
                own += owners.of(row) == static_cast<int64_t>(task);
            }
            write(rows, positions, own);
        }
    }

    void write(const int64_t *rows, const int64_t *positions, int64_t own) const {
        const int64_t distance = table.distance();
        for (int64_t i = 0; i < std::min(own, distance); ++i) {
            ask_for<true>(to + rows[i] * table.width, table.width);
        }
        for (int64_t i = 0; i < own; ++i) {
            if (i + distance < own) {
                ask_for<true>(to + rows[i + distance] * table.width, table.width);
            }
            float *row = to + rows[i] * table.width;
            const float *change = from + positions[i] * table.width;
            if (adds) add_row(row, change, table.width, loops);
            else copy_row(row, change, table.width);
        }
    }
};

struct Copy {
    char *to;
    const char *from;
    int64_t bytes, tasks;

    void operator()(size_t task) const {
        const int64_t share = (bytes + tasks - 1) / tasks;
        const int64_t begin = std::min(bytes, share * static_cast<int64_t>(task));
        std::memcpy(to + begin, from + begin, static_cast<size_t>(std::min(share, bytes - begin)));
    }
};

int64_t tasks_for(const Kernel &kernel, int64_t floats) {
    const int64_t worth = floats * static_cast<int64_t>(sizeof(float)) / TASK_BYTES;
    return std::max<int64_t>(1, std::min(kernel.tasks, worth));
}

template <typename Index>
OrtStatus *check(Which which, const Index *indices, int64_t count, int64_t height) {
    const int64_t at = first_outside(indices, count, height);
    if (at < 0) return nullptr;
    return ort::refuse("%s: index %lld at position %lld is outside a table of %lld rows",
                       NAMES[which], static_cast<long long>(indices[at]),
                       static_cast<long long>(at), static_cast<long long>(height));
}

template <typename Index>
OrtStatus *look_up(const Kernel &kernel, OrtKernelContext *context, const Tensor &table,
                   const Tensor &indices) {
    const Table sizes(table);
    const int64_t count = indices.size();
    const auto *at = static_cast<const Index *>(indices.data);
    ORT_TRY(check(LOOK_UP, at, count, sizes.height));
    if (!are_rows(kernel.shape, table, count)) {
        return ort::refuse("%s: %lld indices of rows of %lld are not of the shape it was made for",
                           NAMES[LOOK_UP], static_cast<long long>(count),
                           static_cast<long long>(sizes.width));
    }
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, kernel.shape.data(), kernel.shape.size(), &made));
    if (count == 0 || sizes.width == 0) return nullptr;
    const int64_t tasks = tasks_for(kernel, count * sizes.width);
    LookUp<Index> call{sizes, table.floats(), at, static_cast<float *>(made), count, tasks};
    return ort::parallel(context, static_cast<size_t>(tasks), call);
}

template <typename Index, bool adds>
OrtStatus *write(const Kernel &kernel, OrtKernelContext *context, const Tensor &table,
                 const Tensor &indices) {
    const Which which = adds ? ADD : PUT;
    const Table sizes(table);
    const int64_t count = indices.size();
    Tensor rows;
    ORT_TRY(ort::input(context, 2, &rows));
    const std::vector<int64_t> shape(rows.dims, rows.dims + rows.rank);
    if (rows.type != ort::FLOAT || !are_rows(shape, table, count)) {
        return ort::refuse("%s: %lld elements of type %d are not %lld rows of %lld floats",
                           NAMES[which], static_cast<long long>(rows.size()), rows.type,
                           static_cast<long long>(count), static_cast<long long>(sizes.width));
    }
    const auto *at = static_cast<const Index *>(indices.data);
    ORT_TRY(check(which, at, count, sizes.height));
    void *made = nullptr;
    ORT_TRY(ort::output(context, 0, table.dims, table.rank, &made));
    if (made != table.data && table.size() > 0) {
        const int64_t tasks = tasks_for(kernel, table.size());
        Copy copy{static_cast<char *>(made), static_cast<const char *>(table.data),
                        table.size() * static_cast<int64_t>(sizeof(float)), tasks};
        ORT_TRY(ort::parallel(context, static_cast<size_t>(tasks), copy));
    }
    if (count == 0 || sizes.width == 0) return nullptr;
    const int64_t tasks = tasks_for(kernel, count * sizes.width);
    Write<Index, adds> call{sizes, static_cast<float *>(made), at, rows.floats(), count,
                                  tasks, tile::loops()};
    return ort::parallel(context, static_cast<size_t>(tasks), call);
}

template <int which, typename Index>
OrtStatus *of_type(const Kernel &kernel, OrtKernelContext *context, const Tensor &table,
                   const Tensor &indices) {
    if constexpr (which == LOOK_UP) return look_up<Index>(kernel, context, table, indices);
    else return write<Index, which == ADD>(kernel, context, table, indices);
}

template <int which>
OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    Tensor table, indices;
    ORT_TRY(rows::read(static_cast<Which>(which), context, &table, &indices));
    if (indices.type == ort::INT32) return of_type<which, int32_t>(kernel, context, table, indices);
    return of_type<which, int64_t>(kernel, context, table, indices);
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    auto kernel = std::make_unique<Kernel>();
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "tasks", &kernel->tasks));
    if (kernel->tasks < 1 || kernel->tasks > MOST_TASKS) {
        return ort::refuse("%s: %lld tasks, wanted are 1 to %lld", NAMES[which],
                           static_cast<long long>(kernel->tasks),
                           static_cast<long long>(MOST_TASKS));
    }
    if (which == LOOK_UP) ORT_TRY(ort::integers(info, "shape", &kernel->shape));
    *made = kernel.release();
    return nullptr;
}

} // namespace

const ort::CustomOp *ort::rows_operator(int which) {
    static const CustomOp operators[] = {
        rows::described<LOOK_UP, Kernel, create<LOOK_UP>, run<LOOK_UP>>(),
        rows::described<ADD, Kernel, create<ADD>, run<ADD>>(),
        rows::described<PUT, Kernel, create<PUT>, run<PUT>>(),
    };
    return &operators[which];
}
