/* SPDX-License-Identifier: MIT */
/*
 * read_json.c - reads tokenizer.json and tokenizer_config.json: vocabulary, merges, added tokens
 * and special tokens. read_steps.c reads the pipeline.
 *
 * JSON trees live in an arena of their own, freed at the end; the tokenizer copies the strings. Ids
 * index arrays, so they are limited before anything is allocated by the largest id: at most twice
 * the tokens plus 100,000.
 */
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "text/read_json_priv.h"

/* ---- Vocabulary ---- */

wf_status wf_json_reader_fail(const wf_json_reader *r, const char *what)
{
    return wf_fail(r->t->ctx, WF_ERR_FORMAT, "cannot read '%s': %s", r->what, what);
}

/* Fails unless the node is an integer in [0, r->most). */
static wf_status check_id(wf_json_reader *r, const wf_json_node *id, const char *token)
{
    if (id && id->whole && id->integer >= 0 && id->integer < r->most)
        return WF_OK;
    return wf_fail(r->t->ctx, WF_ERR_FORMAT,
                   "cannot read '%s': the id of token '%.100s' is not an integer from 0 to %d",
                   r->what, token, (int)r->most - 1);
}

/* Adds a token. If the same token exists with the same id, only updates its kind. */
static wf_status set_token(wf_json_reader *r, int32_t id, const char *text, size_t bytes,
                           wf_token_kind kind)
{
    wf_vocab *v = &r->t->vocab;
    int32_t there = wf_vocab_find(v, text, bytes);
    if (bytes > WF_TOKEN_BYTES_MOST)
        return wf_fail(r->t->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': token %d is longer than %d bytes", r->what, (int)id,
                       WF_TOKEN_BYTES_MOST);
    if (there >= 0 ? there != id : v->token[id].text != NULL)
        return wf_fail(r->t->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': token '%.100s' or its id %d is already in use", r->what,
                       text, (int)id);
    if (there < 0) {
        WF_TRY(wf_vocab_set(v, &r->t->arena, id, text, bytes, kind));
        v->token[id].outside = kind == WF_TOKEN_CONTROL || kind == WF_TOKEN_USER;
        return WF_OK;
    }
    if (kind != WF_TOKEN_NORMAL)
        v->token[id].kind = kind;
    return WF_OK;
}

/* Added tokens come from the array in tokenizer.json, then the object in tokenizer_config.json. */
typedef struct {
    const wf_json_node *item; /* has a string "content" */
    int64_t id;               /* in [0, r->most) */
} added_item;

/* Returns added token i of both lists together. The ids of the second list are its keys. */
static wf_status added_at(wf_json_reader *r, size_t i, added_item *out)
{
    size_t own = r->added ? r->added->count : 0;
    const wf_json_node *node = i < own ? &r->added->child[i] : &r->decoder->child[i - own];
    const wf_json_node *id = wf_json_get(node, "id"), *content = wf_json_get(node, "content");
    if (!content || content->kind != WF_JSON_STRING)
        return wf_json_reader_fail(r, "an added token has no content");
    *out = (added_item){.item = node};
    if (i < own) {
        WF_TRY(check_id(r, id, content->string));
        out->id = id->integer;
        return WF_OK;
    }
    for (const char *c = node->key; *c; c++) {
        /* Checked for every digit, so that the number cannot overflow. */
        if (*c < '0' || *c > '9' || out->id >= r->most)
            return wf_json_reader_fail(r, "added_tokens_decoder has a key that is not an id");
        out->id = 10 * out->id + (*c - '0');
    }
    return out->id < r->most
               ? WF_OK
               : wf_json_reader_fail(r, "added_tokens_decoder has an id that is too large");
}

static wf_status read_added(wf_json_reader *r)
{
    wf_tokenizer *t = r->t;
    size_t own = r->added ? r->added->count : 0, count = own + (r->decoder ? r->decoder->count : 0);
    t->added = wf_arena_alloc(&t->arena, count * sizeof *t->added);
    /* place[id]: 1 + index of the id's added token, so that a duplicate is found without a
     * search. */
    int32_t *place = wf_mem_array(t->ctx, (size_t)t->vocab.count, sizeof *place);
    wf_status status = t->added && place ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        added_item a;
        status = added_at(r, i, &a);
        if (status != WF_OK)
            break;
        const wf_json_node *content = wf_json_get(a.item, "content");
        bool special = wf_json_get_bool(a.item, "special", false);
        if (content->bytes == 0)
            continue;
        if (content->bytes > WF_ADDED_BYTES_MOST) {
            status = wf_fail(t->ctx, WF_ERR_FORMAT,
                             "cannot read '%s': added token %d is longer than %d bytes", r->what,
                             (int)a.id, WF_ADDED_BYTES_MOST);
            break;
        }
        status = set_token(r, (int32_t)a.id, content->string, content->bytes,
                           special ? WF_TOKEN_CONTROL : WF_TOKEN_USER);
        if (status != WF_OK)
            break;
        if (!place[a.id])
            place[a.id] = ++t->adds;
        /* A later entry of the same id replaces the earlier one: the configuration wins. */
        t->added[place[a.id] - 1] =
            (wf_added_token){.id = (int32_t)a.id,
                             .text = t->vocab.token[a.id].text,
                             .bytes = t->vocab.token[a.id].bytes,
                             .control = special,
                             .single_word = wf_json_get_bool(a.item, "single_word", false),
                             .lstrip = wf_json_get_bool(a.item, "lstrip", false),
                             .rstrip = wf_json_get_bool(a.item, "rstrip", false),
                             .normalized = wf_json_get_bool(a.item, "normalized", !special)};
    }
    wf_mem_free(t->ctx, place);
    return status;
}

/* An entry of "vocab": a member "text": id of an object, or an item ["text", score] of an array. */
typedef struct {
    const char *text;
    size_t bytes;
    int64_t id;
    double score;
} vocab_entry;

static wf_status entry_at(wf_json_reader *r, const wf_json_node *vocab, size_t i, vocab_entry *out)
{
    const wf_json_node *node = &vocab->child[i];
    if (vocab->kind == WF_JSON_OBJECT) {
        WF_TRY(check_id(r, node, node->key));
        *out = (vocab_entry){node->key, node->key_bytes, node->integer, 0};
        return WF_OK;
    }
    if (node->kind != WF_JSON_ARRAY || node->count != 2 || node->child[0].kind != WF_JSON_STRING ||
        node->child[1].kind != WF_JSON_NUMBER)
        return wf_fail(r->t->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': entry %zu of its vocab is not a token and its score",
                       r->what, i);
    *out = (vocab_entry){node->child[0].string, node->child[0].bytes, (int64_t)i,
                         node->child[1].number};
    return WF_OK;
}

/* Adds a token of the model. An array may repeat a text: the last one is found. */
static wf_status set_entry(wf_json_reader *r, const wf_json_node *vocab, const vocab_entry *e,
                           wf_token_kind kind)
{
    wf_tokenizer *t = r->t;
    bool listed = vocab->kind == WF_JSON_ARRAY && e->bytes <= WF_TOKEN_BYTES_MOST;
    if (t->unigram.score)
        t->unigram.score[e->id] = e->score;
    return listed ? wf_vocab_set(&t->vocab, &t->arena, (int32_t)e->id, e->text, e->bytes, kind)
                  : set_token(r, (int32_t)e->id, e->text, e->bytes, kind);
}

/* Counts, checks all ids, then allocates: two passes. kind: of "vocab". */
static wf_status read_vocab(wf_json_reader *r, const wf_json_node *model, wf_json_kind kind)
{
    const wf_json_node *vocab = wf_json_get(model, "vocab");
    wf_tokenizer *t = r->t;
    size_t added = (r->added ? r->added->count : 0) + (r->decoder ? r->decoder->count : 0);
    int64_t top = 0;
    vocab_entry e = {0};
    if (!vocab || vocab->kind != kind)
        return wf_json_reader_fail(r, "its model has no vocab");
    /* Ids may have holes, but a small file must not cause a large allocation. */
    if (vocab->count + added > WF_VOCAB_MOST / 4)
        return wf_fail(t->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu tokens; the limit is %d", r->what,
                       vocab->count + added, WF_VOCAB_MOST / 4);
    r->most = 2 * (int64_t)(vocab->count + added) + 100000;
    for (size_t i = 0; i < vocab->count; i++) {
        WF_TRY(entry_at(r, vocab, i, &e));
        top = e.id >= top ? e.id + 1 : top;
    }
    for (size_t i = 0; i < added; i++) {
        added_item a;
        WF_TRY(added_at(r, i, &a));
        top = a.id >= top ? a.id + 1 : top;
    }
    WF_TRY(wf_vocab_init(&t->vocab, &t->arena, (int32_t)top));
    if (kind == WF_JSON_ARRAY) {
        t->unigram.score = wf_arena_alloc(&t->arena, (size_t)top * sizeof *t->unigram.score);
        if (!t->unigram.score)
            return WF_ERR_MEMORY;
    }
    bool bytes = wf_json_get_bool(model, "byte_fallback", false);
    for (size_t i = 0; i < vocab->count; i++) {
        WF_TRY(entry_at(r, vocab, i, &e));
        bool byte = bytes && wf_vocab_byte(e.text, e.bytes) >= 0;
        WF_TRY(set_entry(r, vocab, &e, byte ? WF_TOKEN_BYTE : WF_TOKEN_NORMAL));
    }
    return WF_OK;
}

/* ---- Merges ---- */

/* Splits a merge, "a b" or ["a", "b"], into a and b. Returns false for anything else. */
static bool split_merge(const wf_json_node *merge, wf_text *a, wf_text *b)
{
    if (merge->kind == WF_JSON_ARRAY && merge->count == 2 &&
        merge->child[0].kind == WF_JSON_STRING && merge->child[1].kind == WF_JSON_STRING) {
        *a = (wf_text){merge->child[0].string, merge->child[0].bytes};
        *b = (wf_text){merge->child[1].string, merge->child[1].bytes};
        return true;
    }
    const char *space =
        merge->kind == WF_JSON_STRING ? memchr(merge->string, ' ', merge->bytes) : NULL;
    if (!space)
        return false;
    *a = (wf_text){merge->string, (size_t)(space - merge->string)};
    *b = (wf_text){space + 1, merge->bytes - a->bytes - 1};
    return !memchr(b->text, ' ', b->bytes);
}

static wf_status read_merges(wf_json_reader *r, const wf_json_node *model)
{
    const wf_json_node *merges = wf_json_get(model, "merges");
    wf_tokenizer *t = r->t;
    if (!merges || merges->kind != WF_JSON_ARRAY)
        return wf_json_reader_fail(r, "its model has no merges");
    if (merges->count > WF_VOCAB_MOST)
        return wf_fail(t->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu merges; the limit is %d", r->what,
                       merges->count, WF_VOCAB_MOST);
    WF_TRY(wf_merges_init(&t->bpe.merges, &t->arena, merges->count));
    char *whole = wf_arena_alloc(&t->arena, t->vocab.longest);
    if (!whole)
        return WF_ERR_MEMORY;
    uint32_t rank = 0;
    for (size_t i = 0; i < merges->count; i++) {
        const wf_json_node *merge = &merges->child[i];
        wf_text a = {0}, b = {0};
        int32_t left = -1, right = -1, made = -1;
        if (merge->kind == WF_JSON_STRING && strncmp(merge->string, "#version", 8) == 0)
            continue;
        if (split_merge(merge, &a, &b) && a.bytes + b.bytes <= t->vocab.longest) {
            memcpy(whole, a.text, a.bytes);
            memcpy(whole + a.bytes, b.text, b.bytes);
            left = wf_vocab_find(&t->vocab, a.text, a.bytes);
            right = wf_vocab_find(&t->vocab, b.text, b.bytes);
            made = wf_vocab_find(&t->vocab, whole, a.bytes + b.bytes);
        }
        if (left < 0 || right < 0 || made < 0 || a.bytes == 0 || b.bytes == 0)
            return wf_fail(t->ctx, WF_ERR_FORMAT,
                           "cannot read '%s': merge %zu does not join two tokens to a third",
                           r->what, i);
        wf_merges_set(&t->bpe.merges, left, right, rank++, made);
    }
    return WF_OK;
}

/* ---- The model ---- */

/* Returns whether a member is absent or has its neutral value. */
static bool is_nothing(const wf_json_node *node)
{
    return !node || node->kind == WF_JSON_NULL || wf_json_is(node, "") ||
           (node->kind == WF_JSON_NUMBER && node->number == 0);
}

/* Records the token of unknown text. */
static void set_unknown(wf_json_reader *r, int32_t id)
{
    wf_vocab_token *token = &r->t->vocab.token[id];
    r->t->special[WF_SPECIAL_UNKNOWN] = id;
    if (token->kind == WF_TOKEN_CONTROL)
        token->kind = WF_TOKEN_UNKNOWN;
}

/* Finds unk_token, which is `otherwise` if it is missing; -1: neither is there. */
static wf_status find_unknown(wf_json_reader *r, const wf_json_node *model, const char *otherwise,
                              int32_t *id)
{
    const wf_json_node *unk = wf_json_get(model, "unk_token");
    bool named = unk && unk->kind == WF_JSON_STRING;
    *id = -1;
    if (!named && !otherwise)
        return WF_OK;
    *id = named ? wf_vocab_find(&r->t->vocab, unk->string, unk->bytes)
                : wf_vocab_find(&r->t->vocab, otherwise, strlen(otherwise));
    if (*id < 0)
        return wf_json_reader_fail(r, "its unk_token is not in the vocabulary");
    set_unknown(r, *id);
    return WF_OK;
}

static wf_status read_bpe(wf_json_reader *r, const wf_json_node *model)
{
    static const char *const unknown[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    wf_bpe *b = &r->t->bpe;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (!is_nothing(wf_json_get(model, unknown[i])))
            return wf_fail(r->t->ctx, WF_ERR_UNSUPPORTED,
                           "the model in '%s' uses %s, which Weft does not support", r->what,
                           unknown[i]);
    WF_TRY(read_vocab(r, model, WF_JSON_OBJECT));
    WF_TRY(read_merges(r, model));
    WF_TRY(read_added(r));
    b->fallback = wf_json_get_bool(model, "byte_fallback", false);
    b->fuse_unknown = wf_json_get_bool(model, "fuse_unk", false);
    b->whole_words = wf_json_get_bool(model, "ignore_merges", false);
    return find_unknown(r, model, NULL, &b->unknown);
}

static wf_status read_wordpiece(wf_json_reader *r, const wf_json_node *model)
{
    wf_wordpiece *p = &r->t->wordpiece;
    const wf_json_node *prefix = wf_json_get(model, "continuing_subword_prefix");
    int64_t longest = wf_json_get_int(model, "max_input_chars_per_word", WF_WORDPIECE_LONGEST);
    bool given = prefix && prefix->kind == WF_JSON_STRING;
    if (longest < 0 || (given && prefix->bytes > WF_ADDED_BYTES_MOST))
        return wf_json_reader_fail(
            r, "continuing_subword_prefix or max_input_chars_per_word of its model is invalid");
    r->t->model = WF_MODEL_WORDPIECE;
    WF_TRY(read_vocab(r, model, WF_JSON_OBJECT));
    WF_TRY(read_added(r));
    p->longest = (size_t)longest;
    p->prefix_bytes = given ? prefix->bytes : 2;
    p->prefix = wf_arena_copy(&r->t->arena, given ? prefix->string : "##", p->prefix_bytes + 1);
    if (!p->prefix)
        return WF_ERR_MEMORY;
    return find_unknown(r, model, "[UNK]", &p->unknown);
}

/* The lowest score, which decides about unknown characters, is that of any token of the model. */
static wf_status read_unigram(wf_json_reader *r, const wf_json_node *model)
{
    wf_unigram *u = &r->t->unigram;
    r->t->model = WF_MODEL_UNIGRAM;
    WF_TRY(read_vocab(r, model, WF_JSON_ARRAY));
    WF_TRY(read_added(r));
    size_t count = wf_json_get(model, "vocab")->count;
    const wf_json_node *unknown = wf_json_get(model, "unk_id");
    if (!unknown || !unknown->whole || unknown->integer < 0 || unknown->integer >= (int64_t)count)
        return wf_json_reader_fail(r, "unk_id of its model is not the id of a token");
    u->least = u->score[0];
    for (size_t i = 1; i < count; i++)
        u->least = u->score[i] < u->least ? u->score[i] : u->least;
    u->fallback = wf_json_get_bool(model, "byte_fallback", false);
    u->unknown = (int32_t)unknown->integer;
    set_unknown(r, u->unknown);
    return WF_OK;
}

/* Old files have no type. */
static const char *guess_type(const wf_json_node *model)
{
    const wf_json_node *vocab = wf_json_get(model, "vocab");
    return wf_json_get(model, "merges")                      ? "BPE"
           : wf_json_get(model, "continuing_subword_prefix") ? "WordPiece"
           : vocab && vocab->kind == WF_JSON_ARRAY           ? "Unigram"
                                                             : "none";
}

static wf_status read_model(wf_json_reader *r, const wf_json_node *root)
{
    static const struct {
        const char *type;
        wf_status (*read)(wf_json_reader *r, const wf_json_node *model);
    } rows[] = {{"BPE", read_bpe}, {"WordPiece", read_wordpiece}, {"Unigram", read_unigram}};
    const wf_json_node *model = wf_json_get(root, "model");
    if (!model || model->kind != WF_JSON_OBJECT)
        return wf_json_reader_fail(r, "it has no \"model\", so it is not a tokenizer.json");
    const char *type = wf_json_get_string(model, "type", guess_type(model));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].read(r, model);
    return wf_fail(r->t->ctx, WF_ERR_UNSUPPORTED,
                   "cannot read '%s': its model is of type '%.50s', but Weft supports only BPE, "
                   "WordPiece and Unigram",
                   r->what, type);
}

/* ---- tokenizer_config.json ---- */

/* Returns the text of a token: a string, or the member `content` of an object; NULL: neither. */
static const wf_json_node *token_text(const wf_json_node *node)
{
    if (node && node->kind == WF_JSON_OBJECT)
        node = wf_json_get(node, "content");
    return node && node->kind == WF_JSON_STRING ? node : NULL;
}

/* Returns the id of the token that the configuration names; -1: not named, or not in the
 * vocabulary. */
static int32_t config_token(const wf_json_reader *r, const char *key)
{
    const wf_json_node *node = token_text(wf_json_get(r->config, key));
    return node ? wf_vocab_find(&r->t->vocab, node->string, node->bytes) : -1;
}

/* Reads the names that chat templates can use, as transformers does: every key that ends in _token,
 * and the members of extra_special_tokens if it is an object. */
static wf_status read_names(wf_json_reader *r)
{
    const wf_json_node *extra = wf_json_get(r->config, "extra_special_tokens");
    r->t->configured = true;
    for (size_t i = 0; r->config->kind == WF_JSON_OBJECT && i < r->config->count; i++) {
        const wf_json_node *member = &r->config->child[i], *text = token_text(member);
        if (text && wf_path_ends(member->key, "_token"))
            WF_TRY(wf_tokenizer_name(r->t, member->key, text->string, text->bytes));
    }
    for (size_t i = 0; extra && extra->kind == WF_JSON_OBJECT && i < extra->count; i++) {
        const wf_json_node *text = token_text(&extra->child[i]);
        if (text)
            WF_TRY(wf_tokenizer_name(r->t, extra->child[i].key, text->string, text->bytes));
    }
    return WF_OK;
}

/* Without a configuration: bos is the first token before a text, eos is found by well-known
 * names. */
static void guess_special(wf_tokenizer *t)
{
    static const char *const ends[] = {"</s>",          "<|im_end|>", "<|end_of_text|>",
                                       "<|endoftext|>", "<|eot_id|>", "<eos>"};
    if (t->before_count > 0)
        t->special[WF_SPECIAL_BOS] = t->before[0];
    for (size_t i = 0; i < sizeof ends / sizeof *ends && t->special[WF_SPECIAL_EOS] < 0; i++) {
        int32_t id = wf_vocab_find(&t->vocab, ends[i], strlen(ends[i]));
        if (id >= 0 && t->vocab.token[id].kind == WF_TOKEN_CONTROL)
            t->special[WF_SPECIAL_EOS] = id;
    }
}

/* The configuration decides about bos and eos, also against the post-processor. */
static wf_status read_config(wf_json_reader *r)
{
    wf_tokenizer *t = r->t;
    if (!r->config) {
        guess_special(t);
        return WF_OK;
    }
    WF_TRY(read_names(r));
    static const struct {
        const char *token, *add;
        wf_special which;
    } rows[] = {{"bos_token", "add_bos_token", WF_SPECIAL_BOS},
                {"eos_token", "add_eos_token", WF_SPECIAL_EOS},
                {"unk_token", NULL, WF_SPECIAL_UNKNOWN},
                {"pad_token", NULL, WF_SPECIAL_PAD}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t id = config_token(r, rows[i].token);
        if (id < 0)
            continue;
        t->special[rows[i].which] = id;
        const wf_json_node *add = rows[i].add ? wf_json_get(r->config, rows[i].add) : NULL;
        if (add && add->kind == WF_JSON_BOOL)
            WF_TRY(wf_tokenizer_frame(t, rows[i].which == WF_SPECIAL_EOS, id, add->boolean));
    }
    return WF_OK;
}

/* ---- Everything ---- */

static wf_status read_all(wf_json_reader *r, const wf_json_node *root)
{
    r->added = wf_json_get(root, "added_tokens");
    r->decoder = wf_json_get(r->config, "added_tokens_decoder");
    if (r->added && r->added->kind != WF_JSON_ARRAY)
        r->added = NULL;
    if (r->decoder && r->decoder->kind != WF_JSON_OBJECT)
        r->decoder = NULL;
    WF_TRY(read_model(r, root));
    WF_TRY(wf_json_read_normalizer(r, wf_json_get(root, "normalizer"), 0));
    WF_TRY(wf_json_read_words(r, wf_json_get(root, "pre_tokenizer"), 0));
    WF_TRY(wf_json_read_decoder(r, wf_json_get(root, "decoder"), 0));
    WF_TRY(wf_json_read_processor(r, wf_json_get(root, "post_processor"), 0));
    WF_TRY(read_config(r));
    return wf_tokenizer_finish(r->t);
}

wf_status wf_tokenizer_from_json(wf_ctx *ctx, const char *what, const char *json, size_t bytes,
                                 const char *config, size_t config_bytes, wf_tokenizer **out)
{
    wf_arena arena; /* for the JSON trees only */
    wf_json_reader r = {.what = what};
    wf_json_node *root = NULL, *second = NULL;
    *out = NULL;
    wf_arena_init(&arena, ctx);
    wf_status status = wf_json_parse(&arena, what, json, bytes, &root);
    if (status == WF_OK && config)
        status = wf_json_parse(&arena, "tokenizer_config.json", config, config_bytes, &second);
    if (status == WF_OK)
        status = wf_tokenizer_new(ctx, &r.t);
    r.config = second;
    if (status == WF_OK)
        status = read_all(&r, root);
    if (status == WF_OK)
        *out = r.t;
    else
        wf_tokenizer_free(r.t);
    wf_arena_free(&arena);
    return status;
}
