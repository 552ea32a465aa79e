/* SPDX-License-Identifier: MIT */
/*
 * prepare.c - converts text to a folder of shards.
 *
 * Text is cut into pieces in rounds: threads encode the pieces of a round, then they are written in
 * order. One round is in memory at a time, and the order does not depend on threads.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/thread.h"
#include "model/chat.h"
#include "text/token.h"
#include "train/prepare_priv.h"

#define THREADS_MOST 256                /* more threads would only add memory */
#define ROUND 8                         /* pieces per thread and round */
#define ROUND_MOST 512                  /* most pieces per round, which limits the open files */
#define SHARD_TOKENS ((int64_t)1 << 27) /* 256 or 512 MiB of ids */
#define VALID 0.01                      /* share of documents that is held out */

typedef struct {
    wf_ctx *ctx;
    const wf_prepare_options *o;
    wf_arena arena;
    wf_sources train, valid; /* input files */
    wf_tokenizer *tokenizer;
    const char *chat_template; /* saved with the data; NULL: no template */
    wf_template *template, *tool_template;
    wf_encoding encoding;
    wf_data_output output; /* the folder while it is written */
    wf_index index;
    wf_shard_set set[2]; /* shards of each split */
    wf_holding holding;  /* which documents are held out */
    wf_prepared result;

    int threads;
    wf_ctx **contexts;     /* [threads] */
    wf_encoder **encoders; /* [threads] */
    wf_piece_work *piece;  /* [ROUND_MOST] */
    wf_opened *closing;    /* [ROUND_MOST + 1]: to close after the round */
    int pieces, closings;

    wf_split at;             /* split of the current document */
    int64_t documents;       /* started so far; this number decides which are held out */
    const wf_source *source; /* source of the last piece, and its lines so far */
    int64_t lines;
    bool has_text, has_chat;
    int64_t done, total; /* bytes */
} preparing;

/* ---- Options ---- */

static wf_status check_options(wf_ctx *ctx, const wf_prepare_options *o)
{
    if (o->input_count < 1)
        return wf_fail(ctx, WF_ERR_USAGE, "no input to prepare; give files or folders");
    if (o->format && strcmp(o->format, "text") != 0 && strcmp(o->format, "jsonl") != 0 &&
        strcmp(o->format, "json") != 0)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown format '%s'; use text, jsonl or json",
                       o->format);
    if (o->split_on && !*o->split_on)
        return wf_fail(ctx, WF_ERR_USAGE, "the separator between documents is empty; give a text");
    if (!(o->valid <= 0.5))
        return wf_fail(ctx, WF_ERR_USAGE, "the share for validation is %g; use 0 to 0.5", o->valid);
    if (o->tokenizer && o->vocab)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the tokenizer is given, so its vocabulary size is fixed; omit the tokenizer or the "
            "vocabulary size");
    if (o->vocab < 0 || o->sample < 0 || o->shard_tokens < 0 || o->threads < 0)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the sizes of vocabulary, sample and shards and the number of threads must not be "
            "negative");
    return WF_OK;
}

static wf_status find_sources(preparing *p)
{
    const wf_prepare_options *o = p->o;
    for (int i = 0; i < o->input_count; i++)
        WF_TRY(wf_sources_add(&p->train, o->inputs[i], o->format));
    for (int i = 0; i < o->valid_count; i++)
        WF_TRY(wf_sources_add(&p->valid, o->valid_inputs[i], o->format));
    if (p->train.bytes == 0)
        return wf_fail(p->ctx, WF_ERR_USAGE, "there is no text in '%s'%s: nothing to train on",
                       o->inputs[0], o->input_count > 1 ? " and the others" : "");
    p->result.files = (int64_t)(p->train.count + p->valid.count);
    p->result.skipped_files = p->train.skipped + p->valid.skipped;
    p->total = (int64_t)p->train.bytes + (int64_t)p->valid.bytes;
    return WF_OK;
}

/* ---- The tokenizer ---- */

/* Finds what the tokenizer adds before a text, such as bos. */
static wf_status find_frame(preparing *p)
{
    int32_t end = wf_tokenizer_special(p->tokenizer, WF_SPECIAL_EOS);
    for (int32_t i = 0; end < 0 && i < wf_tokenizer_count(p->tokenizer); i++)
        end = wf_tokenizer_ends(p->tokenizer, i) ? i : -1;
    if (end < 0)
        return wf_fail(
            p->ctx, WF_ERR_UNSUPPORTED,
            "the tokenizer of '%s' has no token that ends a text, which is needed between "
            "documents",
            p->o->tokenizer);
    const int32_t *before;
    size_t befores = wf_tokenizer_before(p->tokenizer, &before);
    p->encoding = (wf_encoding){.chat = {.tokenizer = p->tokenizer, .end = end},
                                .before = before,
                                .befores = befores,
                                .split_on = p->o->split_on,
                                .skip_bad = p->o->skip_bad};
    return WF_OK;
}

static wf_status find_template(preparing *p)
{
    const char *own = p->o->chat_template, *tool = NULL;
    if (own)
        p->chat_template = own;
    else if (p->o->tokenizer)
        WF_TRY(wf_chat_templates_of(&p->arena, p->o->tokenizer, &p->chat_template, &tool));
    if (p->chat_template && strcmp(p->chat_template, "chatml") == 0)
        p->chat_template = wf_chatml;
    const char *text = p->chat_template ? p->chat_template : wf_chatml;
    wf_status status =
        wf_template_new(p->ctx, "the chat template", text, strlen(text), &p->template);
    if (status == WF_OK && tool)
        status = wf_template_new(p->ctx, "the chat template for tools", tool, strlen(tool),
                                 &p->tool_template);
    p->encoding.chat.template = p->template;
    p->encoding.chat.tool_template = p->tool_template;
    return status;
}

static wf_status find_tokenizer(preparing *p)
{
    const wf_prepare_options *o = p->o;
    if (o->tokenizer) {
        WF_TRY(wf_tokenizer_open(p->ctx, o->tokenizer, &p->tokenizer));
    } else {
        WF_TRY(wf_prepare_learn(p->ctx, &p->train, o, &p->tokenizer));
        p->result.learned = true;
    }
    p->index.tokenizer = o->tokenizer ? o->tokenizer : "learned from these texts";
    p->index.vocab = p->result.vocab = wf_tokenizer_count(p->tokenizer);
    p->index.id_bytes = p->result.id_bytes = p->index.vocab <= 65536 ? 2 : 4;
    WF_TRY(find_frame(p));
    p->index.end = p->encoding.chat.end;
    return find_template(p);
}

/* ---- Writing, in order ---- */

/* One folder holds texts or conversations, because masks apply to a whole split. */
static wf_status check_kind(preparing *p, const wf_piece_work *w)
{
    p->has_text = p->has_text || w->has_text;
    p->has_chat = p->has_chat || w->has_chat;
    if (p->has_text && p->has_chat)
        return wf_fail(p->ctx, WF_ERR_USAGE,
                       "the file '%s' contains %s, but earlier input does not; prepare texts and "
                       "conversations separately",
                       w->source->path, w->has_chat ? "conversations" : "plain texts");
    p->set[0].masked = p->set[1].masked = p->has_chat;
    return WF_OK;
}

/* Documents keep the order of the input; the number of a document decides its split. A long
 * document may span pieces: only its first part decides. */
static wf_status write_piece(preparing *p, const wf_piece_work *w)
{
    size_t at = 0;
    for (int i = 0; i < w->documents; i++) {
        const wf_encoded *d = &w->document[i];
        if (d->begins) {
            p->at = w->split != WF_BY_NUMBER                      ? (wf_split)w->split
                    : wf_holding_takes(&p->holding, p->documents) ? WF_SPLIT_VALID
                                                                  : WF_SPLIT_TRAIN;
            p->documents++;
        }
        WF_TRY(wf_shard_set_ids(&p->set[p->at], w->ids + at, w->mask ? w->mask + at : NULL, d->ids,
                                d->bytes));
        if (d->ends)
            WF_TRY(wf_shard_set_document(&p->set[p->at]));
        at += d->ids;
    }
    return WF_OK;
}

/* Called in the order of the input, whatever order the threads finished in, so the output does not
 * depend on them. */
static wf_status take_piece(preparing *p, wf_piece_work *w)
{
    if (w->source != p->source) {
        p->source = w->source;
        p->lines = 0;
    }
    if (w->status != WF_OK)
        return wf_piece_report(p->ctx, w, p->lines);
    if (w->bad > 0 && p->result.bad == 0) {
        char first[WF_MESSAGE_BYTES];
        wf_piece_tell(w, p->lines, first, sizeof first);
        wf_ctx_log(p->ctx, WF_LOG_WARN, "skipped the first malformed record: %s", first);
    }
    p->result.bad += w->bad;
    p->lines += w->lines;
    p->done += (int64_t)w->bytes;
    p->result.skipped_documents += w->dropped;
    p->result.cuts += w->cuts;
    WF_TRY(check_kind(p, w));
    return write_piece(p, w);
}

/* ---- Rounds ---- */

static void encode_some(void *arg, int64_t begin, int64_t end, int thread)
{
    preparing *p = arg;
    for (int64_t i = begin; i < end; i++)
        wf_piece_encode(&p->encoding, p->contexts[thread], p->encoders[thread], &p->piece[i]);
}

/* Cuts the pieces of one round: enough for all threads. */
static wf_status gather(preparing *p, wf_cutter *c)
{
    int most = p->threads * ROUND < ROUND_MOST ? p->threads * ROUND : ROUND_MOST;
    size_t bytes = 0, enough = (size_t)most * WF_PIECE_BYTES;
    wf_status status = WF_OK;
    /* Small files make small pieces; take more of them. */
    while (p->pieces < ROUND_MOST && bytes < enough) {
        bool more = wf_cutter_next(c, &p->piece[p->pieces], &p->closing[p->closings], &status);
        /* A source is closed only after the round, when no piece points into it. */
        p->closings += p->closing[p->closings].map != NULL;
        if (!more)
            break;
        bytes += p->piece[p->pieces++].bytes;
    }
    return status;
}

/* Releases the pages of the open file that were read. */
static void forget(const preparing *p, const wf_cutter *c)
{
    size_t low = SIZE_MAX;
    for (int i = 0; i < p->pieces; i++)
        if (c->open.map && p->piece[i].source == c->open.source && p->piece[i].bytes > 0) {
            size_t at = (size_t)(p->piece[i].text - (const char *)c->open.map->data);
            low = at < low ? at : low;
        }
    if (low < SIZE_MAX && c->at > low)
        wf_map_forget(c->open.map, low, c->at - low);
}

/* Frees pieces and closes sources, also after a failure. */
static wf_status end_round(preparing *p, const wf_cutter *c, wf_status status)
{
    forget(p, c);
    for (int i = 0; i < p->pieces; i++)
        wf_piece_free(&p->piece[i]);
    for (int i = 0; i < p->closings; i++) {
        wf_status closed = wf_source_close(p->ctx, &p->closing[i]);
        status = status == WF_OK ? closed : status;
    }
    p->pieces = p->closings = 0;
    return status;
}

static wf_status run_round(preparing *p, wf_cutter *c)
{
    wf_status status = gather(p, c);
    if (status == WF_OK)
        wf_parallel_share(p->threads, p->pieces, 1, encode_some, p);
    for (int i = 0; i < p->pieces && status == WF_OK; i++)
        status = take_piece(p, &p->piece[i]);
    return status;
}

static wf_status run_sources(preparing *p, const wf_sources *s, int split, double tail)
{
    wf_cutter c = {.ctx = p->ctx,
                   .sources = s,
                   .tokenizer = p->tokenizer,
                   .split_on = p->o->split_on,
                   .tail = tail,
                   .split = split};
    wf_status status = WF_OK;
    bool more = true;
    while (more && status == WF_OK) {
        status = run_round(p, &c);
        more = p->pieces > 0;
        status = end_round(p, &c, status);
        if (status == WF_OK && p->o->progress)
            status = p->o->progress(p->o->user, "encoding", p->done, p->total);
    }
    p->result.cuts += c.cuts;
    if (c.open.map) {
        wf_status closed = wf_source_close(p->ctx, &c.open);
        status = status == WF_OK ? closed : status;
    }
    return status;
}

/* ---- The folder ---- */

static wf_status save_tokenizer(preparing *p)
{
    char *json = NULL, *config = NULL;
    size_t bytes, config_bytes;
    const char *folder = p->output.part, *path = wf_path_join(&p->arena, folder, "tokenizer.json"),
               *beside = wf_path_join(&p->arena, folder, "tokenizer_config.json");
    if (!path || !beside)
        return WF_ERR_MEMORY;
    wf_status status = wf_tokenizer_to_json(p->tokenizer, p->ctx, &json, &bytes);
    if (status == WF_OK)
        status = wf_tokenizer_to_config(p->tokenizer, p->ctx, p->index.chat_template, &config,
                                        &config_bytes);
    if (status == WF_OK)
        status = wf_file_write(p->ctx, path, json, bytes);
    if (status == WF_OK)
        status = wf_file_write(p->ctx, beside, config, config_bytes);
    if (status == WF_OK)
        p->index.tokenizer_sum = wf_checksum(json, bytes);
    wf_mem_free(p->ctx, json);
    wf_mem_free(p->ctx, config);
    return status;
}

/* The tokenizer's files must be on disk before the folder gets its name. */
static wf_status sync_texts(preparing *p)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", WF_INDEX_FILE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = wf_path_join(&p->arena, p->output.part, names[i]);
        if (!path)
            return WF_ERR_MEMORY;
        WF_TRY(wf_disk_sync(p->ctx, path));
    }
    return WF_OK;
}

static void sum_up(const wf_index_split *s, wf_prepared_split *out)
{
    out->shards = (int)s->count;
    for (size_t i = 0; i < s->count; i++) {
        out->documents += s->shard[i].info.documents;
        out->tokens += s->shard[i].info.tokens;
        out->bytes += s->shard[i].info.bytes;
        out->counted += s->shard[i].info.counted;
    }
}

/* Order: shards, tokenizer, data.json, syncs, then the rename that makes the folder appear. */
static wf_status finish(preparing *p)
{
    for (int i = 0; i < 2; i++)
        WF_TRY(wf_shard_set_end(&p->set[i]));
    sum_up(&p->index.split[WF_SPLIT_TRAIN], &p->result.train);
    sum_up(&p->index.split[WF_SPLIT_VALID], &p->result.valid);
    p->result.chat = p->index.masked = p->has_chat;
    if (p->result.train.tokens == 0)
        return wf_fail(p->ctx, WF_ERR_USAGE, "nothing to train on: %s",
                       p->has_chat ? "no conversation has an answer by the assistant"
                                   : "all documents are empty");
    p->index.chat_template = p->chat_template ? p->chat_template : p->has_chat ? wf_chatml : NULL;
    WF_TRY(save_tokenizer(p));
    WF_TRY(wf_index_write(p->ctx, p->output.part, &p->index));
    WF_TRY(sync_texts(p));
    return wf_data_output_commit(&p->output);
}

/* ---- Preparation ---- */

/* Each thread gets its own context and encoder: neither is thread-safe. */
static wf_status make_room(preparing *p)
{
    int threads = p->o->threads > 0 ? p->o->threads : wf_threads_available();
    p->threads = threads < THREADS_MOST ? threads : THREADS_MOST;
    p->contexts = wf_mem_array(p->ctx, (size_t)p->threads, sizeof *p->contexts);
    p->encoders = wf_mem_array(p->ctx, (size_t)p->threads, sizeof *p->encoders);
    p->piece = wf_mem_array(p->ctx, ROUND_MOST, sizeof *p->piece);
    p->closing = wf_mem_array(p->ctx, ROUND_MOST + 1, sizeof *p->closing);
    if (!p->contexts || !p->encoders || !p->piece || !p->closing)
        return WF_ERR_MEMORY;
    for (int i = 0; i < p->threads; i++)
        if (wf_ctx_new(&p->contexts[i]) != WF_OK ||
            wf_encoder_new(p->tokenizer, p->contexts[i], &p->encoders[i]) != WF_OK)
            return wf_fail(p->ctx, WF_ERR_MEMORY, "out of memory for %d thread%s", p->threads,
                           WF_PLURAL(p->threads));
    for (int i = 0; i < 2; i++)
        p->set[i] = (wf_shard_set){
            .ctx = p->ctx,
            .arena = &p->arena,
            .folder = p->output.part,
            .split = (wf_split)i,
            .vocab = p->index.vocab,
            .most = p->o->shard_tokens > 0 ? p->o->shard_tokens : SHARD_TOKENS,
            .index = &p->index.split[i],
        };
    return WF_OK;
}

/* Everything that can be refused is checked before the folder is created. */
static wf_status prepare(preparing *p, const char *folder)
{
    double share = p->o->valid == 0 ? VALID : p->o->valid;
    WF_TRY(check_options(p->ctx, p->o));
    WF_TRY(wf_data_output_check(p->ctx, &p->output, folder, p->o->overwrite));
    WF_TRY(find_sources(p));
    WF_TRY(find_tokenizer(p));
    WF_TRY(wf_holding_plan(p->ctx, &p->train, p->o->split_on, p->valid.count > 0 ? 0 : share,
                           &p->holding));
    WF_TRY(wf_data_output_begin(&p->output));
    WF_TRY(make_room(p));
    WF_TRY(run_sources(p, &p->train, WF_BY_NUMBER, p->holding.tail));
    WF_TRY(run_sources(p, &p->valid, WF_SPLIT_VALID, 0));
    return finish(p);
}

static void clean_up(preparing *p)
{
    for (int i = 0; i < 2; i++)
        wf_shard_set_free(&p->set[i]);
    for (int i = 0; p->contexts && p->encoders && i < p->threads; i++) {
        wf_encoder_free(p->encoders[i]);
        wf_ctx_free(p->contexts[i]);
    }
    wf_mem_free(p->ctx, p->contexts);
    wf_mem_free(p->ctx, p->encoders);
    wf_mem_free(p->ctx, p->piece);
    wf_mem_free(p->ctx, p->closing);
    wf_data_output_free(&p->output);
    wf_template_free(p->template);
    wf_template_free(p->tool_template);
    wf_tokenizer_free(p->tokenizer);
    wf_sources_free(&p->train);
    wf_sources_free(&p->valid);
    wf_arena_free(&p->arena);
}

wf_status wf_prepare(wf_ctx *ctx, const char *folder, const wf_prepare_options *options,
                     wf_prepared *out)
{
    preparing p = {.ctx = ctx, .o = options, .train = {.ctx = ctx}, .valid = {.ctx = ctx}};
    wf_arena_init(&p.arena, ctx);
    wf_arena_init(&p.train.arena, ctx);
    wf_arena_init(&p.valid.arena, ctx);
    wf_status status = prepare(&p, folder);
    if (status == WF_OK && out)
        *out = p.result;
    clean_up(&p);
    return status;
}
