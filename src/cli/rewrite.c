/* SPDX-License-Identifier: MIT */
/*
 * rewrite.c - see rewrite.h.
 *
 * All existing outputs are checked before the model is opened. While files are written, signals are
 * deferred, so that an interrupted conversion removes its incomplete files.
 */
#include "cli/rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/output.h"
#include "base/path.h"
#include "cli/catch.h"
#include "cli/progress.h"
#include "format/folder.h"
#include "model/recipe.h"

/* ---- Progress ---- */

static wf_status show(void *user, const char *weight, int64_t done, int64_t total)
{
    wf_progress *p = user;
    if (!p->label)
        wf_progress_begin(p, weight, WF_PROGRESS_BYTES, total);
    p->label = weight;
    wf_progress_update(p, done);
    return wf_caught() ? WF_ERR_IO : WF_OK;
}

static const char *size_text(double bytes, char out[WF_TEXT_SIZE])
{
    wf_text_size(out, bytes);
    return out;
}

/* Prints sizes, bits per weight and time. */
static void conclude(const char *to, const wf_model_info *info, int64_t bytes, uint64_t ns)
{
    char before[WF_TEXT_SIZE], after[WF_TEXT_SIZE];
    fprintf(stderr, "%s: %s of weights (from %s), %.2f bits per weight, %.1f s\n", WF_FOREIGN(to),
            size_text((double)bytes, after), size_text((double)info->bytes, before),
            8.0 * (double)bytes / (double)info->parameters, (double)ns * 1e-9);
}

/* ---- Existing files ---- */

/* Returns whether `name` is a part of `whole`: NAME-00001-of-00003.gguf of NAME.gguf. */
static bool is_part(const char *name, const char *whole)
{
    static const char form[] = "-ddddd-of-ddddd.gguf";
    size_t stem = strlen(whole) - strlen(".gguf");
    if (strlen(name) != stem + strlen(form) || memcmp(name, whole, stem) != 0)
        return false;
    for (size_t i = 0; form[i]; i++) {
        char c = name[stem + i];
        if (form[i] == 'd' ? c < '0' || c > '9' : c != form[i])
            return false;
    }
    return true;
}

/* A split model must not mix old and new parts, so parts of any number count as existing output. */
static wf_status check_parts(wf_ctx *ctx, const char *to, bool overwrite, const char *from)
{
    enum { MOST = 1 << 20 };
    const char *const *names, *slash = strrchr(to, '/'), *whole = slash ? slash + 1 : to;
    size_t count = 0;
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    const char *folder = wf_path_parent(&arena, to);
    wf_status status = folder ? wf_path_list(&arena, folder, MOST, &names, &count) : WF_ERR_MEMORY;
    for (size_t i = 0; status == WF_OK && i < count; i++) {
        const char *path = is_part(names[i], whole) ? wf_path_join(&arena, folder, names[i]) : NULL;
        if (path)
            status = wf_output_check(ctx, path, overwrite, &from, 1);
    }
    wf_arena_free(&arena);
    return status;
}

static wf_status check_output(wf_ctx *ctx, const char *from, const char *to, bool overwrite,
                              const wf_convert_options *o)
{
    if (!wf_path_ends(to, ".gguf"))
        return wf_output_check_folder(ctx, to, overwrite, &from, 1);
    if (o->split_bytes > 0)
        WF_TRY(check_parts(ctx, to, overwrite, from));
    return wf_output_check(ctx, to, overwrite, &from, 1);
}

wf_status wf_rewrite(wf_ctx *ctx, const char *from, const char *to, bool overwrite,
                     const wf_convert_options *options)
{
    wf_convert_options o = *options;
    wf_progress progress = {0};
    wf_model *m;
    wf_model_info info;
    int64_t bytes = 0;
    uint64_t began = wf_clock_ns();
    o.progress = show;
    o.user = &progress;
    o.written = &bytes;
    wf_format_kind kind;
    WF_TRY(wf_format_detect(ctx, from, &kind)); /* detects swapped arguments: IN does not exist */
    WF_TRY(check_output(ctx, from, to, overwrite, options));
    WF_TRY(wf_model_open(ctx, from, &m));
    wf_model_get_info(m, &info);
    wf_catch_begin();
    wf_status status = wf_model_convert(m, ctx, to, &o);
    if (progress.label)
        wf_progress_clear(&progress);
    wf_catch_end();
    if (status == WF_OK)
        conclude(to, &info, bytes, wf_clock_ns() - began);
    wf_model_close(m);
    return status;
}

/* ---- Arguments ---- */

wf_status wf_rewrite_size(wf_ctx *ctx, const char *flag, const char *text, uint64_t *out)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    uint64_t scale = 1;
    for (int i = 0; unit && i <= unit - units; i++)
        scale *= 1000;
    end += unit != NULL;
    end += unit && (*end == 'B' || *end == 'b');
    if (text[0] < '0' || text[0] > '9' || *end || errno == ERANGE || number == 0 ||
        number > UINT64_MAX / scale)
        return wf_fail(ctx, WF_ERR_USAGE, "%s must be a size in bytes such as 500M or 2G, not '%s'",
                       flag, text);
    /* Cannot overflow: checked against UINT64_MAX / scale above. */
    *out = number * scale;
    return WF_OK;
}

wf_status wf_rewrite_threads(wf_ctx *ctx, const char *text, int *out)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || number < 1 || number > 1024)
        return wf_fail(ctx, WF_ERR_USAGE, "the number of threads must be 1 to 1024, not '%s'",
                       text);
    *out = (int)number;
    return WF_OK;
}

wf_status wf_rewrite_tensor_types(wf_arena *arena, const wf_values *values, wf_tensor_type *out)
{
    for (int i = 0; i < values->count; i++) {
        const char *text = values->item[i], *equals = strrchr(text, '=');
        if (!equals || equals == text || !equals[1])
            return wf_fail(arena->ctx, WF_ERR_USAGE,
                           "--tensor-type must be REGEX=TYPE, such as attn_v=q8_0, not '%s'", text);
        char *pattern = wf_arena_copy(arena, text, strlen(text) + 1);
        if (!pattern)
            return WF_ERR_MEMORY;
        pattern[equals - text] = '\0';
        out[i] = (wf_tensor_type){.pattern = pattern, .type = equals + 1};
    }
    return WF_OK;
}

bool wf_recipe_words(int index, const char **name, const char **doc)
{
    *name = wf_recipes[index].name;
    *doc = wf_recipes[index].doc;
    return *name != NULL;
}

const wf_help_table wf_rewrite_types = {
    .title = "types",
    .rows = wf_recipe_words,
    .closing =
        "All matrices have the types that llama.cpp chooses for the same name. GGUF files "
        "store vectors and position embeddings as f32. Quantized types but q8_0 store the output "
        "matrix, or a tied embedding, as q6_K. Rows that are not a multiple of 256 use q4_0 instead "
        "of q2_K and q3_K, q5_0 instead of q4_K, q5_1 instead of q5_K, q8_0 instead of q6_K, and "
        "iq4_nl instead of iq4_xs.",
};
