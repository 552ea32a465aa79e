/* SPDX-License-Identifier: MIT */
/* cut.c - where long texts may be cut without changing their ids. */
#include "text/token_priv.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Can a match go across the place between something that is no space and a space? */
static bool added_crosses(const wf_tokenizer *t)
{
    for (int i = 0; i < t->adds; i++) {
        const wf_added_token *a = &t->added[i];
        if (a->control) /* not looked for in texts */
            continue;
        for (uint32_t k = 0; k + 1 < a->bytes; k++)
            if (a->text[k] != ' ' && a->text[k + 1] <= ' ' && a->text[k + 1] >= 0)
                return true;
        if (a->rstrip)
            return true;
    }
    return false;
}

/* Byte-level BPE whose words end where a space or, behind a letter or number, a line end begins, and whose
 * normalizer, if any, is canonical composition, of which spaces are no part. That holds of each of the
 * patterns written by hand (split.h), and so of several of them in turn. */
static bool cuts_at_spaces(const wf_tokenizer *t)
{
    if (!t->bpe.bytes || t->word_count == 0 || added_crosses(t))
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

/* The class of the character that ends before text[at]; 0 when none does. */
static unsigned class_before(const char *text, size_t at)
{
    size_t begin = at - 1, length;
    while (begin > 0 && at - begin < 4 && ((uint8_t)text[begin] & 0xC0) == 0x80)
        begin--;
    return wf_utf8_look(text + begin, at - begin, &length) == WF_UTF8_WHOLE && begin + length == at
               ? wf_char_class(wf_utf8_decode(text + begin, &length)) | 1u << 31
               : 0;
}

size_t wf_tokenizer_cut(const wf_tokenizer *t, const char *text, size_t least, size_t most)
{
    if (!cuts_at_spaces(t))
        return 0;
    for (size_t at = most; at >= least && at > 0; at--) {
        if (text[at] != ' ' && text[at] != '\n')
            continue;
        unsigned before = class_before(text, at);
        if (before == 0 || before & WF_CHAR_SPACE)
            continue;
        if (text[at] == ' ' || before & (WF_CHAR_L | WF_CHAR_N))
            return at;
    }
    return 0;
}
