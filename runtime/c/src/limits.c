/* The one walk over a model before ONNX Runtime opens it, in protobuf's wire format: what it holds
 * is counted, with its functions expanded, and the files that its tensors name are looked at. Values
 * are stepped over. A model of a thousand bytes can call functions that call functions until there
 * are 10^30 nodes, and runtimes expand them without counting. */

#include "internal.h"

#include <sys/mman.h>

/* The most that a model may hold; CONTRACT.md says of what. */
#define MOST_NODES 100000u
#define MOST_OPERANDS 500000u
#define MOST_OF_ONE_NODE 16384u
#define MOST_ENTRIES 80000u
#define MOST_NESTED 8000u
#define MOST_DEPTH 32u
#define MOST_COPIED 67108864u
#define MOST_LISTS 262144u
#define MOST_EQUATION 1024u
#define MOST_TEXT 16777216u

#define ALLOWANCE "FLOW2ONNX_MOST_NODES"

/* Names of nodes and functions; a function is found by all three. */
typedef struct FunctionKey {
    Span domain, name, overload;
} FunctionKey;

/* A node that puts lists of sizes together, carries them, or calls a function that may. Runtimes
 * compute such lists while they open a model. */
typedef struct Step {
    bool concat;
    size_t callee;           /* or NONE */
    size_t reads, read_count; /* among the names of the body */
} Step;

/* What a step makes. `length` is 0 while it is worked on, and below that before. */
typedef struct Made {
    Span name;
    size_t step;
    double length;
} Made;

/* An array that grows. */
typedef struct Room {
    void *items;
    size_t count, room;
} Room;

/* A graph or a function: counts, the functions that it calls, and what it does to lists. */
typedef struct Body {
    double nodes, operands, bytes;
    Room calls, steps, names, made, outputs;
    double whole_nodes, whole_operands, whole_bytes, growth;
    size_t inside; /* functions that call each other */
    bool is_expanded, is_measured;
} Body;

typedef struct Count {
    const Home *home;
    f2o_error *error;
    FunctionKey *keys; /* of the functions, sorted */
    size_t functions;
    Body *bodies; /* of the functions, and the main one behind them */
    uint64_t most_nodes, entries, nested;
} Count;

/* ---- Errors and memory ----------------------------------------------------------------------- */

static f2o_status too_much_of(const Count *count, const char *what, double found, uint64_t most,
                              const char *hint) {
    char shown[32];
    snprintf(shown, sizeof shown, found < 1e18 ? "%.0f" : "%.0e", found);
    return fail(count->error, F2O_BUNDLE_ERROR, hint,
                "%s cannot be opened: %s %s; %llu are the most", count->home->path, shown, what,
                (unsigned long long)most);
}

static f2o_status too_much(const Count *count, const char *what, double found, uint64_t most) {
    return too_much_of(count, what, found, most,
                       "is the model damaged? if not, split it or export it in a simpler form");
}

static f2o_status too_many_nodes(const Count *count, double found) {
    return too_much_of(count, "nodes, those of expanded functions counted", found,
                       count->most_nodes, "set " ALLOWANCE " for a model that you trust");
}

static f2o_status too_deep(const Count *count, size_t depth) {
    return too_much_of(count, "functions that call each other", (double)depth, MOST_DEPTH,
                       "a function that calls itself has no end");
}

/* One more item at the end; NULL without memory. */
static void *grow(Room *room, size_t size) {
    if (room->count == room->room) {
        size_t more = room->room == 0 ? 8 : room->room * 2;
        void *items = more > SIZE_MAX / size ? NULL : realloc(room->items, more * size);
        if (items == NULL) return NULL;
        room->items = items;
        room->room = more;
    }
    return (char *)room->items + room->count++ * size;
}

static void free_body(Body *body) {
    free(body->calls.items);
    free(body->steps.items);
    free(body->names.items);
    free(body->made.items);
    free(body->outputs.items);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static int compare_spans(Span a, Span b) {
    size_t sizes[2] = {(size_t)(a.end - a.at), (size_t)(b.end - b.at)};
    size_t least = sizes[0] < sizes[1] ? sizes[0] : sizes[1];
    int order = least == 0 ? 0 : memcmp(a.at, b.at, least);
    return order != 0 ? order : (sizes[0] > sizes[1]) - (sizes[0] < sizes[1]);
}

static int compare_functions(const void *a, const void *b) {
    const FunctionKey *one = a, *two = b;
    int order = compare_spans(one->domain, two->domain);
    if (order == 0) order = compare_spans(one->name, two->name);
    return order != 0 ? order : compare_spans(one->overload, two->overload);
}

/* By name, then by step, so that of equal names the last one counts. */
static int compare_made(const void *a, const void *b) {
    const Made *one = a, *two = b;
    int order = compare_spans(one->name, two->name);
    return order != 0 ? order : (one->step > two->step) - (one->step < two->step);
}

static bool is_span(Span span, const char *text) {
    size_t size = strlen(text);
    return (size_t)(span.end - span.at) == size && memcmp(span.at, text, size) == 0;
}

static const unsigned char NO_TEXT[1] = {0};

static FunctionKey no_key(void) {
    Span none = {NO_TEXT, NO_TEXT};
    return (FunctionKey){none, none, none};
}

static void name_domain(FunctionKey *key) {
    if (is_span(key->domain, "ai.onnx")) key->domain = (Span){NO_TEXT, NO_TEXT};
}

static size_t find_function(const Count *count, const FunctionKey *key) {
    if (count->functions == 0) return NONE;
    const FunctionKey *found =
        bsearch(key, count->keys, count->functions, sizeof *key, compare_functions);
    return found == NULL ? NONE : (size_t)(found - count->keys);
}

static bool is_carrier(Span name) {
    static const char *const CARRIERS[] = {"Concat",   "Add", "Cast",  "Div",     "Gather",
                                           "Identity", "Mul", "Slice", "Squeeze", "Sub",
                                           "Unsqueeze"};
    for (size_t i = 0; i < sizeof CARRIERS / sizeof *CARRIERS; i++) {
        if (is_span(name, CARRIERS[i])) return true;
    }
    return false;
}

/* ---- The walk -------------------------------------------------------------------------------- */

static f2o_status check_text(const Count *count, Span text) {
    if (text.at == NULL || text.end - text.at <= (ptrdiff_t)MOST_TEXT) return F2O_OK;
    return too_much(count, "bytes of one text", (double)(text.end - text.at), MOST_TEXT);
}

static f2o_status count_entry(Count *count, Span text) {
    TRY(check_text(count, text));
    if (++count->entries <= MOST_ENTRIES) return F2O_OK;
    return too_much(count, "tensors, types and texts", (double)count->entries, MOST_ENTRIES);
}

static f2o_status read_graph(Count *count, Span span, Body *body, unsigned depth);

static f2o_status read_sparse(const Count *count, Span span) {
    Span inner;
    uint64_t number;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        if ((number == 1 || number == 2) && inner.at != NULL) {
            TRY(check_tensor(count->home, inner, count->error));
        }
    }
    return F2O_OK;
}

static f2o_status read_attribute(Count *count, Span span, Body *body, unsigned depth) {
    Span inner;
    uint64_t number;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        if (inner.at == NULL) continue;
        if (number == 6 || number == 11) TRY(read_graph(count, inner, body, depth + 1));
        if (number == 5 || number == 10) TRY(check_tensor(count->home, inner, count->error));
        if (number == 22 || number == 23) TRY(read_sparse(count, inner));
    }
    return F2O_OK;
}

/* Note what a node does to lists. Its inputs are the last names of the body. */
static f2o_status add_step(Count *count, Body *body, const FunctionKey *key, const Room *makes,
                           size_t reads) {
    bool standard = key->domain.at == key->domain.end;
    size_t callee = find_function(count, key);
    if (standard && !is_carrier(key->name)) {
        body->names.count = reads;
        return F2O_OK;
    }
    Step *step = grow(&body->steps, sizeof *step);
    if (step == NULL) return no_memory(count->error);
    *step = (Step){standard && is_span(key->name, "Concat"), standard ? NONE : callee, reads,
                   body->names.count - reads};
    for (size_t i = 0; i < makes->count; i++) {
        Made *made = grow(&body->made, sizeof *made);
        if (made == NULL) return no_memory(count->error);
        *made = (Made){((const Span *)makes->items)[i], body->steps.count - 1, -1};
    }
    return F2O_OK;
}

static f2o_status finish_node(Count *count, Body *body, FunctionKey *key, const Room *makes,
                              size_t reads, size_t operands, size_t attributes) {
    name_domain(key);
    body->operands += (double)operands;
    if (is_span(key->name, "Einsum") && attributes > MOST_EQUATION) {
        return too_much(count, "bytes of an Einsum's equation", (double)attributes, MOST_EQUATION);
    }
    size_t callee = find_function(count, key);
    if (callee != NONE) {
        size_t *call = grow(&body->calls, sizeof *call);
        if (call == NULL) return no_memory(count->error);
        *call = callee;
    }
    return add_step(count, body, key, makes, reads);
}

static f2o_status read_node_fields(Count *count, Span span, Body *body, unsigned depth,
                                   Room *makes) {
    Span inner;
    uint64_t number;
    FunctionKey key = no_key();
    size_t operands = 0, attributes = 0;
    Room reads = {NULL, 0, 0}; /* apart, as graphs inside have names too */
    f2o_status status = F2O_OK;
    while (status == F2O_OK && span.at < span.end) {
        if (!read_field(&span, &number, &inner)) {
            status = no_model(count->home, count->error);
        } else if (number == 5 && inner.at != NULL) {
            attributes += (size_t)(inner.end - inner.at);
            status = read_attribute(count, inner, body, depth);
        } else if ((status = check_text(count, inner)) == F2O_OK) {
            operands += number == 1 || number == 2;
            if (operands > MOST_OF_ONE_NODE) {
                status = too_much(count, "inputs and outputs of one node", (double)operands,
                                  MOST_OF_ONE_NODE);
            }
            if (status != F2O_OK || inner.at == NULL) continue;
            if (number == 4) key.name = inner;
            if (number == 7) key.domain = inner;
            if (number == 8) key.overload = inner;
            if (number == 1 || number == 2) {
                Span *name = grow(number == 1 ? &reads : makes, sizeof *name);
                if (name == NULL) status = no_memory(count->error);
                else *name = inner;
            }
        }
    }
    size_t first = body->names.count;
    for (size_t i = 0; status == F2O_OK && i < reads.count; i++) {
        Span *name = grow(&body->names, sizeof *name);
        if (name == NULL) status = no_memory(count->error);
        else *name = ((const Span *)reads.items)[i];
    }
    free(reads.items);
    if (status != F2O_OK) return status;
    return finish_node(count, body, &key, makes, first, operands, attributes);
}

static f2o_status read_node(Count *count, Span span, Body *body, unsigned depth) {
    Room makes = {NULL, 0, 0};
    body->nodes += 1;
    if (depth == 0) body->bytes += (double)(span.end - span.at); /* which inner ones are in */
    if (body->nodes > (double)count->most_nodes) return too_many_nodes(count, body->nodes);
    if (depth > 2) count->nested += (uint64_t)depth * (depth - 2);
    if (count->nested > MOST_NESTED) {
        return too_much(count, "(weighed) nodes in graphs inside each other",
                        (double)count->nested, MOST_NESTED);
    }
    f2o_status status = read_node_fields(count, span, body, depth, &makes);
    free(makes.items);
    return status;
}

static f2o_status read_graph(Count *count, Span span, Body *body, unsigned depth) {
    Span inner;
    uint64_t number;
    const Span none = {NULL, NULL};
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        if (number == 1 && inner.at != NULL) {
            TRY(read_node(count, inner, body, depth));
        } else if (number == 5 && inner.at != NULL) {
            TRY(count_entry(count, none));
            TRY(check_tensor(count->home, inner, count->error));
        } else if (number == 15 && inner.at != NULL) {
            TRY(count_entry(count, none));
            TRY(read_sparse(count, inner));
        } else {
            TRY(count_entry(count, inner));
        }
    }
    return F2O_OK;
}

static f2o_status read_training(Count *count, Span span, Body *body) {
    Span inner;
    uint64_t number;
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        bool is_graph = (number == 1 || number == 2) && inner.at != NULL;
        TRY(is_graph ? read_graph(count, inner, body, 0) : count_entry(count, inner));
    }
    return F2O_OK;
}

/* The names of a function; false for what is none. */
static bool read_key(Span span, FunctionKey *key) {
    Span inner;
    uint64_t number;
    *key = no_key();
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return false;
        if (inner.at == NULL) continue;
        if (number == 1) key->name = inner;
        if (number == 10) key->domain = inner;
        if (number == 13) key->overload = inner;
    }
    name_domain(key);
    return true;
}

static f2o_status read_function(Count *count, Span span) {
    FunctionKey key;
    Span inner;
    uint64_t number;
    if (!read_key(span, &key)) return no_model(count->home, count->error);
    Body *body = &count->bodies[find_function(count, &key)];
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        if (number == 7 && inner.at != NULL) {
            TRY(read_node(count, inner, body, 0));
            continue;
        }
        TRY(count_entry(count, inner));
        if (number == 11 && inner.at != NULL) TRY(read_attribute(count, inner, body, 0));
        if (number == 5 && inner.at != NULL) {
            Span *name = grow(&body->outputs, sizeof *name);
            if (name == NULL) return no_memory(count->error);
            *name = inner;
        }
    }
    return F2O_OK;
}

/* Find the functions, so that the walk knows which nodes call one. */
static f2o_status find_functions(Count *count, Span span) {
    Span inner;
    uint64_t number;
    Room keys = {NULL, 0, 0};
    f2o_status status = F2O_OK;
    while (status == F2O_OK && span.at < span.end) {
        bool known = read_field(&span, &number, &inner);
        if (known && (number != 25 || inner.at == NULL)) continue;
        FunctionKey *key = known ? grow(&keys, sizeof *key) : NULL;
        if (known && key == NULL) status = no_memory(count->error);
        else if (!known || !read_key(inner, key)) status = no_model(count->home, count->error);
    }
    count->keys = keys.items;
    if (status != F2O_OK) return status;
    if (keys.count > 1) qsort(keys.items, keys.count, sizeof(FunctionKey), compare_functions);
    for (size_t i = 0; i < keys.count; i++) { /* two of one name are one, which may be either */
        if (i == 0 || compare_functions(&count->keys[i], &count->keys[count->functions - 1]) != 0) {
            count->keys[count->functions++] = count->keys[i];
        }
    }
    count->bodies = calloc(count->functions + 1, sizeof *count->bodies);
    return count->bodies == NULL ? no_memory(count->error) : F2O_OK;
}

static f2o_status read_model(Count *count, Span span) {
    Span inner;
    uint64_t number;
    Body *body = &count->bodies[count->functions];
    while (span.at < span.end) {
        if (!read_field(&span, &number, &inner)) return no_model(count->home, count->error);
        if (number == 7 && inner.at != NULL) TRY(read_graph(count, inner, body, 0));
        else if (number == 20 && inner.at != NULL) TRY(read_training(count, inner, body));
        else if (number == 25 && inner.at != NULL) TRY(read_function(count, inner));
        else TRY(count_entry(count, inner));
    }
    return F2O_OK;
}

/* ---- Functions expanded ---------------------------------------------------------------------- */

static f2o_status expand(Count *count, Body *body, size_t depth) {
    if (depth > MOST_DEPTH) return too_deep(count, depth);
    if (!body->is_expanded) {
        double nodes = body->nodes, operands = body->operands, bytes = body->bytes;
        size_t inside = 0;
        for (size_t i = 0; i < body->calls.count; i++) {
            Body *callee = &count->bodies[((const size_t *)body->calls.items)[i]];
            if (!callee->is_expanded) TRY(expand(count, callee, depth + 1));
            nodes += callee->whole_nodes;
            operands += callee->whole_operands;
            bytes += callee->whole_bytes;
            if (callee->inside + 1 > inside) inside = callee->inside + 1;
        }
        body->whole_nodes = nodes;
        body->whole_operands = operands;
        body->whole_bytes = bytes;
        body->inside = inside;
        body->is_expanded = true;
    }
    return depth + body->inside > MOST_DEPTH ? too_deep(count, depth + body->inside) : F2O_OK;
}

static f2o_status check_expanded(Count *count) {
    Body *body = &count->bodies[count->functions];
    TRY(expand(count, body, 0));
    double nodes = body->whole_nodes, copied = body->whole_bytes - body->bytes;
    for (size_t i = 0; i < count->functions; i++) nodes += count->bodies[i].nodes;
    if (nodes > (double)count->most_nodes) return too_many_nodes(count, nodes);
    if (body->whole_operands > MOST_OPERANDS) {
        return too_much(count, "inputs and outputs of nodes", body->whole_operands, MOST_OPERANDS);
    }
    if (copied <= MOST_COPIED) return F2O_OK;
    return too_much(count, "bytes of expanded functions", copied, MOST_COPIED);
}

/* ---- Lists that are put together ------------------------------------------------------------- */

static Made *find_made(const Body *body, Span name) {
    const Made wanted = {name, SIZE_MAX, 0};
    const Made *made = body->made.items;
    size_t low = 0, high = body->made.count; /* the first that is larger lies in [low, high] */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_made(&made[middle], &wanted) <= 0) low = middle + 1;
        else high = middle;
    }
    if (low == 0 || compare_spans(made[low - 1].name, name) != 0) return NULL;
    return (Made *)body->made.items + low - 1;
}

static f2o_status measure(Count *count, Body *body, double *total);

/* How many times longer than what it reads a function's outputs are. */
static f2o_status find_growth(Count *count, size_t callee, double *growth) {
    *growth = 1;
    if (callee == NONE) return F2O_OK;
    Body *body = &count->bodies[callee];
    double total;
    if (!body->is_measured) {
        body->is_measured = true;
        body->growth = 1; /* of one that calls itself */
        TRY(measure(count, body, &total));
        for (size_t i = 0; i < body->outputs.count; i++) {
            const Made *made = find_made(body, ((const Span *)body->outputs.items)[i]);
            if (made != NULL && made->length > body->growth) body->growth = made->length;
        }
    }
    *growth = body->growth;
    return F2O_OK;
}

/* Give what is made its length; the names that it waits for go on `todo`. */
static f2o_status measure_one(Count *count, const Body *body, Made *made, Room *todo) {
    const Step *step = &((const Step *)body->steps.items)[made->step];
    const Span *names = body->names.items; /* NULL where no node reads anything */
    double sum = 0, most = 0, growth;
    size_t before = todo->count;
    if (made->length < 0) made->length = 0;
    for (size_t i = 0; i < step->read_count; i++) {
        Made *read = find_made(body, names[step->reads + i]);
        double length = read == NULL ? 1 : read->length;
        if (length < 0) {
            Made **next = grow(todo, sizeof *next);
            if (next == NULL) return no_memory(count->error);
            *next = read;
            continue;
        }
        sum += length;
        most = length > most ? length : most;
    }
    if (todo->count > before) return F2O_OK;
    TRY(find_growth(count, step->callee, &growth));
    if (step->read_count == 0) most = 1;
    made->length = step->concat ? sum : most * growth;
    if (made->length < 1) made->length = 1;
    todo->count--;
    return F2O_OK;
}

/* The length of all lists that a body puts together, where what it does not make is 1 long. */
static f2o_status measure(Count *count, Body *body, double *total) {
    Room todo = {NULL, 0, 0};
    f2o_status status = F2O_OK;
    Made *made = body->made.items;
    *total = 0;
    if (body->made.count > 1) qsort(made, body->made.count, sizeof *made, compare_made);
    for (size_t i = 0; status == F2O_OK && i < body->made.count; i++) {
        Made **first = grow(&todo, sizeof *first);
        if (first == NULL) status = no_memory(count->error);
        else *first = &made[i];
        while (status == F2O_OK && todo.count > 0) {
            status = measure_one(count, body, ((Made **)todo.items)[todo.count - 1], &todo);
        }
        if (status != F2O_OK) break;
        double growth;
        const Step *step = &((const Step *)body->steps.items)[made[i].step];
        status = find_growth(count, step->callee, &growth);
        if (step->concat || growth > 1) *total += made[i].length;
    }
    free(todo.items);
    return status;
}

static f2o_status check_lists(Count *count) {
    double total = 0, more;
    for (size_t i = 0; i <= count->functions; i++) {
        TRY(measure(count, &count->bodies[i], &more));
        total += more;
    }
    if (total <= MOST_LISTS) return F2O_OK;
    return too_much(count, "numbers in lists that are put together", total, MOST_LISTS);
}

/* ---- Models ---------------------------------------------------------------------------------- */

static uint64_t most_nodes(void) {
    const char *given = getenv(ALLOWANCE);
    if (given == NULL || *given == 0 || strspn(given, "0123456789") != strlen(given)) {
        return MOST_NODES;
    }
    return strtoull(given, NULL, 10);
}

static f2o_status check_content(const Home *home, Span span, f2o_error *error) {
    Count count = {.home = home, .error = error, .most_nodes = most_nodes()};
    f2o_status status = find_functions(&count, span);
    if (status == F2O_OK) status = read_model(&count, span);
    if (status == F2O_OK) status = check_expanded(&count);
    if (status == F2O_OK) status = check_lists(&count);
    for (size_t i = 0; count.bodies != NULL && i <= count.functions; i++) {
        free_body(&count.bodies[i]);
    }
    free(count.bodies);
    free(count.keys);
    return status;
}

/* Refuse a model that holds too much, or names values outside its folder. One in ONNX Runtime's own
 * format has its functions expanded and its values inside. */
INTERNAL f2o_status check_model(const char *path, f2o_error *error) {
    int descriptor;
    uint64_t size;
    size_t length = strlen(path);
    TRY(open_file(path, &descriptor, &size, error));
    bool is_ort = length > 4 && strcmp(path + length - 4, ".ort") == 0;
    if (is_ort || size == 0) {
        close(descriptor);
        return F2O_OK;
    }
    Home home;
    bool known = find_home(path, &home);
    void *content = !known || size > SIZE_MAX ? MAP_FAILED
                                              : mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE,
                                                     descriptor, 0);
    int why = errno;
    close(descriptor);
    if (content == MAP_FAILED) return unreadable(path, strerror(why), error);
    Span span = {content, (const unsigned char *)content + size};
    f2o_status status = check_content(&home, span, error);
    munmap(content, (size_t)size);
    return status;
}
