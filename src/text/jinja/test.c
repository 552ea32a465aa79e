/* SPDX-License-Identifier: MIT */
/*
 * test.c - the tests that can follow `is`.
 *
 * Results match jinja2 with its default Undefined: an undefined value is iterable, a sequence and
 * callable. Nothing is escaped automatically, so `escaped` is always false.
 */
#include "text/jinja/run.h"
#include "text/jinja/string.h"

#define TEST(name)                                                                                \
    static wf_status name(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args, \
                          wf_jvalue *out)

/* Defines a test that depends on the value alone. */
#define SIMPLE(name, holds)             \
    TEST(name)                          \
    {                                   \
        const wf_jvalue *v = &self;     \
        (void)r, (void)arg, (void)args; \
        *out = wf_jbool(holds);         \
        return WF_OK;                   \
    }

SIMPLE(test_defined, v->kind != WF_J_UNDEFINED)
SIMPLE(test_undefined, v->kind == WF_J_UNDEFINED)
SIMPLE(test_none, v->kind == WF_J_NONE)
SIMPLE(test_boolean, v->kind == WF_J_BOOL)
SIMPLE(test_true, v->kind == WF_J_BOOL && v->u.boolean)
SIMPLE(test_false, v->kind == WF_J_BOOL && !v->u.boolean)
SIMPLE(test_integer, v->kind == WF_J_INT)
SIMPLE(test_float, v->kind == WF_J_FLOAT)
SIMPLE(test_number, wf_jis_number(v))
SIMPLE(test_string, v->kind == WF_J_STRING)
SIMPLE(test_mapping, v->kind == WF_J_DICT)
SIMPLE(test_iterable, v->kind == WF_J_STRING || v->kind == WF_J_DICT || wf_jis_seq(v) ||
                          v->kind == WF_J_UNDEFINED || v->kind == WF_J_LOOP)
SIMPLE(test_sequence, v->kind == WF_J_STRING || v->kind == WF_J_DICT || wf_jis_indexed(v) ||
                          v->kind == WF_J_UNDEFINED)
SIMPLE(test_callable, v->kind == WF_J_FUNC || v->kind == WF_J_MACRO || v->kind == WF_J_LOOP ||
                          v->kind == WF_J_UNDEFINED)
SIMPLE(test_escaped, false && v)

/* Returns whether v % by == rest, with Python's remainder. */
static wf_status rest_is(wf_jrun *r, wf_jvalue v, wf_jvalue by, int64_t rest, wf_jvalue *out)
{
    bool equal;
    WF_TRY(wf_jmath(r, '%', v, by, &v));
    WF_TRY(wf_jequal(r, v, wf_jint(rest), &equal));
    *out = wf_jbool(equal);
    return WF_OK;
}

TEST(test_odd)
{
    (void)arg, (void)args;
    return rest_is(r, self, wf_jint(2), 1, out);
}

TEST(test_even)
{
    (void)arg, (void)args;
    return rest_is(r, self, wf_jint(2), 0, out);
}

TEST(test_divisibleby)
{
    (void)args;
    return rest_is(r, self, arg[0], 0, out);
}

/* True if there is a cased character and every one has the given case. */
static wf_status all_of_case(wf_jrun *r, wf_jvalue self, wf_jcase which, wf_jvalue *out)
{
    const wf_jstr *s;
    bool cased = false, all = true;
    WF_TRY(wf_jstr_of(r, self, &s));
    WF_TRY(wf_jrun_step_items(r, s->bytes)); /* each character takes several searches */
    for (size_t i = 0; i < s->bytes;) {
        uint32_t code, mapped[3];
        i += wf_utf8_next(s->text + i, s->bytes - i, &code);
        if (!wf_char_is_cased(code))
            continue;
        cased = true;
        all = all && wf_char_map(code, which, mapped) == 1 && mapped[0] == code;
    }
    *out = wf_jbool(cased && all);
    return WF_OK;
}

TEST(test_lower)
{
    (void)arg, (void)args;
    return all_of_case(r, self, WF_J_LOWER, out);
}

TEST(test_upper)
{
    (void)arg, (void)args;
    return all_of_case(r, self, WF_J_UPPER, out);
}

TEST(test_in)
{
    bool in;
    (void)args;
    WF_TRY(wf_jcontains(r, arg[0], self, &in));
    *out = wf_jbool(in);
    return WF_OK;
}

TEST(test_eq)
{
    bool equal;
    (void)args;
    WF_TRY(wf_jequal(r, self, arg[0], &equal));
    *out = wf_jbool(equal);
    return WF_OK;
}

TEST(test_ne)
{
    WF_TRY(test_eq(r, self, arg, args, out));
    *out = wf_jbool(!out->u.boolean);
    return WF_OK;
}

/* Defines a comparison; `holds` is an expression of `order`, which is -1, 0 or 1. */
#define ORDER(name, holds)                          \
    TEST(name)                                      \
    {                                               \
        int order;                                  \
        (void)args;                                 \
        WF_TRY(wf_jorder(r, self, arg[0], &order)); \
        *out = wf_jbool(holds);                     \
        return WF_OK;                               \
    }

ORDER(test_lt, order < 0)
ORDER(test_le, order <= 0)
ORDER(test_gt, order > 0)
ORDER(test_ge, order >= 0)

/* Python's `is`: the same object; equal small values of one kind count as the same. */
TEST(test_sameas)
{
    bool same = self.kind == arg[0].kind;
    (void)args;
    if (same && (wf_jis_seq(&self) || self.kind == WF_J_DICT))
        same = wf_jis_seq(&self) ? self.u.seq == arg[0].u.seq : self.u.dict == arg[0].u.dict;
    else if (same)
        WF_TRY(wf_jequal(r, self, arg[0], &same));
    *out = wf_jbool(same);
    return WF_OK;
}

TEST(test_filter)
{
    (void)r, (void)arg, (void)args;
    *out = wf_jbool(self.kind == WF_J_STRING && wf_jfilter_find(self.u.str));
    return WF_OK;
}

TEST(test_test)
{
    (void)r, (void)arg, (void)args;
    *out = wf_jbool(self.kind == WF_J_STRING && wf_jtest_find(self.u.str));
    return WF_OK;
}

/* Name, function, parameters in order, how many are required. */
static const wf_jrow rows[] = {
    {"defined", test_defined, "", 0},
    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},
    {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},
    {"false", test_false, "", 0},
    {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},
    {"number", test_number, "", 0},
    {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},
    {"iterable", test_iterable, "", 0},
    {"sequence", test_sequence, "", 0},
    {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},
    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"lower", test_lower, "", 0},
    {"upper", test_upper, "", 0},
    {"in", test_in, "seq", 1},
    {"==", test_eq, "b", 1},
    {"eq", test_eq, "b", 1},
    {"equalto", test_eq, "b", 1},
    {"!=", test_ne, "b", 1},
    {"ne", test_ne, "b", 1},
    {"<", test_lt, "b", 1},
    {"lt", test_lt, "b", 1},
    {"lessthan", test_lt, "b", 1},
    {"<=", test_le, "b", 1},
    {"le", test_le, "b", 1},
    {">", test_gt, "b", 1},
    {"gt", test_gt, "b", 1},
    {"greaterthan", test_gt, "b", 1},
    {">=", test_ge, "b", 1},
    {"ge", test_ge, "b", 1},
    {"sameas", test_sameas, "other", 1},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
};

const wf_jrow *wf_jtest_find(const wf_jstr *name)
{
    return wf_jrow_find(rows, sizeof rows / sizeof *rows, name);
}
