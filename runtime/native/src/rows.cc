/* Rows of tables: `Rows` looks them up, `AddRows` adds to them, `PutRows` puts others there, and
 * `AddNamedRows` adds rows that indices name in another table.
 *
 * One call has any number of tables, each with its own indices: what would not be worth a thread of
 * one table is of many. The first output is of the first table, and so on.
 *
 * A row of a large table is in no cache, and waiting for it takes far longer than the rest. So rows
 * are asked for some time before their turn. All indices are checked before anything is written.
 *
 * Tasks share the tables where there are many. Else they share the indices that are looked up, and
 * the rows that are written: all that happens to one is done by one task in the order of the
 * indices, so results are the same for any number of tasks.
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
using rows::ADD, rows::ADD_NAMED, rows::LOOK_UP, rows::PUT;
using abi::MOST_TASKS;
constexpr int64_t AHEAD = 16384;      /* bytes that are on their way at a time */
constexpr int64_t FARTHEST = 128;     /* rows */
constexpr int64_t ASKED_FOR = 128;    /* floats of a row; the processor sees where this leads */
constexpr int64_t CHUNK = 1024;       /* indices that a task picks its own from at a time */
constexpr int64_t TASK_BYTES = 65536; /* less is not worth waking a thread */
constexpr int64_t SHORT = 64;         /* floats that no function is called for */
constexpr int64_t TABLES_OF_TASK = 4; /* with fewer some tasks would wait for others */

struct Kernel {
    int64_t tasks = 1;
    std::vector<int64_t> shape = {}; /* of what is looked up */
};

struct Table {
    int64_t height = 0, width = 0; /* floats in a row */

    Table() = default;
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

/* Whole numbers of either type that name rows of another table. */
struct Names {
    const void *data = nullptr;
    bool are_long = false;
    int64_t height = 0;

    int64_t row(int64_t i) const {
        return are_long ? row_of(static_cast<const int64_t *>(data)[i], height)
                        : row_of(static_cast<const int32_t *>(data)[i], height);
    }
};

template <int which, typename Index>
struct Write {
    Table table;
    float *to;
    const Index *indices;
    const float *from;
    Names names; /* of the rows of `from`, which else are in the order of the indices */
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
                positions[own] = which == ADD_NAMED ? names.row(i) : i;
                own += owners.of(row) == static_cast<int64_t>(task);
            }
            write(rows, positions, own);
        }
    }

    void write(const int64_t *rows, const int64_t *positions, int64_t own) const {
        const int64_t distance = table.distance();
        const auto ask = [&](int64_t i) {
            ask_for<true>(to + rows[i] * table.width, table.width);
            if (which == ADD_NAMED) ask_for<false>(from + positions[i] * table.width, table.width);
        };
        for (int64_t i = 0; i < std::min(own, distance); ++i) ask(i);
        for (int64_t i = 0; i < own; ++i) {
            if (i + distance < own) ask(i + distance);
            float *row = to + rows[i] * table.width;
            const float *change = from + positions[i] * table.width;
            if (which == PUT) copy_row(row, change, table.width);
            else add_row(row, change, table.width, loops);
        }
    }
};

/* One table of a call: what is read of it, and where to. */
struct Work {
    Tensor tensor, indices;
    Table table;
    const float *from = nullptr; /* a row for each index; the table itself for lookups */
    Names names;                 /* of the rows of another table */
    float *to = nullptr;

    int64_t count() const { return indices.size(); }
    int64_t floats() const { return count() * table.width; }
};

template <int which, typename Index>
void do_part(const Work &work, int64_t part, int64_t parts) {
    const auto *at = static_cast<const Index *>(work.indices.data);
    const auto task = static_cast<size_t>(part);
    if constexpr (which == LOOK_UP) {
        LookUp<Index>{work.table, work.from, at, work.to, work.count(), parts}(task);
    } else {
        Write<which, Index>{work.table, work.to,      at,    work.from,
                            work.names, work.count(), parts, tile::loops()}(task);
    }
}

/* All that a call does, table after table, each in as many parts. */
template <int which>
struct Call {
    const std::vector<Work> &works;
    int64_t tasks, parts;

    void operator()(size_t task) const {
        const int64_t count = static_cast<int64_t>(works.size()) * parts;
        for (int64_t i = static_cast<int64_t>(task); i < count; i += tasks) {
            const Work &work = works[static_cast<size_t>(i / parts)];
            if (work.floats() == 0) continue;
            if (work.indices.type == ort::INT32) do_part<which, int32_t>(work, i % parts, parts);
            else do_part<which, int64_t>(work, i % parts, parts);
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
OrtStatus *check_all(Which which, const Tensor &named, int64_t height) {
    const auto *indices = static_cast<const Index *>(named.data);
    const int64_t at = first_outside(indices, named.size(), height);
    if (at < 0) return nullptr;
    return ort::refuse("%s: index %lld at position %lld is outside a table of %lld rows",
                       NAMES[which], static_cast<long long>(indices[at]),
                       static_cast<long long>(at), static_cast<long long>(height));
}

OrtStatus *check(Which which, const Tensor &indices, int64_t height) {
    return indices.type == ort::INT32 ? check_all<int32_t>(which, indices, height)
                                      : check_all<int64_t>(which, indices, height);
}

/* The rows that table number `i` gets, one for each index. */
OrtStatus *read_rows(Which which, OrtKernelContext *context, size_t i, Work *work) {
    Tensor rows;
    ORT_TRY(ort::input(context, 3 * i + 2, &rows));
    const std::vector<int64_t> shape(rows.dims, rows.dims + rows.rank);
    if (rows.type != ort::FLOAT || !are_rows(shape, work->tensor, work->count())) {
        return ort::refuse("%s: %lld elements of type %d are not %lld rows of %lld floats",
                           NAMES[which], static_cast<long long>(rows.size()), rows.type,
                           static_cast<long long>(work->count()),
                           static_cast<long long>(work->table.width));
    }
    work->from = rows.floats();
    return nullptr;
}

/* The other table, and the indices of its rows that table number `i` gets. */
OrtStatus *read_named(Which which, OrtKernelContext *context, size_t i, Work *work) {
    Tensor other, named;
    ORT_TRY(rows::read(which, context, i * rows::operands_of(which) + 2, &other, &named));
    const std::vector<int64_t> shape(other.dims, other.dims + other.rank);
    if (!are_rows(shape, work->tensor, other.dims[0]) || named.size() != work->count()) {
        return ort::refuse("%s: %lld indices of rows of %lld floats are not %lld of %lld floats",
                           NAMES[which], static_cast<long long>(named.size()),
                           static_cast<long long>(rows::width_of(other)),
                           static_cast<long long>(work->count()),
                           static_cast<long long>(work->table.width));
    }
    work->from = other.floats();
    work->names = {named.data, named.type == ort::INT64, other.dims[0]};
    return check(which, named, other.dims[0]);
}

/* The operands of table number `i`, of which nothing is wrong. */
OrtStatus *read(Which which, const Kernel &kernel, OrtKernelContext *context, size_t i,
                Work *work) {
    const size_t first = i * rows::operands_of(which);
    ORT_TRY(rows::read(which, context, first, &work->tensor, &work->indices));
    work->table = Table(work->tensor);
    if (which == ADD_NAMED) {
        ORT_TRY(read_named(which, context, i, work));
    } else if (which != LOOK_UP) {
        ORT_TRY(read_rows(which, context, i, work));
    } else if (are_rows(kernel.shape, work->tensor, work->count())) {
        work->from = work->tensor.floats();
    } else {
        return ort::refuse("%s: %lld indices of rows of %lld are not of the shape it was made for",
                           NAMES[which], static_cast<long long>(work->count()),
                           static_cast<long long>(work->table.width));
    }
    return check(which, work->indices, work->table.height);
}

/* Where table number `i` goes, which has its rows before others are written. */
OrtStatus *place(Which which, const Kernel &kernel, OrtKernelContext *context, size_t i,
                 Work *work) {
    void *made = nullptr;
    const Tensor &table = work->tensor;
    if (which == LOOK_UP) {
        ORT_TRY(ort::output(context, i, kernel.shape.data(), kernel.shape.size(), &made));
    } else {
        ORT_TRY(ort::output(context, i, table.dims, table.rank, &made));
    }
    work->to = static_cast<float *>(made);
    if (which == LOOK_UP || made == table.data || table.size() == 0) return nullptr;
    const int64_t tasks = tasks_for(kernel, table.size());
    Copy copy{static_cast<char *>(made), static_cast<const char *>(table.data),
              table.size() * static_cast<int64_t>(sizeof(float)), tasks};
    return ort::parallel(context, static_cast<size_t>(tasks), copy);
}

template <int which>
OrtStatus *run(const Kernel &kernel, OrtKernelContext *context) {
    constexpr auto KIND = static_cast<Which>(which);
    size_t inputs = 0, tables = 0;
    ORT_TRY(ort::api.KernelContext_GetInputCount(context, &inputs));
    ORT_TRY(ort::api.KernelContext_GetOutputCount(context, &tables));
    if (inputs != tables * rows::operands_of(KIND)) {
        return ort::refuse("%s: %zu inputs for %zu tables, wanted are %zu for each", NAMES[which],
                           inputs, tables, rows::operands_of(KIND));
    }
    std::vector<Work> works(tables);
    int64_t floats = 0;
    for (size_t i = 0; i < tables; ++i) {
        ORT_TRY(read(KIND, kernel, context, i, &works[i]));
        floats += works[i].floats();
    }
    for (size_t i = 0; i < tables; ++i) ORT_TRY(place(KIND, kernel, context, i, &works[i]));
    const int64_t tasks = tasks_for(kernel, floats);
    const bool are_many = static_cast<int64_t>(tables) >= TABLES_OF_TASK * tasks;
    Call<which> call{works, tasks, are_many ? 1 : tasks};
    return ort::parallel(context, static_cast<size_t>(tasks), call);
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

int at_least_one(const ort::CustomOp *) { return 1; }
int never(const ort::CustomOp *) { return 0; }
ort::Arity variadic(const ort::CustomOp *, size_t) { return ort::VARIADIC; }

/* With any number of tables. */
template <int which>
ort::CustomOp of_tables() {
    ort::CustomOp o = rows::described<which, Kernel, create<which>, run<which>>();
    o.GetInputType = [](const ort::CustomOp *, size_t) { return ort::ANY; };
    o.GetInputTypeCount = [](const ort::CustomOp *) -> size_t { return 1; };
    o.GetInputCharacteristic = o.GetOutputCharacteristic = variadic;
    o.GetVariadicInputMinArity = o.GetVariadicOutputMinArity = at_least_one;
    o.GetVariadicOutputHomogeneity = at_least_one; /* all are floats */
    o.GetVariadicInputHomogeneity = never;
    return o;
}

} // namespace

const ort::CustomOp *ort::rows_operator(int which) {
    static const CustomOp operators[] = {of_tables<LOOK_UP>(), of_tables<ADD>(), of_tables<PUT>(),
                                         of_tables<ADD_NAMED>()};
    return &operators[which];
}
