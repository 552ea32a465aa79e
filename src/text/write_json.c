/* SPDX-License-Identifier: MIT */
/*
 * write_json.c - writes a tokenizer as tokenizer.json and tokenizer_config.json.
 *
 * The writer collects errors, so most functions return nothing; wf_writer_take reports the first
 * failure. Reading the files back gives the same ids.
 */
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"
#include "text/base64.h"
#include "text/merges.h"
#include "text/token_priv.h"
#include "text/utf8.h"

/* Writes UTF-8 as it is, not as \u escapes. */
static void put_string(wf_writer *w, const char *s, size_t n)
{
    wf_writer_json(w, s, n, WF_JSON_LETTERS);
}

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

/* tokenizer.json maps texts to ids, so it cannot hold a token that is not UTF-8 or shares another's
 * text. */
static bool can_be_written(const wf_vocab *v, int32_t id)
{
    const wf_vocab_token *t = &v->token[id];
    return t->text && t->bytes > 0 && wf_utf8_valid(t->text, t->bytes) &&
           wf_vocab_find(v, t->text, t->bytes) == id;
}

bool wf_token_fits_json(const wf_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.count && can_be_written(&t->vocab, id);
}

/* Returns whether the token belongs to "model"."vocab". */
static bool is_in_model(const wf_vocab *v, int32_t id)
{
    return can_be_written(v, id) && !v->token[id].outside;
}

/* Tokens added around texts cannot be omitted: ids would change. */
static wf_status check_frame(const wf_tokenizer *t, wf_ctx *ctx, const int32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        if (!can_be_written(&t->vocab, ids[i]))
            return wf_fail(
                ctx, WF_ERR_UNSUPPORTED,
                "the tokenizer cannot be written as tokenizer.json: token %d, which it adds "
                "around texts, is not UTF-8 or has the same text as another",
                (int)ids[i]);
    return WF_OK;
}

/* Writes the added tokens with their flags; those that JSON cannot hold are left out. */
static void put_added(wf_writer *w, const wf_tokenizer *t)
{
    wf_writer_print(w, "  \"added_tokens\": [");
    bool first = true;
    for (int i = 0; i < t->adds; i++) {
        const wf_added_token *a = &t->added[i];
        const wf_vocab_token *token = &t->vocab.token[a->id];
        if (!can_be_written(&t->vocab, a->id))
            continue;
        wf_writer_print(w, "%s\n    {\"id\": %d, \"content\": ", first ? "" : ",", (int)a->id);
        put_string(w, token->text, token->bytes);
        wf_writer_print(
            w,
            ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, "
            "\"special\": %s}",
            truth(a->single_word), truth(a->lstrip), truth(a->rstrip), truth(a->normalized),
            truth(a->control));
        first = false;
    }
    wf_writer_print(w, "%s],\n", first ? "" : "\n  ");
}

/* ---- Steps ---- */

static void put_pattern(wf_writer *w, bool regex, const char *text, size_t bytes)
{
    wf_writer_print(w, "\"pattern\": {\"%s\": ", regex ? "Regex" : "String");
    put_string(w, text, bytes);
    wf_writer_char(w, '}');
}

static void put_normal(wf_writer *w, const wf_normal_step *s)
{
    switch (s->kind) {
    case WF_NORMAL_PREPEND:
        wf_writer_print(w, "{\"type\": \"Prepend\", \"prepend\": ");
        put_string(w, s->content, s->content_bytes);
        wf_writer_char(w, '}');
        break;
    case WF_NORMAL_REPLACE:
        wf_writer_print(w, "{\"type\": \"Replace\", ");
        put_pattern(w, s->pattern || s->runs, s->what, s->what_bytes);
        wf_writer_print(w, ", \"content\": ");
        put_string(w, s->content, s->content_bytes);
        wf_writer_char(w, '}');
        break;
    case WF_NORMAL_STRIP:
        wf_writer_print(w, "{\"type\": \"Strip\", \"strip_left\": %s, \"strip_right\": %s}",
                        truth(s->left), truth(s->right));
        break;
    case WF_NORMAL_BERT:
        wf_writer_print(w,
                        "{\"type\": \"BertNormalizer\", \"clean_text\": %s, "
                        "\"handle_chinese_chars\": %s, \"strip_accents\": %s, \"lowercase\": %s}",
                        truth(s->clean), truth(s->chinese), truth(s->accents), truth(s->lower));
        break;
    case WF_NORMAL_PRECOMPILED:
        wf_writer_print(w, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
        wf_base64_write(w, s->map->bytes, s->map->count);
        wf_writer_print(w, "\"}");
        break;
    default: wf_writer_print(w, "{\"type\": \"%s\"}", wf_normal_names[s->kind]); break;
    }
}

/* Shared by pre-tokenizer and decoder, which have the same members. */
static void put_metaspace(wf_writer *w, const char *text, size_t bytes, wf_prepend prepend,
                          bool split)
{
    static const char *const schemes[] = {"always", "first", "never"};
    wf_writer_print(w, "{\"type\": \"Metaspace\", \"replacement\": ");
    put_string(w, text, bytes);
    wf_writer_print(w, ", \"prepend_scheme\": \"%s\", \"split\": %s}", schemes[prepend],
                    truth(split));
}

static void put_words(wf_writer *w, const wf_words_step *s)
{
    switch (s->kind) {
    case WF_WORDS_SPLIT:
        wf_writer_print(w, "{\"type\": \"Split\", ");
        put_pattern(w, s->style || s->pattern, s->text, s->bytes);
        wf_writer_print(w, ", \"behavior\": \"%s\", \"invert\": %s}",
                        wf_split_behavior_names[s->behavior], truth(s->invert));
        break;
    case WF_WORDS_DIGITS:
        wf_writer_print(w, "{\"type\": \"Digits\", \"individual_digits\": %s}",
                        truth(s->behavior == WF_SPLIT_ISOLATED));
        break;
    case WF_WORDS_PUNCTUATION:
        wf_writer_print(w, "{\"type\": \"Punctuation\", \"behavior\": \"%s\"}",
                        wf_split_behavior_names[s->behavior]);
        break;
    case WF_WORDS_SPACES: wf_writer_print(w, "{\"type\": \"WhitespaceSplit\"}"); break;
    case WF_WORDS_RUNS: wf_writer_print(w, "{\"type\": \"Whitespace\"}"); break;
    case WF_WORDS_METASPACE: put_metaspace(w, s->text, s->bytes, s->prepend, s->split); break;
    case WF_WORDS_BYTES:
        wf_writer_print(
            w,
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
            "\"use_regex\": %s}",
            truth(s->prefix), truth(s->split));
        break;
    }
}

static void put_decode(wf_writer *w, const wf_decode_step *s)
{
    switch (s->kind) {
    case WF_DECODE_BYTES:
        wf_writer_print(
            w, "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
               "\"use_regex\": true}");
        break;
    case WF_DECODE_FALLBACK: wf_writer_print(w, "{\"type\": \"ByteFallback\"}"); break;
    case WF_DECODE_FUSE: wf_writer_print(w, "{\"type\": \"Fuse\"}"); break;
    case WF_DECODE_REPLACE:
        wf_writer_print(w, "{\"type\": \"Replace\", ");
        put_pattern(w, false, s->what, s->what_bytes);
        wf_writer_print(w, ", \"content\": ");
        put_string(w, s->content, s->content_bytes);
        wf_writer_char(w, '}');
        break;
    case WF_DECODE_METASPACE:
        put_metaspace(w, s->what, s->what_bytes, s->first ? WF_PREPEND_ALWAYS : WF_PREPEND_NEVER,
                      true);
        break;
    case WF_DECODE_STRIP:
        wf_writer_print(w, "{\"type\": \"Strip\", \"content\": ");
        put_string(w, s->what, s->what_bytes);
        wf_writer_print(w, ", \"start\": %u, \"stop\": %u}", (unsigned)s->start, (unsigned)s->stop);
        break;
    case WF_DECODE_WORDPIECE:
        wf_writer_print(w, "{\"type\": \"WordPiece\", \"prefix\": ");
        put_string(w, s->what, s->what_bytes);
        wf_writer_print(w, ", \"cleanup\": %s}", truth(s->clean));
        break;
    }
}

/* Returns whether two steps of the pre-tokenizer are BERT's. */
static bool is_bert(const wf_tokenizer *t, int at)
{
    const wf_words_step *s = &t->words[at];
    return at + 1 < t->word_count && s[0].kind == WF_WORDS_SPACES &&
           s[1].kind == WF_WORDS_PUNCTUATION && s[1].behavior == WF_SPLIT_ISOLATED;
}

/* Writes one part (0: normalizer, 1: pre-tokenizer, 2: decoder), several steps as a sequence. */
static void put_part(wf_writer *w, const wf_tokenizer *t, int part)
{
    static const char *const names[] = {"normalizer", "pre_tokenizer", "decoder"};
    static const char *const items[] = {"normalizers", "pretokenizers", "decoders"};
    const int count = part == 0 ? t->normal_count : part == 1 ? t->word_count : t->decode_count;
    wf_writer_print(w, "  \"%s\": ", names[part]);
    if (part == 1 && count == 2 && is_bert(t, 0)) {
        wf_writer_print(w, "{\"type\": \"BertPreTokenizer\"},\n");
        return;
    }
    if (count > 1)
        wf_writer_print(w, "{\"type\": \"Sequence\", \"%s\": [", items[part]);
    for (int i = 0; i < count; i++) {
        wf_writer_print(w, "%s", i ? ",\n    " : "");
        if (part == 0)
            put_normal(w, &t->normals[i]);
        else if (part == 1)
            put_words(w, &t->words[i]);
        else
            put_decode(w, &t->decodes[i]);
    }
    wf_writer_print(w, "%s,\n", count > 1 ? "]}" : count == 0 ? "null" : "");
}

/* Writes the tokens around one sequence of a template. */
static void put_frame_items(wf_writer *w, const wf_tokenizer *t, const char *sequence, int type)
{
    for (int i = 0; i < t->before_count + 1 + t->after_count; i++) {
        wf_writer_print(w, "%s", i ? ", " : "");
        if (i == t->before_count) {
            wf_writer_print(w, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", sequence, type);
            continue;
        }
        int32_t id = i < t->before_count ? t->before[i] : t->after[i - t->before_count - 1];
        wf_writer_print(w, "{\"SpecialToken\": {\"id\": ");
        put_string(w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(w, ", \"type_id\": %d}}", type);
    }
}

/* "pair" is required by the format, but Weft never encodes pairs. */
static void put_processor(wf_writer *w, const wf_tokenizer *t)
{
    int count = t->before_count + t->after_count;
    if (count == 0) {
        wf_writer_print(w, "  \"post_processor\": null,\n");
        return;
    }
    wf_writer_print(w, "  \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    put_frame_items(w, t, "A", 0);
    wf_writer_print(w, "], \"pair\": [");
    put_frame_items(w, t, "A", 0);
    wf_writer_print(w, ", ");
    put_frame_items(w, t, "B", 1);
    wf_writer_print(w, "], \"special_tokens\": {");
    for (int i = 0; i < count; i++) {
        int32_t id = i < t->before_count ? t->before[i] : t->after[i - t->before_count];
        bool again = false; /* keys of an object must be unique */
        for (int j = 0; j < i; j++)
            again =
                again || id == (j < t->before_count ? t->before[j] : t->after[j - t->before_count]);
        if (again)
            continue;
        wf_writer_print(w, "%s", i ? ", " : "");
        put_string(w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(w, ": {\"id\": ");
        put_string(w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(w, ", \"ids\": [%d], \"tokens\": [", (int)id);
        put_string(w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(w, "]}");
    }
    wf_writer_print(w, "}},\n");
}

/* ---- The model ---- */

/* Writes the members "text": id of "vocab". */
static void put_vocab(wf_writer *w, const wf_tokenizer *t)
{
    bool first = true;
    for (int32_t id = 0; id < t->vocab.count; id++) {
        if (!is_in_model(&t->vocab, id))
            continue;
        wf_writer_print(w, "%s\n      ", first ? "" : ",");
        put_string(w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(w, ": %d", (int)id);
        first = false;
    }
}

/* Writes vocabulary and merges. Fails only for lack of memory. SentencePiece scores are written as
 * merges (wf_merges_list), so that the file is plain BPE. */
static wf_status put_bpe(wf_writer *w, const wf_tokenizer *t)
{
    const wf_bpe *b = &t->bpe;
    wf_merge_pair *pair;
    size_t count;
    WF_TRY(wf_merges_list(b, w->ctx, &pair, &count));
    wf_writer_print(w, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (b->unknown >= 0 && is_in_model(&t->vocab, b->unknown))
        put_string(w, t->vocab.token[b->unknown].text, t->vocab.token[b->unknown].bytes);
    else
        wf_writer_print(w, "null");
    wf_writer_print(
        w,
        /* A tokenizer with scores fuses unknown characters. */
        ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
        "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s,\n    \"vocab\": {",
        truth(b->fuse_unknown || b->score), truth(b->fallback), truth(b->whole_words));
    put_vocab(w, t);
    wf_writer_print(w, "\n    },\n    \"merges\": [");
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        const wf_vocab_token *left = &t->vocab.token[pair[i].left],
                             *right = &t->vocab.token[pair[i].right];
        /* A merge of tokens that could not be written would be refused by readers. */
        if (!is_in_model(&t->vocab, pair[i].left) || !is_in_model(&t->vocab, pair[i].right) ||
            !is_in_model(&t->vocab, pair[i].made))
            continue;
        wf_writer_print(w, "%s\n      [", first ? "" : ",");
        first = false;
        put_string(w, left->text, left->bytes);
        wf_writer_print(w, ", ");
        put_string(w, right->text, right->bytes);
        wf_writer_char(w, ']');
    }
    wf_writer_print(w, "\n    ]\n  }\n");
    wf_mem_free(w->ctx, pair);
    return WF_OK;
}

static wf_status unknown_missing(wf_ctx *ctx)
{
    return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                   "the tokenizer cannot be written as tokenizer.json: its unknown token is not "
                   "UTF-8 or has the same text as another");
}

static wf_status put_wordpiece(wf_writer *w, const wf_tokenizer *t)
{
    const wf_wordpiece *p = &t->wordpiece;
    const wf_vocab_token *unknown = &t->vocab.token[p->unknown];
    if (!can_be_written(&t->vocab, p->unknown))
        return unknown_missing(w->ctx);
    wf_writer_print(w, "  \"model\": {\"type\": \"WordPiece\", \"unk_token\": ");
    put_string(w, unknown->text, unknown->bytes);
    wf_writer_print(w, ", \"continuing_subword_prefix\": ");
    put_string(w, p->prefix, p->prefix_bytes);
    wf_writer_print(w, ", \"max_input_chars_per_word\": %zu,\n    \"vocab\": {", p->longest);
    put_vocab(w, t);
    wf_writer_print(w, "\n    }\n  }\n");
    return WF_OK;
}

/* "vocab" is an array by id, so it ends before the added tokens at the end, but has an entry for
 * every id before. The lowest score decides about unknown characters: entries that text cannot
 * become never have a lower one. */
static wf_status put_unigram(wf_writer *w, const wf_tokenizer *t)
{
    const wf_unigram *u = &t->unigram;
    int32_t count = t->vocab.count;
    if (!can_be_written(&t->vocab, u->unknown))
        return unknown_missing(w->ctx);
    while (count > u->unknown + 1 &&
           (t->vocab.token[count - 1].outside || !can_be_written(&t->vocab, count - 1)))
        count--;
    wf_writer_print(w,
                    "  \"model\": {\"type\": \"Unigram\", \"unk_id\": %d, \"byte_fallback\": %s,\n"
                    "    \"vocab\": [",
                    (int)u->unknown, truth(u->fallback));
    for (int32_t id = 0; id < count; id++) {
        const wf_vocab_token *token = &t->vocab.token[id];
        char score[WF_TEXT_DOUBLE];
        bool text = wf_trie_takes(&t->vocab, id) || id == u->unknown;
        double value = text || u->score[id] > u->least ? u->score[id] : u->least;
        wf_text_from_double(score, value);
        wf_writer_print(w, "%s\n      [", id ? "," : "");
        if (can_be_written(&t->vocab, id))
            put_string(w, token->text, token->bytes);
        else
            wf_writer_print(w, "\"[PAD%d]\"", (int)id);
        wf_writer_print(w, ", %s]", score);
    }
    wf_writer_print(w, "\n    ]\n  }\n");
    return WF_OK;
}

static wf_status put_model(wf_writer *w, const wf_tokenizer *t)
{
    switch (t->model) {
    case WF_MODEL_WORDPIECE: return put_wordpiece(w, t);
    case WF_MODEL_UNIGRAM: return put_unigram(w, t);
    default: return put_bpe(w, t);
    }
}

wf_status wf_tokenizer_to_json(const wf_tokenizer *t, wf_ctx *ctx, char **json, size_t *bytes)
{
    wf_writer w = {.ctx = ctx};
    *json = NULL;
    WF_TRY(check_frame(t, ctx, t->before, t->before_count));
    WF_TRY(check_frame(t, ctx, t->after, t->after_count));
    wf_writer_print(&w,
                    "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(&w, t);
    put_part(&w, t, 0);
    put_part(&w, t, 1);
    put_processor(&w, t);
    put_part(&w, t, 2);
    wf_status status = put_model(&w, t);
    wf_writer_print(&w, "}\n");
    wf_status taken = wf_writer_take(&w, json, bytes);
    if (status != WF_OK && taken == WF_OK) {
        wf_mem_free(ctx, *json);
        *json = NULL;
    }
    return status != WF_OK ? status : taken;
}

/* ---- The configuration ---- */

/* Returns whether the id is one of those added around a text. */
static bool frames(const int32_t *ids, int count, int32_t id)
{
    for (int i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Writes the named tokens that are not in wf_special_names. */
static void put_names(const wf_tokenizer *t, wf_writer *w)
{
    for (int i = 0; i < t->nameds; i++) {
        bool known = false;
        for (int k = 0; k < 4; k++)
            known |= strcmp(t->named[i].name, wf_special_names[k]) == 0;
        if (known)
            continue;
        wf_writer_print(w, "  ");
        put_string(w, t->named[i].name, strlen(t->named[i].name));
        wf_writer_print(w, ": ");
        put_string(w, t->named[i].text, t->named[i].bytes);
        wf_writer_print(w, ",\n");
    }
}

/* add_bos_token and add_eos_token follow from the tokens around a text. */
wf_status wf_tokenizer_to_config(const wf_tokenizer *t, wf_ctx *ctx, const char *chat_template,
                                 char **json, size_t *bytes)
{
    wf_writer w = {.ctx = ctx};
    wf_writer_print(&w, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    for (int i = 0; i < 4; i++) {
        int32_t id = t->special[i];
        if (id < 0 || !can_be_written(&t->vocab, id))
            continue;
        wf_writer_print(&w, "  \"%s\": ", wf_special_names[i]);
        put_string(&w, t->vocab.token[id].text, t->vocab.token[id].bytes);
        wf_writer_print(&w, ",\n");
    }
    put_names(t, &w);
    if (chat_template) {
        wf_writer_print(&w, "  \"chat_template\": ");
        put_string(&w, chat_template, strlen(chat_template));
        wf_writer_print(&w, ",\n");
    }
    wf_writer_print(&w,
                    "  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n"
                    "  \"clean_up_tokenization_spaces\": false\n}\n",
                    truth(frames(t->before, t->before_count, t->special[WF_SPECIAL_BOS])),
                    truth(frames(t->after, t->after_count, t->special[WF_SPECIAL_EOS])));
    return wf_writer_take(&w, json, bytes);
}
