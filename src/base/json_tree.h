/* SPDX-License-Identifier: MIT */
/*
 * json_tree.h - parses untrusted JSON into a tree.
 *
 * The parser is strict, because lenient parsers disagree with each other: valid UTF-8 without lone
 * surrogates, no duplicate keys, numbers that fit a double, nothing after the value. Depth and the
 * number of values are limited; wf_json_parse_with sets lower limits. Memory is proportional to the
 * text.
 */
#ifndef WF_BASE_JSON_TREE_H
#define WF_BASE_JSON_TREE_H

#include "base/arena.h"
#include "base/ctx.h"

/* The parser recurses once per level, so this bounds its use of the stack. */
#define WF_JSON_TREE_DEPTH 128
/* Several times the size of the largest tokenizers. A value takes up to 200 bytes during
 * parsing. */
#define WF_JSON_TREE_VALUES (1 << 23)

typedef enum {
    WF_JSON_NULL,
    WF_JSON_BOOL,
    WF_JSON_NUMBER,
    WF_JSON_STRING,
    WF_JSON_ARRAY,
    WF_JSON_OBJECT
} wf_json_kind;

typedef struct {
    int depth;     /* most open arrays and objects, at most WF_JSON_TREE_DEPTH */
    size_t values; /* most items of arrays and members of objects, at most WF_JSON_TREE_VALUES */
} wf_json_limits;

typedef struct wf_json_node wf_json_node;
struct wf_json_node {
    wf_json_kind kind;
    bool boolean;        /* of a bool */
    bool whole;          /* a number without fraction and exponent that fits `integer` */
    const char *key;     /* of a member of an object, NUL-terminated; otherwise NULL */
    size_t key_bytes;    /* keys and strings may contain NULs */
    const char *string;  /* of a string: UTF-8, NUL-terminated */
    size_t bytes;        /* length of the string */
    double number;       /* of a number */
    int64_t integer;     /* of a whole number */
    wf_json_node *child; /* items of an array, members of an object: child[0 .. count) */
    size_t count;
    const uint32_t *sorted; /* of an object with many members: [count] indices in key order, for
                             * wf_json_get; otherwise NULL */
};

/* The tree is allocated in the arena and does not point into `text`. A failure is WF_ERR_FORMAT,
 * and its message names `what` (a file name, for example) and the line. */
wf_status wf_json_parse(wf_arena *arena, const char *what, const char *text, size_t bytes,
                        wf_json_node **out);
/* As wf_json_parse, for texts of which less is expected: a request from the network, for example. */
wf_status wf_json_parse_with(wf_arena *arena, const char *what, const wf_json_limits *limits,
                             const char *text, size_t bytes, wf_json_node **out);

/* Returns a member of an object; NULL when it is missing, or `object` is NULL or not an object. */
const wf_json_node *wf_json_get(const wf_json_node *object, const char *key);
const wf_json_node *wf_json_get_n(const wf_json_node *object, const char *key, size_t bytes);
/* Return a member's value, or `otherwise` when the member is missing, null or of another kind. To
 * distinguish these cases, use wf_json_get. */
const char *wf_json_get_string(const wf_json_node *object, const char *key, const char *otherwise);
double wf_json_get_number(const wf_json_node *object, const char *key, double otherwise);
int64_t wf_json_get_int(const wf_json_node *object, const char *key, int64_t otherwise);
bool wf_json_get_bool(const wf_json_node *object, const char *key, bool otherwise);
/* Returns whether node is a string equal to `string`; false for NULL and other kinds. */
bool wf_json_is(const wf_json_node *node, const char *string);

#endif
