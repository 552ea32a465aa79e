/* SPDX-License-Identifier: MIT */
/*
 * read_steps.c - reads the pipeline of tokenizer.json. Each part is an object with a type, or a
 * sequence of such objects.
 *
 * A type is a row of a table per part; unknown types fail with a list of the known ones. Sequences
 * nest at most DEPTH deep. wf_tokenizer_add_... copy the strings and limit the number of steps.
 */
#include <string.h>

#include "base/mem.h"
#include "text/base64.h"
#include "text/read_json_priv.h"
#include "text/utf8.h"

#define DEPTH 8 /* limit of nested sequences */

typedef wf_status step_fn(wf_json_reader *r, const wf_json_node *node);
typedef struct {
    const char *type; /* as in tokenizer.json */
    step_fn *read;
} row;

static wf_status unknown_type(const wf_json_reader *r, const char *part, const char *type,
                              const row *rows, size_t count)
{
    /* A list that does not fit ends in "...". */
    char known[300];
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        wf_text_append(known, sizeof known, &len, "%s, ", rows[i].type);
    return wf_fail(r->t->ctx, WF_ERR_UNSUPPORTED,
                   "cannot read '%s': its %s has type '%.50s', which Weft does not support; "
                   "it supports %sSequence",
                   r->what, part, type, known);
}

/* Reads one part, or the parts of a sequence. items: the name of the sequence's array. */
static wf_status read_part(wf_json_reader *r, const char *part, const char *items,
                           const wf_json_node *node, const row *rows, size_t count, int depth)
{
    if (!node || node->kind == WF_JSON_NULL)
        return WF_OK;
    const char *type = wf_json_get_string(node, "type", "");
    if (strcmp(type, "Sequence") == 0) {
        const wf_json_node *list = wf_json_get(node, items);
        if (!list || list->kind != WF_JSON_ARRAY || depth == DEPTH)
            return wf_fail(r->t->ctx, WF_ERR_FORMAT, "cannot read '%s': a sequence in its %s %s",
                           r->what, part, depth == DEPTH ? "is nested too deeply" : "has no items");
        for (size_t i = 0; i < list->count; i++)
            WF_TRY(read_part(r, part, items, &list->child[i], rows, count, depth + 1));
        return WF_OK;
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].read(r, node);
    return unknown_type(r, part, type, rows, count);
}

/* Fails for an invalid member of a step. */
static wf_status wrong(const wf_json_reader *r, const wf_json_node *node, const char *member)
{
    return wf_fail(r->t->ctx, WF_ERR_FORMAT,
                   "cannot read '%s': %s of a step of type '%.50s' is invalid", r->what, member,
                   wf_json_get_string(node, "type", ""));
}

/* Reads {"Regex": "..."} or {"String": "..."}. */
static wf_status get_pattern(const wf_json_reader *r, const wf_json_node *node, wf_text *out,
                             bool *regex)
{
    const wf_json_node *pattern = wf_json_get(node, "pattern"),
                       *text = wf_json_get(pattern, "Regex");
    *regex = text != NULL;
    text = text ? text : wf_json_get(pattern, "String");
    /* Patterns may be longer than other strings: some list every letter with case. */
    if (!text || text->kind != WF_JSON_STRING || text->bytes > WF_ADDED_BYTES_MOST * 16)
        return wrong(r, node, "the pattern");
    *out = (wf_text){text->string, text->bytes};
    return WF_OK;
}

/* Reads a string member of at most WF_ADDED_BYTES_MOST bytes. */
static wf_status get_string(const wf_json_reader *r, const wf_json_node *node, const char *member,
                            wf_text *out)
{
    const wf_json_node *text = wf_json_get(node, member);
    if (!text || text->kind != WF_JSON_STRING || text->bytes > WF_ADDED_BYTES_MOST)
        return wrong(r, node, member);
    *out = (wf_text){text->string, text->bytes};
    return WF_OK;
}

/* ---- Normalizers ---- */

/* Normalizers without members. */
static wf_status read_plain(wf_json_reader *r, const wf_json_node *node)
{
    for (wf_normal_kind kind = 0; kind <= WF_NORMAL_NMT; kind++)
        if (wf_normal_names[kind] && wf_json_is(wf_json_get(node, "type"), wf_normal_names[kind]))
            return wf_tokenizer_add_normal(r->t, (wf_normal_step){.kind = kind}, false);
    return wrong(r, node, "type");
}

/* strip_accents null means: as lowercase. */
static wf_status read_bert(wf_json_reader *r, const wf_json_node *node)
{
    bool lower = wf_json_get_bool(node, "lowercase", true);
    wf_normal_step step = {.kind = WF_NORMAL_BERT,
                           .clean = wf_json_get_bool(node, "clean_text", true),
                           .chinese = wf_json_get_bool(node, "handle_chinese_chars", true),
                           .accents = wf_json_get_bool(node, "strip_accents", lower),
                           .lower = lower};
    return wf_tokenizer_add_normal(r->t, step, false);
}

/* Some files have an empty map, or null, which changes nothing. */
static wf_status read_precompiled(wf_json_reader *r, const wf_json_node *node)
{
    wf_tokenizer *t = r->t;
    const wf_json_node *text = wf_json_get(node, "precompiled_charsmap");
    if (!text || text->kind == WF_JSON_NULL || wf_json_is(text, ""))
        return WF_OK;
    if (text->kind != WF_JSON_STRING)
        return wrong(r, node, "precompiled_charsmap");
    wf_charsmap *map = wf_arena_alloc(&t->arena, sizeof *map);
    uint8_t *bytes = map ? wf_mem_new(t->ctx, wf_base64_room(text->bytes)) : NULL;
    size_t count = 0;
    wf_status status = bytes ? WF_OK : WF_ERR_MEMORY;
    if (bytes && !wf_base64_decode(text->string, text->bytes, bytes, &count))
        status = wrong(r, node, "precompiled_charsmap");
    if (status == WF_OK)
        status = wf_charsmap_init(map, &t->arena, r->what, bytes, count);
    wf_mem_free(t->ctx, bytes);
    WF_TRY(status);
    return wf_tokenizer_add_normal(t, (wf_normal_step){.kind = WF_NORMAL_PRECOMPILED, .map = map},
                                   false);
}

static wf_status read_prepend(wf_json_reader *r, const wf_json_node *node)
{
    wf_text text = {0};
    WF_TRY(get_string(r, node, "prepend", &text));
    wf_normal_step step = {
        .kind = WF_NORMAL_PREPEND, .content = text.text, .content_bytes = text.bytes};
    return wf_tokenizer_add_normal(r->t, step, false);
}

static wf_status read_replace(wf_json_reader *r, const wf_json_node *node)
{
    wf_text what = {0}, content = {0};
    bool regex = false;
    WF_TRY(get_pattern(r, node, &what, &regex));
    WF_TRY(get_string(r, node, "content", &content));
    wf_normal_step step = {.kind = WF_NORMAL_REPLACE,
                           .what = what.text,
                           .what_bytes = what.bytes,
                           .content = content.text,
                           .content_bytes = content.bytes};
    return wf_tokenizer_add_normal(r->t, step, regex);
}

static wf_status read_strip(wf_json_reader *r, const wf_json_node *node)
{
    wf_normal_step step = {.kind = WF_NORMAL_STRIP,
                           .left = wf_json_get_bool(node, "strip_left", true),
                           .right = wf_json_get_bool(node, "strip_right", true)};
    return wf_tokenizer_add_normal(r->t, step, false);
}

wf_status wf_json_read_normalizer(wf_json_reader *r, const wf_json_node *node, int depth)
{
    static const row rows[] = {
        {"NFC", read_plain},   {"NFD", read_plain},           {"NFKC", read_plain},
        {"NFKD", read_plain},  {"Lowercase", read_plain},     {"StripAccents", read_plain},
        {"Nmt", read_plain},   {"Prepend", read_prepend},     {"Replace", read_replace},
        {"Strip", read_strip}, {"BertNormalizer", read_bert}, {"Precompiled", read_precompiled}};
    return read_part(r, "normalizer", "normalizers", node, rows, sizeof rows / sizeof *rows, depth);
}

/* ---- Pre-tokenizers ---- */

static wf_status get_behavior(const wf_json_reader *r, const wf_json_node *node,
                              wf_split_behavior *out)
{
    const char *name = wf_json_get_string(node, "behavior", "Isolated");
    for (int i = 0; wf_split_behavior_names[i]; i++)
        if (strcmp(name, wf_split_behavior_names[i]) == 0) {
            *out = (wf_split_behavior)i;
            return WF_OK;
        }
    return wrong(r, node, "the behavior");
}

static wf_status read_split(wf_json_reader *r, const wf_json_node *node)
{
    wf_text text = {0};
    bool regex = false;
    wf_words_step step = {.kind = WF_WORDS_SPLIT,
                          .invert = wf_json_get_bool(node, "invert", false)};
    WF_TRY(get_pattern(r, node, &text, &regex));
    WF_TRY(get_behavior(r, node, &step.behavior));
    step.text = text.text;
    step.bytes = text.bytes;
    return wf_tokenizer_add_words(r->t, step, regex);
}

static wf_status read_digits(wf_json_reader *r, const wf_json_node *node)
{
    bool each = wf_json_get_bool(node, "individual_digits", false);
    wf_words_step step = {.kind = WF_WORDS_DIGITS,
                          .behavior = each ? WF_SPLIT_ISOLATED : WF_SPLIT_CONTIGUOUS};
    return wf_tokenizer_add_words(r->t, step, false);
}

static wf_status read_punctuation(wf_json_reader *r, const wf_json_node *node)
{
    wf_words_step step = {.kind = WF_WORDS_PUNCTUATION};
    WF_TRY(get_behavior(r, node, &step.behavior));
    return wf_tokenizer_add_words(r->t, step, false);
}

static wf_status read_spaces(wf_json_reader *r, const wf_json_node *node)
{
    (void)node;
    wf_words_step step = {.kind = WF_WORDS_SPACES, .behavior = WF_SPLIT_REMOVED};
    return wf_tokenizer_add_words(r->t, step, false);
}

/* White space is removed, punctuation isolated. */
static wf_status read_bert_words(wf_json_reader *r, const wf_json_node *node)
{
    WF_TRY(read_spaces(r, node));
    return wf_tokenizer_add_words(r->t, (wf_words_step){.kind = WF_WORDS_PUNCTUATION}, false);
}

/* The runs are the words; the text between them is removed. */
static wf_status read_runs(wf_json_reader *r, const wf_json_node *node)
{
    (void)node;
    wf_words_step step = {.kind = WF_WORDS_RUNS, .behavior = WF_SPLIT_REMOVED, .invert = true};
    return wf_tokenizer_add_words(r->t, step, false);
}

static wf_status read_delimiter(wf_json_reader *r, const wf_json_node *node)
{
    wf_text text = {0};
    WF_TRY(get_string(r, node, "delimiter", &text));
    wf_words_step step = {.kind = WF_WORDS_SPLIT,
                          .behavior = WF_SPLIT_REMOVED,
                          .text = text.text,
                          .bytes = text.bytes};
    return wf_tokenizer_add_words(r->t, step, false);
}

/* Reads the character that replaces a space. */
static wf_status get_replacement(const wf_json_reader *r, const wf_json_node *node, wf_text *out)
{
    size_t length;
    WF_TRY(get_string(r, node, "replacement", out));
    bool one = out->bytes > 0 && wf_utf8_look(out->text, out->bytes, &length) == WF_UTF8_WHOLE &&
               length == out->bytes;
    return one ? WF_OK : wrong(r, node, "replacement");
}

/* Older files have add_prefix_space instead of prepend_scheme. */
static wf_status get_prepend(const wf_json_reader *r, const wf_json_node *node, wf_prepend *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name =
        wf_json_get_string(node, "prepend_scheme",
                           wf_json_get_bool(node, "add_prefix_space", true) ? "always" : "never");
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (wf_prepend)i;
            return WF_OK;
        }
    return wrong(r, node, "prepend_scheme");
}

static wf_status read_metaspace(wf_json_reader *r, const wf_json_node *node)
{
    wf_text text = {0};
    wf_words_step step = {.kind = WF_WORDS_METASPACE,
                          .split = wf_json_get_bool(node, "split", true)};
    WF_TRY(get_replacement(r, node, &text));
    WF_TRY(get_prepend(r, node, &step.prepend));
    step.text = text.text;
    step.bytes = text.bytes;
    return wf_tokenizer_add_words(r->t, step, false);
}

/* Refuses a second ByteLevel: each doubles non-ASCII text, and no real tokenizer has two. */
static wf_status read_byte_level(wf_json_reader *r, const wf_json_node *node)
{
    for (int i = 0; i < r->t->word_count; i++)
        if (r->t->words[i].kind == WF_WORDS_BYTES)
            return wf_fail(
                r->t->ctx, WF_ERR_UNSUPPORTED,
                "cannot read '%s': it has two pre-tokenizers of type ByteLevel, which Weft does "
                "not support",
                r->what);
    wf_words_step step = {.kind = WF_WORDS_BYTES,
                          .prefix = wf_json_get_bool(node, "add_prefix_space", true),
                          .split = wf_json_get_bool(node, "use_regex", true)};
    return wf_tokenizer_add_words(r->t, step, false);
}

wf_status wf_json_read_words(wf_json_reader *r, const wf_json_node *node, int depth)
{
    static const row rows[] = {{"ByteLevel", read_byte_level},
                               {"Split", read_split},
                               {"Digits", read_digits},
                               {"Metaspace", read_metaspace},
                               {"Punctuation", read_punctuation},
                               {"BertPreTokenizer", read_bert_words},
                               {"WhitespaceSplit", read_spaces},
                               {"Whitespace", read_runs},
                               {"CharDelimiterSplit", read_delimiter}};
    return read_part(r, "pre-tokenizer", "pretokenizers", node, rows, sizeof rows / sizeof *rows,
                     depth);
}

/* ---- Decoders ---- */

/* After Fuse, steps apply to the whole text. A streaming decoder knows only its start, so only
 * STRIP at the start is supported there. */
static wf_status add_decode(wf_json_reader *r, const wf_json_node *node, wf_decode_step step)
{
    bool fused = false;
    for (int i = 0; i < r->t->decode_count; i++)
        fused = fused || r->t->decodes[i].kind == WF_DECODE_FUSE;
    if (fused && step.kind != WF_DECODE_FUSE && (step.kind != WF_DECODE_STRIP || step.stop > 0))
        return wf_fail(
            r->t->ctx, WF_ERR_UNSUPPORTED,
            "cannot read '%s': it has a decoder of type '%.50s' after Fuse, which Weft does "
            "not support",
            r->what, wf_json_get_string(node, "type", ""));
    return wf_tokenizer_add_decode(r->t, step);
}

static wf_status read_decode_bytes(wf_json_reader *r, const wf_json_node *node)
{
    return add_decode(r, node, (wf_decode_step){.kind = WF_DECODE_BYTES});
}

static wf_status read_decode_fallback(wf_json_reader *r, const wf_json_node *node)
{
    return add_decode(r, node, (wf_decode_step){.kind = WF_DECODE_FALLBACK});
}

static wf_status read_decode_fuse(wf_json_reader *r, const wf_json_node *node)
{
    return add_decode(r, node, (wf_decode_step){.kind = WF_DECODE_FUSE});
}

static wf_status read_decode_replace(wf_json_reader *r, const wf_json_node *node)
{
    wf_text what = {0}, content = {0};
    bool regex = false;
    WF_TRY(get_pattern(r, node, &what, &regex));
    WF_TRY(get_string(r, node, "content", &content));
    if (regex)
        return wf_fail(
            r->t->ctx, WF_ERR_UNSUPPORTED,
            "cannot read '%s': its decoder replaces a regular expression, which Weft does "
            "not support",
            r->what);
    return add_decode(r, node,
                      (wf_decode_step){.kind = WF_DECODE_REPLACE,
                                       .what = what.text,
                                       .what_bytes = what.bytes,
                                       .content = content.text,
                                       .content_bytes = content.bytes});
}

static wf_status read_decode_metaspace(wf_json_reader *r, const wf_json_node *node)
{
    wf_text text = {0};
    wf_prepend prepend = WF_PREPEND_ALWAYS;
    WF_TRY(get_replacement(r, node, &text));
    WF_TRY(get_prepend(r, node, &prepend));
    return add_decode(r, node,
                      (wf_decode_step){.kind = WF_DECODE_METASPACE,
                                       .what = text.text,
                                       .what_bytes = text.bytes,
                                       .first = prepend != WF_PREPEND_NEVER});
}

static wf_status read_decode_strip(wf_json_reader *r, const wf_json_node *node)
{
    wf_text content = {0};
    WF_TRY(get_string(r, node, "content", &content));
    int64_t start = wf_json_get_int(node, "start", 0), stop = wf_json_get_int(node, "stop", 0);
    /* The limit keeps the decoder's state small; real files have 0 or 1. */
    if (content.bytes == 0 || start < 0 || start > 1000 || stop < 0 || stop > 1000)
        return wrong(r, node, "a member");
    return add_decode(r, node,
                      (wf_decode_step){.kind = WF_DECODE_STRIP,
                                       .what = content.text,
                                       .what_bytes = content.bytes,
                                       .start = (uint32_t)start,
                                       .stop = (uint32_t)stop});
}

static wf_status read_decode_wordpiece(wf_json_reader *r, const wf_json_node *node)
{
    wf_text prefix = {"##", 2};
    if (wf_json_get(node, "prefix"))
        WF_TRY(get_string(r, node, "prefix", &prefix));
    return add_decode(r, node,
                      (wf_decode_step){.kind = WF_DECODE_WORDPIECE,
                                       .what = prefix.text,
                                       .what_bytes = prefix.bytes,
                                       .clean = wf_json_get_bool(node, "cleanup", true)});
}

wf_status wf_json_read_decoder(wf_json_reader *r, const wf_json_node *node, int depth)
{
    static const row rows[] = {
        {"ByteLevel", read_decode_bytes},     {"ByteFallback", read_decode_fallback},
        {"Fuse", read_decode_fuse},           {"Replace", read_decode_replace},
        {"Metaspace", read_decode_metaspace}, {"Strip", read_decode_strip},
        {"WordPiece", read_decode_wordpiece}};
    return read_part(r, "decoder", "decoders", node, rows, sizeof rows / sizeof *rows, depth);
}

/* ---- Post-processors ---- */

/* Appends an id that exists to the tokens before or (behind) after a text. */
static wf_status add_frame(wf_json_reader *r, const wf_json_node *node, bool behind,
                           const wf_json_node *id)
{
    wf_tokenizer *t = r->t;
    int32_t *ids = behind ? t->after : t->before;
    int *count = behind ? &t->after_count : &t->before_count;
    if (!id || !id->whole || id->integer < 0 || id->integer >= t->vocab.count ||
        !t->vocab.token[id->integer].text || *count == WF_TOKEN_FRAME)
        return wrong(r, node, "a special token");
    ids[(*count)++] = (int32_t)id->integer;
    return WF_OK;
}

/* Reads "single": [ {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ... ];
 * special_tokens maps each name to its ids. */
static wf_status read_template(wf_json_reader *r, const wf_json_node *node)
{
    const wf_json_node *single = wf_json_get(node, "single"),
                       *names = wf_json_get(node, "special_tokens");
    bool behind = false;
    if (!single || single->kind != WF_JSON_ARRAY)
        return wrong(r, node, "single");
    for (size_t i = 0; i < single->count; i++) {
        const wf_json_node *special = wf_json_get(&single->child[i], "SpecialToken");
        const wf_json_node *name = wf_json_get(special, "id");
        if (!special) {
            /* Exactly one sequence: what comes before it frames the text on the left, what follows
             * on the right. */
            if (behind || !wf_json_get(&single->child[i], "Sequence"))
                return wrong(r, node, "single");
            behind = true;
            continue;
        }
        if (!name || name->kind != WF_JSON_STRING)
            return wrong(r, node, "a special token");
        const wf_json_node *ids =
            wf_json_get(wf_json_get_n(names, name->string, name->bytes), "ids");
        if (!ids || ids->kind != WF_JSON_ARRAY)
            return wrong(r, node, "special_tokens");
        for (size_t j = 0; j < ids->count; j++)
            WF_TRY(add_frame(r, node, behind, &ids->child[j]));
    }
    return WF_OK;
}

/* Reads {"cls": ["<s>", 0], "sep": ["</s>", 2]}. */
static wf_status read_roberta(wf_json_reader *r, const wf_json_node *node)
{
    const wf_json_node *cls = wf_json_get(node, "cls"), *sep = wf_json_get(node, "sep");
    if (!cls || cls->kind != WF_JSON_ARRAY || cls->count != 2 || !sep ||
        sep->kind != WF_JSON_ARRAY || sep->count != 2)
        return wrong(r, node, "cls or sep");
    WF_TRY(add_frame(r, node, false, &cls->child[1]));
    return add_frame(r, node, true, &sep->child[1]);
}

/* This processor only trims offsets, which Weft does not compute. */
static wf_status read_nothing(wf_json_reader *r, const wf_json_node *node)
{
    (void)r, (void)node;
    return WF_OK;
}

wf_status wf_json_read_processor(wf_json_reader *r, const wf_json_node *node, int depth)
{
    static const row rows[] = {{"TemplateProcessing", read_template},
                               {"ByteLevel", read_nothing},
                               {"RobertaProcessing", read_roberta},
                               {"BertProcessing", read_roberta}};
    return read_part(r, "post-processor", "processors", node, rows, sizeof rows / sizeof *rows,
                     depth);
}
