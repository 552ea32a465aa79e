/* SPDX-License-Identifier: MIT */
/*
 * json_tree.h - reads a JSON text from outside into a tree.
 *
 * Strict, since what reads leniently reads two ways: UTF-8 without surrogates, no key twice in an
 * object, numbers that fit a double, nothing after the value. Depth and the number of values are
 * limited, and memory is in proportion to the text.
 */
#ifndef WF_BASE_JSON_TREE_H
#define WF_BASE_JSON_TREE_H

#include "base/arena.h"
#include "base/ctx.h"

#define WF_JSON_TREE_DEPTH 128
/* Several times what the largest tokenizers have. A value takes up to 200 bytes while they are read. */
#define WF_JSON_TREE_VALUES (1 << 23)

typedef enum {
    WF_JSON_NULL,
    WF_JSON_BOOL,
    WF_JSON_NUMBER,
    WF_JSON_STRING,
    WF_JSON_ARRAY,
    WF_JSON_OBJECT
} wf_json_kind;

typedef struct wf_json_node wf_json_node;
struct wf_json_node {
    wf_json_kind kind;
    bool boolean;        /* of a bool */
    bool whole;          /* a number without fraction and exponent that fits `integer` */
    const char *key;     /* of a member of an object, with a NUL behind it; else NULL */
    size_t key_bytes;    /* keys and strings may hold a NUL of their own */
    const char *string;  /* of a string, UTF-8, with a NUL behind it */
    size_t bytes;        /* its length */
    double number;       /* of a number */
    int64_t integer;     /* of a whole number */
    wf_json_node *child; /* items of an array, members of an object: child[0 .. count) */
    size_t count;
    const uint32_t *sorted; /* of an object with many members: their indices by key, for
                             * wf_json_get; else NULL */
};

/* The tree lies in the arena and points nowhere else. Failures say WF_ERR_FORMAT, `what` (a file name,
 * say) and the line. */
wf_status wf_json_parse(wf_arena *arena, const char *what, const char *text, size_t bytes,
                        wf_json_node **out);

/* A member of an object, NULL when there is none or `object` is none (or NULL). */
const wf_json_node *wf_json_get(const wf_json_node *object, const char *key);
const wf_json_node *wf_json_get_n(const wf_json_node *object, const char *key, size_t bytes);
/* What a member holds, or the default when it is missing or null. A member of another kind is also the
 * default: whoever must know asks wf_json_get. */
const char *wf_json_get_string(const wf_json_node *object, const char *key, const char *otherwise);
double wf_json_get_number(const wf_json_node *object, const char *key, double otherwise);
int64_t wf_json_get_int(const wf_json_node *object, const char *key, int64_t otherwise);
bool wf_json_get_bool(const wf_json_node *object, const char *key, bool otherwise);
/* Is it this string? false for what is none. */
bool wf_json_is(const wf_json_node *node, const char *string);

#endif
