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

using abi::MOST_TASKS;

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

/* Whether each of so many windows has an element of the plane. */
bool is_covered(int64_t extent, int64_t windows, int64_t kernel, int64_t stride, int64_t padding) {
    return padding < kernel && (windows - 1) * stride - padding < extent;
}

bool is_sound(const abi::PoolShape &s) {
    return ort::is_within({s.images, s.channels}, 1, abi::MOST_IMAGES) &&
           ort::is_within({s.height, s.width, s.out_height, s.out_width, s.kernel_height,
                           s.kernel_width},
                          1, abi::MOST_POOL_EXTENT) &&
           ort::is_within({s.stride_y, s.stride_x}, 1, abi::MOST_POOL_STRIDE) &&
           ort::is_within({s.top, s.left}, 0, abi::MOST_POOL_EXTENT) &&
           s.kernel_height * s.kernel_width <= abi::MOST_POOL_WINDOW &&
           is_covered(s.height, s.out_height, s.kernel_height, s.stride_y, s.top) &&
           is_covered(s.width, s.out_width, s.kernel_width, s.stride_x, s.left);
}

Kernel kernel_of(const abi::PoolShape &s, int64_t tasks) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    return {s.images,
            s.channels,
            tasks,
            {size(s.height), size(s.width), size(s.out_height), size(s.out_width),
             size(s.kernel_height), size(s.kernel_width), size(s.stride_y), size(s.stride_x),
             size(s.top), size(s.left)}};
}

template <int which>
OrtStatus *create(const OrtKernelInfo *info, void **made) {
    std::vector<int64_t> numbers;
    abi::PoolShape shape;
    size_t next = 0;
    int64_t tasks = 0;
    ORT_TRY(ort::integers(info, "shape", &numbers));
    ORT_TRY(ort::api.KernelInfoGetAttribute_int64(info, "tasks", &tasks));
    if (!ort::take(numbers, &next, &shape) || next != numbers.size() || !is_sound(shape)) {
        return ort::refuse("%s: shape is none of a pool that this version of the library has",
                           NAMES[which]);
    }
    if (tasks < 1 || tasks > MOST_TASKS) {
        return ort::refuse("%s: %lld tasks, wanted are 1 to %lld", NAMES[which],
                           static_cast<long long>(tasks), static_cast<long long>(MOST_TASKS));
    }
    *made = new Kernel(kernel_of(shape, tasks));
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
                       static_cast<long long>(sizes.dims[0]),
                       static_cast<long long>(sizes.dims[1]),
                       static_cast<long long>(sizes.dims[2]),
                       static_cast<long long>(sizes.dims[3]));
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
