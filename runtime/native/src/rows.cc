/* Rows of a table: `Rows` looks them up, `AddRows` adds to them, `PutRows` puts others there.
 *
 * A row of a large table is in no cache, and waiting for it takes far longer than the rest. So rows
 * are asked for some time before their turn. Indices are checked before anything is written.
 *
 * Looking up, the tasks share the indices. Writing, they share the rows: all that happens to one is
 * done by one task in the order of the indices, so results are the same for any number of tasks.
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "machine.h"
#include "ort.h"
#include "tile.h"

namespace {

using ort::Tensor;

enum Which : int { LOOK_UP, ADD, PUT };
const char *NAMES[] = {"Rows", "AddRows", "PutRows"};

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

    explicit Table(const Tensor &tensor) : height(tensor.dims[0]), width(1) {
        for (size_t i = 1; i < tensor.rank; ++i) {
            /* without rows they may be of any length; it is that of none */
            if (__builtin_mul_overflow(width, tensor.dims[i], &width)) width = 0;
        }
    }
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

OrtStatus *read(Which which, OrtKernelContext *context, Tensor *table, Tensor *indices) {
    ORT_TRY(ort::input(context, 0, table));
    ORT_TRY(ort::input(context, 1, indices));
    if (table->type != ort::FLOAT || table->rank < 1) {
        return ort::refuse("%s: the table is of type %d and has %zu dimensions; wanted are floats "
                           "and one dimension or more",
                           NAMES[which], table->type, table->rank);
    }
    if (indices->type != ort::INT32 && indices->type != ort::INT64) {
        return ort::refuse("%s: the indices are of type %d, not of int32 or int64", NAMES[which],
                           indices->type);
    }
    return nullptr;
}

template <typename Index>
OrtStatus *check(Which which, const Index *indices, int64_t count, int64_t height) {
    const int64_t at = first_outside(indices, count, height);
    if (at < 0) return nullptr;
    return ort::refuse("%s: index %lld at position %lld is outside a table of %lld rows",
                       NAMES[which], static_cast<long long>(indices[at]),
                       static_cast<long long>(at), static_cast<long long>(height));
}

bool are_rows(const std::vector<int64_t> &shape, const Tensor &table, int64_t count) {
    const size_t inner = table.rank - 1;
    if (shape.size() < inner || !std::equal(table.dims + 1, table.dims + table.rank,
                                            shape.end() - static_cast<int64_t>(inner))) {
        return false;
    }
    int64_t named = 1;
    for (size_t i = 0; i < shape.size() - inner; ++i) {
        if (shape[i] < 0 || __builtin_mul_overflow(named, shape[i], &named)) return false;
    }
    return named == count;
}

template <typename Index>
OrtStatus *look_up(const Kernel &kernel, OrtKernelContext *context, const Tensor &table,
                   const Tensor &indices) {
    const Table sizes(table);
    const int64_t count = indices.size();
    const auto *at = static_cast<const Index *>(indices.data);
    ORT_TRY(check(LOOK_UP, at, count, sizes.height));
    if (!are_rows(kernel.shape, table, count)) {
        return ort::refuse("Rows: %lld indices of rows of %lld are not of the shape it was made for",
                           static_cast<long long>(count), static_cast<long long>(sizes.width));
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
    ORT_TRY(read(static_cast<Which>(which), context, &table, &indices));
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

/* The result may be the memory of the table, where nobody needs that any more. */
size_t table_to_result(int **inputs, int **outputs) {
    *inputs = static_cast<int *>(std::calloc(1, sizeof(int)));
    *outputs = static_cast<int *>(std::calloc(1, sizeof(int)));
    return *inputs && *outputs ? 1 : 0;
}

void release_places(int *inputs, int *outputs) {
    std::free(inputs);
    std::free(outputs);
}

template <int which>
ort::CustomOp operator_of() {
    using ort::CustomOp;
    CustomOp o = ort::described<Kernel, create<which>, run<which>>();
    o.GetName = [](const CustomOp *) { return NAMES[which]; };
    o.GetInputType = [](const CustomOp *, size_t i) { return i == 1 ? ort::ANY : ort::FLOAT; };
    o.GetInputTypeCount = [](const CustomOp *) -> size_t { return which == LOOK_UP ? 2 : 3; };
    if (which != LOOK_UP) {
        o.GetMayInplace = table_to_result;
        o.ReleaseMayInplace = release_places;
    }
    return o;
}

} // namespace

const ort::CustomOp *ort::rows_operator(int which) {
    static const CustomOp operators[] = {operator_of<LOOK_UP>(), operator_of<ADD>(),
                                         operator_of<PUT>()};
    return &operators[which];
}
