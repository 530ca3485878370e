/* Convolutions of one channel a group, and their gradients, channels side by side.
 *
 * As many channels as a register has floats are put beside each other, a part of an image at a
 * time, and back: then an element of a window is one product for all of them, whatever kernel,
 * stride and dilation are. Along the last axis there are zeros around an image; of the others,
 * elements of windows that meet none are left out. Strides part what an input gradient makes into
 * phases, which are met by different elements of the kernel. The work is cut by the shape alone,
 * so results do not depend on the number of threads.
 */
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "conv.h"
#include "depthwise_loops.h"
#include "machine.h"

namespace {

using namespace conv;
using depthwise::Channels;
using depthwise::Place;

constexpr int64_t MOST_TAPS = 1 << 16;       /* of a kernel */
constexpr int64_t MOST_STRIDE = 1 << 10;
constexpr int64_t MOST_PLACES = 1 << 18;     /* in the lists of all parts of an image */
constexpr int64_t MOST_GATHERED = 1 << 26;   /* elements of a channel that are worked on at once */
constexpr int64_t CACHED = 1 << 16;          /* floats that should be, if it can be chosen */
constexpr int64_t PRODUCTS_OF_JOB = 1 << 16; /* of vectors */
constexpr int64_t FEWEST_JOBS = 16, FEWEST_PRODUCTS = 1 << 12;

size_t number(int64_t n) { return static_cast<size_t>(n); }

struct Range {
    int64_t begin = 0, end = 0;
    int64_t count() const { return end - begin; }
};

/* How positions of one axis are met: number p of what is made, of phase p % phases, meets
 * p / phases * step + offset of what is read by each element of the kernel in its phase. */
struct Walk {
    struct Tap {
        int64_t kernel, offset;
    };
    int64_t made, read, phases, step;
    std::vector<std::vector<Tap>> taps; /* of each phase */

    Walk(const Axis &a, bool is_back)
        : made(is_back ? a.size : a.out), read(is_back ? a.out : a.size),
          phases(is_back ? a.stride : 1), step(is_back ? 1 : a.stride), taps(number(phases)) {
        for (int64_t k = 0; k < a.kernel; ++k) {
            const int64_t first = k * a.dilation - a.before; /* what position 0 meets */
            if (is_back) {
                const int64_t phase = (first % a.stride + a.stride) % a.stride;
                taps[number(phase)].push_back({k, (phase - first) / a.stride});
            } else {
                taps[0].push_back({k, first});
            }
        }
    }
    bool is_single() const { return made == 1 && read == 1; }
    const std::vector<Tap> &taps_of(int64_t p) const { return taps[number(p % phases)]; }
    int64_t met(int64_t p, const Tap &tap) const { return p / phases * step + tap.offset; }

    /* All that positions meet, zeros around the image too. */
    Range met(Range of) const {
        Range found{read, 0};
        for (int64_t p = of.begin; p < std::min(of.end, of.begin + phases); ++p) {
            const int64_t last = p + (of.end - 1 - p) / phases * phases;
            for (const Tap &tap : taps_of(p)) {
                found.begin = std::min(found.begin, met(p, tap));
                found.end = std::max(found.end, met(last, tap) + 1);
            }
        }
        return found;
    }
};

/* A part of an image: positions that are made, those that are read for them, and how these lie. */
struct Part {
    Range made[MOST_AXES], read[MOST_AXES];
    int64_t before = 0, pitch = 0; /* zeros before a row, and its length with those */
    std::vector<std::vector<Place>> taps; /* along the last axis, of each phase */

    int64_t made_count() const { return made[0].count() * made[1].count() * made[2].count(); }
    int64_t rows() const { return read[0].count() * read[1].count(); }
};

struct Depthwise : Kernel {
    const int64_t width, blocks; /* channels side by side, and how many such there are */
    std::vector<Walk> walks;
    std::vector<Part> parts;    /* of an image */
    int64_t jobs = 1, most = 0; /* jobs of a block; floats of a channel that a job needs */

    Depthwise(const Shape &s, Which w, const Form &f)
        : Kernel(s, w, f), width(static_cast<int64_t>(depthwise::loops().width)),
          blocks(whole(s.in, width)) {
        for (int i = 0; i < MOST_AXES; ++i) walks.emplace_back(s.axis(i), w == INPUT_GRADIENT);
        cut();
    }

    bool is_back() const { return which == INPUT_GRADIENT; }
    int64_t chunks() const { return shape.images * static_cast<int64_t>(parts.size()); }
    int64_t read_plane() const { return is_back() ? shape.out_plane() : shape.plane(); }
    int64_t made_plane() const { return is_back() ? shape.plane() : shape.out_plane(); }

    /* Parts that stay in the cache, and jobs of enough products. */
    void cut() {
        int axis = 0;
        while (axis < MOST_AXES - 1 && walks[number(axis)].is_single()) ++axis;
        const Walk &walk = walks[number(axis)];
        const int64_t unit = axis == MOST_AXES - 1 ? walk.phases : 1;
        const int64_t row = width * std::max(read_plane(), made_plane()) / walk.made + 1;
        const int64_t halo = (shape.axis(axis).reach() - 1) / shape.axis(axis).stride;
        const int64_t fits = std::max({CACHED / row - halo, 2 * halo, int64_t(1)});
        const int64_t count = walk.made * row <= CACHED ? 1 : whole(walk.made, fits);
        if (count * (walks[2].phases + shape.kernel_width) > MOST_PLACES) {
            most = MOST_GATHERED + 1; /* before the lists are made, which would be large */
            return;
        }
        for (int64_t i = 0; i < count; ++i) {
            const auto bound = [&](int64_t n) { return walk.made * n / count / unit * unit; };
            const Range made{bound(i), i + 1 == count ? walk.made : bound(i + 1)};
            if (made.count() > 0) parts.push_back(part(axis, made));
        }
        for (const Part &p : parts) most = std::max(most, p.rows() * p.pitch + p.made_count());
        const int64_t products = shape.images * shape.out_plane() * shape.taps();
        const int64_t wanted = std::min(whole(FEWEST_JOBS, blocks), products / FEWEST_PRODUCTS);
        jobs = std::max<int64_t>(1, std::min(chunks(), wanted));
        jobs = which == WEIGHT_GRADIENT
                   ? std::min(jobs, most_sums(shape.weights()))
                   : std::min(chunks(), std::max(jobs, products / PRODUCTS_OF_JOB));
    }

    Part part(int axis, Range made) const {
        Part p;
        for (int i = 0; i < MOST_AXES; ++i) {
            const Walk &walk = walks[number(i)];
            p.made[i] = i == axis ? made : Range{0, walk.made};
            const Range met = walk.met(p.made[i]);
            p.read[i] = {0, walk.read};
            if (i == axis) {
                p.read[i].begin = std::clamp<int64_t>(met.begin, 0, walk.read);
                p.read[i].end = std::clamp(met.end, p.read[i].begin, walk.read);
            }
            if (i < MOST_AXES - 1) continue;
            const int64_t begin = std::min(p.read[i].begin, met.begin);
            p.before = p.read[i].begin - begin;
            p.pitch = std::max(p.read[i].end, met.end) - begin;
            for (int64_t phase = 0; phase < walk.phases; ++phase) {
                p.taps.emplace_back();
                for (const Walk::Tap &tap : walk.taps_of(phase)) {
                    const int64_t at = walk.met(p.made[i].begin + phase, tap) - begin;
                    p.taps.back().push_back({at * width, tap.kernel * width});
                }
            }
        }
        return p;
    }

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        return which == WEIGHT_GRADIENT ? sum(context, tensors) : add(context, tensors);
    }

    /* The memory of a job. */
    struct Room {
        float *weights, *first, *vectors; /* the last is of what is read, then of what is made */
    };
    Room room() const {
        const int64_t taps = shape.taps() * width;
        float *memory =
            machine::scratch<machine::BLOCK_POINTS>(number(taps + width + most * width));
        return {memory, memory + taps, memory + taps + width};
    }
    int64_t channels(int64_t block) const { return std::min(width, shape.in - block * width); }

    /* Some channels of the part of an image that is read, with zeros around it. */
    void read(const Part &p, const float *image, int64_t block, bool has_zeros, float *to) const {
        const int64_t row = p.read[2].count(), gap = p.pitch - row, rows = p.rows();
        if (gap > 0 && !has_zeros) {
            for (int64_t i = 0; i < rows; ++i) {
                float *at = to + i * p.pitch * width;
                std::fill_n(at, p.before * width, 0.0f);
                std::fill_n(at + (p.before + row) * width, (gap - p.before) * width, 0.0f);
            }
        }
        if (rows * row == 0) return;
        const int64_t plane = read_plane(), y = walks[1].read, x = walks[2].read;
        const int64_t first = (p.read[0].begin * y + p.read[1].begin) * x + p.read[2].begin;
        const Channels given{plane, channels(block), rows * row, row, gap};
        depthwise::loops().interleave(given, image + block * width * plane + first,
                                      to + p.before * width);
    }
    /* Where the made part of an image begins in a channel. */
    int64_t begin(const Part &p) const {
        return (p.made[0].begin * walks[1].made + p.made[1].begin) * walks[2].made +
               p.made[2].begin;
    }
    /* Where a row that is read lies, from its first element or the zeros before. */
    int64_t row(const Part &p, int64_t z, int64_t y) const {
        return ((z - p.read[0].begin) * p.read[1].count() + y - p.read[1].begin) * p.pitch * width;
    }

    OrtStatus *add(OrtKernelContext *context, const Tensors &tensors) const {
        const auto job = [&](size_t i) {
            const int64_t at = static_cast<int64_t>(i), block = at / jobs, own = at % jobs;
            make(tensors, block, {chunks() * own / jobs, chunks() * (own + 1) / jobs});
        };
        return ort::parallel(context, number(blocks * jobs), job);
    }

    void make(const Tensors &tensors, int64_t block, Range of) const {
        const int64_t area = shape.taps(), count = channels(block);
        const Room own = room();
        const Channels kernels{area, count, area, area, 0};
        depthwise::loops().interleave(kernels, tensors.weights + block * width * area,
                                      own.weights);
        std::fill_n(own.first, width, 0.0f);
        if (tensors.bias != nullptr) std::copy_n(tensors.bias + block * width, count, own.first);
        const float *data = is_back() ? tensors.result : tensors.source;
        float *target = is_back() ? tensors.source : tensors.result;
        const Part *last = nullptr;
        for (int64_t i = of.begin; i < of.end; ++i) {
            const int64_t size = static_cast<int64_t>(parts.size()), image = i / size;
            const Part &p = parts[number(i % size)];
            read(p, data + image * shape.in * read_plane(), block, last == &p, own.vectors);
            last = &p;
            float *made = own.vectors + p.rows() * p.pitch * width;
            make_part(p, own, made);
            const Channels given{made_plane(), count, p.made_count(), p.made_count(), 0};
            depthwise::loops().part(
                given, made,
                target + (image * shape.in + block * width) * made_plane() + begin(p));
        }
    }

    /* Where the image lies that elements of the kernel meet from a position of an axis. */
    void list_met(const Part &p, int axis, int64_t position, int64_t pitch, int64_t taps,
                  std::vector<Place> *places) const {
        const Walk &walk = walks[number(axis)];
        const int64_t first = position / walk.phases * walk.step, begin = p.read[axis].begin;
        places->clear();
        for (const Walk::Tap &tap : walk.taps_of(position)) {
            const int64_t at = first + tap.offset;
            if (at < 0 || at >= walk.read) continue;
            places->push_back({(at - begin) * pitch, tap.kernel * taps});
        }
    }

    void make_part(const Part &p, const Room &own, float *made) const {
        const Walk &in_x = walks[2];
        depthwise::Products strip{};
        std::vector<Place> in_planes, in_rows, rows;
        strip.x = own.vectors;
        strip.w = own.weights;
        strip.first = own.first;
        strip.x_step = number(in_x.step * width);
        strip.y_step = number(in_x.phases * width);
        for (int64_t z = p.made[0].begin; z < p.made[0].end; ++z) {
            list_met(p, 0, z, p.read[1].count() * p.pitch, shape.kernel_height, &in_planes);
            for (int64_t y = p.made[1].begin; y < p.made[1].end; ++y) {
                list_met(p, 1, y, p.pitch, 1, &in_rows);
                rows.clear();
                for (const Place &a : in_planes) {
                    for (const Place &b : in_rows) {
                        rows.push_back({(a.x + b.x) * width,
                                        (a.w + b.w) * shape.kernel_width * width});
                    }
                }
                strip.rows = rows.data();
                strip.row_count = rows.size();
                const int64_t length = p.made[2].count();
                for (int64_t phase = 0; phase < std::min(length, in_x.phases); ++phase) {
                    const auto &taps = p.taps[number(phase)];
                    strip.taps = taps.data();
                    strip.tap_count = taps.size();
                    strip.count = number(whole(length - phase, in_x.phases));
                    strip.y = made + phase * width;
                    depthwise::loops().add(strip);
                }
                made += length * width;
            }
        }
    }

    OrtStatus *sum(OrtKernelContext *context, const Tensors &tensors) const {
        const int64_t size = shape.weights();
        float *others = nullptr;
        if (jobs > 1) others = machine::scratch<machine::SUMMED>(number((jobs - 1) * size));
        const auto job = [&](size_t i) {
            const int64_t at = static_cast<int64_t>(i), block = at % blocks, own = at / blocks;
            sum_chunks(tensors, own == 0 ? tensors.weights : others + (own - 1) * size, block,
                       {chunks() * own / jobs, chunks() * (own + 1) / jobs});
        };
        ORT_TRY(ort::parallel(context, number(blocks * jobs), job));
        for (int64_t own = 1; own < jobs; ++own) {
            const float *from = others + (own - 1) * size;
            for (int64_t i = 0; i < size; ++i) tensors.weights[i] += from[i];
        }
        return nullptr;
    }

    void sum_chunks(const Tensors &tensors, float *sums, int64_t block, Range of) const {
        const int64_t area = shape.taps();
        const Room own = room();
        std::fill_n(own.weights, area * width, 0.0f);
        const Part *last = nullptr;
        for (int64_t i = of.begin; i < of.end; ++i) {
            const int64_t size = static_cast<int64_t>(parts.size()), image = i / size;
            const Part &p = parts[number(i % size)];
            read(p, tensors.source + image * shape.source(), block, last == &p, own.vectors);
            last = &p;
            float *slopes = own.vectors + p.rows() * p.pitch * width;
            const Channels given{shape.out_plane(), channels(block), p.made_count(),
                                 p.made_count(), 0};
            depthwise::loops().interleave(
                given,
                tensors.result + (image * shape.out + block * width) * shape.out_plane() +
                    begin(p),
                slopes);
            sum_part(p, own, slopes);
        }
        const Channels kernels{area, channels(block), area, area, 0};
        depthwise::loops().part(kernels, own.weights, sums + block * width * area);
    }

    void sum_part(const Part &p, const Room &own, const float *slopes) const {
        const Walk &in_z = walks[0], &in_y = walks[1], &in_x = walks[2];
        depthwise::Sums sums{};
        std::vector<Place> rows;
        sums.x = own.vectors + p.taps[0][0].x;
        sums.g = slopes;
        sums.taps = number(shape.kernel_width);
        sums.count = number(p.made[2].count());
        sums.x_step = number(in_x.step * width);
        sums.tap_step = number(shape.dilation_x * width);
        sums.sums = own.weights;
        for (const Walk::Tap &a : in_z.taps[0]) {
            for (const Walk::Tap &b : in_y.taps[0]) {
                rows.clear();
                for (int64_t z = p.made[0].begin; z < p.made[0].end; ++z) {
                    const int64_t from = in_z.met(z, a);
                    if (from < 0 || from >= in_z.read) continue;
                    for (int64_t y = p.made[1].begin; y < p.made[1].end; ++y) {
                        const int64_t at = in_y.met(y, b);
                        if (at < 0 || at >= in_y.read) continue;
                        const int64_t slope = (z - p.made[0].begin) * p.made[1].count() + y -
                                              p.made[1].begin;
                        rows.push_back(
                            {row(p, from, at), slope * p.made[2].count() * width});
                    }
                }
                sums.rows = rows.data();
                sums.row_count = rows.size();
                depthwise::loops().sum(sums);
                sums.sums += shape.kernel_width * width;
            }
        }
    }
};

/* No size that is computed of these overflows, and lists are short. */
bool is_moderate(const Shape &s) {
    if (s.images > MOST_IMAGES || s.taps() > MOST_TAPS) return false;
    for (int i = 0; i < MOST_AXES; ++i) {
        if (s.axis(i).stride > MOST_STRIDE) return false;
    }
    return true;
}

} // namespace

std::unique_ptr<Kernel> conv::by_channels(const Shape &s, Which which, const Form &form) {
    if (!is_moderate(s)) return nullptr;
    auto made = std::make_unique<Depthwise>(s, which, form);
    return made->most <= MOST_GATHERED ? std::move(made) : nullptr;
}
