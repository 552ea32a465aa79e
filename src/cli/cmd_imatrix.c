/* SPDX-License-Identifier: MIT */
/*
 * cmd_imatrix.c - weft imatrix: measures the importance matrix of a model on texts.
 *
 * Each text is cut into chunks of --ctx-size tokens; a shorter rest is not used. If the tokenizer
 * adds bos, it replaces the first token of every chunk, as in llama-imatrix.
 */
#include <inttypes.h>

#include "base/output.h"
#include "cli/catch.h"
#include "cli/eval.h"
#include "cli/progress.h"
#include "cli/text_ids.h"

#define TEXT_MOST ((size_t)1 << 30) /* bytes; the ids stay in memory */
#define DEFAULT_CHUNK 512           /* tokens, as in llama-imatrix */

static struct {
    wf_values data;
    const char *out;
    int64_t chunks; /* most to measure; -1: all */
    bool overwrite;
} options = {.chunks = -1};

typedef struct {
    wf_open *e;
    wf_imatrix *imatrix;
    int64_t chunk; /* tokens */
    int32_t bos;   /* first token of every chunk; -1: the text's */
    int64_t done;  /* chunks */
    wf_progress progress;
} measuring;

/* Measures the chunks of one text. */
static wf_status measure_ids(measuring *v, int32_t *ids, size_t count)
{
    const size_t chunk = (size_t)v->chunk;
    for (size_t at = 0; count - at >= chunk; at += chunk) {
        if (options.chunks > 0 && v->done >= options.chunks)
            break;
        if (v->bos >= 0)
            ids[at] = v->bos;
        WF_TRY(wf_imatrix_add(v->imatrix, ids + at, chunk));
        v->done++;
        if (!wf_open_set.quiet)
            wf_progress_update(&v->progress, v->done * v->chunk);
        if (wf_caught())
            return wf_fail(v->e->ctx, WF_ERR_IO, "interrupted; nothing was written");
    }
    return WF_OK;
}

static wf_status measure_file(measuring *v, const char *path)
{
    wf_open *e = v->e;
    wf_ids_list list = {.ctx = e->ctx};
    wf_text_ids text = {.ctx = e->ctx,
                        .tokenizer = e->tokenizer,
                        .flags = WF_TEXT_SPECIAL,
                        .most = TEXT_MOST,
                        .fn = wf_ids_list_add,
                        .user = &list};
    wf_status status = wf_text_ids_file(&text, path);
    if (status == WF_OK && list.count < (size_t)v->chunk)
        status = wf_fail(e->ctx, WF_ERR_USAGE,
                         "'%s' has %zu token%s, fewer than a chunk of %" PRId64
                         "; give a longer text or a smaller --ctx-size",
                         path, list.count, WF_PLURAL(list.count), v->chunk);
    int64_t end = v->done + (int64_t)list.count / v->chunk;
    end = options.chunks > 0 && options.chunks < end ? options.chunks : end;
    if (status == WF_OK && !wf_open_set.quiet)
        wf_progress_begin(&v->progress, "tokens", WF_PROGRESS_ITEMS, end * v->chunk);
    if (status == WF_OK)
        status = measure_ids(v, list.ids, list.count);
    if (v->progress.label && !wf_open_set.quiet)
        wf_progress_clear(&v->progress);
    wf_ids_free(e->ctx, list.ids);
    return status;
}

static wf_status measure_all(measuring *v)
{
    wf_open *e = v->e;
    const int64_t most = e->info.context;
    v->chunk = wf_open_set.context >= 0 ? e->context : most < DEFAULT_CHUNK ? most : DEFAULT_CHUNK;
    WF_TRY(wf_eval_bos(e, &v->bos));
    WF_TRY(wf_imatrix_new(e->device, e->model, v->chunk, &v->imatrix));
    int files = 0;
    while (files < options.data.count && (options.chunks <= 0 || v->done < options.chunks))
        WF_TRY(measure_file(v, options.data.item[files++]));
    WF_TRY(wf_imatrix_save(v->imatrix, options.out, options.data.item, files));
    wf_open_say("%s: measured %" PRId64 " chunk%s of %" PRId64 " tokens", WF_FOREIGN(options.out),
                v->done, WF_PLURAL(v->done), v->chunk);
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    /* Static, hence zero: wf_open_close works after any failure. */
    static wf_open e;
    measuring v = {.e = &e};
    const char *path;
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    if (options.data.count == 0 || !options.out)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "a text or the output is missing; usage: weft imatrix MODEL --data TEXT -o "
                       "FILE.gguf");
    WF_TRY(wf_output_check(ctx, options.out, options.overwrite, &path, 1));
    WF_TRY(wf_output_check(ctx, options.out, true, options.data.item, options.data.count));
    e.ctx = ctx;
    wf_status status = wf_open_model(ctx, path, &e);
    wf_catch_begin();
    if (status == WF_OK)
        status = measure_all(&v);
    wf_catch_end();
    wf_imatrix_free(v.imatrix);
    wf_open_close(&e);
    return status;
}

static const wf_flag flags[] = {
    {"data", 0, "TEXT", "a text to measure on; -: stdin; repeatable", .values = &options.data,
     .many = true, .also = "-f --file", .offer = WF_OFFER_FILES},
    {"output", 'o', "FILE", "the GGUF file to write", .text = &options.out,
     .offer = WF_OFFER_FILES},
    {"chunks", 0, "N", "stop after N chunks", .whole = &options.chunks, .range = "1,",
     .fallback = "all"},
    WF_FLAG_OVERWRITE(&options.overwrite),
    {"model", 'm', "MODEL", "the model, instead of the first argument", .text = &wf_open_set.model,
     .operand = true, .offer = WF_OFFER_FILES},
    {"ctx-size", 'c', "N", "tokens of a chunk; 0: the model's maximum",
     .whole = &wf_open_set.context, .fallback = "512, or the maximum if that is less"},
    {"threads", 't', "N", "CPU threads", .whole = &wf_open_set.threads, .range = "1,1024",
     .fallback = "all cores"},
    {"device", 'd', "D", "where to compute: auto, or a device that 'weft devices' lists",
     .text = &wf_open_set.device, .offer = {.words = wf_auto_words}},
    {"quiet", 'q', NULL, "print only errors on stderr", .on = &wf_open_set.quiet},
    {0},
};

const wf_command wf_cmd_imatrix = {
    .name = "imatrix",
    .doc = "measure an importance matrix, for better quantization",
    .operands = "MODEL --data TEXT -o FILE",
    .max_operands = 1,
    .offers = {WF_OFFER_FILES},
    .details =
        "Runs the model over the texts and sums the squares of the inputs of every matrix in its "
        "layers, per column. 'weft quantize --imatrix FILE' then weighs errors by these sums. MODEL "
        "should be in f32, f16 or bf16, or a close quantization. Texts are cut into chunks of "
        "--ctx-size tokens; a shorter rest is not used. The file has the form of llama-imatrix.",
    .examples = {"weft imatrix model.gguf --data text.txt -o imatrix.gguf",
                 "weft quantize model.gguf out.gguf Q3_K_M --imatrix imatrix.gguf"},
    .flags = flags,
    .run = run,
};
