/* SPDX-License-Identifier: MIT */
/*
 * test_records.c - records of data files: the text of each kind, and the part of it that gets loss,
 * with {% generation %} as in transformers' assistant masks. Also arrays in .json, byte order
 * marks, bad records, and the variables that chat templates see.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/chat.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"
#include "text/token.h"
#include "train/conversation.h"

/* ---- One record ---- */

#define PLAIN                                                                            \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}" \
    "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
#define MARKED                                                                            \
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}" \
    "{{ m.content | trim }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}"   \
    "{% endif %}\n{% endfor %}"
/* Removes thinking from earlier answers, which changes the prefix of the conversation. Only {%
 * generation %} marks can handle that. */
#define FORGETS                                                                           \
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}" \
    "{{ m.content if loop.last else m.content.split('|')[-1] }}{% endgeneration %}"       \
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"

/* Writes eos_token after the last message, as Phi 3's template does. */
#define CLOSES                                                           \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}" \
    "{% if add_generation_prompt %}<assistant>{% else %}{{ eos_token }}{% endif %}"

typedef struct {
    wf_ctx *ctx;
    wf_tokenizer *tokenizer;
} bench;

static bench open_bench(wf_ctx *ctx)
{
    bench b = {.ctx = ctx};
    wt_ok(ctx, wf_tokenizer_open(ctx, WT_MODELS_FOLDER "/qwen2", &b.tokenizer));
    return b;
}

static void close_bench(bench *b)
{
    wf_tokenizer_free(b->tokenizer);
}

/* Returns the text of a record with [[ ]] around the parts that get loss, or NULL when the record
 * was refused. Caller frees. */
static char *shown(bench *b, const char *template, const char *record)
{
    wf_arena arena;
    wf_template *t;
    wf_json_node *json;
    wf_entry entry;
    wf_conversation c = {0};
    char *out = calloc(1, 4096);
    wf_arena_init(&arena, b->ctx);
    wt_ok(b->ctx, wf_template_new(b->ctx, "it", template, strlen(template), &t));
    wt_ok(b->ctx, wf_json_parse(&arena, "it", record, strlen(record), &json));
    const wf_conversations how = {.tokenizer = b->tokenizer,
                                  .template = t,
                                  .end = wf_tokenizer_special(b->tokenizer, WF_SPECIAL_EOS)};
    wf_status status = wf_entry_read(&arena, json, &entry);
    if (status == WF_OK && entry.kind == WF_ENTRY_TEXT)
        strncat(out, entry.text->string, 4000);
    else if (status == WF_OK)
        status = wf_conversation_encode(&how, &arena, &entry, &c);
    for (size_t i = 0, end; status == WF_OK && i < c.count; i = end) {
        char *text;
        size_t bytes;
        for (end = i; end < c.count && c.mask[end] == c.mask[i]; end++)
            ;
        wt_ok(b->ctx, wf_tokenizer_decode(b->tokenizer, b->ctx, c.ids + i, end - i, WF_TEXT_CONTROL,
                                          &text, &bytes));
        strcat(strcat(strcat(out, c.mask[i] ? "[[" : ""), text), c.mask[i] ? "]]" : "");
        wf_text_free(b->ctx, text);
    }
    wf_template_free(t);
    wf_arena_free(&arena);
    if (status != WF_OK) {
        free(out);
        out = NULL;
    }
    return out;
}

static void expect(bench *b, const char *template, const char *record, const char *wanted)
{
    char *got = shown(b, template, record);
    if (!got)
        fail_msg("%s: %s", record, wf_ctx_message(b->ctx));
    assert_string_equal(got, wanted);
    free(got);
}

static void expect_refused(bench *b, const char *template, const char *record, const char *why)
{
    char *got = shown(b, template, record);
    if (got)
        fail_msg("%s was taken as %s", record, got);
    if (!strstr(wf_ctx_message(b->ctx), why))
        fail_msg("%s: %s", record, wf_ctx_message(b->ctx));
    wf_ctx_clear(b->ctx);
}

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define END "<|im_end|>"

static void test_kinds(void **state)
{
    bench b = open_bench(*state);
    expect(&b, PLAIN, "{\"messages\":[" U("Hi") "," A("Yes") "]}",
           "<user>Hi<assistant>[[Yes" END "]]");
    expect(&b, PLAIN,
           "{\"system\":\"S\",\"conversations\":[{\"from\":\"human\",\"value\":\"Hi\"},"
           "{\"from\":\"gpt\",\"value\":\"Yes\"}],\"id\":7}",
           "<system>S<user>Hi<assistant>[[Yes" END "]]");
    expect(&b, PLAIN, "{\"instruction\":\"Add\",\"input\":\"1 2\",\"output\":\"3\",\"text\":\"x\"}",
           "<user>Add\n\n1 2<assistant>[[3" END "]]");
    expect(&b, PLAIN,
           "{\"instruction\":\"Add\",\"input\":\"\",\"output\":\"3\",\"history\":[[\"a\",\"b\"]]}",
           "<user>a<assistant>[[b" END "]]<user>Add<assistant>[[3" END "]]");
    expect(&b, PLAIN, "{\"prompt\":\"The sky\",\"completion\":\" is <b>\"}",
           "The sky[[ is <b>" END "]]");
    expect(&b, PLAIN, "{\"prompt\":\"The sky\",\"response\":\" is\"}", "The sky[[ is" END "]]");
    expect(&b, PLAIN, "{\"prompt\":[" U("a") "," A("b") "," U("c") "],\"completion\":[" A("d") "]}",
           "<user>a<assistant>b" END "<user>c<assistant>[[d" END "]]");
    expect(&b, PLAIN, "{\"text\":\"just text\",\"label\":1,\"images\":[]}", "just text");
    expect(&b, PLAIN,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},"
           "{\"type\":\"text\",\"text\":\"two\"}]}," A("Yes") "]}",
           "<user>one\ntwo<assistant>[[Yes" END "]]");
    expect(
        &b, PLAIN,
        "{\"messages\":[" U("Hi") ",{\"role\":\"assistant\",\"content\":\"bad\",\"weight\":0}," U(
            "So") "," A("Yes") "]}",
        "<user>Hi<assistant>bad" END "<user>So<assistant>[[Yes" END "]]");
    expect(
        &b, "{{ documents[0].t }}{{ extra }}{{ tools[0] }}" PLAIN,
        "{\"messages\":[" U("Hi") "," A("Yes") "],\"tools\":[\"T\"],\"documents\":[{\"t\":\"D\"}],"
                                               "\"chat_template_kwargs\":{\"extra\":\"E\"}}",
        "DET<user>Hi<assistant>[[Yes" END "]]");
    close_bench(&b);
}

/* Only the last message is followed by the text that closes a conversation. */
static void test_closed(void **state)
{
    bench b = open_bench(*state);
    expect(&b, CLOSES, "{\"messages\":[" U("Hi") "," A("Yes") "," U("So") "," A("No") "]}",
           "<user>Hi\n<assistant>[[Yes\n]]<user>So\n<assistant>[[No\n" END "]]");
    close_bench(&b);
}

static void test_refused(void **state)
{
    bench b = open_bench(*state);
    static const struct {
        const char *record, *why;
    } cases[] = {
        {"{\"messages\":[" U("Hi") "," A("Yes") "],\"images\":[\"a.png\"]}", "\"images\""},
        {"{\"messages\":[" U("Hi") "," A("Yes") "],\"functions\":[1]}", "\"tools\""},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}", "\"chosen\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
         "type \"image_url\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
         "no string \"text\""},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0.5}]}",
         "\"weight\""},
        {"{\"system\":\"S\",\"messages\":[{\"role\":\"system\",\"content\":\"T\"}]}",
         "a system message"},
        {"{\"system\":\"S\",\"prompt\":\"a\",\"completion\":\"b\"}", "\"system\""},
        {"{\"prompt\":\"a\",\"completion\":[" A("b") "]}", "two strings or two lists"},
        {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[1]}", "\"history\""},
        {"{\"instruction\":\"a\"}", "\"instruction\" with an \"output\""},
        {"[1]", "no string \"text\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(&b, PLAIN, cases[i].record, cases[i].why);
    expect_refused(&b, MARKED,
                   "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0}]}",
                   "generation");
    close_bench(&b);
}

/* The masks match apply_chat_template(return_assistant_tokens_mask=True) with this tokenizer. */
static void test_generation(void **state)
{
    bench b = open_bench(*state);
    expect(&b, MARKED, "{\"messages\":[" U("Hi") "," A("  Yes ") "," U("So") "," A("No") "]}",
           "<user>Hi<assistant>[[Yes" END "]]<user>So<assistant>[[No" END "]]");
    expect(&b, FORGETS, "{\"messages\":[" U("Hi") "," A("t|Yes") "," U("So") "," A("u|No") "]}",
           "<user>Hi<assistant>[[Yes]]<user>So<assistant>[[u|No" END "]]");
    /* A token with at least one byte of the answer counts, at either end. */
    expect(&b, "a{% generation %} b{% endgeneration %}c", "{\"messages\":[" A("x") "]}",
           "a[[ b]]c" END);
    expect(&b, "a{% generation %}i{% endgeneration %}s", "{\"messages\":[" A("x") "]}",
           "a[[is" END "]]");
    expect(&b, "ai{% generation %}s{% endgeneration %} b", "{\"messages\":[" A("x") "]}",
           "a[[is]] b" END);
    expect(&b, MARKED,
           "{\"prompt\":[" U("a") "," A("b") "," U("c") "],\"completion\":[" A("d") "]}",
           "<user>a<assistant>b" END "<user>c<assistant>[[d" END "]]");
    close_bench(&b);
}

/* ---- Variables ---- */

static void test_variables(void **state)
{
    wf_ctx *ctx = *state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"<e>\":1,\"<m>\":2}}}";
    static const char config[] =
        "{\"eos_token\":\"<e>\",\"bos_token\":null,\"mask_token\":{\"content\":\"<m>\"},"
        "\"image_token\":\"<i>\",\"extra_special_tokens\":{\"boi_token\":\"<boi>\"}}";
    static const struct {
        const char *template, *wanted;
    } cases[] = {
        {"{{ tools is defined }}{{ tools is none }}{{ tools is not none }}", "TrueTrueFalse"},
        {"{% if tools %}with{% else %}without{% endif %}", "without"},
        {"{{ documents is defined }}{{ documents is none }}", "TrueTrue"},
        {"{{ add_generation_prompt }}", "True"},
        {"{{ eos_token }}{{ mask_token }}{{ image_token }}{{ boi_token }}", "<e><m><i><boi>"},
        {"{{ bos_token is defined }}{{ unk_token is defined }}{{ sep_token is defined }}",
         "FalseFalseFalse"},
        {"{{ messages[0].reasoning_content }}{{ messages[0].thinking }}", "whywhy"},
        {"{{ messages[1].reasoning_content is defined }}", "False"},
        {"{{ messages[0] | tojson(ensure_ascii=False, separators=(',', ':'), sort_keys=True) }}",
         "{\"content\":\"\xC3\xA9\",\"reasoning\":\"why\",\"reasoning_content\":\"why\","
         "\"role\":\"user\",\"thinking\":\"why\"}"},
    };
    wf_arena arena;
    wf_tokenizer *t;
    wf_json_node *messages;
    const char list[] = "[{\"role\":\"user\",\"content\":\"\xC3\xA9\",\"reasoning\":\"why\"},"
                        "{\"role\":\"user\",\"content\":\"b\"}]";
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "it", json, strlen(json), config, strlen(config), &t));
    wt_ok(ctx, wf_json_parse(&arena, "it", list, strlen(list), &messages));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].template;
        wf_template *template;
        wf_rendered out;
        const wf_chat chat = {.messages = messages, .answer = true};
        wt_ok(ctx, wf_template_new(ctx, "it", text, strlen(text), &template));
        wt_ok(ctx, wf_chat_render(template, t, ctx, &chat, &out));
        assert_string_equal(out.text, cases[i].wanted);
        wf_rendered_free(ctx, &out);
        wf_template_free(template);
    }
    wf_tokenizer_free(t);
    wf_arena_free(&arena);
}

/* ---- Files ---- */

static wt_scratch scratch;

static wf_status prepare_with(wf_ctx *ctx, const char *tokenizer, const char *in, const char *out,
                              const char *format, bool skip_bad, wf_prepared *made)
{
    char from[600];
    snprintf(from, sizeof from, "%s", wt_path(&scratch, in));
    const char *inputs[] = {from};
    const wf_prepare_options o = {.inputs = inputs,
                                  .input_count = 1,
                                  .tokenizer = tokenizer,
                                  .format = format,
                                  .skip_bad = skip_bad,
                                  .valid = -1};
    return wf_prepare(ctx, wt_path(&scratch, out), &o, made);
}

static wf_status prepare(wf_ctx *ctx, const char *in, const char *out, const char *format,
                         bool skip_bad, wf_prepared *made)
{
    return prepare_with(ctx, WT_MODELS_FOLDER "/qwen2", in, out, format, skip_bad, made);
}

/* Documents and pairs start with the tokenizer's bos, even when bos and eos are the same token. */
static void test_begin(void **state)
{
    bench b = {.ctx = *state};
    wf_prepared made, plain;
    char *json, tokenizer[600];
    size_t bytes;
    wt_scratch_make(&scratch);
    wt_ok(b.ctx,
          wf_file_read(b.ctx, WT_MODELS_FOLDER "/qwen2/tokenizer.json", 1 << 24, &json, &bytes));
    snprintf(tokenizer, sizeof tokenizer, "%s", wt_put_text(&scratch, "tokenizer.json", json));
    wt_put_text(&scratch, "tokenizer_config.json",
                "{\"bos_token\":\"" END "\",\"eos_token\":\"" END "\",\"add_bos_token\":true}");
    wt_put_text(&scratch, "a.txt", "The sky is blue");
    wt_ok(b.ctx, prepare(b.ctx, "a.txt", "plain", NULL, false, &plain));
    wt_ok(b.ctx, prepare_with(b.ctx, tokenizer, "a.txt", "begun", NULL, false, &made));
    assert_int_equal(made.train.tokens, plain.train.tokens + 1);
    wt_ok(b.ctx, wf_tokenizer_open(b.ctx, tokenizer, &b.tokenizer));
    expect(&b, PLAIN, "{\"prompt\":\"The sky\",\"completion\":\" is\"}",
           END "The sky[[ is" END "]]");
    expect(&b, PLAIN, "{\"prompt\":\"\",\"completion\":\"So\"}", END "[[So" END "]]");
    close_bench(&b);
    wf_mem_free(b.ctx, json);
    wt_scratch_remove(&scratch);
}

static void expect_same(wf_ctx *ctx, const char *one, const char *other)
{
    char path[700], *x, *y;
    size_t a, b;
    snprintf(path, sizeof path, "%s/train-00000.weft", wt_path(&scratch, one));
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &x, &a));
    snprintf(path, sizeof path, "%s/train-00000.weft", wt_path(&scratch, other));
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &y, &b));
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a);
    wf_mem_free(ctx, x);
    wf_mem_free(ctx, y);
}

/* The template called tool_use is used for conversations with tools, wherever it comes from. */
static void test_tools(void **state)
{
    wf_ctx *ctx = *state;
    wf_prepared made;
    char *json, tokenizer[600], folder[600];
    size_t bytes;
    wt_scratch_make(&scratch);
    wt_ok(ctx, wf_file_read(ctx, WT_MODELS_FOLDER "/qwen2/tokenizer.json", 1 << 24, &json, &bytes));
    snprintf(tokenizer, sizeof tokenizer, "%s", wt_put_text(&scratch, "tokenizer.json", json));
    wf_mem_free(ctx, json);
    wt_put_text(&scratch, "plain.jsonl", "{\"messages\":[" U("a") "," A("b") "]}\n");
    wt_put_text(&scratch, "tools.jsonl", "{\"messages\":[" U("a") "," A("b") "],\"tools\":[{}]}\n");
    static const char list[] = "{\"eos_token\":\"" END "\",\"chat_template\":["
                               "{\"name\":\"default\",\"template\":\"" PLAIN "\"},"
                               "{\"name\":\"tool_use\",\"template\":\"TTT" PLAIN "\"}]}";
    for (int i = 0; i < 2; i++) {
        int64_t tokens[2];
        wt_put_text(&scratch, "tokenizer_config.json",
                    i ? "{\"eos_token\":\"" END "\",\"chat_template\":\"" PLAIN "\"}" : list);
        if (i) {
            snprintf(folder, sizeof folder, "%s", wt_path(&scratch, "additional_chat_templates"));
            assert_int_equal(mkdir(folder, 0777), 0);
            wt_put_text(&scratch, "additional_chat_templates/tool_use.jinja", "TTT" PLAIN);
        }
        wt_ok(ctx,
              prepare_with(ctx, tokenizer, "plain.jsonl", i ? "p1" : "p0", NULL, false, &made));
        tokens[0] = made.train.tokens;
        wt_ok(ctx,
              prepare_with(ctx, tokenizer, "tools.jsonl", i ? "t1" : "t0", NULL, false, &made));
        tokens[1] = made.train.tokens;
        assert_true(tokens[1] > tokens[0]);
    }
    expect_same(ctx, "p0", "p1");
    expect_same(ctx, "t0", "t1");
    wt_scratch_remove(&scratch);
}

/* Writes records as lines, and as an array with white space and brackets in strings. */
static void write_records(int count)
{
    char *lines = malloc((size_t)count * 160 + 64), *array = malloc((size_t)count * 200 + 64);
    size_t n = 0, m = 0;
    assert_true(lines && array);
    m += (size_t)sprintf(array + m, "\xEF\xBB\xBF [");
    for (int i = 0; i < count; i++) {
        char record[160];
        snprintf(record, sizeof record,
                 "{\"messages\": [" U("q%d ]}\\\",[\\\\") "," A("a%d {[") "], \"n\": [[%d]]}", i, i,
                 i);
        n += (size_t)sprintf(lines + n, "%s\n", record);
        m += (size_t)sprintf(array + m, "%s\n  %s ", i ? "," : "", record);
    }
    sprintf(array + m, "\n]\n");
    wt_put(&scratch, "r.jsonl", lines, n);
    wt_put(&scratch, "r.json", array, strlen(array));
    wt_put(&scratch, "lines.json", lines, n);
    free(lines);
    free(array);
}

static void test_arrays(void **state)
{
    wf_ctx *ctx = *state;
    wf_prepared lines, array;
    wt_scratch_make(&scratch);
    write_records(3000); /* several chunks */
    wt_ok(ctx, prepare(ctx, "r.jsonl", "a", NULL, false, &lines));
    wt_ok(ctx, prepare(ctx, "r.json", "b", NULL, false, &array));
    assert_int_equal(lines.train.documents, 3000);
    assert_int_equal(array.train.documents, 3000);
    expect_same(ctx, "a", "b");
    wt_ok(ctx, prepare(ctx, "lines.json", "c", NULL, false, &array));
    expect_same(ctx, "a", "c");
    wt_ok(ctx, prepare(ctx, "r.json", "d", "text", false, &array));
    assert_int_equal(array.train.documents, 1); /* with the option */
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"\"text\"", "not a JSON array of records"},
        {"plain text", "--format text"},
        {"[{\"text\":\"a\"}", "not a complete JSON array"},
        {"[{\"text\":\"a\"}] x", "brackets or commas"},
        {"[{\"text\":\"a\"},]", "brackets or commas"},
        {"[{\"text\":\"a\"},}]", "brackets or commas"},
        {"[{\"text\":\"a\"},,{\"text\":\"a\"}]", "record 2 of"},
        {"[{\"text\":\"a\"}, {\"texts\":\"a\"}]", "record 2 of"},
        {"{\n\"name\": 1}\n", "--format text"},
        {"{\"name\": 1}\n", "line 1 of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wt_put_text(&scratch, "bad.json", cases[i].text);
        wt_fails(ctx, prepare(ctx, "bad.json", "e", NULL, false, &array), WF_ERR_FORMAT,
                 cases[i].why);
    }
    wt_scratch_remove(&scratch);
}

static void test_marks_and_bad(void **state)
{
    wf_ctx *ctx = *state;
    wf_prepared made;
    wt_scratch_make(&scratch);
    wt_put_text(&scratch, "a.txt", "some text");
    wt_put_text(&scratch, "b.txt", "\xEF\xBB\xBFsome text");
    wt_put_text(&scratch, "a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
    wt_put_text(&scratch, "b.jsonl", "\xEF\xBB\xBF{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
    wt_put_text(&scratch, "c.jsonl",
                "{\"text\":\"one\"}\n{bad\n{\"txt\":1}\n{\"text\":\"two\"}\n[]\n");
    wt_put_text(&scratch, "c.json",
                "[{\"text\":\"one\"}, 7, {\"text\":\"two\"}, {\"images\":[1]}]");
    for (const char *const *name =
             (const char *const[]){"a.txt", "b.txt", "a.jsonl", "b.jsonl", NULL};
         *name; name++) {
        char out[32];
        snprintf(out, sizeof out, "%s.out", *name);
        wt_ok(ctx, prepare(ctx, *name, out, NULL, false, &made));
    }
    expect_same(ctx, "a.txt.out", "b.txt.out");
    expect_same(ctx, "a.jsonl.out", "b.jsonl.out");
    wt_fails(ctx, prepare(ctx, "c.jsonl", "c.out", NULL, false, &made), WF_ERR_FORMAT, "line 2 of");
    wt_ok(ctx, prepare(ctx, "c.jsonl", "c.out", NULL, true, &made));
    assert_int_equal(made.bad, 3);
    expect_same(ctx, "a.jsonl.out", "c.out");
    wt_ok(ctx, prepare(ctx, "c.json", "d.out", NULL, true, &made));
    assert_int_equal(made.bad, 2);
    expect_same(ctx, "a.jsonl.out", "d.out");
    wt_scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_kinds),     wt_test(test_closed),  wt_test(test_begin),
        wt_test(test_tools),     wt_test(test_refused), wt_test(test_generation),
        wt_test(test_variables), wt_test(test_arrays),  wt_test(test_marks_and_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
