/* JSON, read strictly: UTF-8 without faults, no key twice, no depth without bound.
 *
 * The text is decoded in place; numbers that are not whole are recognised and not converted, as
 * nothing asks for one.
 */

#include "internal.h"

#define JSON_DEPTH 100
#define JSON_VALUES (1u << 23)              /* eight for each of a million tensors */
#define JSON_MOST ((UINT64_C(1) << 53) - 1) /* the largest whole number that all parsers read */

static const char NO_MEMORY[] = "there is no memory for it";

static const char *const KINDS[] = {"nothing", "a truth value", "a number", "a number",
                                    "text",    "a list",        "an object"};

static bool json_fault(Json *json, const char *fault) {
    if (json->fault == NULL) json->fault = fault;
    return false;
}

INTERNAL void json_free(Json *json) {
    free(json->values);
    json->values = NULL;
}

static uint32_t json_new(Json *json) {
    if (json->count == json->capacity) {
        uint32_t capacity = json->capacity == 0 ? 64 : 2 * json->capacity;
        if (capacity > JSON_VALUES) {
            json_fault(json, "it holds too many values");
            return NO_VALUE;
        }
        Value *grown = realloc(json->values, capacity * sizeof *grown);
        if (grown == NULL) {
            json_fault(json, NO_MEMORY);
            return NO_VALUE;
        }
        json->values = grown;
        json->capacity = capacity;
    }
    json->values[json->count] = (Value){.first = NO_VALUE, .next = NO_VALUE};
    return json->count++;
}

static void json_space(Json *json) {
    while (json->at < json->end && strchr(" \t\n\r", *json->at) != NULL && *json->at != 0) {
        json->at++;
    }
}

static bool json_takes(Json *json, char wanted) {
    if (json->at == json->end || *json->at != wanted) return false;
    json->at++;
    return true;
}

static bool json_hex(Json *json, uint32_t *code) {
    *code = 0;
    if (json->end - json->at < 4) return json_fault(json, "a text ends within \\u");
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return json_fault(json, "\\u is not followed by four digits");
        *code = *code * 16 + digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t code) {
    unsigned char bytes[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size; i-- > 1; code >>= 6) bytes[i] = (unsigned char)(0x80 | (code & 0x3f));
    bytes[0] = (unsigned char)(marks[size] | code);
    memcpy(to, bytes, size);
    return to + size;
}

static bool json_escape(Json *json, char **to) {
    static const char marks[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end) return json_fault(json, "a text does not end");
    char mark = *json->at++;
    const char *found = mark == 0 ? NULL : strchr(marks, mark);
    if (found != NULL) {
        *(*to)++ = meanings[found - marks];
        return true;
    }
    uint32_t code, low;
    if (mark != 'u') return json_fault(json, "a text has an unknown escape");
    if (!json_hex(json, &code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u') {
            return json_fault(json, "a text holds half a character");
        }
        json->at += 2;
        if (!json_hex(json, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return json_fault(json, "a text holds half a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return json_fault(json, "a text holds half a character");
    }
    *to = put_utf8(*to, code);
    return true;
}

/* The bytes of one UTF-8 character at `at`, 0 if it is none. */
INTERNAL size_t utf8_size(const unsigned char *at, size_t left) {
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (size == 0 || at[0] > 0xf4 || size > left) return 0;
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (size == 3 && at[0] == 0xe0 && at[1] < 0xa0) return 0; /* longer than needed */
    if (size == 3 && at[0] == 0xed && at[1] > 0x9f) return 0; /* half a character */
    if (size == 4 && at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (size == 4 && at[0] == 0xf4 && at[1] > 0x8f) return 0; /* beyond the last */
    return size;
}

/* A text, decoded where it stands, with a zero behind. */
static bool json_text(Json *json, const char **text, size_t *size) {
    if (!json_takes(json, '"')) return json_fault(json, "a text is missing");
    char *start = json->at, *to = json->at;
    for (;;) {
        if (json->at == json->end) return json_fault(json, "a text does not end");
        unsigned char c = (unsigned char)*json->at;
        if (c == '"') break;
        if (c < 0x20) return json_fault(json, "a text holds a control character");
        if (c == '\\') {
            json->at++;
            if (!json_escape(json, &to)) return false;
            continue;
        }
        size_t bytes = utf8_size((unsigned char *)json->at, (size_t)(json->end - json->at));
        if (bytes == 0) return json_fault(json, "a text is not UTF-8");
        memmove(to, json->at, bytes);
        to += bytes;
        json->at += bytes;
    }
    json->at++; /* the end mark: room for the zero */
    *to = 0;
    *text = start;
    *size = (size_t)(to - start);
    return true;
}

static size_t json_digits(Json *json) {
    char *start = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') json->at++;
    return (size_t)(json->at - start);
}

static bool json_number(Json *json, Value *value) {
    bool negative = json_takes(json, '-');
    char *start = json->at;
    size_t digits = json_digits(json);
    if (digits == 0 || (digits > 1 && *start == '0')) return json_fault(json, "a number is wrong");
    value->kind = WHOLE;
    uint64_t number = 0;
    for (size_t i = 0; i < digits; i++) {
        uint64_t digit = (uint64_t)(start[i] - '0');
        value->beyond = value->beyond || number > (JSON_MOST - digit) / 10;
        if (!value->beyond) number = number * 10 + digit;
    }
    value->is.number = negative ? -(int64_t)number : (int64_t)number;
    value->beyond = value->beyond || (negative && number == 0); /* a fraction to other parsers */
    if (json_takes(json, '.')) {
        value->kind = FRACTION;
        if (json_digits(json) == 0) return json_fault(json, "a number is wrong");
    }
    if (json_takes(json, 'e') || json_takes(json, 'E')) {
        value->kind = FRACTION;
        if (!json_takes(json, '-')) json_takes(json, '+');
        if (json_digits(json) == 0) return json_fault(json, "a number is wrong");
    }
    return true;
}

static bool json_word(Json *json, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(json->end - json->at) < size || memcmp(json->at, word, size) != 0) return false;
    json->at += size;
    return true;
}

typedef struct Key {
    const char *text;
    size_t size;
} Key;

static int compare_keys(const void *a, const void *b) {
    const Key *x = a, *y = b;
    size_t common = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->text, y->text, common);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

static bool json_distinct(Json *json, uint32_t object) {
    uint32_t count = json->values[object].count;
    if (count < 2) return true;
    Key *keys = malloc(count * sizeof *keys);
    if (keys == NULL) return json_fault(json, NO_MEMORY);
    size_t filled = 0;
    for (uint32_t i = json->values[object].first; i != NO_VALUE; i = json->values[i].next) {
        keys[filled++] = (Key){json->values[i].key, json->values[i].key_size};
    }
    qsort(keys, filled, sizeof *keys, compare_keys);
    bool twice = false;
    for (size_t i = 1; i < filled; i++) twice |= compare_keys(&keys[i - 1], &keys[i]) == 0;
    free(keys);
    return !twice || json_fault(json, "a key appears twice");
}

static uint32_t json_value(Json *json, unsigned depth);

/* The values of a list or object, up to the end mark. */
static bool json_members(Json *json, uint32_t parent, bool keyed, char end, unsigned depth) {
    uint32_t last = NO_VALUE;
    json_space(json);
    if (json_takes(json, end)) return true;
    for (;;) {
        Key key = {NULL, 0};
        json_space(json);
        if (keyed) {
            if (!json_text(json, &key.text, &key.size)) return false;
            json_space(json);
            if (!json_takes(json, ':')) return json_fault(json, "a key has no value");
        }
        uint32_t child = json_value(json, depth + 1);
        if (child == NO_VALUE) return false;
        json->values[child].key = key.text;
        json->values[child].key_size = key.size;
        if (last == NO_VALUE) json->values[parent].first = child;
        else json->values[last].next = child;
        last = child;
        json->values[parent].count++;
        json_space(json);
        if (json_takes(json, end)) return true;
        if (!json_takes(json, ',')) return json_fault(json, "a comma is missing");
    }
}

static uint32_t json_value(Json *json, unsigned depth) {
    if (depth > JSON_DEPTH) {
        json_fault(json, "it is nested too deeply");
        return NO_VALUE;
    }
    json_space(json);
    uint32_t index = json_new(json);
    if (index == NO_VALUE) return NO_VALUE;
    Value value = json->values[index];
    bool good = true;
    if (json->at == json->end) {
        good = json_fault(json, "it ends too early");
    } else if (*json->at == '{' || *json->at == '[') {
        bool keyed = *json->at++ == '{';
        json->values[index].kind = keyed ? OBJECT : LIST;
        good = json_members(json, index, keyed, keyed ? '}' : ']', depth) &&
               (!keyed || json_distinct(json, index));
        return good ? index : NO_VALUE;
    } else if (*json->at == '"') {
        value.kind = TEXT;
        good = json_text(json, &value.text, &value.is.size);
    } else if (json_word(json, "true") || json_word(json, "false")) {
        value.kind = TRUTH;
        value.is.number = json->at[-2] == 'u';
    } else if (!json_word(json, "null")) {
        good = json_number(json, &value);
    }
    json->values[index] = value;
    return good ? index : NO_VALUE;
}

/* Read the object in `text`, which is changed and must outlive what comes of it. */
INTERNAL f2o_status json_parse(Json *json, char *text, size_t size, const char *what,
                               f2o_error *error) {
    *json = (Json){.at = text, .end = text + size};
    uint32_t root = json_value(json, 0);
    json_space(json);
    if (root != NO_VALUE && json->at != json->end) json_fault(json, "something follows its end");
    if (json->fault == NULL && json->values[root].kind != OBJECT) {
        json_fault(json, "it is not an object");
    }
    if (json->fault == NULL) return F2O_OK;
    size_t place = (size_t)(json->at - text);
    json_free(json);
    if (json->fault == NO_MEMORY) return no_memory(error);
    return fail(error, F2O_BUNDLE_ERROR, "it was damaged, or is of another kind",
                "%s: not valid JSON: %s, at byte %zu", what, json->fault, place);
}

INTERNAL f2o_status wrong_field(const Fields *fields, const char *key, const char *reason) {
    return fail(fields->error, F2O_BUNDLE_ERROR, NULL, "%s: %s %s", fields->place, key, reason);
}

INTERNAL const Value *child_of(const Json *json, const Value *value, const char *key) {
    for (uint32_t i = value->first; i != NO_VALUE; i = json->values[i].next) {
        const Value *child = &json->values[i];
        if (child->key_size == strlen(key) && memcmp(child->key, key, child->key_size) == 0) {
            return child;
        }
    }
    return NULL;
}

INTERNAL const Value *next_of(const Json *json, const Value *value) {
    return value->next == NO_VALUE ? NULL : &json->values[value->next];
}

INTERNAL const Value *first_of(const Json *json, const Value *value) {
    return value->first == NO_VALUE ? NULL : &json->values[value->first];
}

/* True for an optional field that is there, and not null. */
INTERNAL bool has_field(const Fields *fields, const char *key) {
    const Value *child = child_of(fields->json, fields->value, key);
    return child != NULL && child->kind != NOTHING;
}

INTERNAL f2o_status field(const Fields *fields, const char *key, Kind kind, const Value **found) {
    const Value *child = child_of(fields->json, fields->value, key);
    if (child == NULL) return wrong_field(fields, key, "is missing");
    if (child->kind != kind) {
        char reason[64];
        snprintf(reason, sizeof reason, "is %s, not %s", KINDS[child->kind], KINDS[kind]);
        return wrong_field(fields, key, reason);
    }
    *found = child;
    return F2O_OK;
}

/* A C string cannot hold a zero. */
INTERNAL bool is_plain(const char *text, size_t size) { return memchr(text, 0, size) == NULL; }

INTERNAL f2o_status text_field(const Fields *fields, const char *key, const char **text) {
    const Value *child;
    TRY(field(fields, key, TEXT, &child));
    if (child->is.size == 0) return wrong_field(fields, key, "is empty");
    if (!is_plain(child->text, child->is.size)) return wrong_field(fields, key, "holds a zero");
    *text = child->text;
    return F2O_OK;
}

INTERNAL f2o_status optional_text(const Fields *fields, const char *key, const char **text) {
    *text = NULL;
    return has_field(fields, key) ? text_field(fields, key, text) : F2O_OK;
}

INTERNAL f2o_status number_field(const Fields *fields, const char *key, int64_t least,
                                 int64_t *number) {
    const Value *child;
    TRY(field(fields, key, WHOLE, &child));
    if (child->beyond || child->is.number < least) {
        return wrong_field(fields, key, "is no such number as it must be");
    }
    *number = child->is.number;
    return F2O_OK;
}

INTERNAL f2o_status truth_field(const Fields *fields, const char *key, bool *truth) {
    const Value *child;
    TRY(field(fields, key, TRUTH, &child));
    *truth = child->is.number != 0;
    return F2O_OK;
}

INTERNAL bool is_size(const Value *value) {
    return value->kind == WHOLE && !value->beyond && value->is.number >= 0;
}

/* The fields of a value that must be an object; `place` is where it is said to stand. */
INTERNAL f2o_status fields_of(const Fields *outer, const Value *value, const char *place,
                              Fields *fields) {
    *fields = (Fields){outer->json, value, place, outer->error};
    if (value->kind == OBJECT) return F2O_OK;
    return fail(outer->error, F2O_BUNDLE_ERROR, NULL, "%s: is %s, not an object", place,
                KINDS[value->kind]);
}

/* Text as JSON has it; beyond ASCII as \uXXXX if `escaped`, as it is otherwise. */
INTERNAL void add_json_text(Text *to, const char *text, bool escaped) {
    char code[16];
    add(to, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        static const char marks[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        const char *mark = *c < 0x80 ? strchr(marks, *c) : NULL;
        size_t size = utf8_size(c, strlen((const char *)c));
        if (size == 0) size = 1; /* names that a caller gives may be no UTF-8 */
        if (mark != NULL) {
            snprintf(code, sizeof code, "\\%c", letters[mark - marks]);
            add(to, code);
        } else if (*c < 0x20 || (escaped && *c == 0x7f)) {
            snprintf(code, sizeof code, "\\u%04x", (unsigned)*c);
            add(to, code);
        } else if (!escaped || size == 1) {
            append(to, c, size);
        } else {
            uint32_t point = (uint32_t)(*c & (0xff >> (size + 1)));
            for (size_t i = 1; i < size; i++) point = point << 6 | (c[i] & 0x3fu);
            if (point < 0x10000) {
                snprintf(code, sizeof code, "\\u%04x", (unsigned)point);
            } else {
                point -= 0x10000;
                snprintf(code, sizeof code, "\\u%04x\\u%04x", (unsigned)(0xd800 + (point >> 10)),
                         (unsigned)(0xdc00 + (point & 0x3ff)));
            }
            add(to, code);
        }
        c += size;
    }
    add(to, "\"");
}
