/* SPDX-License-Identifier: MIT */
/* chat.h - a conversation with a model, and the slash commands that change it. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "base/writer.h"
#include "cli/line.h"
#include "cli/open.h"
#include "cli/sampling.h"
#include "cli/screen.h"

typedef struct {
    wf_open open;
    wf_sampled sampled;
    wf_chat_options options;
    wf_message *message; /* owns their contents */
    int count, room;
    int left_out;          /* messages after the system prompt that the model no longer sees */
    bool no_shift;         /* fail when the context is full, instead of hiding messages */
    wf_sequence *sequence; /* NULL before the first answer */
    uint64_t answers;      /* so far; each answer has its own seed */
    wf_screen screen;      /* prints the answer */
    wf_line *line;         /* NULL before the first line is read */
    bool commands;         /* stdin is a terminal: lines that begin with a slash are commands */
    bool interactive;      /* a person types: errors do not end the chat, and the program may ask */
    bool color;            /* of the prompt */
    bool deaf;             /* stdout accepts no more bytes */
    bool over;             /* /exit */
} wf_chat;

/* Adds a message. Keeps the pointer `role`, which must stay valid; copies the content. */
wf_status wf_chat_add(wf_chat *c, const char *role, const char *content, size_t bytes);
void wf_chat_drop_last(wf_chat *c);
/* Frees all messages and their list. */
void wf_chat_drop_all(wf_chat *c);
/* Sets the system message; "" removes it. */
wf_status wf_chat_set_system(wf_chat *c, const char *content);
/* Returns whether the last message has this role. */
bool wf_chat_last_is(const wf_chat *c, const char *role);
/* Returns whether the conversation begins with a system message. */
bool wf_chat_has_system(const wf_chat *c);
/* Checks that the template accepts a question now. */
wf_status wf_chat_try(wf_chat *c);
/* Encodes the messages that the model sees. The caller frees *ids with wf_ids_free. */
wf_status wf_chat_encode(wf_chat *c, int32_t **ids, size_t *count);
/* Answers the last message: streams the answer to stdout and adds it. When the context is full,
 * hides the oldest questions and answers first; WF_ERR_USAGE when that is not enough. */
wf_status wf_chat_answer(wf_chat *c);
void wf_chat_free(wf_chat *c);

/* Returns whether the text is a command. Always false when stdin is not a terminal. */
bool wf_chat_is_command(const wf_chat *c, const char *text);
/* /save and /load, in chat_file.c. */
wf_status wf_chat_save(wf_chat *c, const char *path);
wf_status wf_chat_load(wf_chat *c, const char *path);
/* Runs a command. A command that fails changes nothing. */
wf_status wf_chat_command(wf_chat *c, const char *line);

#endif
