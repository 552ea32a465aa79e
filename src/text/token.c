/* SPDX-License-Identifier: MIT */
/*
 * token.c - constructs, queries and frees tokenizers.
 *
 * The readers fill a tokenizer step by step, then call wf_tokenizer_finish, which builds the
 * indices. After that it does not change, except that ends may be added before it is shared.
 */
#include "text/token.h"

#include <string.h>

#include "base/mem.h"
#include "text/token_priv.h"

wf_status wf_tokenizer_new(wf_ctx *ctx, wf_tokenizer **out)
{
    wf_tokenizer *t = *out = wf_mem_new(ctx, sizeof *t);
    if (!t)
        return WF_ERR_MEMORY;
    t->ctx = ctx;
    wf_arena_init(&t->arena, ctx);
    t->bpe.vocab = t->wordpiece.vocab = t->unigram.vocab = &t->vocab;
    t->bpe.unknown = t->wordpiece.unknown = t->unigram.unknown = -1;
    for (int i = 0; i < 4; i++)
        t->special[i] = -1;
    return WF_OK;
}

void wf_tokenizer_free(wf_tokenizer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->normal_count; i++)
        wf_pattern_free(t->normals[i].pattern);
    for (int i = 0; i < t->word_count; i++)
        wf_pattern_free(t->words[i].pattern);
    wf_arena_free(&t->arena);
    wf_mem_free(t->ctx, t);
}

/* ---- Steps ---- */

static wf_status too_many(wf_tokenizer *t, const char *what)
{
    return wf_fail(t->ctx, WF_ERR_UNSUPPORTED, "the tokenizer's %s has more than %d steps", what,
                   WF_TOKEN_STEPS);
}

/* Replaces *text by a copy in the arena, NUL-terminated. */
static wf_status keep(wf_tokenizer *t, const char **text, size_t bytes)
{
    char *copy = wf_arena_alloc(&t->arena, bytes + 1);
    if (!copy)
        return WF_ERR_MEMORY;
    if (bytes)
        memcpy(copy, *text, bytes);
    *text = copy;
    return WF_OK;
}

wf_status wf_tokenizer_add_normal(wf_tokenizer *t, wf_normal_step step, bool regex)
{
    if (t->normal_count == WF_TOKEN_STEPS)
        return too_many(t, "normalizer");
    WF_TRY(keep(t, &step.what, step.what_bytes));
    WF_TRY(keep(t, &step.content, step.content_bytes));
    if (regex)
        step.runs = wf_runs_known(step.what, step.what_bytes);
    if (regex && !step.runs)
        WF_TRY(wf_pattern_new(t->ctx, step.what, step.what_bytes, &step.pattern));
    t->normals[t->normal_count++] = step;
    return WF_OK;
}

wf_status wf_tokenizer_add_words(wf_tokenizer *t, wf_words_step step, bool regex)
{
    if (t->word_count == WF_TOKEN_STEPS)
        return too_many(t, "pre-tokenizer");
    WF_TRY(keep(t, &step.text, step.bytes));
    /* A known pattern uses its hand-written matcher, any other PCRE2. */
    if (regex)
        step.style = wf_split_known(step.text, step.bytes);
    if (regex && !step.style)
        WF_TRY(wf_pattern_new(t->ctx, step.text, step.bytes, &step.pattern));
    t->words[t->word_count++] = step;
    return WF_OK;
}

wf_status wf_tokenizer_add_decode(wf_tokenizer *t, wf_decode_step step)
{
    if (t->decode_count == WF_TOKEN_STEPS)
        return too_many(t, "decoder");
    WF_TRY(keep(t, &step.what, step.what_bytes));
    WF_TRY(keep(t, &step.content, step.content_bytes));
    t->decodes[t->decode_count++] = step;
    return WF_OK;
}

/* Writes the normalizer of SentencePiece with these options. Returns the number of steps. */
enum { SPACE_STEPS = 3 };
static int space_steps(bool prefix, bool merge, wf_normal_step steps[SPACE_STEPS])
{
    const wf_normal_step outer = {.kind = WF_NORMAL_REPLACE, .runs = WF_RUNS_OUTER, .content = ""},
                         any = {.kind = WF_NORMAL_REPLACE,
                                .runs = WF_RUNS_ANY,
                                .content = WF_SPACE_MARK},
                         each = {.kind = WF_NORMAL_REPLACE, .what = " ", .content = WF_SPACE_MARK},
                         put = {.kind = WF_NORMAL_PREPEND, .what = "", .content = WF_SPACE_MARK};
    int count = 0;
    if (merge) {
        steps[count++] = outer;
        steps[count++] = any;
    }
    if (prefix)
        steps[count++] = put;
    if (!merge)
        steps[count++] = each;
    for (int i = 0; i < count; i++) {
        if (steps[i].runs)
            steps[i].what = wf_runs_patterns[steps[i].runs];
        steps[i].what_bytes = strlen(steps[i].what);
        steps[i].content_bytes = strlen(steps[i].content);
    }
    return count;
}

/* Decoding reverses the marks and the prefix; merged spaces are lost. */
wf_status wf_tokenizer_set_spaces(wf_tokenizer *t, bool prefix, bool merge)
{
    wf_normal_step steps[SPACE_STEPS];
    int count = space_steps(prefix, merge, steps);
    for (int i = 0; i < count; i++)
        WF_TRY(wf_tokenizer_add_normal(t, steps[i], steps[i].runs != WF_RUNS_NONE));
    WF_TRY(wf_tokenizer_add_decode(t, (wf_decode_step){.kind = WF_DECODE_REPLACE,
                                                       .what = WF_SPACE_MARK,
                                                       .what_bytes = 3,
                                                       .content = " ",
                                                       .content_bytes = 1}));
    WF_TRY(wf_tokenizer_add_decode(t, (wf_decode_step){.kind = WF_DECODE_FALLBACK}));
    WF_TRY(wf_tokenizer_add_decode(t, (wf_decode_step){.kind = WF_DECODE_FUSE}));
    if (!prefix)
        return WF_OK;
    return wf_tokenizer_add_decode(
        t, (wf_decode_step){.kind = WF_DECODE_STRIP, .what = " ", .what_bytes = 1, .start = 1});
}

static bool is_same(const wf_normal_step *a, const wf_normal_step *b)
{
    return a->kind == b->kind && a->runs == b->runs && !a->pattern &&
           a->what_bytes == b->what_bytes && memcmp(a->what, b->what, a->what_bytes) == 0 &&
           a->content_bytes == b->content_bytes &&
           memcmp(a->content, b->content, a->content_bytes) == 0;
}

bool wf_tokenizer_is_spaced(const wf_tokenizer *t, int first, bool *prefix, bool *merge)
{
    for (int options = 0; options < 4; options++) {
        wf_normal_step steps[SPACE_STEPS];
        *prefix = options & 1;
        *merge = options & 2;
        int count = space_steps(*prefix, *merge, steps), i = 0;
        if (t->normal_count != first + count)
            continue;
        while (i < count && is_same(&t->normals[first + i], &steps[i]))
            i++;
        if (i == count)
            return true;
    }
    return false;
}

/* ---- Finishing ---- */

/* Adds nothing if the id is already there; removes every occurrence. */
wf_status wf_tokenizer_frame(wf_tokenizer *t, bool behind, int32_t id, bool add)
{
    int32_t *ids = behind ? t->after : t->before;
    int *count = behind ? &t->after_count : &t->before_count, kept = 0;
    bool there = false;
    for (int i = 0; i < *count; i++) {
        there = there || ids[i] == id;
        if (add || ids[i] != id)
            ids[kept++] = ids[i];
    }
    *count = kept;
    if (!add || there)
        return WF_OK;
    if (kept == WF_TOKEN_FRAME)
        return wf_fail(t->ctx, WF_ERR_UNSUPPORTED,
                       "the tokenizer adds more than %d tokens before or after a text",
                       WF_TOKEN_FRAME);
    ids[(*count)++] = id;
    return WF_OK;
}

/* Ignores ids that do not exist, duplicates, and those beyond WF_TOKEN_ENDS. */
void wf_tokenizer_add_end(wf_tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->vocab.count || t->end_count == WF_TOKEN_ENDS || wf_tokenizer_ends(t, id))
        return;
    t->ends[t->end_count++] = id;
}

/* Adds the well-known control tokens that end a turn, whatever the file declares as eos. */
static void add_known_ends(wf_tokenizer *t)
{
    static const char *const names[] = {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "</s>",
        "<eos>",
        "<end_of_utterance>",
        ("<\xEF\xBD\x9C"
         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
    };
    int32_t found[sizeof names / sizeof *names];
    /* Only control tokens count: "</s>" as ordinary text must not end an answer. */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = wf_vocab_find(&t->vocab, names[i], strlen(names[i]));
        found[i] = id >= 0 && t->vocab.token[id].kind == WF_TOKEN_CONTROL ? id : -1;
    }
    if (found[3] >= 0 && found[4] >= 0)
        found[2] = -1; /* with <|return|> and <|call|>, <|end|> ends only a part of the answer */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        wf_tokenizer_add_end(t, found[i]);
}

/* Normalizes the added tokens that are matched in normalized text. One that becomes too long is
 * disabled. */
static wf_status normalize_added(wf_tokenizer *t)
{
    for (int i = 0; i < t->adds; i++) {
        wf_added_token *a = &t->added[i];
        wf_marked changed;
        if (!a->normalized)
            continue;
        WF_TRY(wf_normal_run(t->ctx, t->normals, t->normal_count,
                             (wf_marked){.text = a->text, .bytes = a->bytes}, &changed));
        if (!changed.text)
            continue;
        const char *copy = "";
        bool fits = changed.bytes <= WF_ADDED_BYTES_MOST;
        wf_status status = WF_OK;
        if (fits) {
            copy = changed.text;
            status = keep(t, &copy, changed.bytes);
        }
        wf_mem_free(t->ctx, (void *)changed.text);
        WF_TRY(status);
        a->text = copy;
        a->bytes = fits ? (uint32_t)changed.bytes : 0;
    }
    return WF_OK;
}

/* ---- Names ---- */

const char *const wf_special_names[4] = {"bos_token", "eos_token", "unk_token", "pad_token"};

/* The first text for a name stays. */
wf_status wf_tokenizer_name(wf_tokenizer *t, const char *name, const char *text, size_t bytes)
{
    for (int i = 0; i < t->nameds; i++)
        if (strcmp(t->named[i].name, name) == 0)
            return WF_OK;
    if (t->nameds == WF_TOKEN_NAMES)
        return wf_fail(t->ctx, WF_ERR_UNSUPPORTED,
                       "the tokenizer names more than %d special tokens", WF_TOKEN_NAMES);
    if (!t->named)
        t->named = wf_arena_alloc(&t->arena, WF_TOKEN_NAMES * sizeof *t->named);
    char *copy = wf_arena_alloc(&t->arena, bytes + 1);
    const char *kept = wf_arena_strdup(&t->arena, name);
    if (!t->named || !copy || !kept)
        return WF_ERR_MEMORY;
    memcpy(copy, text, bytes);
    t->named[t->nameds++] = (wf_named_token){kept, copy, bytes};
    return WF_OK;
}

wf_status wf_tokenizer_name_id(wf_tokenizer *t, const char *name, int32_t id)
{
    const wf_vocab_token *token = id >= 0 && id < t->vocab.count ? &t->vocab.token[id] : NULL;
    return token && token->text ? wf_tokenizer_name(t, name, token->text, token->bytes) : WF_OK;
}

/* Names the special tokens after the keys of tokenizer_config.json, unless that file was read. */
static wf_status name_specials(wf_tokenizer *t)
{
    for (int i = 0; i < 4 && !t->configured; i++)
        WF_TRY(wf_tokenizer_name_id(t, wf_special_names[i], t->special[i]));
    return WF_OK;
}

bool wf_tokenizer_named(const wf_tokenizer *t, int index, const char **name, const char **text,
                        size_t *bytes)
{
    if (index < 0 || index >= t->nameds)
        return false;
    *name = t->named[index].name;
    *text = t->named[index].text;
    *bytes = t->named[index].bytes;
    return true;
}

size_t wf_tokenizer_before(const wf_tokenizer *t, const int32_t **ids)
{
    *ids = t->before;
    return (size_t)t->before_count;
}

/* ---- Finish ---- */

/* Added tokens first: their normalized texts are needed by the automata and by the cuts. Known ends
 * are counted before the readers add those that files declare. */
wf_status wf_tokenizer_finish(wf_tokenizer *t)
{
    WF_TRY(normalize_added(t));
    WF_TRY(wf_added_init(&t->raw, &t->arena, t->added, t->adds, false));
    WF_TRY(wf_added_init(&t->normal, &t->arena, t->added, t->adds, true));
    t->bpe.bytes = t->model == WF_MODEL_BPE && t->word_count > 0 &&
                   t->words[t->word_count - 1].kind == WF_WORDS_BYTES;
    WF_TRY(name_specials(t));
    wf_tokenizer_add_end(t, t->special[WF_SPECIAL_EOS]);
    add_known_ends(t);
    t->known_ends = t->end_count;
    switch (t->model) {
    case WF_MODEL_BPE: WF_TRY(wf_bpe_index(&t->bpe, &t->arena)); break;
    case WF_MODEL_WORDPIECE: WF_TRY(wf_wordpiece_index(&t->wordpiece, &t->arena)); break;
    case WF_MODEL_UNIGRAM: WF_TRY(wf_unigram_index(&t->unigram, &t->arena)); break;
    }
    wf_tokenizer_index_cuts(t);
    return WF_OK;
}

/* ---- Queries ---- */

static const wf_vocab_token *token_of(const wf_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.count ? &t->vocab.token[id] : NULL;
}

int32_t wf_tokenizer_count(const wf_tokenizer *t)
{
    return t->vocab.count;
}

const char *wf_tokenizer_token(const wf_tokenizer *t, int32_t id, size_t *bytes)
{
    const wf_vocab_token *token = token_of(t, id);
    if (bytes)
        *bytes = token ? token->bytes : 0;
    return token ? token->text : NULL;
}

wf_token_kind wf_tokenizer_kind(const wf_tokenizer *t, int32_t id)
{
    const wf_vocab_token *token = token_of(t, id);
    return token ? token->kind : WF_TOKEN_UNUSED;
}

/* Returns whether this is a filler for an id without a token, as write_gguf.c names them. */
bool wf_token_is_padding(const char *text, size_t bytes, int32_t id)
{
    char name[24];
    size_t len = 0;
    wf_text_append(name, sizeof name, &len, "[PAD%d]", (int)id);
    return len == bytes && memcmp(name, text, len) == 0;
}

int32_t wf_tokenizer_find(const wf_tokenizer *t, const char *token, size_t bytes)
{
    return wf_vocab_find(&t->vocab, token, bytes);
}

int32_t wf_tokenizer_special(const wf_tokenizer *t, wf_special which)
{
    return t->special[which];
}

bool wf_tokenizer_ends(const wf_tokenizer *t, int32_t id)
{
    for (int i = 0; i < t->end_count; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}
