/* SPDX-License-Identifier: MIT */
/*
 * cut.c - finds places where a long text can be cut without changing its ids.
 *
 * wf_tokenizer_index_cuts decides once per tokenizer which kind of cut is safe; unknown pipelines
 * are never cut.
 */
#include <string.h>

#include "text/token_priv.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Returns whether the text has a space after its first byte. space: a second spelling of a
 * space. */
static bool has_inner_space(const char *text, size_t bytes, const char *space, size_t space_bytes)
{
    for (size_t k = 0; k + 1 < bytes; k++) {
        /* Any control character counts as a space, which errs on the safe side. */
        if (text[k] != ' ' && (unsigned char)text[k + 1] <= ' ')
            return true;
        if (space_bytes > 0 && bytes - k - 1 >= space_bytes &&
            memcmp(text + k + 1, space, space_bytes) == 0)
            return true;
    }
    return false;
}

/* Returns whether a match of an added token, or its context, can span the boundary between a
 * non-space and a space. space: the step that replaces spaces, or NULL. */
static bool added_crosses(const wf_tokenizer *t, bool control, const wf_normal_step *space)
{
    const char *mark = space ? space->content : "";
    size_t bytes = space ? space->content_bytes : 0;
    for (int i = 0; i < t->adds; i++) {
        const wf_added_token *a = &t->added[i];
        const wf_vocab_token *whole = &t->vocab.token[a->id];
        if (a->bytes == 0 || (a->control && !control))
            continue;
        bool begins = a->text[0] == ' ' || a->text[0] == '\n' ||
                      (bytes > 0 && a->bytes >= bytes && memcmp(a->text, mark, bytes) == 0);
        /* rstrip consumes spaces after a cut; single_word looks at the character before it. */
        if (a->rstrip || (a->single_word && begins) ||
            has_inner_space(a->text, a->bytes, mark, bytes) ||
            has_inner_space(whole->text, whole->bytes, mark, bytes))
            return true;
    }
    return false;
}

/* Returns whether this is BERT: its words end at any white space, and its normalizer changes each
 * character by itself, or together with marks that follow it. */
static bool cuts_bert(const wf_tokenizer *t)
{
    for (int i = 0; i < t->normal_count; i++)
        if (t->normals[i].kind != WF_NORMAL_BERT)
            return false;
    return t->model == WF_MODEL_WORDPIECE && t->word_count > 0 &&
           t->words[0].kind == WF_WORDS_SPACES;
}

/* Returns whether this is byte-level BPE whose words always end before a space, and before a line
 * break that follows a letter or number. This holds for each hand-written pattern (split.h), and so
 * for a sequence of them. The only normalizer allowed is NFC, which never composes spaces. */
static bool cuts_words(const wf_tokenizer *t)
{
    if (!t->bpe.bytes || t->word_count == 0)
        return false;
    for (int i = 0; i < t->normal_count; i++)
        if (t->normals[i].kind != WF_NORMAL_NFC)
            return false;
    bool cut = false;
    for (int i = 0; i < t->word_count; i++) {
        const wf_words_step *w = &t->words[i];
        bool split = w->kind == WF_WORDS_SPLIT && w->style;
        if (w->invert || (!split && w->kind != WF_WORDS_DIGITS && w->kind != WF_WORDS_BYTES) ||
            (w->kind != WF_WORDS_BYTES && w->behavior != WF_SPLIT_ISOLATED) || w->prefix)
            return false;
        cut = cut || split || (w->kind == WF_WORDS_BYTES && w->split);
    }
    return cut;
}

/* Recognises SentencePiece as tokenizer.json and GGUF express it: an optional prefix, then spaces
 * replaced by a character that is a token. Returns the replacing step, or NULL. */
static const wf_normal_step *spaces_step(const wf_tokenizer *t)
{
    if (t->model != WF_MODEL_BPE || t->bpe.bytes || t->bpe.whole_words || t->word_count > 0 ||
        t->normal_count < 1 || t->normal_count > 2)
        return NULL;
    const wf_normal_step *s = &t->normals[t->normal_count - 1];
    size_t length;
    if (t->normal_count == 2 && t->normals[0].kind != WF_NORMAL_PREPEND)
        return NULL;
    if (s->kind != WF_NORMAL_REPLACE || s->pattern || s->what_bytes != 1 || s->what[0] != ' ' ||
        s->content_bytes == 0 ||
        wf_utf8_look(s->content, s->content_bytes, &length) != WF_UTF8_WHOLE ||
        length != s->content_bytes)
        return NULL;
    int32_t id = wf_vocab_find(&t->vocab, s->content, s->content_bytes);
    return id >= 0 && !t->vocab.token[id].outside ? s : NULL;
}

/* With control tokens more added tokens can match, so the answer may differ. */
void wf_tokenizer_index_cuts(wf_tokenizer *t)
{
    bool words = cuts_words(t) || cuts_bert(t);
    const wf_normal_step *space = spaces_step(t);
    for (int control = 0; control < 2; control++) {
        wf_cut_kind kind = words ? WF_CUT_WORDS : space ? WF_CUT_SPACES : WF_CUT_NEVER;
        t->cuts[control] = added_crosses(t, control, space) ? WF_CUT_NEVER : kind;
    }
}

/* Reads the character that ends before text[at]; false: those bytes are not a character. */
static bool char_before(const char *text, size_t at, uint32_t *c)
{
    size_t begin = at - 1, length;
    while (begin > 0 && at - begin < 4 && ((uint8_t)text[begin] & 0xC0) == 0x80)
        begin--;
    if (wf_utf8_look(text + begin, at - begin, &length) != WF_UTF8_WHOLE || begin + length != at)
        return false;
    *c = wf_utf8_decode(text + begin, &length);
    return true;
}

/* Returns whether the text can be cut before text[at]. */
static bool cuts_at(const wf_tokenizer *t, wf_cut_kind kind, const char *text, size_t at)
{
    uint32_t before;
    size_t length;
    if ((text[at] != ' ' && text[at] != '\n') || !char_before(text, at, &before))
        return false;
    /* Inside a run of spaces, the pattern's lookahead decides where the word begins: no cut. */
    unsigned class = wf_char_class(before);
    if (class & WF_CHAR_SPACE)
        return false;
    if (kind == WF_CUT_WORDS)
        return text[at] == ' ' || class & (WF_CHAR_L | WF_CHAR_N);
    const wf_normal_step *space = &t->normals[t->normal_count - 1];
    return text[at] == ' ' &&
           !wf_bpe_joins(&t->bpe, before, wf_utf8_decode(space->content, &length));
}

/* Searches backwards from `most`: longer pieces first. */
static size_t cut(const wf_tokenizer *t, wf_cut_kind kind, const char *text, size_t least,
                  size_t most)
{
    for (size_t at = most; kind != WF_CUT_NEVER && at >= least && at > 0; at--)
        if (cuts_at(t, kind, text, at))
            return at;
    return 0;
}

size_t wf_tokenizer_cut(const wf_tokenizer *t, const char *text, size_t least, size_t most)
{
    return t->cuts[0] == WF_CUT_WORDS ? cut(t, WF_CUT_WORDS, text, least, most) : 0;
}

size_t wf_tokenizer_cut_part(const wf_tokenizer *t, bool control, const char *text, size_t least,
                             size_t most)
{
    return cut(t, t->cuts[control], text, least, most);
}
