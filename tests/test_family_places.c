/* SPDX-License-Identifier: MIT */
/*
 * test_family_places.c - a family is one file of C, one row of families.def and one checkpoint.
 *
 * The table under "Adding a family" in docs/models.md lists the files that name a family. No other
 * file of src/ or include/ may name one; every file of the table names the last family. Families of
 * the first six checkpoints are left out: their names are also those of tokenizers and templates.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "model/family.h"
#include "model_fixture.h"
#include "support.h"

enum { MOST_PLACES = 16, MOST_FILES = 4096 };

/* A file of the table, with NAME in place of the family's name. */
typedef struct {
    char path[96];
    bool optional; /* not needed by every family */
} place;

static place table[MOST_PLACES];
static int places;

/* ---- The table ---- */

static char *read_file(wf_ctx *ctx, const char *path)
{
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 22, &text, &bytes));
    return text;
}

/* Reads rows "| `FILE` | ...". Those of optional files begin with "only". */
static void read_table(wf_ctx *ctx)
{
    char *text = read_file(ctx, "docs/models.md"), *at = strstr(text, "\n## Adding a family\n");
    assert_non_null(at);
    *strstr(at + 1, "\n## ") = 0;
    for (places = 0; (at = strstr(at, "\n| `")); places++) {
        char what[8];
        at += strlen("\n| `");
        if (sscanf(at, "%*[^`]` | %7s", what) != 1 || !memchr(at, '/', strcspn(at, "`"))) {
            places--; /* a row of another table */
            continue;
        }
        assert_true(places < MOST_PLACES);
        table[places].optional = strcmp(what, "only") == 0;
        assert_int_equal(sscanf(at, "%95[^`]", table[places].path), 1);
    }
    assert_true(places > 4);
    wf_mem_free(ctx, text);
}

/* Writes the path of a place of this family. */
static const char *path_of(const place *p, const char *family, char out[160])
{
    const char *at = strstr(p->path, "NAME");
    if (!at)
        return p->path;
    snprintf(out, 160, "%.*s%s%s", (int)(at - p->path), p->path, family, at + strlen("NAME"));
    return out;
}

/* ---- Files ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Returns whether the text has the family's name as a word, or the name of its wf_family. */
static bool names(const char *text, const char *family)
{
    static const char prefix[] = "wf_family_";
    const size_t length = strlen(family), before = strlen(prefix);
    for (const char *at = text; (at = strstr(at, family)); at += length) {
        bool begins = at == text || !is_word(at[-1]) ||
                      (at >= text + before && memcmp(at - before, prefix, before) == 0);
        if (begins && !is_word(at[length]))
            return true;
    }
    return false;
}

/* Fails if a file names a family and is not in the table. */
static void check_file(wf_ctx *ctx, const char *path)
{
    char *text = read_file(ctx, path), place_path[160];
    for (int i = 0; wf_families[i]; i++) {
        const char *family = wf_families[i]->name;
        bool later = false, listed = false;
        for (int k = 0; wt_later_models[k]; k++)
            later |= strcmp(wt_later_models[k], family) == 0;
        for (int k = 0; k < places; k++)
            listed |= strcmp(path_of(&table[k], family, place_path), path) == 0;
        if (later && !listed && names(text, family))
            fail_msg("%s names %s; docs/models.md, \"Adding a family\", does not list that file",
                     path, family);
    }
    wf_mem_free(ctx, text);
}

static int check_folder(wf_ctx *ctx, wf_arena *arena, const char *folder)
{
    const char *const *entries;
    size_t count;
    int files = 0;
    wt_ok(ctx, wf_path_list(arena, folder, MOST_FILES, &entries, &count));
    for (size_t i = 0; i < count; i++) {
        const char *path = wf_path_join(arena, folder, entries[i]);
        assert_non_null(path);
        if (wf_path_look(path) == WF_PATH_FOLDER)
            files += check_folder(ctx, arena, path);
        else {
            check_file(ctx, path);
            files++;
        }
    }
    return files;
}

static void no_other_file_names_a_family(void **state)
{
    wf_ctx *ctx = *state;
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    read_table(ctx);
    assert_true(check_folder(ctx, &arena, "src") > 300);
    assert_true(check_folder(ctx, &arena, "include") > 0);
    wf_arena_free(&arena);
}

static void all_files_name_the_last_family(void **state)
{
    wf_ctx *ctx = *state;
    const char *last = wt_later_models[wt_later_count() - 1];
    read_table(ctx);
    for (int i = 0; i < places; i++) {
        char path[160];
        char *text = read_file(ctx, path_of(&table[i], last, path));
        if (!table[i].optional && !names(text, last))
            fail_msg("%s does not name %s", path_of(&table[i], last, path), last);
        wf_mem_free(ctx, text);
    }
}

/* Every family has a checkpoint and a row in docs/models.md. */
static void families_have_a_checkpoint(void **state)
{
    wf_ctx *ctx = *state;
    char *text = read_file(ctx, "docs/models.md"), row[64];
    for (int i = 0; wf_families[i]; i++) {
        bool found = false;
        for (int k = 0; wt_models[k] && !found; k++) {
            char path[160];
            wf_model *m;
            wf_model_info info;
            snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", wt_models[k]);
            wt_ok(ctx, wf_model_open(ctx, path, &m));
            wf_model_get_info(m, &info);
            found = strcmp(info.family, wf_families[i]->name) == 0;
            wf_model_close(m);
        }
        snprintf(row, sizeof row, "\n| `%s` | ", wf_families[i]->name);
        if (!found || !strstr(text, row))
            fail_msg("%s has no checkpoint in wt_models, or no row in docs/models.md",
                     wf_families[i]->name);
    }
    wf_mem_free(ctx, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(no_other_file_names_a_family),
                                       wt_test(all_files_name_the_last_family),
                                       wt_test(families_have_a_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
