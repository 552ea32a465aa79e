/* SPDX-License-Identifier: MIT */
/* chat_file.c - saves and loads conversations: /save and /load. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/chat.h"

#define LARGEST ((size_t)16 << 20) /* bytes, for /load; the JSON tree takes more */
#define MOST_MESSAGES 10000

static void say_done(const char *verb, int messages, const char *where, const char *path)
{
    wf_open_say("%s %d message%s %s '%s'", verb, messages, WF_PLURAL(messages), where,
                WF_FOREIGN(path));
}

/* ---- Save ---- */

/* Writes the messages as JSON. The caller frees *text with free. */
static wf_status write_messages(const wf_chat *c, char **text, size_t *bytes)
{
    wf_json j;
    FILE *f = open_memstream(text, bytes);
    if (!f)
        return wf_fail(c->open.ctx, WF_ERR_MEMORY, "out of memory");
    wf_json_begin(&j, f);
    wf_json_array_begin(&j);
    for (int i = 0; i < c->count; i++) {
        wf_json_object_begin(&j);
        wf_json_key(&j, "role");
        wf_json_string(&j, c->message[i].role);
        wf_json_key(&j, "content");
        wf_json_string(&j, c->message[i].content);
        wf_json_object_end(&j);
    }
    wf_json_array_end(&j);
    bool written = wf_json_end(&j);
    if (fclose(f) == 0 && written)
        return WF_OK;
    free(*text);
    *text = NULL;
    return wf_fail(c->open.ctx, WF_ERR_MEMORY, "out of memory");
}

/* Sets *yes when the path does not exist (*exists is false) or the user agrees to replace it. */
static wf_status may_write(wf_chat *c, const char *path, bool *exists, bool *yes)
{
    const char *answer;
    *exists = wf_path_look(path) != WF_PATH_NONE;
    *yes = !*exists;
    if (!*exists)
        return WF_OK;
    if (!c->interactive || !c->line)
        return wf_fail(c->open.ctx, WF_ERR_USAGE, "'%s' exists already; choose another name", path);
    fprintf(stderr, "'%s' exists\n", WF_FOREIGN(path));
    WF_TRY(wf_line_ask(c->line, "replace it? [y/N] ", &answer));
    *yes = answer && (answer[0] == 'y' || answer[0] == 'Y');
    return WF_OK;
}

wf_status wf_chat_save(wf_chat *c, const char *path)
{
    wf_ctx *ctx = c->open.ctx;
    char *text = NULL;
    size_t bytes;
    bool exists, yes;
    char *own = wf_mem_new(ctx, strlen(path) + 1); /* may_write reads a line, which overwrites it */
    if (!own)
        return WF_ERR_MEMORY;
    memcpy(own, path, strlen(path) + 1);
    wf_status status = may_write(c, own, &exists, &yes);
    if (status == WF_OK && !yes)
        wf_open_say("not saved");
    if (status == WF_OK && yes) {
        status = write_messages(c, &text, &bytes);
        if (status == WF_OK)
            /* wf_file_create fails if the file appeared meanwhile, so nothing is replaced without
             * consent. */
            status = exists ? wf_file_write(ctx, own, text, bytes)
                            : wf_file_create(ctx, own, text, bytes);
        if (status == WF_OK)
            say_done("saved", c->count, "to", own);
        free(text);
    }
    wf_mem_free(ctx, own);
    return status;
}

/* ---- Load ---- */

/* Returns the role as a static string; NULL: unknown role. */
static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    return NULL;
}

/* Adds the messages of a JSON array to an empty conversation. */
static wf_status add_messages(wf_chat *c, const char *path, const wf_json_node *list)
{
    wf_ctx *ctx = c->open.ctx;
    if (!list || list->kind != WF_JSON_ARRAY)
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "'%s' is not a conversation; /load reads the JSON array of messages that /save "
            "writes",
            path);
    if (list->count > MOST_MESSAGES)
        return wf_fail(ctx, WF_ERR_FORMAT, "'%s' has %zu messages; /load reads at most %d", path,
                       list->count, MOST_MESSAGES);
    for (size_t i = 0; i < list->count; i++) {
        const wf_json_node *content = wf_json_get(&list->child[i], "content");
        const char *role = known_role(wf_json_get_string(&list->child[i], "role", NULL));
        if (!role || !content || content->kind != WF_JSON_STRING)
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "message %zu of '%s' is not a role (system, user or assistant) and a "
                           "content",
                           i + 1, path);
        if (i > 0 && strcmp(role, "system") == 0)
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "message %zu of '%s' is a system prompt, which must come first", i + 1,
                           path);
        WF_TRY(wf_chat_add(c, role, content->string, content->bytes));
    }
    if (wf_chat_last_is(c, "user"))
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "'%s' ends with a question; the last message must be an answer", path);
    return WF_OK;
}

static wf_status read_messages(wf_chat *c, const char *path)
{
    wf_ctx *ctx = c->open.ctx;
    char *text;
    size_t bytes;
    wf_arena arena;
    wf_json_node *root;
    WF_TRY(wf_file_read(ctx, path, LARGEST, &text, &bytes));
    wf_arena_init(&arena, ctx);
    wf_status status = wf_json_parse(&arena, path, text, bytes, &root);
    if (status == WF_OK)
        status = add_messages(c, path,
                              root->kind == WF_JSON_OBJECT ? wf_json_get(root, "messages") : root);
    if (status == WF_OK)
        status = wf_chat_try(c);
    wf_arena_free(&arena);
    wf_mem_free(ctx, text);
    return status;
}

/* Changes the conversation only if the whole file is valid. */
wf_status wf_chat_load(wf_chat *c, const char *path)
{
    /* Keeps the old list; reading fills an empty one. */
    wf_chat old = *c;
    if (wf_path_look(path) == WF_PATH_OTHER)
        return wf_fail(c->open.ctx, WF_ERR_USAGE, "'%s' is not a regular file", path);
    c->message = NULL;
    c->count = c->room = c->left_out = 0;
    wf_status status = read_messages(c, path);
    if (status == WF_OK) {
        wf_chat_drop_all(&old);
        say_done("loaded", c->count, "from", path);
        return WF_OK;
    }
    wf_chat_drop_all(c);
    c->message = old.message;
    c->count = old.count;
    c->room = old.room;
    c->left_out = old.left_out;
    return status;
}
