/* SPDX-License-Identifier: MIT */
/*
 * test_cli_foreign.c - models and data with terminal escapes in every string. No command writes an
 * escape to the terminal or prints a name of 300 kB in full.
 */
#define _XOPEN_SOURCE 700 /* posix_openpt */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"
#include "format/gguf.h"
#include "program.h"
#include "support.h"

#define LLAMA "tests/fixtures/models/llama"
#define LONGEST_LINE 4096

/* A window title, clear screen, a C1 control, a bidirectional override, a bell, and invalid
 * UTF-8. */
#define NASTY_UTF8                      \
    "\x1b]0;owned\x07\x1b[2J\r\xC2\x9B" \
    "31m\xE2\x80\xAE\x7F"
#define NASTY NASTY_UTF8 "\xFF\nweft: all is well\n"
/* The same in JSON, and as a folder's name. */
#define NASTY_JSON "\\u001b]0;owned\\u0007\\u001b[2J\\r\\u009b31m\\u202e\\n"
#define FOLDER "$(printf 'm\\033[31m\\302\\233\\177')"

static wt_program p;

/* ---- Files ---- */

static void put_nasty_keys(wf_ctx *ctx, wf_gguf_writer *w)
{
    static char name[300000];
    memset(name, 'A', sizeof name);
    memcpy(name, NASTY, strlen(NASTY));
    wt_ok(ctx, wf_gguf_write_text(w, "general.name", name, sizeof name));
    wt_ok(ctx, wf_gguf_write_text(w, "general.author", NASTY, strlen(NASTY)));
    wt_ok(ctx, wf_gguf_write_text(w, "key." NASTY, NASTY, strlen(NASTY)));
    wt_ok(ctx, wf_gguf_write_int(w, "number." NASTY, WF_GGUF_U32, 7));
}

/* Copies the tokens and puts escapes into the special ones. */
static void put_nasty_tokens(wf_ctx *ctx, wf_gguf_writer *w, const wf_gguf_pair *pair)
{
    wf_gguf_text *copy = calloc(pair->count, sizeof *copy);
    char(*own)[128] = calloc(pair->count, sizeof *own);
    assert_true(copy && own);
    for (uint64_t i = 0; i < pair->count; i++) {
        copy[i] = pair->text[i];
        if (i >= 3) /* merges produce the other tokens */
            continue;
        int n = snprintf(own[i], sizeof own[i], "%s%d", NASTY_UTF8, (int)i);
        copy[i] = (wf_gguf_text){own[i], (size_t)n};
    }
    wt_ok(ctx, wf_gguf_write_texts(w, pair->key, copy, pair->count));
    free(own);
    free(copy);
}

static const char template[] =
    NASTY_UTF8 "{% for message in messages %}{{ message['content'] }}" NASTY_UTF8 "{% endfor %}";

/* Copies a GGUF file with escapes in its strings; `tensor` adds a tensor that no model has. */
static void write_nasty(wf_ctx *ctx, const char *from, const char *to, bool tensor)
{
    wf_gguf *f;
    wf_gguf_writer *w;
    const char *skipped[] = {"general.name", "tokenizer.chat_template"};
    wt_ok(ctx, wf_gguf_open(ctx, from, &f));
    wt_ok(ctx, wf_gguf_write_new(ctx, to, NULL, &w));
    put_nasty_keys(ctx, w);
    wt_ok(ctx, wf_gguf_write_text(w, "tokenizer.chat_template", template, strlen(template)));
    for (int i = 0; i < f->pairs; i++) {
        const wf_gguf_pair *pair = &f->pair[i];
        if (strcmp(pair->key, "tokenizer.ggml.tokens") == 0)
            put_nasty_tokens(ctx, w, pair);
        else if (strcmp(pair->key, skipped[0]) != 0 && strcmp(pair->key, skipped[1]) != 0)
            wt_ok(ctx, wf_gguf_write_pair(w, pair));
    }
    for (int i = 0; i < f->store.count; i++)
        wt_ok(ctx, wf_gguf_write_tensor(w, f->store.tensor[i].name, f->store.tensor[i].type,
                                        &f->store.tensor[i].shape));
    const wf_dims one = {1, {1}};
    if (tensor)
        wt_ok(ctx, wf_gguf_write_tensor(w, "t" NASTY, WF_F32, &one));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < f->store.count; i++)
        wt_ok(ctx, wf_gguf_write_data(w, f->store.tensor[i].data, f->store.tensor[i].bytes));
    if (tensor)
        wt_ok(ctx, wf_gguf_write_data(w, &(float){0}, sizeof(float)));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wf_gguf_close(f);
}

static void write_files(wf_ctx *ctx)
{
    char from[512], to[512];
    wt_program_ok(&p, "convert " LLAMA " \"$D/plain.gguf\"");
    snprintf(from, sizeof from, "%s", wt_path(&p.scratch, "plain.gguf"));
    snprintf(to, sizeof to, "%s", wt_path(&p.scratch, "nasty.gguf"));
    write_nasty(ctx, from, to, false);
    snprintf(to, sizeof to, "%s", wt_path(&p.scratch, "tensor.gguf"));
    write_nasty(ctx, from, to, true);
    wt_put_text(&p.scratch, "roles.jsonl",
                "{\"messages\": [{\"role\": \"" NASTY_JSON "\", \"content\": \"a\"}]}\n");
    wt_put_text(&p.scratch, "broken.jsonl", "{\"" NASTY "\": 1}\n");
    wt_put_text(&p.scratch, "quiz.jsonl", "{\"" NASTY_JSON "\": \"" NASTY_JSON "\"}\n");
    wt_put_text(&p.scratch, "text.txt",
                NASTY "some text that is long enough to learn from. " NASTY);
    /* A folder with escapes in its name, tokens, chat template and metadata. */
    assert_int_equal(
        wt_program_shell(
            &p,
            "F=\"$D/" FOLDER "\"; mkdir \"$F\" && cp " LLAMA "/* \"$F\" && chmod -R u+w \"$F\" && "
            "sed -i 's/<|im_start|>/\\\\u001b]0;x\\\\u0007\\\\u009b\\\\u202e<|im_start|>/g; "
            "s/<|endoftext|>/\\\\u001b[2J\\\\r\\\\n<|endoftext|>/g' \"$F\"/tokenizer*.json && "
            "printf '\\033[2J\\302\\233{# \\033 #}{{ messages[0].content }}' >\"$F/chat_template.jinja\" && "
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cat \"$D/text.txt\" \"$D/text.txt\"; done >\"$D/long.txt\""),
        0);
}

/* ---- The check ---- */

/* Returns the first character that a terminal would interpret, or NULL. */
static const char *find_control(const char *text)
{
    char one[WF_TEXT_ESCAPE];
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = wf_text_escape(one, text, left);
        if (*text != '\n' && *text != '\t' && strncmp(one, text, n) != 0)
            return text;
    }
    return NULL;
}

/* Expects no control characters, no forged message and, with `lines`, no long line. */
static void check_stream(const char *args, const char *name, const char *text, bool lines)
{
    const char *at = find_control(text);
    if (at)
        fail_msg("weft %s: %s has a control character at byte %d: 0x%02x 0x%02x, after '%.*s'",
                 args, name, (int)(at - text), (unsigned char)at[0], (unsigned char)at[1],
                 (int)(at - text < 60 ? at - text : 60), at - (at - text < 60 ? at - text : 60));
    if (strstr(text, "\nweft: all is well"))
        fail_msg("weft %s: %s has a line that a file wrote", args, name);
    for (; lines && *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strcspn(text, "\n") > LONGEST_LINE)
            fail_msg("weft %s: %s has a line of %zu bytes", args, name, strcspn(text, "\n"));
}

/* RAW: stdout is the model's text, not escaped; LONG: its lines may be long */
enum { RAW = 1, LONG = 2 };

/* Runs every command on a hostile model and checks both streams. */
static void test_commands(void **state)
{
    (void)state;
    static const struct {
        int code, stdout_may;
        const char *args;
    } cases[] = {
        {0, 0, "info M"},
        {0, 0, "info M --keys"},
        {0, 0, "info M --tensors"},
        {0, LONG, "info M --json --keys --tensors"},
        {0, LONG, "info M --template --json"},
        {0, RAW, "info M --template"},
        {0, RAW, "run M -p Hello -n 4 -v"},
        {0, LONG, "run M -p Hello -n 4 --json"},
        {2, 0, "run M -p Hello -c 100000"},
        {2, 0, "run M -p Hello -n 5000"},
        {0, RAW, "chat M -p Hello -st -n 4"},
        {1, RAW, "chat M -p Hello -st -n 4 --chat-template '{{ raise_exception(\"\x1b[2J\") }}'"},
        {0, 0, "tokenize M -p 'Hello world'"},
        {0, 0, "tokenize M --control -p \"$(cat \"$D/text.txt\")\""},
        {0, 0, "tokenize M --control -f \"$D/text.txt\" --json"},
        {0, RAW, "tokenize M --decode -p '0 1 2 3 4'"},
        {2, 0, "tokenize M --decode -p \"$(printf '\\033[2J')\""},
        {0, 0, "convert M \"$D/again.gguf\""},
        {0, 0, "convert M \"$D/again-folder\""},
        {0, 0, "info \"$D/again-folder\""},
        {0, 0, "quantize M \"$D/small.gguf\" q8_0"},
        {0, 0, "eval M -f \"$D/text.txt\""},
        {0, 0, "plan M"},
        {0, 0, "bench M --n-prompt 8 -n 2 --repetitions 1 --no-peak"},
        {0, LONG, "bench M --n-prompt 8 -n 2 --repetitions 1 --no-peak --json -"},
        {0, 0,
         "finetune M --data \"$D/long.txt\" --out \"$D/" FOLDER
         "-run\" --lora 2 --batch 1 --length 16 "
         "--steps 2"},
        {0, RAW, "run M -p Hello -n 2 --lora \"$D/" FOLDER "-run/adapter\""},
        {0, 0, "plot \"$D/" FOLDER "-run\" -o \"$D/plot.svg\""},
        {1, 0, "finetune M --data \"$D/roles.jsonl\" --out \"$D/none\""},
        {1, 0, "prepare \"$D/roles.jsonl\" -o \"$D/none\""},
        {1, 0, "prepare \"$D/broken.jsonl\" -o \"$D/none\""},
        {1, 0, "eval M --choices \"$D/quiz.jsonl\""},
        {1, 0, "run M --lora \"$D/" FOLDER "\" -p a"},
        {1, 0, "info \"$D/tensor.gguf\""},
        {1, 0, "info \"$D/no\x1b[31m.gguf\""},
        {2, 0, "\x1b[31m"},
        {2, 0, "info M --\x1b[31m"},
    };
    static const char *const models[] = {"\"$D/nasty.gguf\"", "\"$D/" FOLDER "\""};
    for (int m = 0; m < 2; m++) {
        wt_program_shell(&p, "rm -rf \"$D\"/again* \"$D\"/small* \"$D/" FOLDER "-run\"");
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char args[1024];
            const char *args_in = cases[i].args, *at = strstr(args_in, " M");
            if (m == 1 && (!at || strstr(args_in, "--keys") || strncmp(args_in, "plan", 4) == 0))
                continue; /* needs a GGUF file, uses no model, or is slow */
            snprintf(args, sizeof args, "%.*s%s%s",
                     at ? (int)(at - args_in) + 1 : (int)strlen(args_in), args_in,
                     at ? models[m] : "", at ? at + 2 : "");
            int code = wt_program_run(&p, args);
            check_stream(args, "stderr", p.err, true);
            if (!(cases[i].stdout_may & RAW))
                check_stream(args, "stdout", p.out, !(cases[i].stdout_may & LONG));
            if ((code == 0) != (cases[i].code == 0))
                fail_msg("weft %s: exit status %d, wanted %d, and said: %s", args, code,
                         cases[i].code, p.err);
        }
    }
}

/* The name is printed escaped, truncated and with its size. */
static void test_name(void **state)
{
    (void)state;
    wt_program_ok(&p, "info \"$D/nasty.gguf\"");
    static const char begins[] =
        "\\x1b]0;owned\\x07\\x1b[2J\\r\\u009b31m\\u202e\\x7f\\xff\\nweft: all is well\\nAAAA";
    assert_memory_equal(p.out, begins, sizeof begins - 1);
    wt_program_out(&p, "AAAA... (300 kB in all)\n  family      llama");
    wt_program_fails(&p, 2, "run \"$D/nasty.gguf\" -p a -c 100000",
                     "exceeds this model's limit of 128 tokens");
}

/* Generated text reaches a pipe unchanged and is escaped on a terminal. */
static void test_terminal(void **state)
{
    (void)state;
    const char *command =
        "TERM=dumb \"$W\" run \"$D/plain.gguf\" -p a -n 3 --temp 0 -q --logit-bias $ID+1000";
    /* The vocabulary spells byte 0x1b as U+011B. */
    assert_int_equal(
        wt_program_shell(&p, "\"$W\" tokenize " LLAMA " --ids -q -p \"$(printf '\\033')\""), 0);
    char *id = p.out + strspn(p.out, "[");
    id[strcspn(id, "],")] = '\0';
    setenv("ID", id, 1);
    assert_int_equal(wt_program_shell(&p, command), 0);
    wt_program_out(&p, "\x1b\x1b\x1b");

    int keys = posix_openpt(O_RDWR | O_NOCTTY);
    if (keys < 0)
        skip();
    assert_true(grantpt(keys) == 0 && unlockpt(keys) == 0);
    int slave = open(ptsname(keys), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(slave);
    char got[4096];
    size_t n = 0;
    for (ssize_t more; n < sizeof got - 1 && (more = read(keys, got + n, sizeof got - 1 - n)) > 0;)
        n += (size_t)more;
    got[n] = '\0';
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(keys);
    assert_null(strchr(got, '\x1b'));
    assert_non_null(strstr(got, "\\x1b\\x1b\\x1b"));
}

static int make(void **state)
{
    wf_ctx *ctx;
    if (wt_program_make(&p) != 0 || wf_ctx_new(&ctx) != WF_OK)
        return -1;
    write_files(ctx);
    *state = ctx;
    return 0;
}

static int clean(void **state)
{
    wf_ctx_free(*state);
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands), cmocka_unit_test(test_name),
                                       cmocka_unit_test(test_terminal)};
    return cmocka_run_group_tests_name("cli_foreign", tests, make, clean);
}
