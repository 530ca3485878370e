/* Convolutions of few channels a group, depthwise ones above all, and their gradients.
 *
 * A plane with zeros around it is copied to where its rows lie one behind the other. There the
 * elements that a tap meets are the whole plane, some elements further on: a result is a sum of
 * shifted planes times weights, along rows, planes and images at once. What is computed between
 * the end of one row and the start of the next is left out. Strides part planes into phases, each
 * of every so many elements: of what is read, or, for the gradient of the input, of what is made.
 * The work is cut by the shape alone, so results do not depend on the number of threads.
 */
#include <algorithm>
#include <cstring>
#include <vector>

#include "conv.h"
#include "machine.h"
#include "plane_loops.h"

namespace {

using namespace conv;
using planes::Correlation;
using planes::Dots;
using planes::LANES;
using planes::OUTPUTS;

constexpr int64_t MOST_TAPS = 1 << 20;      /* of a group */
constexpr int64_t MOST_GATHERED = 1 << 28;  /* elements of a group's planes, of one image */
constexpr int64_t MOST_ELEMENTS = int64_t(1) << 33; /* of all images */
constexpr int64_t MOST_PHASES = 1 << 12;
constexpr int64_t PRODUCTS_OF_JOB = 1 << 20;
constexpr int64_t FEWEST_JOBS = 16;
constexpr int64_t SMALL_CHUNK = 1 << 16; /* elements of planes, that few jobs are cut down to */

size_t number(int64_t n) { return static_cast<size_t>(n); }

/* How positions of one axis are met.
 *
 * Element j of phase r of what is read is number j * step + r - shift of its axis, or a zero where
 * there is no such. Element i of phase r of what is made is number i * made_step + r - made_shift,
 * or nothing.
 */
struct Walk {
    int64_t phases = 1, extent = 0, step = 1, shift = 0, size = 0;
    int64_t made_phases = 1, made = 0, made_step = 1, made_shift = 0, made_size = 0;
    struct Tap {
        int64_t phase, made_phase, offset;
    };
    std::vector<Tap> taps;

    Walk(const Axis &a, bool is_back) {
        const int64_t most = (a.reach() - 1) / a.stride;
        if (is_back) {
            const int64_t first = a.before / a.stride;
            made_phases = made_step = a.stride;
            made = (a.before + a.size - 1) / a.stride - first + 1;
            made_shift = a.before - first * a.stride;
            made_size = a.size;
            extent = made + most;
            shift = most - first;
            size = a.out;
        } else {
            phases = step = a.stride;
            extent = a.out + most;
            shift = a.before;
            size = a.size;
            made = made_size = a.out;
        }
        for (int64_t k = 0; k < a.kernel; ++k) {
            const int64_t phase = k * a.dilation % a.stride, at = k * a.dilation / a.stride;
            taps.push_back(is_back ? Tap{0, phase, most - at} : Tap{phase, 0, at});
        }
    }
};

/* A range of images, and of the elements that are made along one axis: all, if not of one image. */
struct Chunk {
    int64_t image, images, first, count;
};

struct Planes : Kernel {
    const int64_t per_in, per_out; /* channels of a group */
    std::vector<Walk> walks;
    int axis = 0;                  /* that chunks are of */
    std::vector<Chunk> chunks;
    int64_t job_groups = 1, parts = 1;
    struct Taps { /* of one phase of what is made */
        std::vector<int32_t> kernel; /* which elements of a kernel */
        std::vector<int64_t> phase;  /* of what is read, number of it */
        std::vector<std::array<int64_t, MOST_AXES>> offset;
    };
    std::vector<Taps> taps;
    std::vector<bool> is_read; /* each phase */

    Planes(const Shape &s, Which w, const Form &f)
        : Kernel(s, w, f), per_in(s.in / s.groups), per_out(s.out / s.groups) {
        for (int i = 0; i < MOST_AXES; ++i) walks.emplace_back(s.axis(i), w == INPUT_GRADIENT);
        list_taps();
        cut();
    }

    bool is_back() const { return which == INPUT_GRADIENT; }
    int64_t reads() const { return is_back() ? per_out : per_in; } /* channels of a group */
    int64_t makes() const { return is_back() ? per_in : per_out; }
    int64_t phases() const { return walks[0].phases * walks[1].phases * walks[2].phases; }

    void list_taps() {
        const Walk &z = walks[0], &y = walks[1], &x = walks[2];
        taps.resize(number(z.made_phases * y.made_phases * x.made_phases));
        is_read.assign(number(phases()), false);
        int32_t kernel = 0;
        for (const auto &a : z.taps) {
            for (const auto &b : y.taps) {
                for (const auto &c : x.taps) {
                    Taps &to = taps[number(
                        (a.made_phase * y.made_phases + b.made_phase) * x.made_phases +
                        c.made_phase)];
                    const int64_t phase = (a.phase * y.phases + b.phase) * x.phases + c.phase;
                    to.kernel.push_back(kernel++);
                    to.phase.push_back(phase);
                    to.offset.push_back({a.offset, b.offset, c.offset});
                    is_read[number(phase)] = true;
                }
            }
        }
    }

    /* Chunks whose planes stay in the cache, and jobs of enough products: smaller chunks where these
     * would be few for the threads. */
    void cut() {
        const int64_t planes = reads() * phases() + (which == WEIGHT_GRADIENT ? makes() : 0);
        const int64_t volume = walks[0].extent * walks[1].extent * walks[2].extent;
        const int64_t image = planes * volume, all = shape.images * image;
        const int64_t products = std::max<int64_t>(
            1, shape.images * shape.out_plane() * shape.weights() / shape.groups);
        const int64_t jobs = std::clamp<int64_t>(products * shape.groups / PRODUCTS_OF_JOB, 1,
                                                 FEWEST_JOBS);
        const int64_t small = std::min(SMALL_CHUNK, std::max(image, whole(all * shape.groups, jobs)));
        const int64_t cached =
            std::min(machine::second_cache() / 2, std::max(small, all / FEWEST_JOBS));
        while (axis < MOST_AXES - 1 && walks[number(axis)].made == 1) ++axis;
        const Walk &cut = walks[number(axis)];
        const int64_t more = cut.extent - cut.made, row = image / cut.extent;
        if (image <= cached) {
            const int64_t each = std::max<int64_t>(1, cached / image);
            const int64_t count = whole(shape.images, each);
            for (int64_t i = 0; i < count; ++i) {
                const int64_t from = shape.images * i / count;
                const int64_t to = shape.images * (i + 1) / count;
                chunks.push_back({from, to - from, 0, cut.made});
            }
        } else {
            const int64_t rows = std::max({cached / row - more, 2 * more, int64_t(1)});
            const int64_t count = whole(cut.made, rows);
            for (int64_t n = 0; n < shape.images; ++n) {
                for (int64_t i = 0; i < count; ++i) {
                    const int64_t from = cut.made * i / count, to = cut.made * (i + 1) / count;
                    chunks.push_back({n, 1, from, to - from});
                }
            }
        }
        const int64_t of_chunk = products / static_cast<int64_t>(chunks.size());
        if (which == WEIGHT_GRADIENT) {
            const int64_t wanted = whole(FEWEST_JOBS, shape.groups);
            parts = std::min({wanted, most_sums(shape.weights()),
                              static_cast<int64_t>(chunks.size()),
                              std::max<int64_t>(1, products / PRODUCTS_OF_JOB)});
            job_groups = std::max<int64_t>(1, PRODUCTS_OF_JOB / products);
        } else {
            job_groups = std::max<int64_t>(1, PRODUCTS_OF_JOB / std::max<int64_t>(1, of_chunk));
        }
        job_groups = std::min(job_groups, std::max<int64_t>(1, shape.groups / FEWEST_JOBS));
    }

    /* Where things lie in the planes of one chunk. */
    struct Layout {
        int64_t extent[MOST_AXES], made[MOST_AXES], first[MOST_AXES];
        int64_t pitch[MOST_AXES], volume, images, phases;

        int64_t channel() const { return volume * images * phases; }
        /* From the first element that is made to behind the last. */
        int64_t span() const {
            return (images - 1) * volume + (made[0] - 1) * pitch[0] + (made[1] - 1) * pitch[1] +
                   made[2];
        }
        int64_t rounded() const { return whole(span(), int64_t(LANES)) * int64_t(LANES); }
    };
    Layout layout(const Chunk &chunk) const {
        Layout l{};
        for (int i = 0; i < MOST_AXES; ++i) {
            const Walk &w = walks[number(i)];
            l.first[i] = i == axis ? chunk.first : 0;
            l.made[i] = i == axis ? chunk.count : w.made;
            l.extent[i] = w.extent - w.made + l.made[i];
        }
        l.pitch[2] = 1;
        l.pitch[1] = l.extent[2];
        l.pitch[0] = l.extent[1] * l.extent[2];
        l.volume = l.extent[0] * l.pitch[0];
        l.images = chunk.images;
        l.phases = phases();
        return l;
    }

    std::vector<int32_t> offsets(const Layout &l, const Taps &of) const {
        std::vector<int32_t> found;
        for (int64_t c = 0; c < reads(); ++c) {
            for (size_t t = 0; t < of.kernel.size(); ++t) {
                int64_t at = c * l.channel() + of.phase[t] * l.images * l.volume;
                for (int i = 0; i < MOST_AXES; ++i) at += of.offset[t][number(i)] * l.pitch[i];
                found.push_back(static_cast<int32_t>(at));
            }
        }
        return found;
    }

    /* A row of a phase, every step-th element of `from`, without the zeros around it. */
    static void fill_row(float *to, const float *from, const Walk &w, int64_t phase, int64_t first,
                         int64_t count) {
        const int64_t shift = w.shift - phase - first * w.step; /* element 0 is number -shift */
        const int64_t begin = std::clamp<int64_t>(shift <= 0 ? 0 : whole(shift, w.step), 0, count);
        const int64_t past = w.size + shift; /* elements before it exist */
        const int64_t end = std::clamp<int64_t>(past <= 0 ? 0 : whole(past, w.step), begin, count);
        const float *at = from + begin * w.step - shift;
        if (w.step == 1) return copy(to + begin, at, end - begin);
        for (int64_t j = 0; j < end - begin; ++j) to[begin + j] = at[j * w.step];
    }

    /* Rows are short, often too short for a call. */
    static void copy(float *to, const float *from, int64_t count) {
        constexpr int64_t FEW = 64;
        if (count > FEW) {
            std::memcpy(to, from, number(count) * sizeof(float));
            return;
        }
        int64_t i = 0;
        for (; i + 4 <= count; i += 4) __builtin_memcpy(to + i, from + i, 4 * sizeof(float));
        for (; i < count; ++i) to[i] = from[i];
    }

    /* The planes that the channels from `channel` on are read from. The zeros around them are
     * there: they are in the same places for all channels. */
    void fill(float *to, const Layout &l, const Chunk &chunk, const float *data, int64_t channels,
              int64_t channel) const {
        const Walk &z = walks[0], &y = walks[1], &x = walks[2];
        const int64_t plane = z.size * y.size * x.size;
        for (int64_t c = channel; c < channel + reads(); ++c) {
            for (int64_t phase = 0; phase < l.phases; ++phase, to += l.images * l.volume) {
                if (!is_read[number(phase)]) continue;
                const int64_t rx = phase % x.phases, ry = phase / x.phases % y.phases;
                const int64_t rz = phase / x.phases / y.phases;
                for (int64_t n = 0; n < l.images; ++n) {
                    const float *image = data + ((chunk.image + n) * channels + c) * plane;
                    for (int64_t i = 0; i < l.extent[0]; ++i) {
                        const int64_t at_z = (i + l.first[0]) * z.step + rz - z.shift;
                        if (at_z < 0 || at_z >= z.size) continue;
                        float *rows = to + n * l.volume + i * l.pitch[0];
                        for (int64_t j = 0; j < l.extent[1]; ++j) {
                            const int64_t at_y = (j + l.first[1]) * y.step + ry - y.shift;
                            if (at_y < 0 || at_y >= y.size) continue;
                            const float *row = image + (at_z * y.size + at_y) * x.size;
                            fill_row(rows + j * l.pitch[1], row, x, rx, l.first[2], l.extent[2]);
                        }
                    }
                }
            }
        }
    }

    /* For every row that is made, where it lies in the layout and in a channel, and which of its
     * elements are there. */
    template <typename Row>
    void each_row(const Layout &l, int64_t phase, const Row &row) const {
        const Walk &z = walks[0], &y = walks[1], &x = walks[2];
        const int64_t rx = phase % x.made_phases, ry = phase / x.made_phases % y.made_phases;
        const int64_t rz = phase / x.made_phases / y.made_phases;
        const int64_t start = l.first[2] * x.made_step + rx - x.made_shift;
        const int64_t begin = start >= 0 ? 0 : whole(-start, x.made_step);
        const int64_t end =
            std::min(l.made[2], start >= x.made_size ? 0 : whole(x.made_size - start, x.made_step));
        if (begin >= end) return;
        for (int64_t n = 0; n < l.images; ++n) {
            for (int64_t i = 0; i < l.made[0]; ++i) {
                const int64_t at_z = (i + l.first[0]) * z.made_step + rz - z.made_shift;
                if (at_z < 0 || at_z >= z.made_size) continue;
                for (int64_t j = 0; j < l.made[1]; ++j) {
                    const int64_t at_y = (j + l.first[1]) * y.made_step + ry - y.made_shift;
                    if (at_y < 0 || at_y >= y.made_size) continue;
                    const int64_t to = (at_z * y.made_size + at_y) * x.made_size + start +
                                       begin * x.made_step;
                    row(n, n * l.volume + i * l.pitch[0] + j * l.pitch[1] + begin, to,
                        end - begin);
                }
            }
        }
    }

    /* [tap][output] of `count` outputs from `first` on. */
    void pack(float *to, const float *weights, const Taps &of, int64_t group, int64_t first,
              int64_t count) const {
        const int64_t area = shape.taps();
        const float *own = weights + group * per_out * per_in * area;
        for (int64_t c = 0; c < reads(); ++c) {
            for (int32_t k : of.kernel) {
                for (int64_t o = first; o < first + count; ++o) {
                    const int64_t out = is_back() ? c : o, in = is_back() ? o : c;
                    *to++ = own[(out * per_in + in) * area + k];
                }
            }
        }
    }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        if (which == WEIGHT_GRADIENT) return sum_weights(context, tensors);
        return add_planes(context, tensors);
    }

    OrtStatus *add_planes(OrtKernelContext *context, const Tensors &tensors) const {
        const int64_t blocks = whole(shape.groups, job_groups);
        const auto job = [&](size_t i) {
            const int64_t at = static_cast<int64_t>(i);
            const int64_t first = at % blocks * job_groups;
            make_chunk(tensors, chunks[number(at / blocks)], first,
                       std::min(first + job_groups, shape.groups));
        };
        return ort::parallel(context, number(blocks) * chunks.size(), job);
    }

    void make_chunk(const Tensors &tensors, const Chunk &chunk, int64_t first,
                    int64_t last) const {
        const Layout l = layout(chunk);
        const int64_t read = reads() * l.channel() + int64_t(2 * LANES), made = l.rounded();
        const int64_t count = std::min<int64_t>(makes(), OUTPUTS);
        float *planes_read = machine::scratch<machine::BLOCK_POINTS>(number(
            read + int64_t(LANES) + count * made + reads() * shape.taps() * count));
        float *results = planes_read + whole(read, int64_t(LANES)) * int64_t(LANES);
        std::vector<std::vector<int32_t>> at;
        for (const Taps &of : taps) at.push_back(offsets(l, of));
        const float *data = is_back() ? tensors.result : tensors.source;
        const int64_t channels = is_back() ? shape.out : shape.in;
        std::fill_n(planes_read, read, 0.0f);
        for (int64_t group = first; group < last; ++group) {
            fill(planes_read, l, chunk, data, channels, group * reads());
            for (size_t phase = 0; phase < taps.size(); ++phase) {
                for (int64_t o = 0; o < makes(); o += int64_t(OUTPUTS)) {
                    const int64_t n = std::min<int64_t>(makes() - o, OUTPUTS);
                    make_outputs(tensors, chunk, l, planes_read, results, at[phase], phase, group,
                                 o, n);
                }
            }
        }
    }

    void make_outputs(const Tensors &tensors, const Chunk &chunk, const Layout &l, const float *x,
                      float *results, const std::vector<int32_t> &at, size_t phase, int64_t group,
                      int64_t o, int64_t count) const {
        const int64_t channel = group * makes() + o;
        const int64_t channels = is_back() ? shape.in : shape.out;
        const int64_t plane = is_back() ? shape.plane() : shape.out_plane();
        float *target = (is_back() ? tensors.source : tensors.result) +
                        (chunk.image * channels + channel) * plane;
        float *weights = results + count * l.rounded();
        pack(weights, tensors.weights, taps[phase], group, o, count);
        float bias[OUTPUTS] = {};
        if (tensors.bias != nullptr) std::copy_n(tensors.bias + channel, count, bias);
        Correlation c;
        c.x = x;
        c.w = weights;
        c.first = bias;
        c.at = at.data();
        c.taps = at.size();
        c.outputs = number(count);
        c.count = number(l.span());
        c.step = number(l.rounded());
        c.y = results;
        planes::loops().correlate(c);
        const int64_t step = walks[2].made_step;
        for (int64_t k = 0; k < count; ++k) {
            const float *made = results + k * l.rounded();
            each_row(l, static_cast<int64_t>(phase),
                     [&](int64_t n, int64_t from, int64_t to, int64_t length) {
                         float *row = target + (n * channels + k) * plane + to;
                         if (step == 1) return copy(row, made + from, length);
                         for (int64_t j = 0; j < length; ++j) row[j * step] = made[from + j];
                     });
        }
    }

    OrtStatus *sum_weights(OrtKernelContext *context, const Tensors &tensors) const {
        const int64_t blocks = whole(shape.groups, job_groups), size = shape.weights();
        float *others = nullptr;
        if (parts > 1) {
            others = machine::scratch<machine::SUMMED>(number((parts - 1) * size));
        }
        const auto job = [&](size_t i) {
            const int64_t at = static_cast<int64_t>(i), part = at / blocks;
            const int64_t first = at % blocks * job_groups;
            const int64_t last = std::min(first + job_groups, shape.groups);
            float *sums = part == 0 ? tensors.weights : others + (part - 1) * size;
            const int64_t chunk_count = static_cast<int64_t>(chunks.size());
            sum_chunks(tensors, sums, first, last, chunk_count * part / parts,
                       chunk_count * (part + 1) / parts);
        };
        ORT_TRY(ort::parallel(context, number(blocks * parts), job));
        for (int64_t part = 1; part < parts; ++part) {
            const float *from = others + (part - 1) * size;
            for (int64_t i = 0; i < size; ++i) tensors.weights[i] += from[i];
        }
        return nullptr;
    }

    void sum_chunks(const Tensors &tensors, float *sums, int64_t first, int64_t last,
                    int64_t first_chunk, int64_t last_chunk) const {
        const int64_t size = per_out * per_in * shape.taps();
        std::fill_n(sums + first * size, (last - first) * size, 0.0f);
        for (int64_t i = first_chunk; i < last_chunk; ++i) {
            const Chunk &chunk = chunks[number(i)];
            const Layout l = layout(chunk);
            const int64_t read = reads() * l.channel() + int64_t(2 * LANES), made = l.rounded();
            float *x = machine::scratch<machine::BLOCK_POINTS>(number(read + makes() * made) +
                                                               LANES);
            float *g = x + whole(read, int64_t(LANES)) * int64_t(LANES);
            const std::vector<int32_t> at = offsets(l, taps[0]);
            std::fill_n(x, read, 0.0f);
            std::fill_n(g, per_out * made, 0.0f);
            for (int64_t group = first; group < last; ++group) {
                fill(x, l, chunk, tensors.source, shape.in, group * per_in);
                fill_gradient(g, l, chunk, tensors.result, group);
                for (int64_t o = 0; o < per_out; o += int64_t(OUTPUTS)) {
                    Dots d;
                    d.x = x;
                    d.g = g + o * made;
                    d.at = at.data();
                    d.taps = at.size();
                    d.outputs = number(std::min<int64_t>(per_out - o, OUTPUTS));
                    d.count = number(l.span());
                    d.g_step = number(made);
                    d.step = at.size();
                    d.sums = sums + group * size + o * per_in * shape.taps();
                    planes::loops().dot(d);
                }
            }
        }
    }

    /* As results lie; the zeros between rows are there. */
    void fill_gradient(float *to, const Layout &l, const Chunk &chunk, const float *data,
                       int64_t group) const {
        const int64_t plane = shape.out_plane(), made = l.rounded();
        for (int64_t o = 0; o < per_out; ++o) {
            const float *from = data + (chunk.image * shape.out + group * per_out + o) * plane;
            each_row(l, 0, [&](int64_t n, int64_t at, int64_t row, int64_t length) {
                copy(to + o * made + at, from + n * shape.out * plane + row, length);
            });
        }
    }
};

/* No size that is computed of these overflows, and offsets are of 32 bits. */
bool is_moderate(const Shape &s, Which which) {
    const int64_t per_in = s.in / s.groups, per_out = s.out / s.groups;
    if (s.taps() > MOST_TAPS || std::max(per_in, per_out) * s.taps() > MOST_TAPS) return false;
    if (s.images > MOST_IMAGES) return false;
    int64_t room = MOST_GATHERED / std::max(per_in, per_out);
    int64_t most_phases = MOST_PHASES, most = MOST_ELEMENTS / std::max(per_in, per_out);
    for (int i = 0; i < MOST_AXES; ++i) {
        const Axis a = s.axis(i);
        if (a.stride > MOST_TAPS || a.dilation > MOST_GATHERED || a.size > MOST_GATHERED) {
            return false;
        }
        const Walk walk(a, which == INPUT_GRADIENT);
        const int64_t elements = std::max(walk.extent * walk.phases, walk.made * walk.made_phases);
        most_phases /= a.stride;
        room /= elements;
        most /= elements;
    }
    return room > 0 && most_phases > 0 && s.images <= most;
}

} // namespace

std::unique_ptr<Kernel> conv::by_planes(const Shape &s, Which which, const Form &form) {
    if (!is_moderate(s, which)) return nullptr;
    return std::make_unique<Planes>(s, which, form);
}
