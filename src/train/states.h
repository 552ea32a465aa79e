/* SPDX-License-Identifier: MIT */
/*
 * states.h - saves states of a session (moments, averages, loss scale) to a safetensors file, and
 * loads them.
 *
 * Works on one state at a time, so it needs memory only for the largest.
 */
#ifndef WF_TRAIN_STATES_H
#define WF_TRAIN_STATES_H

#include "weft.h"

/* Selects states by name: returns the first row to save, 0 for the whole state, -1 to skip it. In
 * the file a part is called "rows.STATE". */
typedef int64_t wf_states_want(void *user, const char *state);

/* Writes FOLDER/FILE, whose name ends in .safetensors. `want` NULL: all states. Only plain types
 * are supported. Equal states produce equal bytes. */
wf_status wf_states_save(wf_session *s, const char *folder, const char *file, wf_states_want *want,
                         void *user);
/* Reads such a file into the session. It must contain exactly the wanted states with the session's
 * types and shapes. Checks everything before it changes the session. */
wf_status wf_states_load(wf_session *s, const char *path, wf_states_want *want, void *user);

#endif
