/* SPDX-License-Identifier: MIT */
/*
 * parse_expr.c - parses expressions, with Jinja's grammar and operator precedence.
 *
 * Recursive descent, from lowest to highest precedence: if-else, or, and, not, comparisons, + -, ~,
 * * / // %, **, signs, postfix operators. One call per level of the grammar; only parentheses,
 * signs, `not` and the like recurse from the top, and those count against MAX_DEPTH.
 */
#include "text/jinja/parse_priv.h"
#include "text/jinja/string.h"

/* Bounds the C stack: each level of nesting takes about fifteen calls. */
#define MAX_DEPTH 100

bool wf_jparse_enter(wf_jparser *p)
{
    if (p->depth >= MAX_DEPTH) {
        wf_jparse_fail(p, "expressions or blocks are nested more than %d deep", MAX_DEPTH);
        return false;
    }
    p->depth++;
    return true;
}

bool wf_jat_op(const wf_jparser *p, int op)
{
    return p->at->kind == WF_JT_OP && p->at->op == op;
}

static bool is_name(const wf_jtoken *t, const char *name)
{
    return t->kind == WF_JT_NAME && t->bytes == strlen(name) && !memcmp(t->text, name, t->bytes);
}

bool wf_jat_name(const wf_jparser *p, const char *name)
{
    return is_name(p->at, name);
}

bool wf_jskip_op(wf_jparser *p, int op)
{
    bool there = wf_jat_op(p, op);
    p->at += there;
    return there;
}

bool wf_jskip_name(wf_jparser *p, const char *name)
{
    bool there = wf_jat_name(p, name);
    p->at += there;
    return there;
}

bool wf_jexpect_op(wf_jparser *p, int op)
{
    if (wf_jskip_op(p, op))
        return true;
    wf_jparse_fail(p, "'%c' is missing", op);
    return false;
}

/* ---- Primary expressions ---- */

static wf_jnode *parse_const(wf_jparser *p, wf_jvalue value)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CONST);
    if (n)
        n->value = value;
    return n;
}

/* Adjacent string literals are concatenated. */
static wf_jnode *parse_string(wf_jparser *p)
{
    size_t bytes = 0;
    const wf_jtoken *from = p->at;
    wf_jnode *n = wf_jnode_new(p, WF_JN_CONST);
    for (; p->at->kind == WF_JT_STRING; p->at++)
        bytes += p->at->bytes;
    char *text = wf_arena_alloc(p->arena, bytes);
    wf_jstr *s = wf_arena_alloc(p->arena, sizeof *s);
    if (!n || !text || !s)
        return NULL;
    *s = (wf_jstr){.text = text, .bytes = bytes};
    for (; from < p->at; from++) {
        if (from->bytes)
            memcpy(text, from->text, from->bytes);
        text += from->bytes;
    }
    n->value = wf_jstring(s);
    return n;
}

static wf_jnode *parse_name(wf_jparser *p)
{
    static const struct {
        const char *name;
        wf_jvalue value;
    } constants[] = {
        {"true", {.kind = WF_J_BOOL, .u.boolean = true}},
        {"True", {.kind = WF_J_BOOL, .u.boolean = true}},
        {"false", {.kind = WF_J_BOOL}},
        {"False", {.kind = WF_J_BOOL}},
        {"none", {.kind = WF_J_NONE}},
        {"None", {.kind = WF_J_NONE}},
    };
    static const struct {
        const char *name;
        int use;
    } special[] = {
        {"caller", WF_J_USES_CALLER}, {"kwargs", WF_J_USES_KWARGS}, {"varargs", WF_J_USES_VARARGS}};
    /* Jinja accepts both spellings of the constants. */
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (wf_jskip_name(p, constants[i].name))
            return parse_const(p, constants[i].value);
    /* Any mention counts, so a macro accepts extra arguments when its body reads them. */
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (wf_jat_name(p, special[i].name))
            p->uses |= special[i].use;
    if (p->at->text[0] >= '0' && p->at->text[0] <= '9')
        return wf_jparse_fail(p, "a name cannot begin with a digit");
    wf_jnode *n = wf_jnode_new(p, WF_JN_NAME);
    if (!n || !(n->text = wf_jparse_text(p, p->at)))
        return NULL;
    p->at++;
    return n;
}

/* p->at is at '['. A comma may follow the last item. */
static wf_jnode *parse_list(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_LIST);
    p->at++;
    while (n && !wf_jat_op(p, ']')) {
        if (n->count && !wf_jexpect_op(p, ','))
            return NULL;
        if (wf_jat_op(p, ']'))
            break;
        if (!wf_jnode_push(p, n, wf_jparse_expression(p, true), 0))
            return NULL;
    }
    return n && wf_jexpect_op(p, ']') ? n : NULL;
}

/* p->at is at '{'. list[] alternates keys and values. */
static wf_jnode *parse_dict(wf_jparser *p)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_DICT);
    p->at++;
    while (n && !wf_jat_op(p, '}')) {
        if (n->count && !wf_jexpect_op(p, ','))
            return NULL;
        if (wf_jat_op(p, '}'))
            break;
        if (!wf_jnode_push(p, n, wf_jparse_expression(p, true), 0) || !wf_jexpect_op(p, ':') ||
            !wf_jnode_push(p, n, wf_jparse_expression(p, true), 0))
            return NULL;
    }
    return n && wf_jexpect_op(p, '}') ? n : NULL;
}

/* Parses a literal, a name, or something in brackets. */
wf_jnode *wf_jparse_primary(wf_jparser *p)
{
    const wf_jtoken *t = p->at;
    switch (t->kind) {
    case WF_JT_NAME: return parse_name(p);
    case WF_JT_STRING: return parse_string(p);
    case WF_JT_INT: p->at++; return parse_const(p, wf_jint(t->integer));
    case WF_JT_FLOAT: p->at++; return parse_const(p, wf_jfloat(t->number));
    default: break;
    }
    if (wf_jskip_op(p, '(')) {
        wf_jnode *n = wf_jparse_tuple(p, true, true, NULL);
        return n && wf_jexpect_op(p, ')') ? n : NULL;
    }
    if (wf_jat_op(p, '['))
        return parse_list(p);
    if (wf_jat_op(p, '{'))
        return parse_dict(p);
    return wf_jparse_fail(p, "an expression is missing");
}

/* ---- Postfix operators: .name [item] (call) |filter is test ---- */

/* Parses one argument of a call: value, name=value, *list or **dict. */
static wf_jnode *parse_argument(wf_jparser *p, bool *keyword)
{
    wf_jnode *n = NULL;
    /* name= is a named argument only if '=' follows directly; `==` is another token. */
    const wf_jtoken *next = p->at + (p->at->kind != WF_JT_END);
    if (wf_jat_op(p, '*') || wf_jat_op(p, WF_J_OP('*', '*'))) {
        n = wf_jnode_new(p, WF_JN_STAR);
        if (n)
            n->op = wf_jat_op(p, '*') ? 1 : 2;
        p->at++;
    } else if (p->at->kind == WF_JT_NAME && next->kind == WF_JT_OP && next->op == '=') {
        n = wf_jnode_new(p, WF_JN_KEYWORD);
        if (!n || !(n->text = wf_jparse_text(p, p->at)))
            return NULL;
        *keyword = true;
        p->at += 2;
    } else if (*keyword) {
        return wf_jparse_fail(p, "a positional argument follows a named argument");
    } else {
        return wf_jparse_expression(p, true);
    }
    return n && (n->a = wf_jparse_expression(p, true)) ? n : NULL;
}

/* Parses ( arguments ) into n->list. */
static bool parse_arguments(wf_jparser *p, wf_jnode *n)
{
    bool keyword = false;
    if (!n || !wf_jexpect_op(p, '('))
        return false;
    while (!wf_jat_op(p, ')')) {
        if (n->count && !wf_jexpect_op(p, ','))
            return false;
        if (n->count && wf_jat_op(p, ')'))
            break;
        if (!wf_jnode_push(p, n, parse_argument(p, &keyword), 0))
            return false;
    }
    return wf_jexpect_op(p, ')');
}

static wf_jnode *parse_call(wf_jparser *p, wf_jnode *callee)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_CALL);
    if (!parse_arguments(p, n))
        return NULL;
    n->a = callee;
    return n;
}

/* Parses the name of a filter or test. jinja2's grammar allows dots, but no built-in has one. */
static const wf_jstr *parse_dotted(wf_jparser *p)
{
    if (p->at->kind != WF_JT_NAME) {
        wf_jparse_fail(p, "the name of a filter or test is missing");
        return NULL;
    }
    const wf_jstr *name = wf_jparse_text(p, p->at++);
    if (wf_jat_op(p, '.')) {
        wf_jparse_fail(p, "the name of a filter or test cannot contain a dot");
        return NULL;
    }
    return name;
}

wf_jnode *wf_jparse_filters(wf_jparser *p, wf_jnode *n, bool inline_first)
{
    while (n && (inline_first || wf_jat_op(p, '|'))) {
        wf_jnode *filter = wf_jnode_new(p, WF_JN_FILTER);
        p->at += !inline_first;
        inline_first = false;
        if (!filter || !(filter->text = parse_dotted(p)))
            return NULL;
        if (wf_jat_op(p, '(') && !parse_arguments(p, filter))
            return NULL;
        filter->a = n;
        n = filter;
    }
    return n;
}

static wf_jnode *parse_postfix(wf_jparser *p, wf_jnode *n);

/* Parses the test after `is`, with arguments in parentheses or a single one without. An operator
 * word after the name is not its argument. */
static wf_jnode *parse_test(wf_jparser *p, wf_jnode *operand)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_TEST);
    if (!n)
        return NULL;
    n->op = wf_jskip_name(p, "not");
    n->a = operand;
    if (!(n->text = parse_dotted(p)))
        return NULL;
    if (wf_jat_op(p, '('))
        return parse_arguments(p, n) ? n : NULL;
    bool starts = p->at->kind >= WF_JT_NAME && p->at->kind <= WF_JT_FLOAT;
    if (!starts && !wf_jat_op(p, '[') && !wf_jat_op(p, '{'))
        return n;
    if (wf_jat_name(p, "else") || wf_jat_name(p, "or") || wf_jat_name(p, "and"))
        return n;
    if (wf_jat_name(p, "is"))
        return wf_jparse_fail(p, "tests cannot be chained with is");
    wf_jnode *argument = wf_jparse_primary(p);
    if (argument)
        argument = parse_postfix(p, argument);
    return wf_jnode_push(p, n, argument, 0) ? n : NULL;
}

/* Parses from:to:step, or a plain expression. */
static wf_jnode *parse_subscript(wf_jparser *p)
{
    wf_jnode *part[3] = {NULL}, *n;
    int colons = 0;
    /* At the end of the template one of the branches fails, so the loop ends. */
    while (!wf_jat_op(p, ']') && !wf_jat_op(p, ',')) {
        if (wf_jat_op(p, ':') && colons < 2) {
            p->at++;
            colons++;
        } else if (part[colons]) {
            return wf_jparse_fail(p, "']' is missing");
        } else if (!(part[colons] = wf_jparse_expression(p, true))) {
            return NULL;
        }
    }
    if (colons == 0)
        return part[0] ? part[0] : wf_jparse_fail(p, "an index is missing");
    /* The list has exactly three entries and count stays 0; readers of a slice know the length. */
    n = wf_jnode_new(p, WF_JN_SLICE);
    n = n && (n->list = wf_arena_alloc(p->arena, 3 * sizeof *n->list)) ? n : NULL;
    for (int i = 0; n && i < 3; i++)
        n->list[i] = part[i];
    return n;
}

static wf_jnode *parse_item(wf_jparser *p, wf_jnode *object)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_ITEM);
    /* An empty index is an empty tuple. */
    wf_jnode *index = wf_jat_op(p, ']') ? wf_jnode_new(p, WF_JN_TUPLE) : parse_subscript(p);
    if (!n || !index)
        return NULL;
    if (wf_jat_op(p, ',')) { /* a tuple as index */
        wf_jnode *tuple = wf_jnode_new(p, WF_JN_TUPLE);
        if (!tuple || !wf_jnode_push(p, tuple, index, 0))
            return NULL;
        while (wf_jskip_op(p, ','))
            if (!wf_jnode_push(p, tuple, parse_subscript(p), 0))
                return NULL;
        index = tuple;
    }
    n->a = object;
    n->b = index;
    return wf_jexpect_op(p, ']') ? n : NULL;
}

/* Parses what follows a dot: a name, or an integer, which is an index. */
static wf_jnode *parse_attribute(wf_jparser *p, wf_jnode *object)
{
    const wf_jtoken *t = p->at;
    wf_jnode *n = wf_jnode_new(p, t->kind == WF_JT_INT ? WF_JN_ITEM : WF_JN_ATTR);
    if (!n)
        return NULL;
    n->a = object;
    if (t->kind != WF_JT_INT && t->kind != WF_JT_NAME)
        return wf_jparse_fail(p, "a name or number is missing after '.'");
    p->at++;
    if (t->kind == WF_JT_INT)
        n->b = parse_const(p, wf_jint(t->integer));
    else
        n->text = wf_jparse_text(p, t);
    return n->b || n->text ? n : NULL;
}

/* A loop, not recursion, so a.b.c... of any length needs no stack here. Evaluating it recurses,
 * within max_frames. */
static wf_jnode *parse_postfix(wf_jparser *p, wf_jnode *n)
{
    while (n) {
        if (wf_jskip_op(p, '.'))
            n = parse_attribute(p, n);
        else if (wf_jskip_op(p, '['))
            n = parse_item(p, n);
        else if (wf_jat_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static wf_jnode *parse_filters_and_tests(wf_jparser *p, wf_jnode *n)
{
    while (n) {
        if (wf_jat_op(p, '|'))
            n = wf_jparse_filters(p, n, false);
        else if (wf_jskip_name(p, "is"))
            n = parse_test(p, n);
        else if (wf_jat_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- Operators ---- */

/* Parses signs and postfix operators. A sign binds tighter than a filter: -1|abs is (-1)|abs. */
static wf_jnode *parse_unary(wf_jparser *p, bool with_filter)
{
    wf_jnode *n;
    if (!wf_jparse_enter(p))
        return NULL;
    if (wf_jat_op(p, '-') || wf_jat_op(p, '+')) {
        n = wf_jnode_new(p, WF_JN_SIGN);
        if (n) {
            n->op = p->at++->op;
            n->a = parse_unary(p, false);
            n = n->a ? n : NULL;
        }
    } else {
        n = wf_jparse_primary(p);
    }
    n = n ? parse_postfix(p, n) : NULL;
    if (with_filter && n)
        n = parse_filters_and_tests(p, n);
    p->depth--;
    return n;
}

/* From lowest to highest precedence. All levels are left-associative, even **, as in Jinja. */
static const struct {
    wf_jnode_kind kind;
    int op[5];
} levels[] = {
    {WF_JN_MATH, {'+', '-'}},
    {WF_JN_CONCAT, {'~'}},
    {WF_JN_MATH, {'*', '/', WF_J_OP('/', '/'), '%'}},
    {WF_JN_MATH, {WF_J_OP('*', '*')}},
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* Returns the operator of this level at p->at, or 0. */
static int op_of_level(const wf_jparser *p, int level)
{
    for (int i = 0; levels[level].op[i]; i++)
        if (wf_jat_op(p, levels[level].op[i]))
            return levels[level].op[i];
    return 0;
}

/* Parses a flat list per level, so a long chain of operators does not recurse. */
static wf_jnode *parse_math(wf_jparser *p, int level)
{
    if (level == LEVELS)
        return parse_unary(p, true);
    wf_jnode *first = parse_math(p, level + 1), *n;
    int op = op_of_level(p, level);
    if (!first || !op)
        return first;
    n = wf_jnode_new(p, levels[level].kind);
    if (!n || !wf_jnode_push(p, n, first, 0))
        return NULL;
    for (; op; op = op_of_level(p, level)) {
        p->at++;
        if (!wf_jnode_push(p, n, parse_math(p, level + 1), op))
            return NULL;
    }
    return n;
}

/* Consumes the comparison operator at p->at and returns it, or 0. */
static int skip_comparison(wf_jparser *p)
{
    static const int ops[] = {WF_J_OP('=', '='), WF_J_OP('!', '='), '<', WF_J_OP('<', '='), '>',
                              WF_J_OP('>', '=')};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (wf_jskip_op(p, ops[i]))
            return ops[i];
    if (wf_jskip_name(p, "in"))
        return WF_J_OP_IN;
    if (wf_jat_name(p, "not") && is_name(p->at + 1, "in")) {
        p->at += 2;
        return WF_J_OP_NOT_IN;
    }
    return 0;
}

/* a < b < c is one node with three operands. */
static wf_jnode *parse_compare(wf_jparser *p)
{
    wf_jnode *first = parse_math(p, 0), *n = NULL;
    for (int op; first && (op = skip_comparison(p)) != 0;) {
        if (!n && (!(n = wf_jnode_new(p, WF_JN_COMPARE)) || !wf_jnode_push(p, n, first, 0)))
            return NULL;
        if (!wf_jnode_push(p, n, parse_math(p, 0), op))
            return NULL;
    }
    return n ? n : first;
}

static wf_jnode *parse_not(wf_jparser *p)
{
    if (!wf_jskip_name(p, "not"))
        return parse_compare(p);
    wf_jnode *n = wf_jnode_new(p, WF_JN_NOT);
    if (!n || !wf_jparse_enter(p))
        return NULL;
    n->a = parse_not(p);
    p->depth--;
    return n->a ? n : NULL;
}

/* Parses terms joined by a word. */
static wf_jnode *parse_joined(wf_jparser *p, const char *word, wf_jnode_kind kind,
                              wf_jnode *(*term)(wf_jparser *))
{
    wf_jnode *first = term(p), *n;
    if (!first || !wf_jat_name(p, word))
        return first;
    n = wf_jnode_new(p, kind);
    if (!n || !wf_jnode_push(p, n, first, 0))
        return NULL;
    while (wf_jskip_name(p, word))
        if (!wf_jnode_push(p, n, term(p), 0))
            return NULL;
    return n;
}

static wf_jnode *parse_and(wf_jparser *p)
{
    return parse_joined(p, "and", WF_JN_AND, parse_not);
}

static wf_jnode *parse_or(wf_jparser *p)
{
    return parse_joined(p, "or", WF_JN_OR, parse_and);
}

wf_jnode *wf_jparse_expression(wf_jparser *p, bool with_cond)
{
    if (!wf_jparse_enter(p))
        return NULL;
    wf_jnode *n = parse_or(p);
    while (n && with_cond && wf_jskip_name(p, "if")) {
        wf_jnode *cond = wf_jnode_new(p, WF_JN_COND);
        if (!cond || !(cond->a = parse_or(p)))
            return NULL;
        cond->b = n;
        if (wf_jskip_name(p, "else") && !(cond->c = wf_jparse_expression(p, true)))
            return NULL;
        n = cond;
    }
    p->depth--;
    return n;
}

/* One expression is itself; a comma, or () where allowed, makes a tuple. */
wf_jnode *wf_jparse_tuple(wf_jparser *p, bool with_cond, bool in_parentheses, const char *end)
{
    wf_jnode *n = wf_jnode_new(p, WF_JN_TUPLE);
    bool comma = false;
    while (n) {
        if (p->at->kind == WF_JT_BLOCK_END || p->at->kind == WF_JT_PRINT_END || wf_jat_op(p, ')') ||
            (end && wf_jat_name(p, end)))
            break;
        if (!wf_jnode_push(p, n, wf_jparse_expression(p, with_cond), 0))
            return NULL;
        if (!wf_jskip_op(p, ','))
            break;
        comma = true;
    }
    if (!n || comma || (n->count == 0 && in_parentheses))
        return n;
    if (n->count == 0)
        return wf_jparse_fail(p, "an expression is missing");
    return (wf_jnode *)(uintptr_t)n->list[0];
}
