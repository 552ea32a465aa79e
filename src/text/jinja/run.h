/* SPDX-License-Identifier: MIT */
/*
 * run.h - the interpreter: scopes, calls, the tables of filters, tests and methods, and printing.
 *
 * A tree-walking interpreter. Every loop and recursion charges the run's limits (value.h), so a
 * hostile template ends with an error after bounded time, memory and C stack. After a failure the
 * run is over: no function restores its state on the way out.
 */
#ifndef WF_TEXT_JINJA_RUN_H
#define WF_TEXT_JINJA_RUN_H

#include "text/jinja/ast.h"

/* ---- Scopes ---- */

typedef struct {
    const wf_jstr *name;
    wf_jvalue value;
} wf_jvar;

struct wf_jscope {
    wf_jscope *parent; /* searched for names that are not here; NULL: the outermost scope */
    wf_jvar *var;      /* [cap]; searched linearly */
    size_t count, cap;
};

wf_status wf_jscope_new(wf_jrun *r, wf_jscope *parent, wf_jscope **out);
/* Sets a variable of this scope only; one of the same name in a parent stays unchanged, as in
 * Jinja. */
wf_status wf_jscope_set(wf_jrun *r, wf_jscope *scope, const wf_jstr *name, wf_jvalue value);
/* Searches the scope and its parents; the result is undefined when the name does not exist. */
wf_status wf_jscope_get(wf_jrun *r, const wf_jscope *scope, const wf_jstr *name, wf_jvalue *out);

/* ---- Calls ---- */

typedef struct { /* the evaluated arguments of one call */
    wf_jvalue *pos;
    size_t npos;
    wf_jvar *named;
    size_t nnamed;
} wf_jargs;

/* A built-in function. self: the operand of a filter or test, or the object of a method. arg[i]:
 * the i-th parameter of its row, WF_J_ABSENT when not given. args: all arguments as given. */
typedef wf_status wf_jfn(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args,
                         wf_jvalue *out);

#define WF_J_PARAMS 6 /* the most parameters of any row */
typedef struct {
    const char *name;
    wf_jfn *fn;
    const char *params; /* names separated by spaces; "*": any arguments, fn reads args */
    int required;       /* the number of leading parameters that must be given */
} wf_jrow;

struct wf_jfunc {
    const wf_jrow *row; /* static */
    wf_jvalue self;     /* the object of a method; None for a global function */
};

struct wf_jmacro {
    const wf_jnode *node; /* a macro or a call block */
    wf_jscope *scope;     /* the scope of its definition */
};

struct wf_jloop {
    const wf_jnode *node;
    wf_jscope *scope; /* around the loop, for recursive loops */
    wf_jseq *items;   /* items that the loop's `if` has admitted so far */
    wf_jseq *from;    /* the sequence, of which `taken` items have been tested */
    size_t taken;
    size_t index;
    int depth;      /* 0: the outermost */
    wf_jvalue last; /* the last arguments of loop.changed, a tuple */
};

/* Creates a value from a function and its object. */
wf_status wf_jfunc_new(wf_jrun *r, const wf_jrow *row, wf_jvalue self, wf_jvalue *out);
/* Calls a built-in: assigns the arguments to its parameters and checks their number and names. */
wf_status wf_jrow_call(wf_jrun *r, const wf_jrow *row, wf_jvalue self, const wf_jargs *args,
                       wf_jvalue *out);
/* Calls any value; fails if it is not callable. */
wf_status wf_jcall(wf_jrun *r, wf_jvalue callee, const wf_jargs *args, wf_jvalue *out);
/* Runs a macro's body in a scope inside that of its definition; *out is its output, a string. */
wf_status wf_jmacro_call(wf_jrun *r, const wf_jmacro *macro, const wf_jargs *args, wf_jvalue *out);
/* Calls loop(items), which only recursive loops allow. */
wf_status wf_jloop_call(wf_jrun *r, wf_jloop *loop, const wf_jargs *args, wf_jvalue *out);

/* Find a row by name; NULL: unknown. */
const wf_jrow *wf_jrow_find(const wf_jrow *rows, size_t count, const wf_jstr *name);
const wf_jrow *wf_jfilter_find(const wf_jstr *name);
const wf_jrow *wf_jlist_filter_find(const wf_jstr *name);
const wf_jrow *wf_jtest_find(const wf_jstr *name);
const wf_jrow *wf_jstr_method_find(const wf_jstr *name);
const wf_jrow *wf_jmethod_find(wf_jkind kind, const wf_jstr *name);
/* Defines the global functions: range, namespace, ... */
wf_status wf_jglobals_set(wf_jrun *r, wf_jscope *scope);

/* ---- Evaluation ---- */

/* Evaluates an expression. Names are looked up in `scope` and its parents. */
wf_status wf_jeval(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out);
/* Evaluates a.name: methods first, then items, as Jinja does; undefined when neither exists. */
wf_status wf_jget_attr(wf_jrun *r, wf_jvalue object, const wf_jstr *name, wf_jvalue *out);
/* Evaluates a[index]: items first, then attributes. */
wf_status wf_jget_item(wf_jrun *r, wf_jvalue object, wf_jvalue index, wf_jvalue *out);
wf_status wf_jget_slice(wf_jrun *r, wf_jvalue object, const wf_jvalue part[3], wf_jvalue *out);
/* Evaluates loop.name: index, last, previtem, ...; undefined for other names. */
wf_status wf_jloop_attr(wf_jrun *r, wf_jloop *loop, const wf_jstr *name, wf_jvalue *out);
/* Applies a binary operator; see math.c. */
wf_status wf_jmath(wf_jrun *r, int op, wf_jvalue a, wf_jvalue b, wf_jvalue *out);
/* Evaluates text % values. */
wf_status wf_jformat(wf_jrun *r, const wf_jstr *text, wf_jvalue values, wf_jvalue *out);
/* Evaluates text.format(values). */
wf_status wf_jformat_braces(wf_jrun *r, const wf_jstr *text, const wf_jargs *args, wf_jvalue *out);

/* Runs the statements of a template into r->out. */
wf_status wf_jexec(wf_jrun *r, const wf_jnode *n, wf_jscope *scope);

/* ---- Printing values ---- */

/* Append Python's str(v) and repr(v). */
wf_status wf_jprint(wf_jrun *r, wf_jbuf *b, wf_jvalue v);
wf_status wf_jprint_repr(wf_jrun *r, wf_jbuf *b, wf_jvalue v);
/* Returns v itself if it is a string, otherwise str(v). */
wf_status wf_jstr_of(wf_jrun *r, wf_jvalue v, const wf_jstr **out);
/* Writes the shortest digits that read back exactly, in Python's format. out has 48 bytes. */
void wf_jprint_double(char *out, double value);
typedef struct {
    bool ascii, sort_keys;
    const wf_jstr *indent;     /* of one level; NULL: a single line */
    const wf_jstr *item, *key; /* separators */
} wf_jjson;
wf_status wf_jprint_json(wf_jrun *r, wf_jbuf *b, wf_jvalue v, const wf_jjson *form);

#endif
