/* Pools of maxima over two axes: `MaxPool` also tells where each is, and `MaxPoolGradient` lets the
 * gradient of each go there.
 *
 * A place is counted in its window, so it fits a byte, and names an element of the window whatever
 * it says: the gradient looks for its own places among those that there are, and cannot fail.
 *
 * The tasks share the planes. What a plane gets is summed in one order, so results are the same for
 * any number of tasks. The attribute `shape` is checked in full when the kernel is made, the
 * tensors in every call.
 */
#include "pools.h"

#include <algorithm>
#include <vector>

#include "ort.h"

namespace {

using ort::Tensor;
using pools::Pool;

enum Which : int { FORWARD, GRADIENT };
const char *NAMES[] = {"MaxPool", "MaxPoolGradient"};

constexpr int64_t MOST_TASKS = 1024;
constexpr int64_t MOST_IMAGES = 1 << 16; /* and channels */
constexpr int64_t MOST_EXTENT = 1 << 14; /* no number of bytes overflows */
constexpr int64_t MOST_STRIDE = 1 << 8;  /* rows are whole in steps */
constexpr int64_t TASK_BYTES = 65536;    /* less is not worth waking a thread */

struct Kernel {
    int64_t images, channels, tasks;
    Pool pool;

    /* Tasks that are worth it, each of whole planes. */
    size_t shares() const {
        const int64_t planes = images * channels;
        const int64_t bytes = planes * static_cast<int64_t>(pool.plane() * sizeof(float));
        return static_cast<size_t>(std::max<int64_t>(
            1, std::min({tasks, planes, bytes / TASK_BYTES})));
    }
};

/* The numbers of the attribute, in its order. */
enum Number : size_t {
    IMAGES, CHANNELS, HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, KERNEL_HEIGHT, KERNEL_WIDTH, STRIDE_Y,
    STRIDE_X, TOP, LEFT, NUMBERS
};

/* Whether each of so many windows has an element of the plane. */
bool is_covered(int64_t extent, int64_t windows, int64_t kernel, int64_t stride, int64_t padding) {
    return padding < kernel && (windows - 1) * stride - padding < extent;
}

bool is_sound(const std::vector<int64_t> &n) {
    if (n.size() != NUMBERS) return false;
    for (size_t i = 0; i < NUMBERS; ++i) {
        const int64_t least = i == TOP || i == LEFT ? 0 : 1;
        const int64_t most = i <= CHANNELS ? MOST_IMAGES : MOST_EXTENT;
        if (n[i] < least || n[i] > (i == STRIDE_Y || i == STRIDE_X ? MOST_STRIDE : most)) {
            return false;
        }
    }
    return n[KERNEL_HEIGHT] * n[KERNEL_WIDTH] <= static_cast<int64_t>(pools::MOST_PLACES) &&
           is_covered(n[HEIGHT], n[OUT_HEIGHT], n[KERNEL_HEIGHT], n[STRIDE_Y], n[TOP]) &&
           is_covered(n[WIDTH], n[OUT_WIDTH], n[KERNEL_WIDTH], n[STRIDE_X], n[LEFT]);
}

Kernel kernel_of(const std::vector<int64_t> &n, int64_t tasks) {
    const auto at = [&](Number i) { return static_cast<size_t>(n[i]); };
    return {n[IMAGES],
            n[CHANNELS],
            tasks,
            {at(HEIGHT), at(WIDTH), at(OUT_HEIGHT), at(OUT_WIDTH), at(KERNEL_HEIGHT),
             at(KERNEL_WIDTH), at(STRIDE_Y), at(STRIDE_X), at(TOP), at(LEFT)}};
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    std::vector<int64_t> numbers;
    int64_t tasks = 0;
    ORT_TRY(ort::integers(info, "shape", &numbers));
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "tasks", &tasks));
    if (!is_sound(numbers)) {
        return ort::refuse("%s: shape is none of a pool that this version of the library has",
                           NAMES[which]);
    }
    if (tasks < 1 || tasks > MOST_TASKS) {
        return ort::refuse("%s: %lld tasks, wanted are 1 to %lld", NAMES[which],
                           static_cast<long long>(tasks), static_cast<long long>(MOST_TASKS));
    }
    *made = new Kernel(kernel_of(numbers, tasks));
    return nullptr;
}

struct Sizes {
    int64_t dims[4];
};

Sizes of_planes(const Kernel &k) {
    return {{k.images, k.channels, static_cast<int64_t>(k.pool.height),
             static_cast<int64_t>(k.pool.width)}};
}

Sizes of_results(const Kernel &k) {
    return {{k.images, k.channels, static_cast<int64_t>(k.pool.out_height),
             static_cast<int64_t>(k.pool.out_width)}};
}

OrtStatus *read(Which which, OrtKernelContext *context, size_t index, ort::Element type,
                const Sizes &sizes, Tensor *tensor) {
    ORT_TRY(ort::input(context, index, tensor));
    if (tensor->type == type && tensor->rank == 4 &&
        std::equal(sizes.dims, sizes.dims + 4, tensor->dims)) {
        return nullptr;
    }
    return ort::refuse("%s: input %zu is of type %d with %zu dimensions and %lld elements; wanted "
                       "are type %d and [%lld, %lld, %lld, %lld]",
                       NAMES[which], index, tensor->type, tensor->rank,
                       static_cast<long long>(tensor->size()), type,
                       static_cast<long long>(sizes.dims[0]), static_cast<long long>(sizes.dims[1]),
                       static_cast<long long>(sizes.dims[2]), static_cast<long long>(sizes.dims[3]));
}

/* `run(first, count, room)` for the planes of each task, which works in a room of its own. */
template <typename Run>
OrtStatus *share(const Kernel &kernel, OrtKernelContext *context, size_t floats, Run run) {
    const size_t planes = static_cast<size_t>(kernel.images * kernel.channels);
    const size_t tasks = kernel.shares();
    std::vector<float> rooms(tasks * floats);
    auto job = [&](size_t task) {
        const size_t first = planes * task / tasks, end = planes * (task + 1) / tasks;
        run(first, end - first, rooms.data() + task * floats);
    };
    return ort::parallel(context, tasks, job);
}

OrtStatus *forward(const Kernel &kernel, OrtKernelContext *context) {
    const Pool &pool = kernel.pool;
    const Sizes sizes = of_results(kernel);
    Tensor x;
    void *y = nullptr, *places = nullptr;
    ORT_TRY(read(FORWARD, context, 0, ort::FLOAT, of_planes(kernel), &x));
    ORT_TRY(ort::output(context, 0, sizes.dims, 4, &y));
    ORT_TRY(ort::output(context, 1, sizes.dims, 4, &places));
    return share(kernel, context, pool.room(), [&](size_t first, size_t count, float *room) {
        pools::loops().greatest(pool, x.floats() + first * pool.plane(),
                                static_cast<float *>(y) + first * pool.results(),
                                static_cast<uint8_t *>(places) + first * pool.results(), count,
                                room);
    });
}

OrtStatus *gradient(const Kernel &kernel, OrtKernelContext *context) {
    const Pool &pool = kernel.pool;
    const Sizes sizes = of_planes(kernel);
    Tensor g, places;
    void *dx = nullptr;
    ORT_TRY(read(GRADIENT, context, 0, ort::FLOAT, of_results(kernel), &g));
    ORT_TRY(read(GRADIENT, context, 1, ort::UINT8, of_results(kernel), &places));
    ORT_TRY(ort::output(context, 0, sizes.dims, 4, &dx));
    return share(kernel, context, pool.gradient_room(),
                 [&](size_t first, size_t count, float *room) {
        pools::loops().gradient(pool, g.floats() + first * pool.results(),
                                static_cast<const uint8_t *>(places.data) + first * pool.results(),
                                static_cast<float *>(dx) + first * pool.plane(), count, room);
    });
}

template <int which>
ort::CustomOp operator_of() {
    using ort::CustomOp;
    constexpr auto run = which == FORWARD ? forward : gradient;
    CustomOp o = ort::described<Kernel, create<which>, run>();
    o.GetName = [](const CustomOp *) { return NAMES[which]; };
    o.GetInputType = [](const CustomOp *, size_t i) { return i == 0 ? ort::FLOAT : ort::UINT8; };
    o.GetOutputType = o.GetInputType;
    o.GetInputTypeCount = [](const CustomOp *) -> size_t { return which == FORWARD ? 1 : 2; };
    o.GetOutputTypeCount = [](const CustomOp *) -> size_t { return which == FORWARD ? 2 : 1; };
    return o;
}

} // namespace

const ort::CustomOp *ort::pool_operator(int which) {
    static const CustomOp operators[] = {operator_of<FORWARD>(), operator_of<GRADIENT>()};
    return &operators[which];
}
