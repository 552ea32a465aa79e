/* SPDX-License-Identifier: MIT */
/*
 * value.h - values of the template interpreter, and the state of a run.
 *
 * All values are allocated in the run's arena and freed with it; there is no reference counting.
 * Lists and dicts are shared by reference, as in Python, so a list can contain itself: every
 * recursion over values counts frames. Strings are immutable.
 *
 * Each byte of a string carries a mark that says where it came from. Control tokens are recognised
 * only in bytes that the template itself wrote.
 */
#ifndef WF_TEXT_JINJA_VALUE_H
#define WF_TEXT_JINJA_VALUE_H

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/ctx.h"

typedef enum {
    WF_J_ABSENT, /* an argument that was not given; templates never see it */
    WF_J_UNDEFINED,
    WF_J_NONE,
    WF_J_BOOL,
    WF_J_INT,
    WF_J_FLOAT,
    WF_J_STRING,
    WF_J_LIST,
    WF_J_TUPLE,
    WF_J_RANGE,
    WF_J_VIEW, /* keys, values or items of a dict: has a length, but no index */
    WF_J_ITER, /* result of map, select, ...: can be iterated once, has no length */
    WF_J_DICT,
    WF_J_NAMESPACE,
    WF_J_MACRO,
    WF_J_FUNC, /* a global function, or a method with its object */
    WF_J_LOOP
} wf_jkind;

/* Marks of bytes, combined by |. */
enum {
    WF_J_PLAIN = 1,    /* came from the variables */
    WF_J_GENERATED = 2 /* written inside {% generation %} */
};

/* A growing string, with a mark per byte. */
typedef struct {
    char *text;
    uint8_t *mark; /* [cap], in the allocation of text */
    size_t used, cap;
} wf_jbuf;

typedef struct {
    const char *text; /* not NUL-terminated */
    size_t bytes;
    const uint8_t *mark; /* [bytes], or NULL: `plain` applies to every byte */
    bool plain;
    wf_jbuf *buf; /* the buffer that contains it, or NULL; see wf_jstr_concat */
} wf_jstr;

typedef struct wf_jvalue wf_jvalue;
typedef struct wf_jseq wf_jseq;
typedef struct wf_jdict wf_jdict;
typedef struct wf_jmacro wf_jmacro;
typedef struct wf_jfunc wf_jfunc;
typedef struct wf_jloop wf_jloop;

struct wf_jvalue {
    wf_jkind kind;
    union {
        /* Which member is valid follows from kind; none is for ABSENT, NONE. */
        bool boolean;
        int64_t integer;
        double number;
        const wf_jstr *str; /* of a string; of an undefined value: the name that was looked up */
        wf_jseq *seq;       /* of WF_J_LIST ... WF_J_ITER */
        wf_jdict *dict;     /* of a dict, a namespace */
        const wf_jmacro *macro;
        const wf_jfunc *func;
        wf_jloop *loop;
    } u;
};

struct wf_jseq {
    wf_jvalue *item; /* [cap] */
    size_t count, cap;
    size_t at;        /* of an iterator: items consumed */
    const char *name; /* of a view: its name in Python */
    int64_t range[3]; /* of a range: start, stop, step */
};

typedef struct {
    wf_jvalue key, value;
} wf_jentry;

struct wf_jdict { /* in insertion order, searched linearly */
    wf_jentry *entry;
    size_t count, cap;
};

/* The state of a run. The limits come from wf_template_options. */
typedef struct wf_jscope wf_jscope;
typedef struct {
    wf_ctx *ctx;
    const char *what;          /* the template's name in messages */
    wf_arena arena;            /* owns all values */
    size_t bytes, max_bytes;   /* requested from the arena */
    uint64_t held;             /* bytes that the context held before the run */
    uint64_t steps, max_steps; /* work done so far; bounds the time of a run */
    size_t loose;              /* charged bytes that are less than a step together */
    int frames, max_frames;    /* nested C calls of the interpreter */
    int calls, max_calls;      /* nested macros, callers and recursive loops */
    int line;                  /* of the node being evaluated */
    int64_t now;               /* seconds since 1970 */
    wf_jscope *globals;        /* the variables and the global functions */
    wf_jvalue input;           /* output captured by a filter or set block, for its first filter */
    wf_jbuf out;               /* the template's output */
} wf_jrun;

/* ---- The run ---- */

/* Fails with the template's name and the current line in front of the message. */
wf_status wf_jrun_fail(wf_jrun *r, const char *fmt, ...) WF_PRINTF(2, 3);
/* Allocates zeroed memory that lives until the run ends; NULL, with a message: out of memory, or
 * limit reached. */
void *wf_jrun_alloc(wf_jrun *r, size_t count, size_t size);
/* Returns the status of a failed allocation; never WF_OK. */
static inline wf_status wf_jrun_failed(const wf_jrun *r)
{
    return r->ctx->status != WF_OK ? r->ctx->status : WF_ERR_MEMORY;
}
/* Count work against the step limit: nodes, bytes at WF_J_BYTES_PER_STEP per step, and items of a
 * search or a copy at four per step. Fractions of a step add up. */
#define WF_J_BYTES_PER_STEP 16
wf_status wf_jrun_step(wf_jrun *r, size_t steps);
wf_status wf_jrun_step_bytes(wf_jrun *r, size_t bytes);
wf_status wf_jrun_step_items(wf_jrun *r, size_t items);
/* Call around each recursion. After a failure wf_jrun_leave is not needed, because the run ends. */
wf_status wf_jrun_enter(wf_jrun *r);
static inline void wf_jrun_leave(wf_jrun *r)
{
    r->frames--;
}

/* ---- Creating values ---- */

static inline wf_jvalue wf_jnone(void)
{
    return (wf_jvalue){.kind = WF_J_NONE};
}
static inline wf_jvalue wf_jbool(bool b)
{
    return (wf_jvalue){.kind = WF_J_BOOL, .u.boolean = b};
}
static inline wf_jvalue wf_jint(int64_t i)
{
    return (wf_jvalue){.kind = WF_J_INT, .u.integer = i};
}
static inline wf_jvalue wf_jfloat(double d)
{
    return (wf_jvalue){.kind = WF_J_FLOAT, .u.number = d};
}
static inline wf_jvalue wf_jundefined(const wf_jstr *name)
{
    return (wf_jvalue){.kind = WF_J_UNDEFINED, .u.str = name};
}
static inline wf_jvalue wf_jstring(const wf_jstr *s)
{
    return (wf_jvalue){.kind = WF_J_STRING, .u.str = s};
}
/* Copies the descriptor, not the bytes. */
wf_status wf_jstr_new(wf_jrun *r, wf_jstr s, wf_jvalue *out);
/* Creates an empty sequence with room for `room` items. */
wf_status wf_jseq_new(wf_jrun *r, wf_jkind kind, size_t room, wf_jvalue *out);
wf_status wf_jseq_push(wf_jrun *r, wf_jseq *seq, wf_jvalue v);
/* Creates a tuple of two values, as items() returns. */
wf_status wf_jpair_new(wf_jrun *r, wf_jvalue a, wf_jvalue b, wf_jvalue *out);
/* Creates an empty dict or namespace. */
wf_status wf_jdict_new(wf_jrun *r, wf_jkind kind, wf_jvalue *out);
/* Creates a range; more than 100,000 items are refused, as in Jinja's sandbox. */
wf_status wf_jrange_new(wf_jrun *r, int64_t start, int64_t stop, int64_t step, wf_jvalue *out);

/* ---- Querying values ---- */

static inline bool wf_jis_seq(const wf_jvalue *v)
{
    return v->kind >= WF_J_LIST && v->kind <= WF_J_ITER;
}
/* Lists, tuples and ranges can be indexed and sliced. */
static inline bool wf_jis_indexed(const wf_jvalue *v)
{
    return v->kind >= WF_J_LIST && v->kind <= WF_J_RANGE;
}
/* A bool is an int, too. */
static inline bool wf_jis_int(const wf_jvalue *v)
{
    return v->kind == WF_J_INT || v->kind == WF_J_BOOL;
}
static inline bool wf_jis_number(const wf_jvalue *v)
{
    return wf_jis_int(v) || v->kind == WF_J_FLOAT;
}
static inline int64_t wf_jint_of(const wf_jvalue *v)
{
    return v->kind == WF_J_BOOL ? v->u.boolean : v->u.integer;
}
static inline double wf_jfloat_of(const wf_jvalue *v)
{
    return v->kind == WF_J_FLOAT ? v->u.number : (double)wf_jint_of(v);
}
/* Returns Python's name of the type. */
const char *wf_jkind_name(wf_jkind kind);
/* Python's truth value; never fails. */
bool wf_jtruth(const wf_jvalue *v);
/* Compares by value, numbers across kinds; fails only if a limit is reached. */
wf_status wf_jequal(wf_jrun *r, wf_jvalue a, wf_jvalue b, bool *out);
/* *out is -1, 0 or 1. Fails for values that Python cannot order. */
wf_status wf_jorder(wf_jrun *r, wf_jvalue a, wf_jvalue b, int *out);
/* Evaluates `item in container`. Consumes an iterator. */
wf_status wf_jcontains(wf_jrun *r, wf_jvalue container, wf_jvalue item, bool *out);
/* The length of a string is in characters; an undefined value has length 0. */
wf_status wf_jlength(wf_jrun *r, wf_jvalue v, size_t *out);
/* Returns the items of an iteration over v, as a sequence that the caller may keep but not modify.
 * Consumes an iterator. */
wf_status wf_jwalk(wf_jrun *r, wf_jvalue v, wf_jseq **out);
/* Sorts in place by key[i], stable, in Python's order; item[i] moves along. */
wf_status wf_jsort(wf_jrun *r, wf_jvalue *key, wf_jvalue *item, size_t count, bool reverse);

/* ---- Dicts ---- */

/* *out is NULL when the key is missing. Fails for a key that Python cannot hash. */
wf_status wf_jdict_find(wf_jrun *r, const wf_jdict *d, wf_jvalue key, wf_jentry **out);
/* Replaces the value of an equal key, or appends. */
wf_status wf_jdict_set(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value);
/* Appends a key that must be new. */
wf_status wf_jdict_push(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value);
/* Removes entry e of d and keeps the order of the rest. */
void wf_jdict_remove(wf_jdict *d, wf_jentry *e);
/* Finds an entry by a key that is a string; *out is NULL when it is missing. */
wf_status wf_jdict_find_text(wf_jrun *r, const wf_jdict *d, const char *text, size_t bytes,
                             wf_jentry **out);

/* ---- Indices ---- */

typedef struct { /* the n indices first, first + step, ... */
    int64_t first, step;
    int64_t stop; /* the second bound, from -1 to the number of items */
    size_t n;
} wf_jslice;

/* Resolves [start:stop:step] for `count` items; absent and None mean Python's defaults. A step that
 * is longer than the items is cut, so that sums of indices cannot overflow. */
wf_status wf_jslice_plan(wf_jrun *r, const wf_jvalue part[3], size_t count, wf_jslice *out);

#endif
