/* SPDX-License-Identifier: MIT */
/*
 * ast.h - the syntax tree of a template, as the parser builds it and the interpreter walks it.
 *
 * All nodes are of one type, wf_jnode; the comment on each kind lists the fields that it uses. The
 * others are zero. The tree is allocated in the template's arena and immutable after parsing, so
 * several threads may run it.
 */
#ifndef WF_TEXT_JINJA_AST_H
#define WF_TEXT_JINJA_AST_H

#include "text/jinja/value.h"

/* An operator is its characters, the first in the low byte: '+', '/' | '/' << 8. `in` and `not in`
 * are words, so their numbers lie above all two-byte codes. */
#define WF_J_OP(a, b) ((a) | (b) << 8)
enum { WF_J_OP_IN = 256 * 256, WF_J_OP_NOT_IN };

typedef enum {
    /* Expressions */
    WF_JN_CONST,   /* value */
    WF_JN_NAME,    /* text */
    WF_JN_LIST,    /* list */
    WF_JN_TUPLE,   /* list */
    WF_JN_DICT,    /* list: key, value, key, value ... */
    WF_JN_ATTR,    /* a . text */
    WF_JN_ITEM,    /* a [ b ] */
    WF_JN_SLICE,   /* list of three, each may be NULL; only as b of an item */
    WF_JN_CALL,    /* a ( list ) */
    WF_JN_FILTER,  /* a | text ( list ) */
    WF_JN_TEST,    /* a is text ( list ); negated when op */
    WF_JN_KEYWORD, /* text = a, in the list of a call */
    WF_JN_STAR,    /* * a (op 1) or ** a (op 2), in the list of a call */
    WF_JN_NOT,     /* a */
    WF_JN_SIGN,    /* op a, a sign */
    WF_JN_MATH,    /* list joined by ops, from the left */
    WF_JN_CONCAT,  /* list joined by ~ */
    WF_JN_COMPARE, /* list joined by ops, as in a < b < c */
    WF_JN_AND,     /* list */
    WF_JN_OR,      /* list */
    WF_JN_COND,    /* b if a else c; c may be NULL */
    WF_JN_INPUT,   /* the output that a filter or set block captured */
    /* Statements */
    WF_JN_DATA,         /* value, a string */
    WF_JN_PRINT,        /* a */
    WF_JN_BLOCK,        /* list of statements; the root: op is 1 when it has a generation block */
    WF_JN_IF,           /* list: test, body, test, body ...; else: c or NULL */
    WF_JN_FOR,          /* for a in b, in body; if list[0]; else c; op: recursive */
    WF_JN_SET,          /* a = b */
    WF_JN_SET_BLOCK,    /* a = b, filters around WF_JN_INPUT; body */
    WF_JN_MACRO,        /* text; list of parameters, whose a is the default or NULL; body; op */
    WF_JN_CALL_BLOCK,   /* a, a call; list, op and body as of a macro, which caller() runs */
    WF_JN_FILTER_BLOCK, /* b, filters around WF_JN_INPUT; body */
    WF_JN_WITH,         /* list: target, value, target, value ...; body */
    WF_JN_GENERATION,   /* body, in its own scope: the assistant's text */
    WF_JN_BREAK,
    WF_JN_CONTINUE
} wf_jnode_kind;

/* op of a macro: which implicit names its body uses; they decide which extra arguments it
 * accepts. */
enum { WF_J_USES_CALLER = 1, WF_J_USES_KWARGS = 2, WF_J_USES_VARARGS = 4 };

typedef struct wf_jnode wf_jnode;
struct wf_jnode {
    wf_jnode_kind kind;
    int line;                         /* of the template, from 1; for messages */
    int op;                           /* operator or flag; see the kinds */
    const wf_jstr *text;              /* a name */
    wf_jvalue value;                  /* of a constant or of data */
    const wf_jnode *a, *b, *c, *body; /* children; NULL: absent */
    const wf_jnode **list;            /* [count] */
    int *ops;                         /* [count - 1]: ops[i] joins list[i] and list[i + 1] */
    size_t count;
};

/* Parses a template into the arena; the text is not needed afterwards. Failure messages name `what`
 * and the line. */
wf_status wf_jparse(wf_arena *arena, const char *what, const char *text, size_t bytes,
                    const wf_jnode **out);

#endif
