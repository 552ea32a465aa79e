/* SPDX-License-Identifier: MIT */
/* parse_priv.h - shared by parse.c (statements) and parse_expr.c (expressions). */
#ifndef WF_TEXT_JINJA_PARSE_PRIV_H
#define WF_TEXT_JINJA_PARSE_PRIV_H

#include "text/jinja/ast.h"
#include "text/jinja/lex.h"

typedef struct {
    wf_arena *arena;     /* owns the nodes */
    const char *what;    /* names the template in messages */
    const wf_jtoken *at; /* the current token; WF_JT_END is never passed */
    int depth;           /* of the recursion; see wf_jparse_enter */
    int uses;            /* WF_J_USES_... of the macro being parsed */
    bool generation;     /* the template has a generation block */
    int loops;           /* loops around the current statement, within its macro */
} wf_jparser;

/* Functions that return a node return NULL on failure. */
wf_jnode *wf_jparse_fail(wf_jparser *p, const char *fmt, ...) WF_PRINTF(2, 3);
wf_jnode *wf_jnode_new(wf_jparser *p, wf_jnode_kind kind);
/* Appends to n->list; op joins it to the previous item. */
bool wf_jnode_push(wf_jparser *p, wf_jnode *n, const wf_jnode *child, int op);
/* Copies a token's extent, not its bytes, which stay in the arena. */
const wf_jstr *wf_jparse_text(wf_jparser *p, const wf_jtoken *t);

/* Counts one level of recursion; false, with a message: too deep. On success the caller decrements
 * p->depth when it returns a node; after a failure the parser is not used again. */
bool wf_jparse_enter(wf_jparser *p);
/* at: looks at the current token. skip: consumes it if it matches. expect: fails if it does not
 * match. */
bool wf_jat_op(const wf_jparser *p, int op);
bool wf_jat_name(const wf_jparser *p, const char *name);
bool wf_jskip_op(wf_jparser *p, int op);
bool wf_jskip_name(wf_jparser *p, const char *name);
bool wf_jexpect_op(wf_jparser *p, int op);

/* with_cond: `a if b else c` is allowed. In the head of a for, `if` begins the loop's filter
 * instead. */
wf_jnode *wf_jparse_expression(wf_jparser *p, bool with_cond);
/* Parses one expression, or several separated by commas as a tuple. end: a name that also ends it,
 * or NULL. */
wf_jnode *wf_jparse_tuple(wf_jparser *p, bool with_cond, bool in_parentheses, const char *end);
wf_jnode *wf_jparse_primary(wf_jparser *p);
/* Parses `| filter | filter ...` applied to n. inline_first: the first filter has no bar. */
wf_jnode *wf_jparse_filters(wf_jparser *p, wf_jnode *n, bool inline_first);

#endif
