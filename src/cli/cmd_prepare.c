/* SPDX-License-Identifier: MIT */
/* cmd_prepare.c - weft prepare: tokenizes texts for training. */
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/catch.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/rewrite.h"

#define USAGE "weft prepare FILE|FOLDER... -o DATA"
#define TEMPLATE_MOST ((size_t)4 << 20) /* bytes, the limit of the template's lexer */

static struct {
    const char *out, *tokenizer, *format, *split_on, *template, *template_file, *sample;
    int64_t vocab, threads, shard; /* -1: the default */
    /* A share of the documents; 0: none. The library takes a negative number for that, since 0 is
     * its default. */
    double valid;
    wf_values valid_data;
    bool overwrite, quiet, json, skip_bad;
} set = {.vocab = -1, .threads = -1, .shard = -1, .valid = 0.01};

static const wf_flag flags[] = {
    {"output", 'o', "DATA", "the folder to write", .text = &set.out, .offer = WF_OFFER_FOLDERS},
    {"tokenizer", 0, "MODEL", "use the tokenizer of a model, folder or tokenizer.json",
     .text = &set.tokenizer, .fallback = "learn one", .offer = WF_OFFER_FILES},
    {"vocab", 0, "N", "vocabulary size of the tokenizer to learn", .whole = &set.vocab,
     .range = "259,2147483647", .also = "--vocab-size", .fallback = "by the amount of text"},
    {"sample", 0, "SIZE", "learn the tokenizer from at most SIZE bytes, spread evenly",
     .text = &set.sample, .fallback = "64M"},
    {"format", 0, "NAME", "format of the files", .text = &set.format,
     .fallback = "by name: .jsonl, .ndjson and .json are records, all others text",
     .offer = {.choices = "text jsonl json"}},
    {"skip-bad", 0, NULL, "skip invalid records and report their number", .on = &set.skip_bad},
    {"split-on", 0, "TEXT", "separator of documents in a text file; \\n: newline",
     .text = &set.split_on, .fallback = "a file is one document"},
    {"chat-template", 0, "NAME", "chatml, for conversations", .text = &set.template,
     .fallback = "the tokenizer's, else chatml"},
    {"chat-template-file", 0, "FILE", "read the template for conversations from FILE",
     .text = &set.template_file, .offer = WF_OFFER_FILES},
    {"valid", 0, "SHARE", "share of the documents to validate on; 0: no validation",
     .real = &set.valid, .range = "0,0.5"},
    {"valid-data", 0, "PATH", "validate on PATH instead; repeatable", .values = &set.valid_data,
     .many = true, .offer = WF_OFFER_FILES},
    {"shard-tokens", 0, "N", "approximate number of tokens in a shard", .whole = &set.shard,
     .range = "1,", .fallback = "134217728"},
    {"overwrite", 0, NULL, "replace DATA if it is prepared data", .on = &set.overwrite},
    {"threads", 't', "N", "threads that encode", .whole = &set.threads, .range = "1,1024",
     .fallback = "all cores"},
    {"quiet", 'q', NULL, "print no progress and no summary", .on = &set.quiet},
    WF_FLAG_JSON(&set.json),
    {0},
};

/* ---- Arguments ---- */

/* Interprets \n, \t and \\, which are hard to type in a shell. The caller frees *out with
 * wf_mem_free. */
static wf_status unescape(wf_ctx *ctx, const char *text, char **out)
{
    char *to = *out = wf_mem_new(ctx, strlen(text) + 1);
    if (!to)
        return WF_ERR_MEMORY;
    for (; *text; text++) {
        static const char letters[] = "nt\\", meant[] = "\n\t\\";
        const char *which = text[0] == '\\' && text[1] ? strchr(letters, text[1]) : NULL;
        *to++ = which ? meant[which - letters] : *text;
        text += which != NULL;
    }
    return WF_OK;
}

static wf_status check_flags(wf_ctx *ctx, int count)
{
    if (count == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the texts are missing; usage: " USAGE);
    if (!set.out)
        return wf_fail(ctx, WF_ERR_USAGE, "the output folder is missing; usage: " USAGE);
    if (set.valid_data.count > 0 && set.valid != 0.01 && set.valid != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--valid and --valid-data exclude each other; give one of them");
    if (set.tokenizer && (set.vocab >= 0 || set.sample))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--vocab and --sample apply to learning a tokenizer; leave them out with "
                       "--tokenizer");
    if (set.template && strcmp(set.template, "chatml") != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "'%s' is not a known template; give chatml, or a file with "
                       "--chat-template-file",
                       WF_SHOWN(set.template));
    if (set.template && set.template_file)
        return wf_fail(ctx, WF_ERR_USAGE, "give one of --chat-template and --chat-template-file");
    return WF_OK;
}

/* ---- Progress and summary ---- */

/* Progress callback: begins a new bar when the stage changes, and ends the work on a signal. */
static wf_status show(void *user, const char *what, int64_t done, int64_t total)
{
    wf_progress *p = user;
    if (!set.quiet) {
        if (!p->label || strcmp(p->label, what) != 0) {
            if (p->label)
                wf_progress_clear(p);
            wf_progress_begin(p, what, WF_PROGRESS_BYTES, total);
        }
        wf_progress_update(p, done);
    }
    return wf_caught() ? WF_ERR_IO : WF_OK;
}

static void say_split(const char *name, const wf_prepared_split *s, bool chat)
{
    if (s->tokens == 0) {
        fprintf(stderr, "%s: nothing\n", name);
        return;
    }
    fprintf(stderr, "%s: %lld document%s, %lld token%s", name, (long long)s->documents,
            WF_PLURAL(s->documents), (long long)s->tokens, WF_PLURAL(s->tokens));
    if (chat)
        fprintf(stderr, " (%lld in answers)", (long long)s->counted);
    fprintf(stderr, ", %lld byte%s, %.2f bytes/token, %d shard%s\n", (long long)s->bytes,
            WF_PLURAL(s->bytes), (double)s->bytes / (double)s->tokens, s->shards,
            WF_PLURAL(s->shards));
}

static void say(const wf_prepared *r, double seconds)
{
    int64_t bytes = r->train.bytes + r->valid.bytes, tokens = r->train.tokens + r->valid.tokens;
    say_split("train", &r->train, r->chat);
    say_split("valid", &r->valid, r->chat);
    bool slow = (double)bytes / seconds < 1e5; /* a small file: most of the time is startup */
    fprintf(stderr, "%s: vocabulary %d%s, %d byte%s per id; %.1f s, %.1f %sB/s, %.2f %s tokens/s\n",
            WF_FOREIGN(set.out), (int)r->vocab, r->learned ? ", learned" : "", r->id_bytes,
            WF_PLURAL(r->id_bytes), seconds, (double)bytes / seconds * (slow ? 1e-3 : 1e-6),
            slow ? "k" : "M", (double)tokens / seconds * (slow ? 1e-3 : 1e-6), slow ? "K" : "M");
    if (r->skipped_files > 0)
        fprintf(stderr, "skipped %lld file%s that %s empty or not UTF-8 text\n",
                (long long)r->skipped_files, WF_PLURAL(r->skipped_files),
                r->skipped_files == 1 ? "is" : "are");
    if (r->skipped_documents > 0)
        fprintf(stderr, "skipped %lld %s%s %s\n", (long long)r->skipped_documents,
                r->chat ? "conversation" : "line", WF_PLURAL(r->skipped_documents),
                r->chat ? "without an assistant message" : "with an empty text");
    if (r->bad > 0)
        fprintf(stderr, "skipped %lld bad record%s\n", (long long)r->bad, WF_PLURAL(r->bad));
    if (r->cuts > 0)
        fprintf(
            stderr,
            "long texts were split at %lld place%s where the whole text might give other tokens\n",
            (long long)r->cuts, WF_PLURAL(r->cuts));
}

static void put_split(wf_json *j, const char *key, const wf_prepared_split *s)
{
    wf_json_key(j, key);
    wf_json_object_begin(j);
    wf_json_put_int(j, "documents", s->documents);
    wf_json_put_int(j, "tokens", s->tokens);
    wf_json_put_int(j, "bytes", s->bytes);
    wf_json_put_int(j, "counted", s->counted);
    wf_json_put_int(j, "shards", s->shards);
    wf_json_object_end(j);
}

static void print_json(const wf_prepared *r, double seconds)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_key(&j, "folder");
    wf_json_string(&j, set.out);
    put_split(&j, "train", &r->train);
    put_split(&j, "valid", &r->valid);
    wf_json_put_int(&j, "vocab", r->vocab);
    wf_json_put_int(&j, "id_bytes", r->id_bytes);
    wf_json_key(&j, "learned");
    wf_json_bool(&j, r->learned);
    wf_json_key(&j, "chat");
    wf_json_bool(&j, r->chat);
    wf_json_put_int(&j, "files", r->files);
    wf_json_put_int(&j, "skipped_files", r->skipped_files);
    wf_json_put_int(&j, "skipped_documents", r->skipped_documents);
    wf_json_put_int(&j, "bad", r->bad);
    wf_json_put_int(&j, "cuts", r->cuts);
    wf_json_key(&j, "seconds");
    wf_json_double(&j, seconds);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

/* ---- The command ---- */

/* Runs with the guard on, since input files may change while they are mapped, and with signals
 * caught, so that the unfinished folder is removed. */
static wf_status prepare(wf_ctx *ctx, const wf_prepare_options *o)
{
    wf_prepare_options told = *o;
    wf_progress bar = {0};
    wf_prepared result;
    uint64_t began = wf_clock_ns();
    told.progress = show;
    told.user = &bar;
    wf_guard_mapped_files(true);
    wf_catch_begin();
    wf_status status = wf_prepare(ctx, set.out, &told, &result);
    if (bar.label)
        wf_progress_clear(&bar);
    wf_catch_end();
    if (status != WF_OK)
        return status;
    double seconds = (double)(wf_clock_ns() - began) * 1e-9;
    if (set.json)
        print_json(&result, seconds);
    else if (!set.quiet)
        say(&result, seconds);
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    char *template = NULL, *split_on = NULL;
    uint64_t sample = 0;
    size_t bytes;
    WF_TRY(check_flags(ctx, count));
    if (set.sample)
        WF_TRY(wf_rewrite_size(ctx, "--sample", set.sample, &sample));
    wf_status status = set.template_file
                           ? wf_file_read(ctx, set.template_file, TEMPLATE_MOST, &template, &bytes)
                           : WF_OK;
    if (status == WF_OK && set.split_on)
        status = unescape(ctx, set.split_on, &split_on);
    const wf_prepare_options o = {
        .inputs = (const char *const *)operands,
        .input_count = count,
        .valid_inputs = set.valid_data.item,
        .valid_count = set.valid_data.count,
        .format = set.format,
        .skip_bad = set.skip_bad,
        .split_on = split_on,
        .tokenizer = set.tokenizer,
        .vocab = set.vocab > 0 ? (int32_t)set.vocab : 0,
        .sample = sample > INT64_MAX ? INT64_MAX : (int64_t)sample,
        .chat_template = template ? template : set.template,
        .valid = set.valid > 0 ? set.valid : -1,
        .shard_tokens = set.shard > 0 ? set.shard : 0,
        .threads = set.threads > 0 ? (int)set.threads : 0,
        .overwrite = set.overwrite,
    };
    if (status == WF_OK)
        status = prepare(ctx, &o);
    wf_mem_free(ctx, template);
    wf_mem_free(ctx, split_on);
    return status;
}

const wf_command wf_cmd_prepare = {
    .name = "prepare",
    .doc = "tokenize texts or conversations for training",
    .operands = "FILE|FOLDER...",
    .max_operands = 1 << 20,
    .offers = {WF_OFFER_FILES},
    .details =
        "Files are text or JSON records (.jsonl, or an array in .json). A record has a \"text\", a "
        "list of \"messages\", a \"prompt\" with a \"completion\", or an \"instruction\" with an "
        "\"output\". Folders are searched recursively for text files; names that begin with a dot "
        "are skipped. In conversations, only the assistant's messages count toward the loss.",
    .examples = {"weft prepare books/ -o data",
                 "weft prepare chats.jsonl -o chats --tokenizer model.gguf",
                 "weft prepare web.jsonl -o data --vocab 32768 --valid 0.001"},
    .flags = flags,
    .run = run,
};
