/* SPDX-License-Identifier: MIT */
/*
 * parse.c - parses statements ({% %}) and the text between tags.
 *
 * A recursive-descent parser with one token of lookahead. Statements are rows of a table; each
 * parses from after its first word through its closing tag. All functions return NULL on failure,
 * with the message in the context; partial trees stay in the arena. Nesting is limited by
 * wf_jparse_enter, so hostile templates cannot exhaust the C stack.
 */
#include <stdio.h>

#include "text/jinja/parse_priv.h"
#include "text/jinja/string.h"

wf_jnode *wf_jparse_fail(wf_jparser *p, const char *fmt, ...)
{
    char text[WF_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    wf_fail(p->arena->ctx, WF_ERR_FORMAT, "%s, line %d: %s", p->what, p->at->line, text);
    return NULL;
}

wf_jnode *wf_jnode_new(wf_jparser *p, wf_jnode_kind kind)
{
    wf_jnode *n = wf_arena_alloc(p->arena, sizeof *n);
    if (n) {
        n->kind = kind;
        n->line = p->at->line;
    }
    return n;
}

/* Capacities are powers of two, so only the count is stored. The old arrays stay in the arena;
 * doubling keeps that waste below the final size. */
bool wf_jnode_push(wf_jparser *p, wf_jnode *n, const wf_jnode *child, int op)
{
    if (!child)
        return false;
    if ((n->count & (n->count - 1)) == 0) {
        size_t room = n->count ? n->count * 2 : 1;
        const wf_jnode **list = wf_arena_alloc(p->arena, room * sizeof *list);
        int *ops = wf_arena_alloc(p->arena, room * sizeof *ops);
        if (!list || !ops)
            return false;
        if (n->count) {
            memcpy(list, n->list, n->count * sizeof *list);
            memcpy(ops, n->ops, n->count * sizeof *ops);
        }
        n->list = list;
        n->ops = ops;
    }
    if (n->count)
        n->ops[n->count - 1] = op;
    n->list[n->count++] = child;
    return true;
}

const wf_jstr *wf_jparse_text(wf_jparser *p, const wf_jtoken *t)
{
    wf_jstr *s = wf_arena_alloc(p->arena, sizeof *s);
    if (s)
        *s = (wf_jstr){.text = t->text, .bytes = t->bytes};
    return s;
}

/* ---- Bodies ---- */

static wf_jnode *parse_body(wf_jparser *p, const char *const *ends);

/* Parses the `%}` of an opening tag, the body, and the closing tag. p->at is left at its word, one
 * of ends[]. */
static wf_jnode *parse_until(wf_jparser *p, const char *const *ends)
{
    wf_jskip_op(p, ':');
    if (p->at->kind != WF_JT_BLOCK_END)
        return wf_jparse_fail(p, "expected %%} at the end of the tag");
    p->at++;
    wf_jnode *body = parse_body(p, ends);
    if (body && p->at->kind == WF_JT_END)
        return wf_jparse_fail(p, "a block is not closed: {%% %s %%} is missing", ends[0]);
    return body;
}

/* The same for a single closing word, which is consumed. */
static wf_jnode *parse_block(wf_jparser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    wf_jnode *body = parse_until(p, ends);
    p->at += body != NULL;
    return body;
}

/* ---- Targets of assignments ---- */

/* Parses name, name.attribute (of a namespace), or several separated by commas, optionally in
 * parentheses. */
static wf_jnode *parse_one_target(wf_jparser *p, bool with_namespace);

static wf_jnode *parse_target(wf_jparser *p, bool with_namespace, const char *end)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_TUPLE);
    bool comma = false;
    while (n) {
        if (comma && (p->at->kind == WF_JT_BLOCK_END || wf_jat_op(p, ')') || wf_jat_op(p, '=') ||
                      (end && wf_jat_name(p, end))))
            break;
        if (!wf_jnode_push(p, n, parse_one_target(p, with_namespace), 0))
            return NULL;
        if (!wf_jskip_op(p, ','))
            break;
        comma = true;
    }
    /* The list is const, but its nodes were allocated here and may still be changed. */
    return !n || comma ? n : (wf_jnode *)(uintptr_t)n->list[0];
}

static wf_jnode *parse_one_target(wf_jparser *p, bool with_namespace)
{
    if (wf_jat_op(p, '(')) {
        if (!wf_jparse_enter(p))
            return NULL;
        p->at++;
        wf_jnode *inner = parse_target(p, false, NULL);
        p->depth--;
        return inner && wf_jexpect_op(p, ')') ? inner : NULL;
    }
    if (p->at->kind != WF_JT_NAME)
        return wf_jparse_fail(p, "the name of a variable is missing");
    /* true, false and none parse as constants. */
    wf_jnode *name = wf_jparse_primary(p);
    if (name && name->kind != WF_JN_NAME)
        return wf_jparse_fail(p, "cannot assign to a constant");
    if (!name || !with_namespace || !wf_jat_op(p, '.'))
        return name;
    wf_jnode *n = wf_jnode_new(p, WF_JN_ATTR);
    p->at++;
    if (p->at->kind != WF_JT_NAME)
        return wf_jparse_fail(p, "a name is missing after '.'");
    if (!n || !(n->text = wf_jparse_text(p, p->at++)))
        return NULL;
    n->a = name;
    return n;
}

/* ---- Statements; p->at is after their first word ---- */

/* Parses the tests and bodies; an elif is a further pair, not a nested if. */
static wf_jnode *parse_if(wf_jparser *p)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    wf_jnode *n = wf_jnode_new(p, WF_JN_IF);
    if (!n)
        return NULL;
    do {
        if (!wf_jnode_push(p, n, wf_jparse_tuple(p, false, false, NULL), 0) ||
            !wf_jnode_push(p, n, parse_until(p, ends), 0))
            return NULL;
    } while (wf_jskip_name(p, "elif"));
    if (wf_jskip_name(p, "endif"))
        return n;
    /* Only `else` is left of ends[]. */
    p->at++;
    return (n->c = parse_block(p, "endif")) ? n : NULL;
}

static wf_jnode *parse_for(wf_jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    wf_jnode *n = wf_jnode_new(p, WF_JN_FOR);
    if (!n || !(n->a = parse_target(p, false, "in")))
        return NULL;
    if (!wf_jskip_name(p, "in"))
        return wf_jparse_fail(p, "'in' is missing in a for loop");
    if (!(n->b = wf_jparse_tuple(p, false, false, "recursive")))
        return NULL;
    if (wf_jskip_name(p, "if") && !wf_jnode_push(p, n, wf_jparse_expression(p, true), 0))
        return NULL;
    n->op = wf_jskip_name(p, "recursive");
    p->loops++;
    n->body = parse_until(p, ends);
    p->loops--;
    if (!n->body)
        return NULL;
    if (wf_jskip_name(p, "endfor"))
        return n;
    p->at++;
    return (n->c = parse_block(p, "endfor")) ? n : NULL;
}

/* {% set a = b %}, or {% set a | filter %} ... {% endset %}, whose filters apply to an INPUT
 * node. */
static wf_jnode *parse_set(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_SET), *input;
    if (!n || !(n->a = parse_target(p, true, NULL)))
        return NULL;
    if (wf_jskip_op(p, '='))
        return (n->b = wf_jparse_tuple(p, true, false, NULL)) ? n : NULL;
    n->kind = WF_JN_SET_BLOCK;
    input = wf_jnode_new(p, WF_JN_INPUT);
    if (!input || !(n->b = wf_jparse_filters(p, input, false)))
        return NULL;
    return (n->body = parse_block(p, "endset")) ? n : NULL;
}

/* Parses ( name, name = default ... ) into n->list. */
static bool parse_parameters(wf_jparser *p, wf_jnode *n)
{
    if (!wf_jexpect_op(p, '('))
        return false;
    while (!wf_jat_op(p, ')')) {
        if (n->count && !wf_jexpect_op(p, ','))
            return false;
        wf_jnode *name = parse_one_target(p, false);
        if (!name || name->kind != WF_JN_NAME)
            return name && wf_jparse_fail(p, "a parameter must be a name");
        bool optional = n->count && n->list[n->count - 1]->a;
        if (wf_jskip_op(p, '=')) {
            if (!(name->a = wf_jparse_expression(p, true)))
                return false;
        } else if (optional) {
            return wf_jparse_fail(p, "a parameter without a default follows one with a default");
        }
        if (!wf_jnode_push(p, n, name, 0))
            return false;
    }
    return wf_jexpect_op(p, ')');
}

/* Parses the body of a macro; n->op: the implicit names that it uses. Loops around the macro do not
 * count as its loops, so no jump leaves it. A name used in a nested macro counts for the outer one
 * too. */
static wf_jnode *parse_macro_body(wf_jparser *p, wf_jnode *n, const char *end)
{
    int uses = p->uses, loops = p->loops;
    p->uses = p->loops = 0;
    n->body = parse_block(p, end);
    n->op = p->uses;
    p->uses |= uses;
    p->loops = loops;
    return n->body ? n : NULL;
}

static wf_jnode *parse_macro(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_MACRO), *name = parse_one_target(p, false);
    if (!n || !name)
        return NULL;
    n->text = name->text;
    return parse_parameters(p, n) ? parse_macro_body(p, n, "endmacro") : NULL;
}

static wf_jnode *parse_call_block(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CALL_BLOCK);
    if (!n || (wf_jat_op(p, '(') && !parse_parameters(p, n)))
        return NULL;
    if (!(n->a = wf_jparse_expression(p, true)))
        return NULL;
    if (n->a->kind != WF_JN_CALL)
        return wf_jparse_fail(p, "a call is missing");
    return parse_macro_body(p, n, "endcall");
}

static wf_jnode *parse_filter_block(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_FILTER_BLOCK), *input = wf_jnode_new(p, WF_JN_INPUT);
    if (!n || !input || !(n->b = wf_jparse_filters(p, input, true)))
        return NULL;
    return (n->body = parse_block(p, "endfilter")) ? n : NULL;
}

static wf_jnode *parse_with(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_WITH);
    while (n && p->at->kind != WF_JT_BLOCK_END) {
        if (n->count && !wf_jexpect_op(p, ','))
            return NULL;
        if (!wf_jnode_push(p, n, parse_one_target(p, false), 0) || !wf_jexpect_op(p, '=') ||
            !wf_jnode_push(p, n, wf_jparse_expression(p, true), 0))
            return NULL;
    }
    return n && (n->body = parse_block(p, "endwith")) ? n : NULL;
}

/* Hugging Face's extension, which marks the assistant's text. Parsed like a macro, so that break
 * and continue cannot leave the block before its output is marked. */
static wf_jnode *parse_generation(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_GENERATION);
    p->generation = true;
    return n ? parse_macro_body(p, n, "endgeneration") : NULL;
}

static wf_jnode *parse_jump(wf_jparser *p, wf_jnode_kind kind)
{
    if (p->loops == 0)
        return wf_jparse_fail(p, "break and continue are only allowed inside a loop");
    return wf_jnode_new(p, kind);
}

static wf_jnode *parse_break(wf_jparser *p)
{
    return parse_jump(p, WF_JN_BREAK);
}

static wf_jnode *parse_continue(wf_jparser *p)
{
    return parse_jump(p, WF_JN_CONTINUE);
}

static const struct {
    const char *word;
    wf_jnode *(*parse)(wf_jparser *); /* called with p->at after the word */
} statements[] = {
    {"if", parse_if},           {"for", parse_for},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
    {"break", parse_break},     {"continue", parse_continue},
};

/* p->at is after {%. Consumes through the final %}. */
static wf_jnode *parse_statement(wf_jparser *p)
{
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (wf_jskip_name(p, statements[i].word)) {
            wf_jnode *n = statements[i].parse(p);
            if (n && p->at->kind != WF_JT_BLOCK_END)
                return wf_jparse_fail(p, "expected %%} at the end of the tag");
            p->at += n != NULL;
            return n;
        }
    if (p->at->kind != WF_JT_NAME)
        return wf_jparse_fail(p, "the name of a tag is missing");
    return wf_jparse_fail(p, "unknown or misplaced tag '%.*s'",
                          (int)(p->at->bytes < 40 ? p->at->bytes : 40), p->at->text);
}

static wf_jnode *parse_print(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_PRINT);
    p->at++;
    if (!n || !(n->a = wf_jparse_tuple(p, true, false, NULL)))
        return NULL;
    if (p->at->kind != WF_JT_PRINT_END)
        return wf_jparse_fail(p, "expected }} at the end of the expression");
    p->at++;
    return n;
}

static wf_jnode *parse_data(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_DATA);
    const wf_jstr *text = wf_jparse_text(p, p->at++);
    if (!n || !text)
        return NULL;
    n->value = wf_jstring(text);
    return n;
}

/* Parses statements up to the end, or to {% followed by a word of ends[], which may be NULL. */
static wf_jnode *parse_body(wf_jparser *p, const char *const *ends)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_BLOCK);
    if (!n || !wf_jparse_enter(p))
        return NULL;
    while (p->at->kind != WF_JT_END) {
        wf_jnode *child = NULL;
        if (p->at->kind == WF_JT_DATA) {
            child = parse_data(p);
        } else if (p->at->kind == WF_JT_PRINT_BEGIN) {
            child = parse_print(p);
        } else {
            p->at++; /* the token can only be {% */
            for (int i = 0; ends && ends[i]; i++)
                if (wf_jat_name(p, ends[i])) {
                    p->depth--;
                    return n;
                }
            child = parse_statement(p);
        }
        if (!wf_jnode_push(p, n, child, 0))
            return NULL;
    }
    p->depth--;
    return n;
}

wf_status wf_jparse(wf_arena *arena, const char *what, const char *text, size_t bytes,
                    const wf_jnode **out)
{
    wf_jtoken *tokens;
    WF_TRY(wf_jlex(arena, what, text, bytes, &tokens));
    wf_jparser p = {.arena = arena, .what = what, .at = tokens};
    wf_jnode *root = parse_body(&p, NULL);
    if (root)
        root->op = p.generation;
    *out = root;
    return root ? WF_OK : wf_ctx_status(arena->ctx);
}
