/* SPDX-License-Identifier: MIT */
/*
 * prompt.c - see prompt.h.
 *
 * Texts come from flags, files and stdin ("-"). They are kept with their length, because \x00 and
 * files may contain NULs.
 */
#include "cli/prompt.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/open.h"

#define LARGEST ((size_t)64 << 20) /* bytes of a file; longer texts do not fit any context */

/* Returns the value of a hexadecimal digit, or -1. */
static int hex(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)((found - digits) % 16) : -1;
}

/* The result is never longer than the text. */
wf_status wf_prompt_unescape(wf_ctx *ctx, const char *text, char **out, size_t *bytes)
{
    static const char letters[] = "nrt\"'\\", meanings[] = "\n\r\t\"'\\";
    char *to = *out = wf_mem_new(ctx, strlen(text) + 1);
    if (!to)
        return WF_ERR_MEMORY;
    while (*text) {
        const char *letter = *text == '\\' && text[1] ? strchr(letters, text[1]) : NULL;
        if (letter) {
            *to++ = meanings[letter - letters];
            text += 2;
        } else if (text[0] == '\\' && text[1] == 'x' && hex(text[2]) >= 0 && hex(text[3]) >= 0) {
            *to++ = (char)(hex(text[2]) * 16 + hex(text[3]));
            text += 4;
        } else {
            *to++ = *text++;
        }
    }
    *bytes = (size_t)(to - *out);
    return WF_OK;
}

/* Prints a note with the first invalid byte; encoding replaces all of them. */
static void note_bytes(const char *what, const wf_prompt *p)
{
    size_t wrong = 0, first = 0;
    for (size_t i = 0, n; i < p->bytes; i += n ? n : 1) {
        n = wf_text_utf8(p->text + i, p->bytes - i);
        if (n == 0 && wrong++ == 0)
            first = i;
    }
    if (wrong)
        wf_open_say("note: %s has invalid UTF-8 at byte %zu; invalid bytes become U+FFFD",
                    WF_FOREIGN(what), first);
}

static wf_status read_file(wf_prompts *p, const char *path, uint32_t flags)
{
    wf_prompt *item = &p->item[p->count];
    const char *file = strcmp(path, "-") == 0 ? "/dev/stdin" : path;
    WF_TRY(wf_file_read(p->ctx, file, LARGEST, &item->text, &item->bytes));
    p->count++;
    if ((flags & WF_PROMPT_TRIM) && item->bytes > 0 && item->text[item->bytes - 1] == '\n')
        item->text[--item->bytes] = '\0';
    note_bytes(path, item);
    return WF_OK;
}

static wf_status take_text(wf_prompts *p, const char *text, uint32_t flags)
{
    wf_prompt *item = &p->item[p->count];
    if (flags & WF_PROMPT_ESCAPES) {
        WF_TRY(wf_prompt_unescape(p->ctx, text, &item->text, &item->bytes));
    } else {
        item->bytes = strlen(text);
        item->text = wf_mem_new(p->ctx, item->bytes + 1);
        if (!item->text)
            return WF_ERR_MEMORY;
        memcpy(item->text, text, item->bytes);
    }
    p->count++;
    note_bytes("the prompt", item);
    return WF_OK;
}

wf_status wf_prompts_read(wf_ctx *ctx, const wf_values *texts, const wf_values *files,
                          uint32_t flags, wf_prompts *out)
{
    *out = (wf_prompts){.ctx = ctx};
    out->item = wf_mem_array(ctx, (size_t)texts->count + (size_t)files->count, sizeof *out->item);
    if (!out->item)
        return WF_ERR_MEMORY;
    for (int i = 0; i < texts->count; i++)
        WF_TRY(strcmp(texts->item[i], "-") == 0 ? read_file(out, "-", flags)
                                                : take_text(out, texts->item[i], flags));
    for (int i = 0; i < files->count; i++)
        WF_TRY(read_file(out, files->item[i], flags));
    return WF_OK;
}

void wf_prompts_free(wf_prompts *p)
{
    for (int i = 0; i < p->count; i++)
        wf_mem_free(p->ctx, p->item[i].text);
    if (p->item)
        wf_mem_free(p->ctx, p->item);
    p->item = NULL;
    p->count = 0;
}
