/* SPDX-License-Identifier: MIT */
/*
 * cmd_run.c - weft run: continues one prompt, or several in a batch.
 *
 * All prompts are read, encoded and checked before the weights are loaded. Up to --parallel
 * sequences run at once; a finished one makes room for the next prompt. Output is in the order of
 * the prompts: the first unfinished job streams, later ones collect their text.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/writer.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/sampling.h"
#include "cli/screen.h"
#include "cli/text_ids.h"
#include "format/folder.h"
#include "infer/pages.h"

#define AT_ONCE 8 /* default of --parallel */

static struct {
    wf_values prompts, files;
    int64_t parallel;
    const char *cache; /* file of keys and values; NULL: none */
    bool no_escape, echo, control, json;
    bool piped; /* no prompt was given, so stdin is the prompt */
} options = {.parallel = -1};

/* One prompt, and the text generated from it. */
typedef struct {
    const wf_prompt *prompt;
    int32_t *ids; /* [count] the prompt's tokens */
    size_t count;
    uint64_t seed;
    wf_sequence *sequence; /* NULL before the start and after the end */
    wf_writer text;        /* generated but not yet printed; for JSON, all of it */
    size_t generated;      /* tokens */
    size_t cached;         /* tokens of the prompt that were not computed */
    wf_stop stop;
    bool begun;
} job;

typedef struct {
    wf_open open;
    wf_prompts prompts;
    wf_sampled sampled;
    job *job;       /* [prompts.count] */
    int shown;      /* the job being printed; earlier jobs are finished */
    bool line_open; /* the output does not end with a newline */
    bool deaf;      /* stdout accepts no more bytes */
    bool saves;     /* the prompt's keys and values are still to be saved */
    wf_screen screen;
} batch;

/* ---- Arguments and prompts ---- */

#define WAYS \
    "give it as the second argument or with -p, in a file with -f, or pipe it to the program"

/* Takes MODEL [PROMPT] or --model MODEL [PROMPT]. With --model, an operand that is an existing file
 * counts as a second model. */
static wf_status take_operands(wf_ctx *ctx, char *const *operands, int count, const char **path)
{
    const char *model = wf_open_set.model;
    bool alone =
        count == 1 && model && strcmp(operands[0], model) != 0 && access(operands[0], F_OK) != 0;
    const char *prompt = alone ? operands[0] : count == 2 ? operands[1] : NULL;
    WF_TRY(wf_open_path(ctx, operands, alone ? 0 : count, path));
    if (!prompt)
        return WF_OK;
    if (options.prompts.count + options.files.count > 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the prompt is given as an argument and with %s; give one of them, or each "
                       "prompt with its own -p",
                       options.prompts.count ? "-p" : "-f");
    WF_TRY(wf_values_add(ctx, &options.prompts, prompt));
    return WF_OK;
}

/* Uses stdin as the prompt when no other is given, unless stdin is closed or a terminal. */
static wf_status take_stdin(wf_ctx *ctx)
{
    if (options.prompts.count + options.files.count > 0)
        return WF_OK;
    if (isatty(STDIN_FILENO) || fcntl(STDIN_FILENO, F_GETFD) < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the prompt is missing; " WAYS);
    WF_TRY(wf_values_add(ctx, &options.files, "-"));
    options.piped = true;
    return WF_OK;
}

/* Stops at one token more than the context, so that a huge prompt fails early. */
static wf_status encode(batch *b, job *j)
{
    const wf_open *e = &b->open;
    uint32_t flags = WF_TEXT_SPECIAL | (options.control ? WF_TEXT_CONTROL : 0);
    wf_ids_list list = {.ctx = e->ctx, .most = (size_t)e->context + 1};
    wf_text_ids text = {.ctx = e->ctx,
                        .tokenizer = e->tokenizer,
                        .flags = flags,
                        .fn = wf_ids_list_add,
                        .user = &list};
    wf_status status = wf_text_ids_memory(&text, j->prompt->text, j->prompt->bytes);
    j->ids = list.ids;
    j->count = list.count;
    WF_TRY(status);
    if (text.bytes < j->prompt->bytes) { /* the list is full */
        char larger[96];
        return wf_fail(
            e->ctx, WF_ERR_USAGE, "the prompt exceeds the context of %lld token%s; shorten it%s",
            (long long)e->context, WF_PLURAL(e->context), wf_open_larger(e, larger, sizeof larger));
    }
    if (j->count > 0)
        return WF_OK;
    int32_t bos = wf_tokenizer_special(e->tokenizer, WF_SPECIAL_BOS);
    if (bos < 0)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "the prompt is empty, and %s has no bos token to start from; give a longer "
                       "prompt",
                       WF_SHOWN(e->info.name));
    wf_ids_free(e->ctx, j->ids);
    j->ids = wf_mem_array(e->ctx, 1, sizeof *j->ids);
    if (!j->ids)
        return WF_ERR_MEMORY;
    j->ids[j->count++] = bos;
    return WF_OK;
}

/* Refuses a prompt that leaves no room for -n tokens, before anything runs. */
static wf_status check_room(const batch *b, const job *j)
{
    const wf_open *e = &b->open;
    int64_t limit = b->sampled.request.limit, room = e->context - (int64_t)j->count;
    char larger[96];
    wf_open_larger(e, larger, sizeof larger);
    if (room < 0)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "the prompt has %zu tokens, but the context has only %lld; shorten it%s",
                       j->count, (long long)e->context, larger);
    if (limit > room)
        return wf_fail(
            e->ctx, WF_ERR_USAGE,
            "the prompt's %zu token%s and %lld more exceed the context of %lld; use -n %lld "
            "or less%s",
            j->count, WF_PLURAL(j->count), (long long)limit, (long long)e->context, (long long)room,
            larger);
    return WF_OK;
}

/* A file that cannot be written fails now, not after a long prompt. */
static wf_status check_folder(batch *b)
{
    const char *folder = wf_path_parent(&b->open.arena, options.cache);
    if (!folder)
        return WF_ERR_MEMORY;
    if (access(folder, W_OK | X_OK) != 0)
        return wf_fail(b->open.ctx, WF_ERR_IO, "cannot create '%s': %s", options.cache,
                       strerror(errno));
    return WF_OK;
}

/* Decides whether the file of --prompt-cache will be read or written. */
static wf_status check_cache(batch *b)
{
    wf_ctx *ctx = b->open.ctx;
    if (!options.cache)
        return WF_OK;
    if (b->prompts.count > 1)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "--prompt-cache takes one prompt, but %d are given; run each prompt separately",
            b->prompts.count);
    b->saves = wf_path_missing(options.cache);
    if (b->saves && b->job[0].count <= WF_PAGE_TOKENS)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--prompt-cache needs a prompt of more than %d tokens, but this one has "
                       "%zu; omit --prompt-cache",
                       WF_PAGE_TOKENS, b->job[0].count);
    return b->saves ? check_folder(b) : WF_OK;
}

static wf_status restore(batch *b)
{
    size_t tokens;
    if (!options.cache || b->saves)
        return WF_OK;
    WF_TRY(wf_engine_restore(b->open.engine, options.cache, &tokens));
    wf_open_say("prompt cache: %zu token%s restored", tokens, WF_PLURAL(tokens));
    return WF_OK;
}

static wf_status prepare(batch *b, const char *path)
{
    wf_ctx *ctx = b->open.ctx;
    wf_format_kind kind;
    WF_TRY(wf_format_detect(ctx, path, &kind)); /* fail before reading stdin */
    WF_TRY(wf_prompts_read(ctx, &options.prompts, &options.files,
                           WF_PROMPT_TRIM | (options.no_escape ? 0 : WF_PROMPT_ESCAPES),
                           &b->prompts));
    b->job = wf_mem_array(ctx, (size_t)b->prompts.count, sizeof *b->job);
    if (!b->job)
        return WF_ERR_MEMORY;
    if (options.piped && b->prompts.item[0].bytes == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the prompt is missing: stdin is empty; " WAYS);
    WF_TRY(wf_open_model(ctx, path, &b->open));
    WF_TRY(wf_sampled_make(ctx, b->open.model, &b->sampled));
    for (int i = 0; i < b->prompts.count; i++) {
        job *j = &b->job[i];
        *j = (job){.prompt = &b->prompts.item[i],
                   .seed = b->sampled.request.sampling.seed + (uint64_t)i,
                   .text = {.ctx = ctx}};
        WF_TRY(encode(b, j));
        WF_TRY(check_room(b, j));
    }
    WF_TRY(check_cache(b));
    int64_t most = options.parallel > 0 ? options.parallel : AT_ONCE;
    WF_TRY(wf_open_load(&b->open, most < b->prompts.count ? most : b->prompts.count, 0));
    wf_sampled_say(&b->sampled);
    return restore(b);
}

/* ---- Printing: one job streams its text; the others wait for their turn ---- */

/* Prints unless stdout failed before; then the program only cleans up. */
static void print(batch *b, const char *text, size_t bytes)
{
    if (bytes == 0 || b->deaf)
        return;
    b->line_open = text[bytes - 1] != '\n';
    b->deaf = !wf_screen_write(&b->screen, text, bytes);
}

static void print_heading(batch *b, int i)
{
    char heading[64];
    size_t len = 0;
    if (b->line_open)
        print(b, "\n", 1);
    wf_text_append(heading, sizeof heading, &len, "--- %d of %d ---\n", i + 1, b->prompts.count);
    print(b, heading, len);
}

static void print_ready(batch *b)
{
    while (!options.json && b->shown < b->prompts.count && b->job[b->shown].begun) {
        job *j = &b->job[b->shown];
        print(b, j->text.text, j->text.len);
        j->text.len = 0;
        if (j->stop == WF_UNFINISHED || ++b->shown == b->prompts.count)
            break;
        print_heading(b, b->shown);
    }
}

static void print_json(const batch *b)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_array_begin(&j);
    for (int i = 0; i < b->prompts.count; i++) {
        const job *it = &b->job[i];
        wf_json_object_begin(&j);
        wf_json_key(&j, "prompt");
        wf_json_text(&j, it->prompt->text, it->prompt->bytes);
        wf_json_key(&j, "text");
        wf_json_text(&j, it->text.len ? it->text.text : "", it->text.len);
        wf_json_key(&j, "prompt_tokens");
        wf_json_int(&j, (int64_t)it->count);
        wf_json_key(&j, "tokens");
        wf_json_int(&j, (int64_t)it->generated);
        wf_json_key(&j, "stop");
        wf_json_string(&j, wf_stop_word(it->stop));
        wf_json_key(&j, "seed");
        wf_json_int(&j, (int64_t)it->seed);
        wf_json_object_end(&j);
    }
    wf_json_array_end(&j);
    wf_json_end(&j);
}

/* ---- Running ---- */

static wf_status begin(batch *b, job *j)
{
    wf_request request = b->sampled.request;
    request.sampling.seed = j->seed;
    WF_TRY(wf_engine_submit(b->open.engine, j->ids, j->count, &request, &j->sequence));
    j->begun = true;
    if (options.echo)
        wf_writer_bytes(&j->text, j->prompt->text, j->prompt->bytes);
    return j->text.status;
}

/* Writes the file of --prompt-cache once the prompt is computed. */
static wf_status save(batch *b, const job *j)
{
    size_t count, prompt;
    wf_sequence_tokens(j->sequence, &count, &prompt);
    if (!b->saves || (count == prompt && j->stop == WF_UNFINISHED))
        return WF_OK;
    b->saves = false;
    return wf_sequence_save(j->sequence, options.cache);
}

/* Takes the new text of a sequence; frees the sequence when it has stopped. */
static wf_status collect(batch *b, job *j)
{
    size_t bytes, count, prompt;
    const char *text = wf_sequence_text(j->sequence, &bytes);
    wf_writer_bytes(&j->text, text, bytes);
    j->stop = wf_sequence_stop(j->sequence);
    WF_TRY(wf_open_check(&b->open, j->sequence));
    WF_TRY(save(b, j));
    if (j->stop != WF_UNFINISHED) {
        wf_sequence_tokens(j->sequence, &count, &prompt);
        j->generated = count - prompt;
        j->cached = wf_sequence_reused(j->sequence);
        wf_sequence_free(j->sequence);
        j->sequence = NULL;
    }
    return j->text.status;
}

static wf_status generate(batch *b)
{
    int next = 0;
    int64_t free_slots = options.parallel > 0 ? options.parallel : AT_ONCE;
    if (b->prompts.count > 1 && !options.json)
        print_heading(b, 0);
    for (bool busy = true; (busy || next < b->prompts.count) && !b->deaf;) {
        for (; free_slots > 0 && next < b->prompts.count; free_slots--)
            WF_TRY(begin(b, &b->job[next++]));
        print_ready(b);
        WF_TRY(wf_engine_step(b->open.engine, &busy));
        /* Jobs before `shown` are finished and printed. */
        for (int i = b->shown; i < next; i++)
            if (b->job[i].sequence) {
                WF_TRY(collect(b, &b->job[i]));
                free_slots += !b->job[i].sequence;
            }
    }
    print_ready(b);
    return WF_OK;
}

static void report(batch *b)
{
    const wf_open *e = &b->open;
    uint64_t prompt = 0, cached = 0;
    bool full = false;
    for (int i = 0; i < b->prompts.count; i++) {
        prompt += b->job[i].begun ? b->job[i].count : 0;
        cached += b->job[i].cached;
        full = full || b->job[i].stop == WF_STOP_CONTEXT;
    }
    b->deaf = b->deaf || !wf_screen_end(&b->screen);
    if (options.json)
        print_json(b);
    else if (b->line_open && (b->prompts.count > 1 || isatty(STDOUT_FILENO)))
        print(b, "\n", 1);
    wf_open_say_speed(e, prompt, cached, b->prompts.count,
                      b->prompts.count == 1 ? wf_stop_sentence(b->job[0].stop) : "");
    char larger[96];
    if (full)
        wf_open_say(
            "note: generation stopped because the context of %lld token%s is full; use a smaller -n%s",
            (long long)e->context, WF_PLURAL(e->context), wf_open_larger(e, larger, sizeof larger));
}

static void free_batch(batch *b)
{
    for (int i = 0; b->job && i < b->prompts.count; i++) {
        wf_sequence_free(b->job[i].sequence);
        wf_ids_free(b->open.ctx, b->job[i].ids);
        wf_mem_free(b->open.ctx, b->job[i].text.text);
    }
    wf_mem_free(b->open.ctx, b->job);
    wf_sampled_free(b->open.ctx, &b->sampled);
    wf_prompts_free(&b->prompts);
    wf_open_close(&b->open);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    static batch b; /* too large for a small stack */
    const char *path;
    WF_TRY(take_operands(ctx, operands, count, &path));
    WF_TRY(take_stdin(ctx));
    b.open.ctx = b.prompts.ctx = ctx;
    wf_screen_begin(&b.screen, false);
    wf_status status = prepare(&b, path);
    if (status == WF_OK)
        status = generate(&b);
    if (status == WF_OK)
        report(&b);
    free_batch(&b);
    return status;
}

static const wf_flag flags[] = {
    {"prompt", 'p', "TEXT", "the prompt, instead of PROMPT; -: stdin; repeatable",
     .values = &options.prompts, .empty = true, .many = true},
    {"file", 'f', "FILE", "read a prompt from FILE, without its last newline; repeatable",
     .values = &options.files, .many = true, .offer = WF_OFFER_FILES},
    {"parallel", 0, "N", "maximum number of prompts to compute at once", .whole = &options.parallel,
     .range = "1,1024", .also = "-np", .fallback = "8"},
    {"echo", 0, NULL, "print the prompt before the generated text", .on = &options.echo},
    {"control", 0, NULL, "parse control tokens such as <|im_start|> in prompts",
     .on = &options.control},
    {"no-escape", 0, NULL, "do not interpret backslash escapes such as \\n in -p",
     .on = &options.no_escape},
    {"prompt-cache", 0, "FILE",
     "file for the prompt's keys and values; created if missing, otherwise read",
     .text = &options.cache, .offer = WF_OFFER_FILES},
    WF_FLAG_JSON(&options.json),
    {.doc = "sampling", .more = wf_sampling_flags},
    {.doc = "model and device", .more = wf_open_flags},
    {0},
};

const wf_command wf_cmd_run = {
    .name = "run",
    .doc = "continue a text",
    .operands = "MODEL [PROMPT]",
    .max_operands = 2,
    .offers = {WF_OFFER_FILES},
    .details =
        "MODEL is a GGUF file or a Hugging Face folder. PROMPT is the text to continue. Without "
        "PROMPT, -p and -f the prompt is read from stdin. Only generated text goes to stdout.\n\n"
        "Several prompts are computed together and printed in order, each after a line such as "
        "'--- 2 of 3 ---'. The first prompt uses the seed S, the next S + 1.",
    .examples = {"weft run model.gguf \"Once upon a time\" -n 64",
                 "weft run model.gguf -f story.txt --temp 0 --device cuda",
                 "echo \"The capital of France is\" | weft run model.gguf -n 8 --json"},
    .flags = flags,
    .run = run,
};
