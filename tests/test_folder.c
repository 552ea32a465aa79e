/* SPDX-License-Identifier: MIT */
/*
 * test_folder.c - Hugging Face folders: files that are read, folders that are refused, and messages
 * that explain what to do for each wrong path a user may give.
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
#include <unistd.h>

#include "base/path.h"
#include "format/folder.h"
#include "format/safetensors.h"
#include "scratch.h"
#include "support.h"

/* Writes a file with one tensor of one byte. */
static void put_weights(wt_scratch *s, const char *name, const char *tensor)
{
    char bytes[256];
    int n = snprintf(bytes + 8, sizeof bytes - 8,
                     "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
    memset(bytes, 0, 8);
    bytes[0] = (char)n;
    bytes[8 + n] = 42;
    wt_put(s, name, bytes, (size_t)n + 9);
}

static void put_model(wt_scratch *s)
{
    wt_put_text(s, "config.json", "{\"model_type\": \"llama\", \"hidden_size\": 64}");
    put_weights(s, "model.safetensors", "w");
}

static wf_folder *open_ok(wf_ctx *ctx, wt_scratch *s)
{
    wf_folder *f;
    wt_ok(ctx, wf_folder_open(ctx, s->folder, &f));
    assert_non_null(f);
    return f;
}

static void refused(wf_ctx *ctx, wt_scratch *s, wf_status status, const char *part)
{
    wf_folder *f;
    wt_fails(ctx, wf_folder_open(ctx, s->folder, &f), status, part);
    assert_null(f);
}

/* ---- Reading ---- */

/* Reads config, generation config, tokenizer config, template and weights. */
static void reads(void **state)
{
    wt_scratch s;
    wt_scratch_make(&s);
    put_model(&s);
    wf_folder *f = open_ok(*state, &s);
    assert_string_equal(f->path, s.folder);
    assert_string_equal(wf_json_get_string(f->config, "model_type", "?"), "llama");
    assert_null(f->generation);
    assert_null(f->tokenizer_config);
    assert_null(f->chat_template);
    assert_int_equal(f->store.count, 1);
    assert_int_equal(wf_store_find(&f->store, "w")->data[0], 42);
    wf_folder_close(f);

    wt_put_text(&s, "generation_config.json", "{\"eos_token_id\": [1, 2]}");
    wt_put_text(&s, "tokenizer_config.json",
                "{\"model_max_length\": 1000000000000000019884624838656}");
    f = open_ok(*state, &s);
    assert_int_equal(wf_json_get(f->generation, "eos_token_id")->count, 2);
    assert_int_equal(wf_json_get(f->tokenizer_config, "model_max_length")->kind, WF_JSON_NUMBER);
    wf_folder_close(f);
    wf_folder_close(NULL);
    wt_scratch_remove(&s);
}

/* Reads one file or the shards of an index; several files without an index are ambiguous. */
static void reads_weights(void **state)
{
    wt_scratch s;
    wt_scratch_make(&s);
    wt_put_text(&s, "config.json", "{}");
    refused(*state, &s, WF_ERR_FORMAT, "it has no weights");
    wt_put_text(&s, "pytorch_model-00001-of-00002.bin", "x");
    refused(*state, &s, WF_ERR_FORMAT, "save them as safetensors");
    put_weights(&s, "other.safetensors", "only");
    wf_folder *f = open_ok(*state, &s);
    assert_non_null(wf_store_find(&f->store, "only"));
    wf_folder_close(f);
    put_weights(&s, "a-shard.safetensors", "shard");
    refused(*state, &s, WF_ERR_FORMAT, "'a-shard.safetensors' and 'other.safetensors'");
    wt_put_text(&s, "model.safetensors.index.json",
                "{\"weight_map\": {\"shard\": \"a-shard.safetensors\"}}");
    f = open_ok(*state, &s);
    assert_non_null(wf_store_find(&f->store, "shard"));
    assert_int_equal(f->store.count, 1);
    wf_folder_close(f);
    put_weights(&s, "model.safetensors", "single");
    f = open_ok(*state, &s);
    assert_non_null(wf_store_find(&f->store, "single"));
    assert_int_equal(f->store.count, 1);
    wf_folder_close(f);
    wt_put_text(&s, "model.safetensors", "x");
    refused(*state, &s, WF_ERR_FORMAT, "model.safetensors': a file of 1 byte is too short");
    wt_scratch_remove(&s);
}

static void expect_template(wf_ctx *ctx, wt_scratch *s, const char *wanted)
{
    wf_folder *f = open_ok(ctx, s);
    if (wanted) {
        assert_non_null(f->chat_template);
        assert_string_equal(f->chat_template, wanted);
    } else {
        assert_null(f->chat_template);
    }
    wf_folder_close(f);
}

/* The chat template may be in tokenizer_config.json or in its own file. */
static void reads_templates(void **state)
{
    wt_scratch s;
    wt_scratch_make(&s);
    put_model(&s);
    static const struct {
        const char *config, *wanted;
    } cases[] = {
        {"{}", NULL},
        {"{\"chat_template\": null}", NULL},
        {"{\"chat_template\": \"{{ a }}\\n\"}", "{{ a }}\n"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": \"default\", \"template\": \"d\"}]}",
         "d"},
        {"{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, 5, {\"name\": \"default\"}]}",
         NULL},
        {"{\"chat_template\": []}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wt_put_text(&s, "tokenizer_config.json", cases[i].config);
        expect_template(*state, &s, cases[i].wanted);
    }
    wt_put_text(&s, "tokenizer_config.json", "{\"chat_template\": 5}");
    refused(*state, &s, WF_ERR_FORMAT, "neither a string nor a list");
    wt_put_text(&s, "tokenizer_config.json", "{}");
    wt_put_text(&s, "chat_template.json", "{\"chat_template\": \"json\"}");
    expect_template(*state, &s, "json");
    wt_put_text(&s, "tokenizer_config.json", "{\"chat_template\": \"config\"}");
    expect_template(*state, &s, "config");
    wt_put_text(&s, "chat_template.jinja", "jinja\xC3\xA9");
    expect_template(*state, &s, "jinja\xC3\xA9");
    wt_put_text(&s, "chat_template.jinja", "\xFF");
    refused(*state, &s, WF_ERR_FORMAT, "not UTF-8");
    char *large = malloc(WF_FOLDER_TEMPLATE + 1);
    memset(large, 'x', WF_FOLDER_TEMPLATE + 1);
    wt_put(&s, "chat_template.jinja", large, WF_FOLDER_TEMPLATE);
    wf_folder_close(open_ok(*state, &s));
    wt_put(&s, "chat_template.jinja", large, WF_FOLDER_TEMPLATE + 1);
    refused(*state, &s, WF_ERR_FORMAT, "larger than");
    free(large);
    wt_scratch_remove(&s);
}

/* Malformed files are refused with the file's name and the line. */
static void refuses(void **state)
{
    wt_scratch s;
    wt_scratch_make(&s);
    refused(*state, &s, WF_ERR_FORMAT, "config.json is missing");
    put_model(&s);
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "chat_template.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char part[64];
        wt_put_text(&s, files[i], "{\n\"a\": }");
        snprintf(part, sizeof part, "%s', line 2", files[i]);
        refused(*state, &s, WF_ERR_FORMAT, part);
        wt_put_text(&s, files[i], "[]");
        snprintf(part, sizeof part, "%s': it is not a JSON object", files[i]);
        refused(*state, &s, WF_ERR_FORMAT, part);
        wt_put_text(&s, files[i], "{}");
        wf_folder_close(open_ok(*state, &s));
    }
    /* A sparse file that is too large is not read. */
    assert_int_equal(truncate(wt_path(&s, "config.json"), (off_t)WF_FOLDER_JSON + 1), 0);
    refused(*state, &s, WF_ERR_FORMAT, "larger than");
    unlink(wt_path(&s, "config.json"));
    assert_int_equal(mkdir(wt_path(&s, "config.json"), 0777), 0);
    refused(*state, &s, WF_ERR_IO, "config.json");
    wt_scratch_remove(&s);
}

/* ---- Format detection ---- */

static void detected(wf_ctx *ctx, const char *path, wf_format_kind wanted)
{
    wf_format_kind kind;
    wt_ok(ctx, wf_format_detect(ctx, path, &kind));
    assert_int_equal(kind, wanted);
}

static void undetected(wf_ctx *ctx, const char *path, wf_status status, const char *part)
{
    wf_format_kind kind = WF_FORMAT_GGUF;
    wt_fails(ctx, wf_format_detect(ctx, path, &kind), status, part);
    assert_int_equal(kind, WF_FORMAT_NONE);
}

/* Each kind of wrong path gets its own advice. */
static void detects(void **state)
{
    static const struct {
        const char *name, *bytes, *part;
    } files[] = {
        {"a", "", "it is empty"},
        {"a.gguf", "", "it is empty"},
        {"a.gguf", "GGU", "neither a GGUF file nor"},
        {"a.txt", "hello", "neither a GGUF file nor"},
        {"model.safetensors", "x", "give the folder"},
        {"config.json", "{}", "give its folder"},
        {"a.bin", "zz", "a pickle"},
        {"a.pt", "zz", "a pickle"},
        {"a.pth", "zz", "a pickle"},
        {"a", "PK\3\4zz", "a pickle"},
        {"a", "\x80\2zz", "save the model as safetensors"},
        {"a", "lmgg", "before GGUF"},
        {"a", "tjgg", "before GGUF"},
        {"a.gguf", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
    };
    wt_scratch s;
    wt_scratch_make(&s);
    undetected(*state, s.folder, WF_ERR_FORMAT, "config.json is missing");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        undetected(*state, wt_put_text(&s, files[i].name, files[i].bytes), WF_ERR_FORMAT,
                   files[i].part);
        unlink(s.path);
    }
    detected(*state, wt_put_text(&s, "anything", "GGUF"), WF_FORMAT_GGUF);
    undetected(*state, wt_path(&s, "anythin"), WF_ERR_IO, "/anything'?");
    undetected(*state, wt_path(&s, "quite-another"), WF_ERR_IO, "does not exist");
    undetected(*state, wt_path(&s, "none/anything"), WF_ERR_IO, "the folder '");
    undetected(*state, "no-such-model", WF_ERR_IO, "does not exist");
    undetected(*state, "srcs", WF_ERR_IO, "did you mean 'src'?");
    undetected(*state, "", WF_ERR_IO, "does not exist");
    undetected(*state, "none/", WF_ERR_IO, "the folder 'none'");
    wt_put_text(&s, "b.gguf", "GGUF");
    undetected(*state, s.folder, WF_ERR_FORMAT, "as 'b.gguf'");
    wt_put_text(&s, "adapter_config.json", "{}");
    undetected(*state, s.folder, WF_ERR_FORMAT, "adapter");
    wt_put_text(&s, "config.json", "{}");
    detected(*state, s.folder, WF_FORMAT_FOLDER);
    wt_scratch_remove(&s);
}

/* ---- Failing allocations ---- */

static void out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    put_weights(&s, "other.safetensors", "w");
    for (int form = 0; form < 5;
         form++) { /* detect: no config, folder, missing; open: one file, shards */
        if (form == 1)
            wt_put_text(&s, "config.json", "{\"a\": [1, 2]}");
        if (form == 3)
            wt_put_text(&s, "chat_template.jinja", "x");
        if (form == 4)
            wt_put_text(&s, "model.safetensors.index.json",
                        "{\"weight_map\": {\"w\": \"other.safetensors\"}}");
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++) {
            wf_folder *f = NULL;
            wf_format_kind kind;
            const char *path = form == 2 ? wt_path(&s, "confi.json") : s.folder;
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status =
                form < 3 ? wf_format_detect(ctx, path, &kind) : wf_folder_open(ctx, path, &f);
            reached = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            if (reached)
                wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            else
                assert_int_equal(status, form == 0 ? WF_ERR_FORMAT : form == 2 ? WF_ERR_IO : WF_OK);
            wf_folder_close(f);
            assert_int_equal(wt_live_blocks(ctx), 0);
            assert_true(reached || nth > 1);
        }
    }
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(reads),   wt_test(reads_weights), wt_test(reads_templates),
        wt_test(refuses), wt_test(detects),       wt_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
