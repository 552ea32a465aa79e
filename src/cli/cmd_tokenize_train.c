/* SPDX-License-Identifier: MIT */
/*
 * cmd_tokenize_train.c - see tokenize_train.h.
 *
 * Files are mapped, so they may be larger than memory; pipes are read whole, up to PIPE_MOST.
 * Mapped files that another process truncates read as zeros and fail the training at the end.
 */
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/path.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/tokenize_train.h"
#include "text/token.h"

#define PIPE_MOST ((size_t)256 << 20) /* bytes read from a pipe, held in memory */
#define USAGE "weft tokenize --train FILE... -o FOLDER|FILE.gguf"

static struct {
    bool train, overwrite;
    const char *out, *split;
    int64_t vocab, minimum, threads; /* -1: the default */
    wf_values special;
} set = {.vocab = -1, .minimum = -1, .threads = -1};

const wf_flag wf_tokenize_train_flags[] = {
    {"train", 0, NULL, "learn byte-level BPE from the FILE arguments", .on = &set.train},
    {"output", 'o', "PATH", "an existing folder, or a file name that ends in .gguf",
     .text = &set.out, .offer = WF_OFFER_FILES},
    {"overwrite", 0, NULL, "replace an existing tokenizer", .on = &set.overwrite},
    {"vocab", 0, "N", "size of the vocabulary, including special tokens and the 256 bytes",
     .whole = &set.vocab, .range = "257,2147483647", .also = "--vocab-size", .fallback = "8192"},
    {"split", 0, "NAME", "rule that splits texts into words", .text = &set.split,
     .fallback = "gpt2", .offer = {.choices = "gpt2 llama3 qwen2"}},
    {"special-token", 0, "TEXT", "a control token; repeatable, the first one is bos and eos",
     .values = &set.special, .fallback = "<|endoftext|>"},
    {"min-count", 0, "N", "do not merge pairs that occur less often", .whole = &set.minimum,
     .also = "--min-frequency", .fallback = "2"},
    {"threads", 't', "N", "threads that count words", .whole = &set.threads, .range = "1,1024",
     .fallback = "all cores"},
    {0},
};

wf_status wf_tokenize_trains(wf_ctx *ctx, bool *train)
{
    *train = set.train;
    if (!set.train && (set.out || set.overwrite || set.split || set.vocab >= 0 ||
                       set.minimum >= 0 || set.special.count > 0))
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "--output, --vocab, --split, --special-token and --min-count need --train: " USAGE);
    return WF_OK;
}

/* ---- Texts ---- */

typedef struct {
    wf_text *text; /* [count] */
    wf_map **map;  /* [count] of a file, or NULL */
    char **read;   /* [count] from a pipe, or NULL */
    size_t count, bytes;
} corpus;

static wf_status open_text(wf_ctx *ctx, corpus *c, const char *path)
{
    size_t i = c->count;
    path = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    if (wf_path_look(path) == WF_PATH_FILE) {
        WF_TRY(wf_map_open(ctx, path, &c->map[i]));
        c->text[i] = (wf_text){(const char *)c->map[i]->data, c->map[i]->size};
    } else {
        wf_status status = wf_file_read(ctx, path, PIPE_MOST, &c->read[i], &c->text[i].bytes);
        if (status == WF_ERR_FORMAT)
            return wf_fail(
                ctx, status,
                "'%s' has more than %zu MiB; save the text to a file, which may have any "
                "size",
                path, PIPE_MOST >> 20);
        WF_TRY(status);
        c->text[i].text = c->read[i];
    }
    c->count++;
    if (!wf_add_size(c->bytes, c->text[i].bytes, &c->bytes))
        return wf_fail(ctx, WF_ERR_USAGE, "the total size of the texts overflows size_t");
    return WF_OK;
}

/* Opens all texts. Call close_corpus after a failure as well. */
static wf_status open_corpus(wf_ctx *ctx, corpus *c, char *const *operands, int count,
                             const wf_values *files)
{
    size_t all = (size_t)count + (size_t)files->count;
    c->text = wf_mem_array(ctx, all, sizeof *c->text);
    c->map = wf_mem_array(ctx, all, sizeof *c->map);
    c->read = wf_mem_array(ctx, all, sizeof *c->read);
    if (!c->text || !c->map || !c->read)
        return WF_ERR_MEMORY;
    for (int i = 0; i < count; i++)
        WF_TRY(open_text(ctx, c, operands[i]));
    for (int i = 0; i < files->count; i++)
        WF_TRY(open_text(ctx, c, files->item[i]));
    return WF_OK;
}

static wf_status check_corpus(wf_ctx *ctx, const corpus *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->map[i] && wf_map_broken(c->map[i]))
            return wf_fail(ctx, WF_ERR_IO, "text %zu was truncated while it was being read", i + 1);
    return WF_OK;
}

static void close_corpus(wf_ctx *ctx, corpus *c)
{
    for (size_t i = 0; i < c->count; i++) {
        wf_map_close(c->map[i]);
        wf_mem_free(ctx, c->read[i]);
    }
    wf_mem_free(ctx, c->text);
    wf_mem_free(ctx, c->map);
    wf_mem_free(ctx, c->read);
}

/* ---- Writing ---- */

static bool to_gguf(void)
{
    return wf_path_ends(set.out, ".gguf");
}

/* Two lists of inputs: operands and -f files. Only the second check decides about overwriting. */
static wf_status check_file(wf_ctx *ctx, const char *path, char *const *operands, int count,
                            const wf_values *files)
{
    if (!path)
        return WF_ERR_MEMORY;
    WF_TRY(wf_output_check(ctx, path, true, (const char *const *)operands, count));
    return wf_output_check(ctx, path, set.overwrite, files->item, files->count);
}

/* Refuses to replace one of the texts: they stay mapped while they are read. */
static wf_status check_files(wf_arena *arena, char *const *operands, int count,
                             const wf_values *files)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    if (to_gguf())
        return check_file(arena->ctx, set.out, operands, count, files);
    for (int i = 0; i < 2; i++) {
        const char *path = wf_path_join(arena, set.out, names[i]);
        WF_TRY(check_file(arena->ctx, path, operands, count, files));
        /* A link that the user has not named may lead anywhere, even if its target is missing. */
        if (!set.overwrite && wf_path_is_link(path))
            return wf_fail(arena->ctx, WF_ERR_USAGE,
                           "'%s' is a link; choose another folder, or write to the link's target "
                           "with --overwrite",
                           path);
    }
    return WF_OK;
}

/* Checks the output before training starts. */
static wf_status check_output(wf_ctx *ctx, char *const *operands, int count, const wf_values *files)
{
    if (!set.out)
        return wf_fail(ctx, WF_ERR_USAGE, "the output is missing: " USAGE);
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    const char *folder = to_gguf() ? wf_path_parent(&arena, set.out) : set.out;
    wf_status status = folder ? WF_OK : WF_ERR_MEMORY;
    if (folder && wf_path_look(folder) != WF_PATH_FOLDER)
        status =
            wf_fail(ctx, WF_ERR_IO, "cannot write to '%s': the folder does not exist%s", folder,
                    to_gguf() ? "" : "; create it, or give a file name that ends in .gguf");
    if (status == WF_OK)
        status = check_files(&arena, operands, count, files);
    wf_arena_free(&arena);
    return status;
}

static wf_status write_gguf(wf_ctx *ctx, const wf_tokenizer *t)
{
    static const char name[] = "gpt2", type[] = "vocab";
    wf_gguf_writer *w;
    WF_TRY(wf_gguf_write_new(ctx, set.out, NULL, &w));
    wf_status status = wf_gguf_write_text(w, "general.architecture", name, strlen(name));
    if (status == WF_OK)
        status = wf_gguf_write_text(w, "general.type", type, strlen(type));
    if (status == WF_OK)
        status = wf_tokenizer_to_gguf(t, ctx, w, wf_tokenizer_count(t));
    if (status == WF_OK)
        status = wf_gguf_write_begin(w);
    if (status == WF_OK)
        status = wf_gguf_write_end(w);
    wf_gguf_write_free(w);
    return status;
}

/* ---- The command ---- */

typedef struct {
    wf_progress bar;
    size_t bytes;
} teller;

static void tell(void *user, double done)
{
    teller *t = user;
    wf_progress_update(&t->bar, (int64_t)(done * (double)t->bytes));
}

static wf_status train(wf_ctx *ctx, const corpus *c, wf_tokenizer **out)
{
    teller t = {.bytes = c->bytes};
    const bool quiet = wf_open_set.quiet;
    const wf_bpe_options options = {
        .vocab = set.vocab < 0 ? 0 : (int32_t)set.vocab,
        .split = set.split,
        .special = set.special.count ? set.special.item : NULL,
        .specials = set.special.count,
        .threads = set.threads > 0 ? (int)set.threads : 0,
        /* In the options 0 selects the default; an explicit 0 means every pair, like 1. */
        .minimum = set.minimum < 0    ? 0
                   : set.minimum == 0 ? 1
                                      : set.minimum,
        .progress = quiet ? NULL : tell,
        .user = &t,
    };
    if (!quiet)
        wf_progress_begin(&t.bar, "training", WF_PROGRESS_BYTES, (int64_t)c->bytes);
    wf_status status = wf_tokenizer_train(ctx, c->text, c->count, &options, out);
    if (status == WF_OK)
        status = check_corpus(ctx, c);
    if (!quiet)
        (status == WF_OK ? wf_progress_end : wf_progress_clear)(&t.bar);
    return status;
}

wf_status wf_tokenize_train(wf_ctx *ctx, char *const *operands, int count, const wf_values *files)
{
    corpus c = {0};
    wf_tokenizer *t = NULL;
    if (count + files->count == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the texts are missing: " USAGE);
    WF_TRY(check_output(ctx, operands, count, files));
    wf_status status = open_corpus(ctx, &c, operands, count, files);
    if (status == WF_OK)
        status = train(ctx, &c, &t);
    if (status == WF_OK)
        status = to_gguf() ? write_gguf(ctx, t) : wf_tokenizer_save(t, ctx, set.out);
    if (status == WF_OK) {
        int tokens = wf_tokenizer_count(t), wanted = set.vocab < 0 ? 8192 : (int)set.vocab;
        wf_open_say("%d tokens from %zu byte%s, in %s%s", tokens, c.bytes, WF_PLURAL(c.bytes),
                    WF_FOREIGN(set.out),
                    tokens < wanted ? "; the texts have no further pairs to merge" : "");
    }
    wf_tokenizer_free(t);
    close_corpus(ctx, &c);
    return status;
}
