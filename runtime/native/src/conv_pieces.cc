/* How a convolution is cut: along places (its images, and an axis of them), channels, or groups.
 *
 * Each way leaves something to every piece as a whole, which is read and put in another order as
 * often as there are pieces: the weights, or the image, or the result. The way that moves and
 * multiplies least is taken. Places are cut further, until what a piece reads and makes stays in
 * the cache between being put in order and being used.
 */
#include "conv_pieces.h"

#include "machine.h"

namespace conv {
namespace {

enum Along : int { PLACES, OUT, IN, GROUPS };

constexpr int64_t BLOCK = 16;               /* channels that oneDNN has side by side */
constexpr int64_t PRODUCTS = 32;            /* in the time in which an element is put elsewhere */
constexpr int64_t FEWEST_ROWS = 4;          /* of a part of an axis, and of what its parts share */
constexpr int64_t MOST_PIECES = 1 << 12;
constexpr double SLACK = 1.07;              /* of a thread's share */
constexpr int64_t JOBS_OF_TASK = 4;         /* of pieces that are summed: some take longer */

/* A convolution without the taps at the ends of its kernels that meet the border alone, wherever
 * their window stands. A border may not be shorter than nothing. */
struct Kernels {
    Shape shape;
    int64_t first = 0; /* weight that is left */

    explicit Kernels(const Shape &whole) : shape(whole) {
        int64_t step = 1;
        for (int i = MOST_AXES - 1; i >= 0; --i) {
            first += step * cut(i);
            step *= whole.axis(i).kernel;
        }
    }

    /* How many taps are cut off at the beginning. */
    int64_t cut(int i) {
        Axis a = shape.axis(i);
        const int64_t before = a.before / a.dilation, after = a.after / a.dilation;
        int64_t begin = 0, end = a.kernel;
        while (begin < std::min(before, end - 1) && !meets(a, begin)) ++begin;
        while (end - 1 > std::max(begin, a.kernel - 1 - after) && !meets(a, end - 1)) --end;
        a.before -= begin * a.dilation;
        a.after -= (a.kernel - end) * a.dilation;
        a.kernel = end - begin;
        shape.set_axis(i, a);
        return begin;
    }
    /* Whether some window has an element of the image at a tap. */
    static bool meets(const Axis &a, int64_t tap) {
        const int64_t start = tap * a.dilation - a.before; /* of the first window */
        const int64_t window = start < 0 ? conv::whole(-start, a.stride) : 0;
        return window < a.out && start + window * a.stride < a.size;
    }
};

struct Cutter {
    const Shape &whole;            /* as far as kernels meet the image */
    const Which which;
    const Shape &given;            /* with all taps, as weights lie in memory */
    const int axis;                /* that is cut: the first of several positions */
    int64_t images = 1, parts = 1; /* pieces of the images, and of the axis in each */
    int64_t each = 1, rows = 1;    /* images of a piece, and positions of a part */
    const int64_t fewer;           /* blocks of channels of a piece than an even share */
    const int64_t cached = machine::second_cache(); /* elements */

    Cutter(const Kernels &kernels, Which w, const Shape &s, int64_t less)
        : whole(kernels.shape), which(w), given(s), axis(longest(whole)), fewer(less) {
        cut_places();
    }

    static int longest(const Shape &s) {
        int found = 0;
        while (found < MOST_AXES - 1 && s.axis(found).out == 1) ++found;
        return found;
    }
    int64_t length() const {
        const Axis a = whole.axis(axis);
        return which == INPUT_GRADIENT ? a.size : a.out;
    }

    void cut_places() {
        const int64_t image = whole.source() + whole.result();
        /* each piece of a sum adds as many elements as there are weights */
        const bool costs = which == WEIGHT_GRADIENT && 4 * whole.weights() > cached;
        /* of several images with so wide a border oneDNN has no loops of its own, but of one */
        const bool is_wide = which == FORWARD_PASS && whole.left >= BLOCK;
        const int64_t fitting = is_wide ? 1 : std::max<int64_t>(1, cached / image);
        const int64_t most = costs ? whole.images : fitting;
        const int64_t share = std::min(most, conv::whole(whole.images, whole.tasks));
        images = even_count(conv::whole(whole.images, share), MOST_PIECES, whole.images, 1);
        each = conv::whole(whole.images, images); /* alike, so that they share a plan */
        images = conv::whole(whole.images, each);
        rows = length();
        if (images < whole.images || images > MOST_PIECES / whole.tasks) return;
        const Axis a = whole.axis(axis);
        const int64_t overlap = which == INPUT_GRADIENT ? a.reach() : (a.reach() - 1) / a.stride;
        const int64_t wanted = std::max(costs ? 1 : image / (4 * cached),
                                        conv::whole(whole.tasks, images));
        const int64_t fits = length() / (FEWEST_ROWS * std::max<int64_t>(1, overlap));
        const int64_t limit = std::max<int64_t>(1, std::min(fits, MOST_PIECES / images));
        rows = conv::whole(length(), even_count(wanted, limit, length(), images));
        parts = conv::whole(length(), rows);
        if (can_cut()) return;
        parts = 1;
        rows = length();
    }
    /* Into how many pieces a length is cut, at most `most`: `fewest`, or of several up to twice as
     * many, so that of `times` such lengths no thread has many more than its share. */
    int64_t even_count(int64_t fewest, int64_t most, int64_t length, int64_t times) const {
        const auto of_busiest = [&](int64_t count) {
            const int64_t n = conv::whole(length, count);
            const int64_t pieces = times * conv::whole(length, n);
            return static_cast<double>(n * conv::whole(pieces, whole.tasks));
        };
        const double share = static_cast<double>(times * length) / static_cast<double>(whole.tasks);
        int64_t found = std::min(fewest, most);
        const int64_t last = found == 1 ? 1 : std::min(most, 2 * found);
        for (int64_t count = found; count <= last && of_busiest(found) > SLACK * share; ++count) {
            if (of_busiest(count) < of_busiest(found)) found = count;
        }
        return found;
    }
    int64_t end_of_part(int64_t i) const { return std::min(length(), (i + 1) * rows); }
    bool can_cut() const {
        for (int64_t i = 0; i < parts; ++i) {
            const Axis a = part_of_axis(i * rows, end_of_part(i)).axis;
            const bool is_sound = a.size > 0 && a.out > 0 && a.before >= 0 && a.after >= 0 &&
                                  a.before < a.reach() && a.fits();
            if (!is_sound) return false;
        }
        return true;
    }

    int64_t extent(Along along) const {
        switch (along) {
        case PLACES: return images * parts;
        case OUT: return whole.groups == 1 && which != INPUT_GRADIENT ? whole.out : 1;
        case IN: return whole.groups == 1 && which != FORWARD_PASS ? whole.in : 1;
        default: return whole.groups;
        }
    }
    int64_t unit(Along along) const {
        const bool are_blocks = along == OUT || along == IN ||
                                (along == GROUPS && whole.in == whole.groups);
        return are_blocks ? BLOCK : 1;
    }
    int64_t units(Along along) const { return conv::whole(extent(along), unit(along)); }
    int64_t count(Along along) const {
        return along == PLACES ? images * parts : std::min(whole.tasks, units(along));
    }
    /* Blocks of channels of the largest piece, 0 where there are none. */
    int64_t blocks(Along along) const {
        if (along == PLACES || unit(along) != BLOCK) return 0;
        return conv::whole(units(along), count(along)) - fewer;
    }
    int64_t pieces(Along along) const {
        return fewer == 0 ? count(along) : conv::whole(units(along), blocks(along));
    }

    bool has_sums(Along along) const { return along == PLACES && which == WEIGHT_GRADIENT; }
    int64_t side_by_side(Along along) const {
        return has_sums(along) ? std::min(whole.tasks, most_sums(whole.weights())) : whole.tasks;
    }
    int64_t jobs(Along along) const {
        if (!has_sums(along)) return pieces(along);
        return std::min({count(along), JOBS_OF_TASK * whole.tasks, most_sums(whole.weights())});
    }

    /* What the busiest thread does, in elements that are moved. */
    double cost(Along along) const {
        const int64_t pieces = count(along), most = conv::whole(units(along), pieces);
        const double turns = static_cast<double>(conv::whole(pieces, side_by_side(along)));
        const double share = turns * static_cast<double>(most) / static_cast<double>(units(along));
        const double batch = static_cast<double>(whole.images);
        const double x = batch * static_cast<double>(whole.source());
        const double y = batch * static_cast<double>(whole.result());
        const double w = static_cast<double>(whole.weights());
        const double products = y * w / static_cast<double>(whole.out);
        const double sums = which == WEIGHT_GRADIENT ? static_cast<double>(pieces) : 0;
        const double moved = x * (along == OUT ? 1 : share) + y * (along == IN ? 1 : share);
        return products * share / PRODUCTS + moved + w * (along == PLACES ? 1 + sums : share);
    }

    Along best() const {
        Along found = PLACES;
        for (Along along : {OUT, IN, GROUPS}) {
            if (count(along) > 1 && cost(along) < cost(found)) found = along;
        }
        return found;
    }

    int64_t begin(Along along, int64_t i) const {
        if (fewer > 0) return std::min(extent(along), i * blocks(along) * BLOCK);
        return std::min(extent(along), units(along) * i / count(along) * unit(along));
    }

    /* Some images, or a part of one. */
    Piece place(int64_t i) const {
        const int64_t first = i / parts * each, part = i % parts;
        Piece made{whole};
        made.shape.images = std::min(each, whole.images - first);
        if (parts > 1) cut_axis(&made, part * rows, end_of_part(part));
        made.source += first * whole.source();
        made.result += first * whole.result();
        return made;
    }

    Piece piece(Along along, int64_t first, int64_t last) const {
        Piece made{whole};
        Shape &part = made.shape;
        const int64_t n = last - first, per_in = whole.in / whole.groups;
        switch (along) {
        case OUT:
            part.out = n;
            made.weights = first * per_in * given.taps();
            made.result = first * whole.out_plane();
            made.bias = first;
            break;
        case IN:
            part.in = n;
            made.weights = first * given.taps();
            made.source = first * whole.plane();
            break;
        default: {
            const int64_t per_out = whole.out / whole.groups;
            part.groups = n;
            part.in = n * per_in;
            part.out = n * per_out;
            made.source = first * per_in * whole.plane();
            made.result = first * per_out * whole.out_plane();
            made.weights = first * per_out * per_in * given.taps();
            made.bias = first * per_out;
        }
        }
        return made;
    }

    /* Windows or positions of one axis, and where they begin. */
    struct Part {
        Axis axis;
        int64_t source, result;
    };

    Part part_of_axis(int64_t first, int64_t last) const {
        const Axis whole_axis = whole.axis(axis);
        Axis a = whole_axis;
        Part part{};
        if (which == INPUT_GRADIENT) { /* the windows that meet positions */
            part.source = first;
            const int64_t behind = first + a.before - a.reach();
            part.result = behind < 0 ? 0 : behind / a.stride + 1;
            const int64_t end = std::min(a.out, (last - 1 + a.before) / a.stride + 1);
            a.out = end - part.result;
            a.size = last - first;
        } else { /* the positions that windows meet */
            part.result = first;
            part.source = std::max<int64_t>(0, first * a.stride - a.before);
            const int64_t end = (last - 1) * a.stride - a.before + a.reach();
            a.out = last - first;
            a.size = std::min(whole_axis.size, end) - part.source;
        }
        const int64_t start = part.result * a.stride - whole_axis.before; /* of the first window */
        const int64_t end = start + (a.out - 1) * a.stride + a.reach();
        a.before = part.source - start;
        a.after = std::max<int64_t>(0, end - part.source - a.size);
        part.axis = a;
        return part;
    }

    void cut_axis(Piece *made, int64_t first, int64_t last) const {
        const Part part = part_of_axis(first, last);
        made->shape.set_axis(axis, part.axis);
        int64_t step = 1, out_step = 1;
        for (int i = axis + 1; i < MOST_AXES; ++i) {
            step *= whole.axis(i).size;
            out_step *= whole.axis(i).out;
        }
        made->source = part.source * step;
        made->result = part.result * out_step;
    }
};

} // namespace

Pieces cut(const Shape &whole, Which which, int64_t fewer) {
    const Kernels kernels{whole};
    const Cutter cutter{kernels, which, whole, fewer};
    const Along along = cutter.best();
    Pieces made;
    made.have_all_weights = along == PLACES;
    made.have_all_taps = kernels.shape.taps() == whole.taps();
    made.jobs = cutter.jobs(along);
    made.blocks = cutter.blocks(along);
    for (int64_t i = 0; i < cutter.pieces(along); ++i) {
        made.all.push_back(along == PLACES ? cutter.place(i)
                                           : cutter.piece(along, cutter.begin(along, i),
                                                          cutter.begin(along, i + 1)));
        made.all.back().weights += kernels.first;
    }
    return made;
}

} // namespace conv
