/* SPDX-License-Identifier: MIT */
/* chat.h - a conversation with a model, and the /commands that change it. */
#ifndef WF_CLI_CHAT_H
#define WF_CLI_CHAT_H

#include "base/writer.h"
#include "cli/engine.h"
#include "cli/line.h"
#include "cli/sampling.h"
#include "cli/screen.h"

typedef struct {
    wf_engine engine;
    wf_sampled sampled;
    wf_chat_options options;
    wf_message *message; /* their contents are ours */
    int count, room;
    wf_sequence *sequence; /* NULL before the first answer */
    uint64_t answers;      /* so far: each has a seed of its own */
    wf_screen screen;      /* of the answer */
    wf_line *line;         /* NULL before the first line is read */
    bool commands;         /* stdin is a terminal: lines that begin with a slash are commands */
    bool interactive;      /* somebody types: mistakes end nothing, and questions can be asked */
    bool deaf;             /* stdout takes no more */
    bool over;             /* /exit */
} wf_chat;

/* role is borrowed for ever, the content copied. */
wf_status wf_chat_add(wf_chat *c, const char *role, const char *content, size_t bytes);
void wf_chat_drop_last(wf_chat *c);
/* Replaces or adds the system's message; "" takes it away. */
wf_status wf_chat_set_system(wf_chat *c, const char *content);
/* Is the last message the role's? */
bool wf_chat_last_is(const wf_chat *c, const char *role);
/* The ids of the whole conversation, for wf_ids_free. WF_ERR_USAGE when they do not fit. */
wf_status wf_chat_encode(wf_chat *c, int32_t **ids, size_t *count);
/* Answers the last message: prints it as it comes, and adds it. */
wf_status wf_chat_answer(wf_chat *c);
void wf_chat_free(wf_chat *c);

/* Is this input a command? Never where stdin is not a terminal: there every line is a question. */
bool wf_chat_is_command(const wf_chat *c, const char *text);
/* Runs a command. A mistake in it is a failure that changed nothing. */
wf_status wf_chat_command(wf_chat *c, const char *line);

#endif
