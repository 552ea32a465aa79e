/* SPDX-License-Identifier: MIT */
/*
 * math.c - arithmetic with Python's semantics, on 64-bit integers and doubles.
 *
 * Python's integers are unbounded; here an overflow is an error, never a wrong result. Division
 * rounds towards minus infinity and the remainder takes the divisor's sign, unlike C.
 */
#include <math.h>

#include "text/jinja/run.h"
#include "text/jinja/string.h"

static wf_status too_large(wf_jrun *r)
{
    return wf_jrun_fail(r, "a number is too large");
}

/* Squares and multiplies; power >= 0. The last square, which nothing uses, is skipped because it
 * could overflow. */
static wf_status int_power(wf_jrun *r, int64_t base, int64_t power, wf_jvalue *out)
{
    int64_t result = 1;
    for (; power > 0; power >>= 1) {
        if ((power & 1) && !wf_mul_i64(result, base, &result))
            return too_large(r);
        if (power > 1 && !wf_mul_i64(base, base, &base))
            return too_large(r);
    }
    *out = wf_jint(result);
    return WF_OK;
}

/* Floor division: rounds towards minus infinity; the remainder has the sign of b. */
static wf_status int_divide(wf_jrun *r, int op, int64_t a, int64_t b, wf_jvalue *out)
{
    if (b == -1) { /* INT64_MIN / -1 overflows in C */
        if (op == '%')
            *out = wf_jint(0);
        else if (a == INT64_MIN)
            return too_large(r);
        else
            *out = wf_jint(-a);
        return WF_OK;
    }
    int64_t rest = a % b, quotient = a / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient--;
    }
    *out = wf_jint(op == '%' ? rest : quotient);
    return WF_OK;
}

/* The caller excludes division by zero and negative powers. */
static wf_status int_math(wf_jrun *r, int op, int64_t a, int64_t b, wf_jvalue *out)
{
    int64_t result = 0;
    bool fits;
    switch (op) {
    case '+': fits = wf_add_i64(a, b, &result); break;
    case '-': fits = !__builtin_sub_overflow(a, b, &result); break;
    case '*': fits = wf_mul_i64(a, b, &result); break;
    case WF_J_OP('*', '*'): return int_power(r, a, b, out);
    default: return int_divide(r, op, a, b, out);
    }
    *out = wf_jint(result);
    return fits ? WF_OK : too_large(r);
}

/* % and // follow CPython's float_divmod, signed zeros included. Powers that would be complex
 * fail. */
static wf_status float_math(wf_jrun *r, int op, double a, double b, wf_jvalue *out)
{
    double result = 0;
    switch (op) {
    case '+': result = a + b; break;
    case '-': result = a - b; break;
    case '*': result = a * b; break;
    case '/': result = a / b; break;
    case '%':
        result = fmod(a, b);
        result = result != 0 && (result < 0) != (b < 0)
                     ? result + b
                     : copysign(result, result != 0 ? result : b);
        break;
    case WF_J_OP('/', '/'): {
        double rest = fmod(a, b);
        result = (a - rest) / b;
        if (rest != 0 && (rest < 0) != (b < 0))
            result -= 1;
        /* (a - rest) / b is close to an integer; round it to the nearest one. */
        result = result != 0 ? (result - floor(result) > 0.5 ? floor(result) + 1 : floor(result))
                             : copysign(0, a / b);
        break;
    }
    default:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b)))
            return wf_jrun_fail(r, "a power is undefined");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b))
            return too_large(r);
        break;
    }
    *out = wf_jfloat(result);
    return WF_OK;
}

/* Each item is a step, so a huge count ends at the step limit. */
static wf_status repeat(wf_jrun *r, wf_jvalue v, int64_t times, wf_jvalue *out)
{
    if (v.kind == WF_J_STRING)
        return wf_jstr_repeat(r, v.u.str, times, out);
    wf_jvalue made;
    const wf_jseq *seq = v.u.seq;
    WF_TRY(wf_jseq_new(r, v.kind, 0, &made));
    for (int64_t i = 0; i < times && seq->count; i++)
        for (size_t k = 0; k < seq->count; k++)
            WF_TRY(wf_jseq_push(r, made.u.seq, seq->item[k]));
    *out = made;
    return WF_OK;
}

static wf_status join(wf_jrun *r, wf_jvalue a, wf_jvalue b, wf_jvalue *out)
{
    wf_jvalue made;
    WF_TRY(wf_jseq_new(r, a.kind, a.u.seq->count + b.u.seq->count, &made));
    for (size_t i = 0; i < a.u.seq->count; i++)
        WF_TRY(wf_jseq_push(r, made.u.seq, a.u.seq->item[i]));
    for (size_t i = 0; i < b.u.seq->count; i++)
        WF_TRY(wf_jseq_push(r, made.u.seq, b.u.seq->item[i]));
    *out = made;
    return WF_OK;
}

static bool is_repeatable(const wf_jvalue *v)
{
    return v->kind == WF_J_STRING || v->kind == WF_J_LIST || v->kind == WF_J_TUPLE;
}

/* int / int is a float, and so is int ** negative; other integer operations stay exact. */
wf_status wf_jmath(wf_jrun *r, int op, wf_jvalue a, wf_jvalue b, wf_jvalue *out)
{
    if (wf_jis_number(&a) && wf_jis_number(&b)) {
        bool divides = op == '/' || op == '%' || op == WF_J_OP('/', '/');
        if (divides && wf_jfloat_of(&b) == 0)
            return wf_jrun_fail(r, "division by zero");
        bool whole = wf_jis_int(&a) && wf_jis_int(&b) && op != '/';
        if (whole && !(op == WF_J_OP('*', '*') && wf_jint_of(&b) < 0))
            return int_math(r, op, wf_jint_of(&a), wf_jint_of(&b), out);
        return float_math(r, op, wf_jfloat_of(&a), wf_jfloat_of(&b), out);
    }
    if (op == '%' && a.kind == WF_J_STRING)
        return wf_jformat(r, a.u.str, b, out);
    if (op == '+' && a.kind == WF_J_STRING && b.kind == WF_J_STRING)
        return wf_jstr_concat(r, a.u.str, b.u.str, out);
    if (op == '+' && a.kind == b.kind && (a.kind == WF_J_LIST || a.kind == WF_J_TUPLE))
        return join(r, a, b, out);
    if (op == '*' && is_repeatable(&a) && wf_jis_int(&b))
        return repeat(r, a, wf_jint_of(&b), out);
    if (op == '*' && wf_jis_int(&a) && is_repeatable(&b))
        return repeat(r, b, wf_jint_of(&a), out);
    const wf_jvalue *bad = a.kind == WF_J_UNDEFINED ? &a : b.kind == WF_J_UNDEFINED ? &b : NULL;
    if (bad)
        return wf_jrun_fail(r, "'%.*s' is undefined",
                            (int)(bad->u.str->bytes < 80 ? bad->u.str->bytes : 80),
                            bad->u.str->text);
    return wf_jrun_fail(r, "%s and %s do not support the operator %c%s", wf_jkind_name(a.kind),
                        wf_jkind_name(b.kind), op & 0xFF,
                        op >> 8 ? (op >> 8 == '*' ? "*" : "/") : "");
}
