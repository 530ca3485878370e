/* Convolutions of stride 1 and their gradients by Winograd's minimal filtering.
 *
 * Images are cut into tiles, tiles and weights transformed into 36 points (winograd.inc), and the
 * points multiplied as matrices: of channels and tiles, or, for the gradient of the weights, of
 * channels and channels, summed over tiles. The smaller operand is transformed once and kept; of
 * the other, blocks are transformed when they are needed, to be multiplied while they are in the
 * cache, unless there are too few blocks for all threads. The work is cut by the shape alone, so
 * results do not depend on the number of threads.
 */
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "conv.h"
#include "machine.h"
#include "winograd_loops.h"

namespace {

using namespace conv;
using namespace machine;
using namespace winograd;

size_t whole(size_t count, size_t unit) { return (count + unit - 1) / unit; }
size_t panels(size_t count) { return whole(count, LANES); }

/* Lines of cache from one point to the next: an odd number, so that none evicts another. */
size_t spread(size_t lines) { return (lines | 1) * LANES; }

/* Pieces of one allocation, each of whole lines of cache. */
struct Pieces {
    float *next;
    float *take(size_t floats) {
        float *taken = next;
        next += panels(floats) * LANES;
        return taken;
    }
};

/* How tiles lie on the images of a tensor: tile (i, j) reads `reach` rows and columns from
 * (i * step - top, j * step - left) on, and zeros outside of the image. */
struct Grid {
    size_t channels, height, width;
    size_t images, rows, columns; /* of tiles */
    size_t step, reach, top, left;

    size_t tiles() const { return images * rows * columns; }
    size_t plane() const { return height * width; }
    /* Of so many tiles in a row; what the loops read may be wider than what counts. */
    size_t strip_width(size_t count) const { return (count - 1) * step + (reach <= 4 ? 4 : 8); }
};

/* The rows of an image that some tiles in a row need, without the borders' special cases. */
struct Segment {
    size_t image, first_row, first_column, rows; /* of tiles */
    size_t at;                                   /* in the strips of a channel */
};

/* A block of tiles: the strips of one channel, and where in them each tile begins. */
struct Strips {
    const Grid &grid;
    std::vector<Segment> segments;
    std::vector<int32_t> offsets; /* whole panels: those past the end see zeros */
    size_t size = 0;              /* floats of a channel's strips */
    bool is_part;                 /* of a wide row: no more of it than the block needs */
    size_t width;

    Strips(const Grid &g, size_t first, size_t count)
        : grid(g), is_part(count < g.columns), width(g.strip_width(std::min(count, g.columns))) {
        for (size_t tile = first; tile < first + count; ++tile) {
            const size_t row = tile / grid.columns, image = row / grid.rows;
            const size_t column = tile % grid.columns;
            if (tile == first || segments.back().image != image || (is_part && column == 0)) {
                segments.push_back({image, row % grid.rows, is_part ? column : 0, 0, size});
                size += (grid.reach - grid.step) * width;
            }
            Segment &segment = segments.back();
            const size_t below = row % grid.rows - segment.first_row;
            if (below == segment.rows) {
                ++segment.rows;
                size += grid.step * width;
            }
            const size_t offset = below * width + column - segment.first_column;
            offsets.push_back(static_cast<int32_t>(segment.at + offset * grid.step));
        }
        while (offsets.size() % LANES != 0) offsets.push_back(static_cast<int32_t>(size));
        size += grid.reach * width;
    }

    void fill(float *to, const float *data, size_t channel) const {
        for (const Segment &segment : segments) {
            const float *plane = data + (segment.image * grid.channels + channel) * grid.plane();
            fill_segment(to + segment.at, plane, segment);
        }
        const size_t zeros = grid.reach * width;
        std::fill_n(to + size - zeros, zeros, 0.0f);
    }

    void fill_segment(float *to, const float *plane, const Segment &segment) const {
        const size_t begun = segment.first_column * grid.step;
        const size_t zeros = grid.left > begun ? grid.left - begun : 0;
        const size_t column = begun + zeros - grid.left; /* of the image */
        const size_t copied = std::min(width - zeros, grid.width - std::min(column, grid.width));
        const size_t first = segment.first_row * grid.step;
        const size_t last = first + (segment.rows - 1) * grid.step + grid.reach;
        for (size_t row = first; row < last; ++row, to += width) {
            if (row < grid.top || row - grid.top >= grid.height) {
                std::fill_n(to, width, 0.0f);
                continue;
            }
            for (size_t i = 0; i < zeros; ++i) to[i] = 0.0f;
            const float *from = plane + (row - grid.top) * grid.width + column;
            /* of the next channel, most often */
            machine::fetch(from + grid.plane(), static_cast<int64_t>(copied));
            std::memcpy(to + zeros, from, copied * sizeof(float));
            for (size_t i = zeros + copied; i < width; ++i) to[i] = 0.0f;
        }
    }
};

/* from[lane * stride + i] as [i][lane], with zeros for missing lanes. */
void gather(float *to, const float *from, size_t stride, size_t count, size_t lanes) {
    if (lanes == LANES) return loops().gather(to, from, stride, count);
    for (size_t i = 0; i < count; ++i) {
        for (size_t lane = 0; lane < LANES; ++lane) {
            to[i * LANES + lane] = lane < lanes ? from[lane * stride + i] : 0.0f;
        }
    }
}

/* to[lane * count + i] = from[i][lane] */
void scatter(float *to, const float *from, size_t count, size_t lanes) {
    if (lanes == LANES) return loops().scatter(to, from, count, count);
    for (size_t lane = 0; lane < lanes; ++lane) {
        for (size_t i = 0; i < count; ++i) to[lane * count + i] = from[i * LANES + lane];
    }
}

/* c (+)= a b for every point; rows and columns are panels. */
void multiply_points(Planes a, size_t rows, Planes b, size_t columns, size_t depth, Planes c,
                     bool adds) {
    for (size_t point = 0; point < POINTS; ++point) {
        Product product;
        product.a = a.data + point * a.stride;
        product.b = b.data + point * b.stride;
        product.c = c.data + point * c.stride;
        product.row_panels = rows;
        product.column_panels = columns;
        product.depth = depth;
        product.a_panel = product.b_panel = depth * LANES;
        product.c_panel = rows * LANES * LANES;
        product.adds = adds;
        loops().product(product);
    }
}

/* What both uses have in common: m, r and their loops. */
struct Method {
    size_t m, r;
    const Transforms &loops;
    size_t area() const { return r * r; }
};

/* A convolution with weights [channels of results][channels of the image][r][r], or, turned, with
 * [channels of the image][channels of results] whose rows and columns run backwards. */
struct Filter {
    const Method &method;
    Grid grid;                     /* of what is read */
    size_t out, height, width;     /* of the results */
    bool is_turned;
    const float *image, *weights, *bias;
    float *results;
    const float *addend = nullptr; /* like the results */
    bool relu = false;
    Planes known = {};             /* transformed weights, if they are kept */

    static constexpr size_t OUT_BLOCK = 2; /* panels of channels of results */
    static constexpr size_t TILES = 2 * LANES;

    size_t depth() const { return grid.channels; }

    OrtStatus *run(OrtKernelContext *context) const {
        const size_t tiles = grid.tiles();
        if (tiles < out && known.data == nullptr) return run_by_weights(context);
        return run_by_tiles(context);
    }

    /* Of many tiles: weights are kept, and blocks of tiles distributed. */
    OrtStatus *run_by_tiles(OrtKernelContext *context) const {
        const size_t out_panels = panels(out), tiles = grid.tiles();
        const size_t line = depth() * LANES;
        const Planes kept = known.data ? known : make_planes(out_panels);
        const auto transform = [&](size_t panel) {
            weights_panel({kept.data + panel * line, kept.stride}, panel);
        };
        if (known.data == nullptr) ORT_TRY(ort::parallel(context, out_panels, transform));
        const auto multiply = [&](size_t i) {
            const size_t first = i * TILES, count = std::min(TILES, tiles - first);
            const Strips strips(grid, first, count);
            const size_t columns = panels(count), stride = spread(columns * depth());
            const size_t product_stride = spread(columns * OUT_BLOCK * LANES);
            const size_t floats = POINTS * (stride + product_stride) + strips.size + LANES;
            Pieces pieces{scratch<BLOCK_POINTS>(floats)};
            const Planes tile_points{pieces.take(POINTS * stride), stride};
            const Planes products{pieces.take(POINTS * product_stride), product_stride};
            image_tiles(tile_points, strips, pieces.take(strips.size), 0, depth());
            for (size_t panel = 0; panel < out_panels; panel += OUT_BLOCK) {
                const size_t rows = std::min(OUT_BLOCK, out_panels - panel);
                const Planes from{kept.data + panel * line, kept.stride};
                multiply_points(from, rows, tile_points, columns, depth(), products, false);
                store(products, rows, panel * LANES, first, count);
            }
        };
        return ort::parallel(context, whole(tiles, TILES), multiply);
    }

    /* Of few tiles: these are kept, and blocks of weights distributed. */
    OrtStatus *run_by_weights(OrtKernelContext *context) const {
        const size_t out_panels = panels(out), tiles = grid.tiles(), columns = panels(tiles);
        const Planes kept = make_planes(columns);
        const Strips strips(grid, 0, tiles);
        constexpr size_t CHANNELS = 16;
        const auto transform = [&](size_t i) {
            const size_t first = i * CHANNELS;
            image_tiles(kept, strips, scratch<BLOCK_POINTS>(strips.size), first,
                        std::min(first + CHANNELS, depth()));
        };
        ORT_TRY(ort::parallel(context, whole(depth(), CHANNELS), transform));
        const auto multiply = [&](size_t i) {
            const size_t panel = i * OUT_BLOCK, rows = std::min(OUT_BLOCK, out_panels - panel);
            const size_t stride = spread(rows * depth());
            const size_t block = std::min(columns, size_t(4));
            const size_t product_stride = spread(block * rows * LANES);
            Pieces pieces{scratch<BLOCK_POINTS>(POINTS * (stride + product_stride))};
            const Planes points{pieces.take(POINTS * stride), stride};
            const Planes products{pieces.take(POINTS * product_stride), product_stride};
            for (size_t k = 0; k < rows; ++k) {
                weights_panel({points.data + k * depth() * LANES, stride}, panel + k);
            }
            for (size_t column = 0; column < columns; column += block) {
                const size_t count = std::min(block, columns - column), first = column * LANES;
                const Planes from{kept.data + column * depth() * LANES, kept.stride};
                multiply_points(points, rows, from, count, depth(), products, false);
                store(products, rows, panel * LANES, first, std::min(count * LANES, tiles - first));
            }
        };
        return ort::parallel(context, whole(out_panels, OUT_BLOCK), multiply);
    }

    Planes make_planes(size_t count) const {
        const size_t stride = spread(count * depth());
        return {scratch<KEPT_POINTS>(POINTS * stride), stride};
    }

    /* LANES channels of results and all of the image. */
    void weights_panel(Planes to, size_t panel) const {
        const size_t first = panel * LANES, lanes = std::min(LANES, out - first);
        const size_t area = method.area();
        constexpr size_t CHANNELS = 16;
        alignas(64) float turned[CHANNELS * 25 * LANES], backwards[25 * LANES];
        for (size_t c = 0; c < depth(); ++c) {
            const float *found = turned + c % CHANNELS * area * LANES;
            if (is_turned) {
                gather(turned, weights + (c * out + first) * area, area, area, lanes);
                for (size_t i = 0; i < area; ++i) {
                    std::copy_n(turned + i * LANES, LANES, backwards + (area - 1 - i) * LANES);
                }
                found = backwards;
            } else if (c % CHANNELS == 0) {
                const size_t count = std::min(CHANNELS, depth() - c) * area;
                gather(turned, weights + (first * depth() + c) * area, depth() * area, count,
                         lanes);
            }
            method.loops.from_weights({to.data + c * LANES, to.stride}, found);
        }
    }

    void image_tiles(Planes to, const Strips &strips, float *room, size_t first,
                     size_t last) const {
        for (size_t c = first; c < last; ++c) {
            strips.fill(room, image, c);
            for (size_t panel = 0; panel * LANES < strips.offsets.size(); ++panel) {
                const Planes at{to.data + (panel * depth() + c) * LANES, to.stride};
                loops().from_image(at, room, &strips.offsets[panel * LANES], strips.width);
            }
        }
    }

    /* Points of products to results, clipped where tiles overhang. */
    void store(Planes from, size_t rows, size_t first_channel, size_t first_tile,
               size_t tiles) const {
        alignas(64) float block[4 * LANES * 4];
        const size_t channels = std::min(rows * LANES, out - first_channel);
        for (size_t first = 0; first < tiles; first += LANES) {
            const size_t lanes = std::min(LANES, tiles - first);
            struct Place {
                size_t at, rows, columns;
            } places[LANES];
            for (size_t lane = 0; lane < lanes; ++lane) {
                const size_t tile = first_tile + first + lane, row = tile / grid.columns;
                const size_t y = row % grid.rows * method.m, x = tile % grid.columns * method.m;
                places[lane] = {row / grid.rows * out * height * width + y * width + x,
                                std::min(method.m, height - y), std::min(method.m, width - x)};
            }
            for (size_t c = 0; c < channels; ++c) {
                const float *at = from.data + (first * rows + c) * LANES;
                method.loops.to_results(block, {const_cast<float *>(at), from.stride},
                                        bias ? bias[first_channel + c] : 0.0f);
                const size_t plane = (first_channel + c) * height * width;
                for (size_t lane = 0; lane < lanes && addend != nullptr; ++lane) {
                    const Place &place = places[lane];
                    const float *other = addend + plane + place.at;
                    if (lane % 4 == 0) await_tile<false>(other + height * width);
                    add_tile(block + lane * 4, other, place.rows, place.columns);
                }
                if (relu) cut_off(block, method.m * LANES * 4);
                for (size_t lane = 0; lane < lanes; ++lane) {
                    const Place &place = places[lane];
                    float *to = results + plane + place.at;
                    if (lane % 4 == 0) await_tile<true>(to + height * width);
                    copy_tile(to, block + lane * 4, place.rows, place.columns);
                }
            }
        }
    }

    /* Asks for the lines of the next channel, where four neighbours most often share them. */
    template <bool is_written>
    void await_tile(const float *next) const {
        for (size_t i = 0; i < method.m; ++i) machine::fetch<is_written>(next + i * width, 1);
    }

    static void cut_off(float *values, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            values[i] = values[i] > 0.0f || values[i] != values[i] ? values[i] : 0.0f;
        }
    }

    void copy_tile(float *to, const float *from, size_t rows, size_t columns) const {
        if (columns == 4) return copy_rows<4>(to, from, rows);
        if (columns == 2) return copy_rows<2>(to, from, rows);
        for (size_t i = 0; i < rows; ++i) {
            for (size_t j = 0; j < columns; ++j) to[i * width + j] = from[i * LANES * 4 + j];
        }
    }

    void add_tile(float *to, const float *from, size_t rows, size_t columns) const {
        if (columns == 4) return add_rows<4>(to, from, rows);
        if (columns == 2) return add_rows<2>(to, from, rows);
        for (size_t i = 0; i < rows; ++i) {
            for (size_t j = 0; j < columns; ++j) to[i * LANES * 4 + j] += from[i * width + j];
        }
    }

    template <size_t columns>
    void add_rows(float *to, const float *from, size_t rows) const {
        for (size_t i = 0; i < rows; ++i) {
            for (size_t j = 0; j < columns; ++j) to[i * LANES * 4 + j] += from[i * width + j];
        }
    }

    /* Of a size that is known here it is one instruction. */
    template <size_t columns>
    void copy_rows(float *to, const float *from, size_t rows) const {
        for (size_t i = 0; i < rows; ++i) {
            std::memcpy(to + i * width, from + i * LANES * 4, columns * sizeof(float));
        }
    }
};

/* The gradient of the weights: sums over tiles of products of gradients and images. */
struct WeightGradient {
    const Method &method;
    Grid image, result;
    const float *source, *gradient;
    float *weights;

    static constexpr size_t TILES = 64, OUT_BLOCK = 2, IN_BLOCK = 4; /* panels */
    static constexpr size_t MOST_CHUNKS = 8, MOST_KEPT = 12 << 20, FEW_SUMS = 4;

    size_t in() const { return image.channels; }
    size_t out() const { return result.channels; }

    OrtStatus *run(OrtKernelContext *context) const {
        const size_t tiles = image.tiles();
        const size_t kept = POINTS * panels(in()) * LANES * tiles * sizeof(float);
        const bool keeps = kept <= MOST_KEPT || tiles <= std::max(in(), out());
        /* sums of few channels are soon added up, and their blocks too few to be distributed */
        const bool are_few = panels(in()) * panels(out()) <= FEW_SUMS && tiles > TILES;
        if (!keeps || are_few) return run_by_tiles(context);
        const bool are_few_blocks = whole(panels(out()), OUT_BLOCK) < MOST_CHUNKS;
        return are_few_blocks ? run_by_blocks(context) : run_by_channels(context);
    }

    /* Of few tiles: the image's are kept, and blocks of the results' channels distributed. */
    OrtStatus *run_by_channels(OrtKernelContext *context) const {
        const size_t in_panels = panels(in()), out_panels = panels(out()), tiles = image.tiles();
        const size_t point = spread(in_panels * tiles);
        const Planes kept{scratch<KEPT_POINTS>(POINTS * point), point};
        const auto transform = [&](size_t panel) { transform_image(kept, panel); };
        ORT_TRY(ort::parallel(context, in_panels, transform));
        const auto multiply = [&](size_t i) {
            const size_t panel = i * OUT_BLOCK, rows = std::min(OUT_BLOCK, out_panels - panel);
            const size_t stride = spread(rows * tiles);
            const size_t sum_stride = spread(IN_BLOCK * rows * LANES);
            Pieces pieces{scratch<BLOCK_POINTS>(POINTS * (stride + sum_stride))};
            const Planes points{pieces.take(POINTS * stride), stride};
            const Planes sums{pieces.take(POINTS * sum_stride), sum_stride};
            for (size_t k = 0; k < rows; ++k) transform_result(points, k, panel + k);
            for (size_t column = 0; column < in_panels; column += IN_BLOCK) {
                multiply_block(points, panel, rows, kept, column, sums);
            }
        };
        return ort::parallel(context, whole(out_panels, OUT_BLOCK), multiply);
    }

    /* Of few such blocks: the results' tiles are kept too, and blocks of both distributed. */
    OrtStatus *run_by_blocks(OrtKernelContext *context) const {
        const size_t in_panels = panels(in()), out_panels = panels(out()), tiles = image.tiles();
        const size_t point = spread(in_panels * tiles), result_point = spread(out_panels * tiles);
        Pieces pieces{scratch<KEPT_POINTS>(POINTS * (point + result_point))};
        const Planes kept{pieces.take(POINTS * point), point};
        const Planes results{pieces.take(POINTS * result_point), result_point};
        const auto transform = [&](size_t i) {
            if (i < in_panels) transform_image(kept, i);
            else transform_result(results, i - in_panels, i - in_panels);
        };
        ORT_TRY(ort::parallel(context, in_panels + out_panels, transform));
        const size_t columns = whole(in_panels, IN_BLOCK);
        const auto multiply = [&](size_t i) {
            const size_t panel = i / columns * OUT_BLOCK;
            const size_t rows = std::min(OUT_BLOCK, out_panels - panel);
            const size_t sum_stride = spread(IN_BLOCK * rows * LANES);
            const Planes sums{scratch<BLOCK_POINTS>(POINTS * sum_stride), sum_stride};
            const Planes points{results.data + panel * tiles * LANES, results.stride};
            multiply_block(points, panel, rows, kept, i % columns * IN_BLOCK, sums);
        };
        return ort::parallel(context, whole(out_panels, OUT_BLOCK) * columns, multiply);
    }

    /* The points of one panel of the image, among those of all. */
    void transform_image(Planes kept, size_t panel) const {
        const size_t tiles = image.tiles();
        transform_tiles({kept.data + panel * tiles * LANES, kept.stride}, image, source, panel, 0,
                        tiles, loops().from_image);
    }

    /* Those of one panel of the results, as panel `at` of some. */
    void transform_result(Planes to, size_t at, size_t panel) const {
        const size_t tiles = image.tiles();
        transform_tiles({to.data + at * tiles * LANES, to.stride}, result, gradient, panel, 0,
                        tiles, method.loops.from_results);
    }

    /* The weights from IN_BLOCK panels of the image at most to `rows` panels of the results. */
    void multiply_block(Planes points, size_t panel, size_t rows, Planes kept, size_t column,
                        Planes sums) const {
        const size_t tiles = image.tiles(), columns = std::min(IN_BLOCK, panels(in()) - column);
        const Planes from{kept.data + column * tiles * LANES, kept.stride};
        multiply_points(points, rows, from, columns, tiles, sums, false);
        store(weights, sums, panel * LANES, rows, column, columns);
    }

    /* Of many tiles: these are distributed, in as many chunks whatever the number of threads. */
    OrtStatus *run_by_tiles(OrtKernelContext *context) const {
        const size_t blocks = whole(image.tiles(), TILES), chunks = std::min(blocks, MOST_CHUNKS);
        const size_t size = in() * out() * method.area();
        float *parts = scratch<KEPT_POINTS>((chunks - 1) * size);
        const auto sum_up = [&](size_t chunk) {
            float *to = chunk == 0 ? weights : parts + (chunk - 1) * size;
            sum_tiles(to, chunk * blocks / chunks * TILES,
                      std::min((chunk + 1) * blocks / chunks * TILES, image.tiles()));
        };
        ORT_TRY(ort::parallel(context, chunks, sum_up));
        for (size_t chunk = 1; chunk < chunks; ++chunk) {
            const float *part = parts + (chunk - 1) * size;
            for (size_t i = 0; i < size; ++i) weights[i] += part[i];
        }
        return nullptr;
    }

    void sum_tiles(float *to, size_t first, size_t last) const {
        const size_t in_panels = panels(in()), out_panels = panels(out());
        const size_t image_stride = spread(in_panels * TILES);
        const size_t result_stride = spread(out_panels * TILES);
        const size_t sum_stride = spread(in_panels * out_panels * LANES);
        Pieces pieces{scratch<BLOCK_POINTS>(POINTS * (image_stride + result_stride + sum_stride))};
        const Planes image_points{pieces.take(POINTS * image_stride), image_stride};
        const Planes result_points{pieces.take(POINTS * result_stride), result_stride};
        const Planes sums{pieces.take(POINTS * sum_stride), sum_stride};
        for (size_t tile = first; tile < last; tile += TILES) {
            const size_t count = std::min(TILES, last - tile), line = count * LANES;
            for (size_t panel = 0; panel < in_panels; ++panel) {
                transform_tiles({image_points.data + panel * line, image_stride}, image, source,
                                panel, tile, count, loops().from_image);
            }
            for (size_t panel = 0; panel < out_panels; ++panel) {
                transform_tiles({result_points.data + panel * line, result_stride}, result,
                                gradient, panel, tile, count, method.loops.from_results);
            }
            multiply_points(result_points, out_panels, image_points, in_panels, count, sums,
                            tile > first);
        }
        store(to, sums, 0, out_panels, 0, in_panels);
    }

    /* The points of LANES channels of some tiles, the channels side by side. */
    template <typename Loop>
    void transform_tiles(Planes to, const Grid &grid, const float *data, size_t panel,
                         size_t first, size_t count, Loop loop) const {
        const size_t lanes = std::min(LANES, grid.channels - panel * LANES);
        for (size_t begun = 0; begun < count; begun += TILES) {
            const Strips strips(grid, first + begun, std::min(TILES, count - begun));
            const size_t size = spread(panels(strips.size));
            float *room = scratch<STRIPS>(size * LANES);
            int32_t offsets[LANES];
            for (size_t lane = 0; lane < LANES; ++lane) {
                float *own = room + lane * size;
                if (lane < lanes) strips.fill(own, data, panel * LANES + lane);
                else std::fill_n(own, strips.size, 0.0f);
                offsets[lane] = static_cast<int32_t>(lane * size);
            }
            const size_t tiles = std::min(TILES, count - begun);
            for (size_t t = 0; t < tiles; ++t) {
                loop({to.data + (begun + t) * LANES, to.stride}, room + strips.offsets[t], offsets,
                     strips.width);
            }
        }
    }

    void store(float *to, Planes sums, size_t first, size_t rows, size_t column,
               size_t columns) const {
        alignas(64) float block[25 * LANES];
        const size_t channels = std::min(rows * LANES, out() - first), area = method.area();
        for (size_t c = 0; c < columns; ++c) {
            const size_t begun = (column + c) * LANES, lanes = std::min(LANES, in() - begun);
            for (size_t k = 0; k < channels; ++k) {
                float *from = sums.data + (c * rows * LANES + k) * LANES;
                method.loops.to_weights(block, {from, sums.stride});
                float *kernels = to + ((first + k) * in() + begun) * area;
                scatter(kernels, block, area, lanes);
            }
        }
    }
};

struct Winograd : Kernel {
    Method method;
    mutable std::once_flag once;
    mutable std::unique_ptr<float[]> memory; /* of the weights, if they are kept */
    mutable Planes known = {};

    Winograd(const Shape &s, Which w, const Form &f, bool is_wide)
        : Kernel(s, w, f), method{is_wide ? size_t(4) : size_t(2), is_wide ? size_t(3) : size_t(5),
                                  is_wide ? loops().wide : loops().small} {}

    Planes kept(const Filter &filter) const;

    OrtStatus *run(OrtKernelContext *context, const Tensors &tensors) const override {
        const auto number = [](int64_t n) { return static_cast<size_t>(n); };
        const size_t images = number(tensors.images), m = method.m;
        if (images == 0) {
            if (which == WEIGHT_GRADIENT) std::fill_n(tensors.weights, shape.weights(), 0.0f);
            return nullptr;
        }
        const size_t out_height = number(shape.out_height), out_width = number(shape.out_width);
        const size_t height = number(shape.height), width = number(shape.width);
        const size_t top = number(shape.top), left = number(shape.left), last = method.r - 1;
        const auto grid = [&](int64_t channels, size_t h, size_t w, size_t tiled_h, size_t tiled_w,
                              size_t reach, size_t above, size_t before) {
            return Grid{number(channels), h, w, images, whole(tiled_h, m), whole(tiled_w, m), m,
                        reach, above, before};
        };
        const Grid image = grid(shape.in, height, width, out_height, out_width, SIDE, top, left);
        if (which == WEIGHT_GRADIENT) {
            const Grid result =
                grid(shape.out, out_height, out_width, out_height, out_width, m, 0, 0);
            return WeightGradient{method, image, result, tensors.source, tensors.result,
                                  tensors.weights}.run(context);
        }
        if (which == FORWARD_PASS) {
            Filter filter{method, image, number(shape.out), out_height, out_width, false,
                          tensors.source, tensors.weights, tensors.bias, tensors.result,
                          tensors.addend, form.relu != 0};
            if (form.keeps) {
                std::call_once(once, [&] { known = kept(filter); });
                filter.known = known;
            }
            return filter.run(context);
        }
        const Grid result = grid(shape.out, out_height, out_width, height, width, SIDE, last - top,
                                 last - left);
        return Filter{method, result, number(shape.in), height, width, true, tensors.result,
                      tensors.weights, nullptr, tensors.source}
            .run(context);
    }
};

/* The transformed weights, for good. */
Planes Winograd::kept(const Filter &filter) const {
    const size_t count = panels(filter.out), line = filter.depth() * LANES;
    const size_t stride = spread(count * filter.depth());
    memory.reset(new float[POINTS * stride + LANES]);
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    const Planes planes{reinterpret_cast<float *>((address + 63) & ~uintptr_t(63)), stride};
    for (size_t panel = 0; panel < count; ++panel) {
        filter.weights_panel({planes.data + panel * line, stride}, panel);
    }
    return planes;
}

/* Bounds far above what is of use: no size that is computed from them overflows. */
bool is_moderate(const Shape &s) {
    for (int64_t side : {s.height, s.width, s.out_height, s.out_width}) {
        if (side > abi::MOST_WINOGRAD_EXTENT) return false;
    }
    return std::max(s.in, s.out) <= abi::MOST_WINOGRAD_CHANNELS && s.images <= MOST_IMAGES;
}

} // namespace

std::unique_ptr<Kernel> conv::winograd(const Shape &s, Which which, const Form &form,
                                       int64_t tile) {
    const bool is_plain = s.axes == 2 && s.groups == 1 && s.stride_y == 1 && s.stride_x == 1 &&
                          s.dilation_y == 1 && s.dilation_x == 1;
    if (tile != 2 && tile != 4) return nullptr;
    const int64_t side = static_cast<int64_t>(SIDE) + 1 - tile;
    if (s.kernel_height != side || s.kernel_width != side || !is_plain ||
        std::max({s.top, s.left, s.bottom, s.right}) >= side || !is_moderate(s)) {
        return nullptr;
    }
    return std::make_unique<Winograd>(s, which, form, tile == 4);
}
