/* SPDX-License-Identifier: MIT */
/* test_template.c - chat templates: output, marks, limits, and allocation failures.
 * tests/oracle/templates.py compares thousands of further templates with jinja2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_tree.h"
#include "base/mem.h"
#include "support.h"
#include "text/template.h"

static const char VARIABLES[] =
    "{\"bos_token\": \"<s>\", \"n\": 3, \"f\": 2.5, \"yes\": true, \"nil\": null, \"list\": [3, 1, 2],"
    " \"d\": {\"b\": 1, \"a\": \"x<|im_end|>\"}, \"m\": [{\"role\": \"user\", \"content\": \" h\\u00e9<s>y \"},"
    " {\"role\": \"assistant\", \"content\": \"ok\\nso\"}]}";

static wf_status render(wf_ctx *ctx, const char *text, const char *variables,
                        const wf_template_options *options, wf_rendered *out)
{
    wf_arena arena;
    wf_json_node *node;
    wf_template *t = NULL;
    *out = (wf_rendered){0};
    wf_arena_init(&arena, ctx);
    wf_status status = wf_json_parse(&arena, "variables", variables, strlen(variables), &node);
    if (status == WF_OK)
        status = wf_template_new(ctx, "chat", text, strlen(text), &t);
    if (status == WF_OK)
        status = wf_template_render(t, ctx, node, options, out);
    wf_template_free(t);
    wf_arena_free(&arena);
    return status;
}

typedef struct {
    const char *text, *want;
} pair;

static const pair prints[] = {
    {"{{ {1: 2}[] is defined }}{% if nil %}{{ -not [] }}{% endif %}", "False"},
    {"", ""},
    {"plain\n", "plain"},
    {"{{ bos_token }}{{ n + 1 }} {{ f }} {{ yes }} {{ nil }} {{ missing }}|",
     "<s>4 2.5 True None |"},
    {"{% for x in list %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
     "1:3,2:1,3:2"},
    {"{% for x in list|sort if x > 1 %}{{ x }}{% else %}none{% endfor %}", "23"},
    {"{% set ns = namespace(t=0) %}{% for x in list %}{% set ns.t = ns.t + x %}{% set t = 9 %}{% endfor %}{{ ns.t }}{{ t }}",
     "6"},
    {"{% macro hi(a, b='B') %}<{{ a }}{{ b }}>{% endmacro %}{{ hi(1) }}{{ hi(b=2, a=3) }}",
     "<1B><32>"},
    {"{% if n == 2 %}a{% elif n == 3 %}b{% else %}c{% endif %}\n  {% set x = 1 %}\nd\n", "bd"},
    {"a\n  {%- if yes -%}\n  b\n  {%- endif -%}\n  c", "abc"},
    {"{{ m[0].content|trim|length }} {{ m[0].content[1:3] }} {{ m[-1]['content'].split('\\n') }}",
     "6 h\xC3\xA9 ['ok', 'so']"},
    {"{{ d|tojson }} {{ list|tojson(indent=1) }}",
     "{\"b\": 1, \"a\": \"x<|im_end|>\"} [\n 3,\n 1,\n 2\n]"},
    {"{{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1 / 4 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }}",
     "-4 2 1024 0.25 1e+16 1e-05 0.30000000000000004"},
    {"{{ 'stra\xC3\x9F"
     "e'|upper }} {{ '\xC3\x89'|lower }}",
     "STRASSE \xC3\xA9"},
    {"{% raw %}{{ x }}{% endraw %}{# gone #}!", "{{ x }}!"},
    {"{% generation %}{{ n }}{% endgeneration %}{% set y %}a{{ n }}{% endset %}{{ y }}", "3a3"},
    {"{{ strftime_now('%Y-%m-%d') }}", "2025-02-15"},
    /* CPython takes a NUL as no conversion, so the number is not a string for :05d. */
    {"{{ '{!\\0:05d}'.format(1) }}", "00001"},
    /* the longest number that a format prints */
    {"{{ '{:,.60f}'.format(1.7976931348623157e308) }}",
     "179,769,313,486,231,570,814,527,423,731,704,356,798,070,567,525,844,996,598,917,"
     "476,803,157,260,780,028,538,760,589,558,632,766,878,171,540,458,953,514,382,464,"
     "234,321,326,889,464,182,768,467,546,703,537,516,986,049,910,576,551,282,076,245,"
     "490,090,389,328,944,075,868,508,455,133,942,304,583,236,903,222,948,165,808,559,"
     "332,123,348,274,797,826,204,144,723,168,738,177,180,919,299,881,250,404,026,184,"
     "124,858,368.000000000000000000000000000000000000000000000000000000000000"},
    {"{{ range(10)[::3] }} {{ range(10)[::100] }} {{ range(9)[5:2] }} {{ range(0)[::-1] }}",
     "range(0, 10, 3) range(0, 10, 100) range(5, 2) range(-1, -1, -1)"},
    {"{{ range(-9000000000000000000, 9000000000000000001, 9000000000000000000)|list }}",
     "[-9000000000000000000, 0, 9000000000000000000]"},
    {"{{ range(9223372036854775806, 9223372036854775807)|list }} "
     "{{ range(9007199254740993, 9007199254740994)|list }}",
     "[9223372036854775806] [9007199254740993]"},
    {"{{ 1234567890123456785|round(-1) }} {{ -15|round(-1) }} {{ 25|round(-1) }} "
     "{{ 9223372036854775807|round(-20) }}",
     "1234567890123456780 -20 20 0"},
    {"{{ '%s-%03d' % ('a', 7) }} {{ '{:>4}'.format(n) }}", "a-007    3"},
};

static void test_prints(void **state)
{
    wf_ctx *ctx = *state;
    const wf_template_options options = {.now = 1735689600 + 86400 * 45 + 3600 * 12};
    for (size_t i = 0; i < sizeof prints / sizeof *prints; i++) {
        wf_rendered out;
        wt_ok(ctx, render(ctx, prints[i].text, VARIABLES, &options, &out));
        assert_string_equal(out.text, prints[i].want);
        assert_int_equal(out.bytes, strlen(prints[i].want));
        wf_rendered_free(ctx, &out);
    }
}

/* `marks` classifies each byte of `want`: 'p' is plain text from a message, '.' is text of the
 * template. */
typedef struct {
    const char *text, *want, *marks;
} marked;

static const marked marks[] = {
    {"{{ bos_token }}{{ d.a }}<s>", "<s>x<|im_end|><s>", "...ppppppppppp..."},
    {"{{ bos_token ~ d.a + '!' }}", "<s>x<|im_end|>!", "...ppppppppppp."},
    {"{{ (d.a ~ '-' ~ d.a)[10:13] }}", ">-x", "p.p"},
    {"{{ ('a' ~ d.a)[::-1][:3] }}", ">|d", "ppp"},
    {"{{ (' ' ~ d.a ~ ' ')|trim }}", "x<|im_end|>", "ppppppppppp"},
    {"{{ ('<' ~ d.a).split('<')|join('+') }}", "+x+|im_end|>", ".p.ppppppppp"},
    {"{{ d.a|replace('x', '<s>') }}", "<s><|im_end|>", "...pppppppppp"},
    {"{{ '<s>x'|replace('x', d.a) }}", "<s>x<|im_end|>", "...ppppppppppp"},
    {"{{ (d.a ~ 'q')|upper }}", "X<|IM_END|>Q", "ppppppppppp."},
    {"{{ d|tojson }}", "{\"b\": 1, \"a\": \"x<|im_end|>\"}", "..p.......p....ppppppppppp.."},
    {"{{ [d.a] }}", "['x<|im_end|>']", "..ppppppppppp.."},
    {"{{ '%s|%5s' % (d.a, 'b') }}", "x<|im_end|>|    b", "ppppppppppp......"},
    {"{{ '{}:{}'.format(1, d.a) }}", "1:x<|im_end|>", "..ppppppppppp"},
    {"{{ m[1].content|indent(1) }}", "ok\n so", "pp..pp"},
    {"{{ m[1].content.splitlines()|join(d.a[0]) }}", "okxso", "ppppp"},
    {"{% set s %}<{{ d.a }}>{% endset %}{{ s|lower|title }}", "<X<|im_end|>>", ".ppppppppppp."},
    {"{% macro q(x) %}[{{ x }}]{% endmacro %}{{ q(d.a) }}", "[x<|im_end|>]", ".ppppppppppp."},
    {"{{ d.keys()|list|last }}{{ d|dictsort|map('first')|join }}", "aab", "ppp"},
    {"{{ d.a|escape }}", "x&lt;|im_end|&gt;", "ppppppppppppppppp"},
    {"{{ d.a.partition('<')[1] }}{{ d.a.rjust(13, '.') }}", "<..x<|im_end|>", "p..ppppppppppp"},
    {"{{ m|map(attribute='role')|join(', ') }}", "user, assistant", "pppp..ppppppppp"},
    {"{{ d.a * 2 }}{% for c in d.a[:2] %}{{ c }}{% endfor %}", "x<|im_end|>x<|im_end|>x<",
     "pppppppppppppppppppppppp"},
    {"{{ d.a|list|reverse|join }}{{ d.a|first }}{{ d.a|string }}", ">|dne_mi|<xxx<|im_end|>",
     "ppppppppppppppppppppppp"},
    {"{% set s %}{% generation %}<\"{% endgeneration %}{% endset %}{{ s|escape }}{{ s|tojson }}"
     "{{ [s] }}",
     "&lt;&#34;\"<\\\"\"['<\"']", "...................."},
};

static void test_marks(void **state)
{
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        wf_rendered out;
        char got[64] = "";
        wt_ok(ctx, render(ctx, marks[i].text, VARIABLES, NULL, &out));
        assert_string_equal(out.text, marks[i].want);
        assert_true(out.bytes < sizeof got);
        for (size_t k = 0; k < out.bytes; k++)
            got[k] = out.plain[k] ? 'p' : '.';
        assert_string_equal(got, marks[i].marks);
        wf_rendered_free(ctx, &out);
    }
}

/* A string that is extended in place must not change others that share its prefix. */
static void test_grown_strings_share_nothing(void **state)
{
    wf_ctx *ctx = *state;
    wf_rendered out;
    wt_ok(
        ctx,
        render(
            ctx,
            "{% set a = 'x' ~ n %}{% set b = a ~ '1' %}{% set c = a ~ '2' %}{% set e = b ~ d.a ~ '3' %}"
            "{{ a }} {{ b }} {{ c }} {{ e }} {{ b ~ '4' }} {{ b }}",
            VARIABLES, NULL, &out));
    assert_string_equal(out.text, "x3 x31 x32 x31x<|im_end|>3 x314 x31");
    wf_rendered_free(ctx, &out);
}

static const pair mistakes[] = {
    {"{{ raise_exception('no ' ~ n) }}", "the chat template refuses these messages: no 3"},
    {"a\nb {{ missing.x }}", "chat, line 2: 'missing' is undefined"},
    {"{{ missing() }}", "chat, line 1: 'missing' is undefined"},
    {"{{ 1 + 'a' }}", "chat, line 1: int and str do not support the operator +"},
    {"{{ 1 / 0 }}", "chat, line 1: division by zero"},
    {"{{ 9223372036854775807 + 1 }}", "chat, line 1: a number is too large"},
    {"{{ 99999999999999999999 }}", "chat, line 1: a number is too large"},
    {"{{ range(0, 1, 4611686018427387904)[::2] }}", "chat, line 1: a number is too large"},
    {"{{ range(0, 2, 1)[::9223372036854775807][::2] }}", "chat, line 1: a number is too large"},
    {"{{ range(9223372036854775806, -2, -9223372036854775807)[::-1] }}",
     "chat, line 1: a number is too large"},
    {"{{ '%\\0' % 1 }}", "chat, line 1: a format has an invalid conversion after %"},
    {"{{ '%(b)\\0' % d }}", "chat, line 1: a format has an invalid conversion after %"},
    {"{{ '{:\\0}'.format(1) }}", "chat, line 1: a format has invalid text between { and }"},
    {"{{ '{:\\0<4}'.format(1) }}", "chat, line 1: a format has invalid text between { and }"},
    {"{{ 9223372036854775807|round(-19) }}", "chat, line 1: a number is too large"},
    {"{{ n|nope }}", "chat, line 1: unknown filter 'nope'"},
    {"{{ n is nope }}", "chat, line 1: unknown test 'nope'"},
    {"\n{% nope %}", "chat, line 2: unknown or misplaced tag 'nope'"},
    {"{% if n %}", "chat, line 1: a block is not closed: {% endif %} is missing"},
    {"{{ n", "chat, line 1: a tag is not closed"},
    {"{{ 'n }}", "chat, line 1: a string is not closed"},
    {"{# n", "chat, line 1: a comment is not closed"},
    {"{{ (1] }}", "chat, line 1: a closing bracket has no matching opening bracket"},
    {"{% set d.x = 1 %}", "chat, line 1: cannot assign to an attribute of a dict; use a namespace"},
    {"{{ range(1000000000) }}", "chat, line 1: a range has more than 100000 items"},
    {"{{ namespace()|tojson }}", "chat, line 1: a Namespace cannot be written as JSON"},
};

static void test_mistakes(void **state)
{
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        wf_rendered out;
        wf_status wanted = i == 0 ? WF_ERR_USAGE : WF_ERR_FORMAT;
        wt_fails(ctx, render(ctx, mistakes[i].text, VARIABLES, NULL, &out), wanted,
                 mistakes[i].want);
        assert_null(out.text);
    }
    wf_rendered out;
    wt_fails(ctx, render(ctx, "x", "[1]", NULL, &out), WF_ERR_USAGE, "must be a JSON object");
}

/* ---- Limits ---- */

#define STEPS 20000
#define FOR_20 FOR_5 FOR_5 FOR_5 FOR_5
#define FOR_5 FOR FOR FOR FOR FOR
#define FOR "{% for z in [1] %}"
#define END_20 END_5 END_5 END_5 END_5
#define END_5 END END END END END
#define END "{% endfor %}"

static const pair endless[] = {
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"},
    {"{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "deep"},
    {"{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "deep"},
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "more than"},
    {"{% for a in range(99999) %}{{ 'a' if 1 in range(999) and 'b' in 'ab' * 999 }}{% endfor %}",
     "more than"},
    {"{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}", "more than"},
    {"{{ 'a' * 1000000000 }}", "bytes of memory"},
    {"{{ 'a' * 9223372036854775807 }}", "bytes of memory"},
    {"{{ [1] * 1000000000 }}", "more than"},
    {"{% set ns = namespace(s='ab') %}{% for x in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
     "bytes of memory"},
    {"{% set ns = namespace(s='ab') %}{% for x in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
     "more than"},
    {"{% set ns = namespace(s=1) %}{% for x in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
     "deep"},
    {"{% set ns = namespace(s=1) %}{% for x in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s == ns.s }}{{ ns.s|tojson }}",
     "deep"},
    {"{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "deep"},
    {"{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", "deep"},
    {"{% set l = [] %}{% set _ = l.append(l) %}{{ [l] == [[l]] }}", "deep"},
    {"{% set d = {} %}{% set _ = d.update(a=d) %}{{ d }}", "deep"},
    {"{% set s = 'a' * 1000000 %}{% for x in range(9999) %}{% if s.find('b') > 0 %}{% endif %}{% endfor %}",
     "steps"},
    {"{% set s = 'a' * 100000 %}{{ s.find('a' * 50000 ~ 'b') }}", "steps"},
    {"{% set s = 'a' * 1000000 %}{% for x in range(99999) %}{% if s[5] %}{% endif %}{% endfor %}",
     "steps"},
    {"{% set s = 'a' * 1000000 %}{{ s|replace('', 'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz') }}",
     "more than"},
    {"{{ '%99999999999d' % 1 }}", "too large"},
    {"{{ 'a'.center(9223372036854775807) }}", "more than"},
    {"{{ '5'.zfill(9223372036854775807) }}", "more than"},
    {"{% for x in range(99999) %}{{ 'abcdefghijklmnopqrstuvwxyz' * 100 }}{% endfor %}",
     "bytes of memory"},
    {"{% set ns = namespace(x=1) %}{% macro f() %}{% for a in [1] %}{% if 1 %}{{ [[[[f()]]]]|string|upper }}{% endif %}{% endfor %}{% endmacro %}{{ f() }}",
     "deep"},
};

static void test_limits(void **state)
{
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        wf_rendered out;
        wf_mem_stats before, after;
        clock_t start = clock();
        wf_ctx_mem_stats(ctx, &before);
        wt_fails(ctx, render(ctx, endless[i].text, VARIABLES, NULL, &out), WF_ERR_FORMAT,
                 endless[i].want);
        wf_ctx_mem_stats(ctx, &after);
        assert_true(after.peak_bytes < (size_t)66 << 20);
        assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
    }
}

/* Each does work that exceeds STEPS only if all bytes and items that it reads are charged. */
static const char *const charged[] = {
    "{% set a = '\xC3\xA9' * 2000 %}{{ a.strip('\xC3\xA0' * 2000 ~ '\xC3\xA9') }}",
    "{% set a = '\xC3\xA9' * 2000 %}{{ a.lstrip('\xC3\xA0' * 2000 ~ '\xC3\xA9') }}",
    "{% set a = '\xC3\xA9' * 2000 %}{{ a.rstrip('\xC3\xA0' * 2000 ~ '\xC3\xA9') }}",
    "{% set a = '\xC3\xA9' * 2000 %}{{ a|trim('\xC3\xA0' * 2000 ~ '\xC3\xA9') }}",
    "{% set s = ' ' * 100000 %}{% for i in range(10) %}{{ s.isspace() }}{% endfor %}",
    "{% set s = '0' * 100000 %}{% for i in range(10) %}{{ s.isdigit() }}{% endfor %}",
    "{% set s = '0' * 100000 %}{% for i in range(10) %}{{ s.isdecimal() }}{% endfor %}",
    "{% set s = 'a' * 20000 %}{% for i in range(5) %}{{ s.islower() }}{% endfor %}",
    "{% set s = 'a' * 20000 %}{% for i in range(5) %}{{ s is upper }}{% endfor %}",
    "{% set s = 'a' * 100000 %}{% for i in range(10) %}{{ s.splitlines()|length }}{% endfor %}",
    "{% set s = '0' * 100000 %}{% for i in range(10) %}{{ s|int }}{% endfor %}",
    "{% set s = ' ' * 100000 %}{% for i in range(10) %}{{ s|float|int }}{% endfor %}",
    "{% set s = 'a' * 30000 %}{% for i in range(20) %}{% if s|e %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 30000 %}{% for i in range(20) %}{% if s|title %}{% endif %}{% endfor %}",
    "{% set t = (1,) * 5000 %}{% for i in range(40) %}{{ t in {} }}{% endfor %}",
    "{% set l = [0] * 5000 %}{% for i in range(40) %}{{ l.append(0) }}{{ l.remove(0) }}{% endfor %}",
    "{% set t = ('a',) * 5000 %}{% for i in range(10) %}{{ 'b'.endswith(t) }}{% endfor %}",
    "{% set a = 'a' * 20000 %}{{ range(40)|map(attribute=a)|list }}",
    "{% set d = {} %}{% for i in range(100) %}{{ d.update({i|string: i}) }}{% endfor %}"
    "{{ ('%(99)d' * 1000) % d }}",
    "{% set d = {} %}{% for i in range(100) %}{{ d.update({'k' ~ i: i}) }}{% endfor %}"
    "{{ ('{k99:d}' * 1000).format(**d) }}",
    "{% set d = {} %}{% for i in range(100) %}{{ d.update({'k' ~ i: i}) }}{% endfor %}"
    "{{ ([''] * 1000)|map('map', 'upper', **d)|list|length }}",
    "{{ ('%d' * 5000) % ((1,) * 5000) }}",
    "{{ [0.1] * 1500 }}",
    /* keys and names of equal length that differ only at their end */
    "{% set s = 'a' * 2000 ~ 'b' ~ 'a' * 2000 %}{% set d = {} %}{% for i in range(20) %}"
    "{{ d.update({s[i:i + 2001]: 1}) }}{% endfor %}{% for i in range(20) %}"
    "{{ d['a' * 2001] }}{% endfor %}",
    "{% set s = 'a' * 1000 ~ 'b' ~ 'a' * 1000 %}{% set d = {} %}{% for i in range(30) %}"
    "{{ d.update({s[i:i + 1001]: 1}) }}{% endfor %}{{ dict(**d)|length }}",
    /* a name that none of many scopes has */
    FOR_20 FOR_20 FOR_20 "{% for i in range(600) %}{{ x }}{% endfor %}" END_20 END_20 END_20,
    "{% generation %}{% generation %}{% generation %}{% generation %}{% generation %}"
    "{{ 'a' * 80000 }}{% endgeneration %}{% endgeneration %}{% endgeneration %}"
    "{% endgeneration %}{% endgeneration %}",
};

static void test_charges(void **state)
{
    wf_ctx *ctx = *state;
    int free_of_charge = 0;
    for (size_t i = 0; i < sizeof charged / sizeof *charged; i++) {
        wf_rendered out;
        wf_status status =
            render(ctx, charged[i], "{}", &(wf_template_options){.steps = STEPS}, &out);
        if (status == WF_OK) {
            print_message("takes at most %d steps: %s\n", STEPS, charged[i]);
            free_of_charge++;
        } else {
            wt_fails(ctx, status, WF_ERR_FORMAT, "took more than 20000 steps");
        }
        wf_rendered_free(ctx, &out);
    }
    assert_int_equal(free_of_charge, 0);
}

/* A set of many ASCII characters costs no more than one of few. */
static void test_large_sets(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const calls[] = {"a.strip(s)", "a.lstrip(s)", "a.rstrip(s)", "a|trim(s)"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[200];
        wf_rendered out;
        clock_t start = clock();
        snprintf(text, sizeof text,
                 "{%% set a = 'b' * 60000 %%}{%% set s = 'a' * 60000 ~ 'b' %%}<{{ %s }}>",
                 calls[i]);
        wt_ok(ctx, render(ctx, text, "{}", NULL, &out));
        assert_string_equal(out.text, "<>");
        wf_rendered_free(ctx, &out);
        assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
    }
}

/* Limits set by the caller apply. */
static void test_options(void **state)
{
    wf_ctx *ctx = *state;
    wf_rendered out;
    const char *loop = "{% for x in range(100) %}{{ x }}{% endfor %}";
    const char *calls = "{% macro f(n) %}{{ f(n - 1) if n }}{% endmacro %}{{ f(9) }}";
    wt_fails(ctx, render(ctx, loop, "{}", &(wf_template_options){.steps = 300}, &out),
             WF_ERR_FORMAT, "took more than 300 steps");
    wt_ok(ctx, render(ctx, loop, "{}", &(wf_template_options){.steps = 3000}, &out));
    wf_rendered_free(ctx, &out);
    wt_fails(ctx, render(ctx, calls, "{}", &(wf_template_options){.depth = 5}, &out), WF_ERR_FORMAT,
             "more than 5 deep");
    wt_ok(ctx, render(ctx, calls, "{}", &(wf_template_options){.depth = 20}, &out));
    wf_rendered_free(ctx, &out);
    /* Values may nest 16 times as deep as calls. */
    const char *lists = "{% set ns = namespace(l=1) %}{% for i in range(99) %}"
                        "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}";
    wt_fails(ctx, render(ctx, lists, "{}", &(wf_template_options){.depth = 5}, &out), WF_ERR_FORMAT,
             "more than 80 deep");
    wt_fails(ctx,
             render(ctx, "{{ 'a' * 9000 }}", "{}", &(wf_template_options){.bytes = 10000}, &out),
             WF_ERR_FORMAT, "needs more than 10000 bytes");
    wt_ok(ctx, render(ctx, "{{ 'a' * 100 }}", "{}", &(wf_template_options){.bytes = 10000}, &out));
    wf_rendered_free(ctx, &out);
}

/* A conversation of a megabyte, built piece by piece in a variable, stays within the default
 * limits. */
static void test_long_conversation(void **state)
{
    wf_ctx *ctx = *state;
    wf_rendered out;
    enum { MESSAGES = 1000, LETTERS = 1000 };
    char *json = malloc(MESSAGES * (LETTERS + 64) + 64), *at = json;
    assert_non_null(json);
    at += sprintf(at, "{\"m\": [");
    for (int i = 0; i < MESSAGES; i++) {
        at += sprintf(at, "%s{\"role\": \"user\", \"content\": \"", i ? ", " : "");
        memset(at, 'a', LETTERS);
        at += LETTERS;
        at += sprintf(at, "\"}");
    }
    sprintf(at, "]}");
    wt_ok(
        ctx,
        render(
            ctx,
            "{% set ns = namespace(t='') %}{% for x in m %}{% set ns.t = ns.t + '<' + x.role + '>' + x.content %}"
            "{% endfor %}{{ ns.t }}",
            json, NULL, &out));
    assert_int_equal(out.bytes, MESSAGES * (LETTERS + 6));
    wf_rendered_free(ctx, &out);
    free(json);
}

/* Deep nesting in the template's text. */
static void test_deep_text(void **state)
{
    wf_ctx *ctx = *state;
    static const pair nests[] = {{"(", ")"},    {"[", "]"},        {"-", ""},
                                 {"not ", ""},  {"a.", "b"},       {"1 if ", "1"},
                                 {"1 + ", "1"}, {"n|abs|", "abs"}, {"f(", ")"}};
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        enum { N = 20000 };
        size_t open = strlen(nests[i].text), close = strlen(nests[i].want);
        char *text = malloc(N * (open + close) + 64), *at = text;
        wf_rendered out;
        assert_non_null(text);
        at += sprintf(at, "{{ ");
        for (int k = 0; k < N; k++)
            at += sprintf(at, "%s", nests[i].text);
        at += sprintf(at, "1");
        for (int k = 0; k < (close == 1 ? N : 1); k++)
            at += sprintf(at, "%s", nests[i].want);
        sprintf(at, " }}");
        wf_status status = render(ctx, text, VARIABLES, NULL, &out);
        assert_true(status == WF_OK || wt_is_sentence(wf_ctx_message(ctx)));
        wf_rendered_free(ctx, &out);
        free(text);
    }
    char blocks[40 * 300] = "";
    for (int k = 0; k < 300; k++)
        strcat(blocks, "{% if 1 %}");
    wf_rendered out;
    wt_fails(ctx, render(ctx, blocks, "{}", NULL, &out), WF_ERR_FORMAT, "nested more than");
}

/* ---- Hostile text ---- */

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Random template fragments and invalid UTF-8: no crash, no leak, one sentence. */
static void test_random_text(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const pieces[] = {
        "{{",     "}}",       "{%",     "%}",      "{#",       "#}",
        "-",      "+",        " ",      "\n",      "if ",      "endif",
        "for ",   "x ",       "in ",    "endfor",  "set ",     "= ",
        "macro ", "m",        "(",      ")",       "[",        "]",
        "{",      "}",        "'a'",    "\"",      "'",        "\\",
        "1",      "0.5",      "|",      "upper",   "list",     ".",
        "~",      ",",        ":",      "is ",     "not ",     "and ",
        "else ",  "raw",      "endraw", "endset",  "endmacro", "\xFF",
        "\xC3",   "\xE2\x82", "d",      "m[0]",    "tojson",   "join",
        "**",     "//",       "loop",   "endcall", "call ",    "\xF0\x9F\x8E\x89",
    };
    uint64_t seed = wt_seed();
    for (int round = 0; round < 3000; round++) {
        char text[512] = "";
        wf_rendered out;
        int count = 1 + (int)(next(&seed) % 40);
        for (int i = 0; i < count; i++)
            strcat(text, pieces[next(&seed) % (sizeof pieces / sizeof *pieces)]);
        wf_status status =
            render(ctx, text, VARIABLES, &(wf_template_options){.steps = 10000}, &out);
        assert_true(status == WF_OK || wf_ctx_message(ctx)[0]);
        wf_rendered_free(ctx, &out);
    }
}

/* Every allocation fails in turn: an error, and no leak (teardown checks). */
static void test_failing_memory(void **state)
{
    wf_ctx *ctx = *state;
    static const char text[] =
        "{% set ns = namespace(a=1) %}{% macro q(x, y=2) %}[{{ x }}{{ y }}]{% endmacro %}"
        "{% for x in m if x.role %}{{ q(x.content|trim) }}{{ x|tojson(indent=2) }}{% set ns.a = ns.a + 1 %}{% endfor %}"
        "{{ d.items()|list }}{{ list|sort|map('string')|join('-') }}{{ '%s' % n }}{{ d.a.split('<')[0]|upper }}"
        "{% set big %}{{ 'abc' * 40000 }}{% endset %}{{ big|length }}{{ big }}";
    bool done = false;
    for (uint64_t nth = 1; !done; nth++) {
        wf_rendered out;
        uint64_t blocks = wt_live_blocks(ctx);
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = render(ctx, text, VARIABLES, NULL, &out);
        wf_ctx_fail_allocation(ctx, 0);
        assert_true(status == WF_OK || status == WF_ERR_MEMORY);
        done = status == WF_OK;
        wf_rendered_free(ctx, &out);
        assert_int_equal(wt_live_blocks(ctx), blocks);
        assert_true(nth < 10000);
    }
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        wt_test(test_prints),
        wt_test(test_marks),
        wt_test(test_grown_strings_share_nothing),
        wt_test(test_mistakes),
        wt_test(test_limits),
        wt_test(test_charges),
        wt_test(test_large_sets),
        wt_test(test_options),
        wt_test(test_long_conversation),
        wt_test(test_deep_text),
        wt_test(test_random_text),
        wt_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
