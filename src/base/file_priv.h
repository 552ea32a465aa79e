/* SPDX-License-Identifier: MIT */
/* file_priv.h - what the files that write files share. */
#ifndef WF_BASE_FILE_PRIV_H
#define WF_BASE_FILE_PRIV_H

#include <sys/stat.h>

#include "base/file.h"

/* "cannot VERB 'PATH': WHY" */
wf_status wf_file_fail(wf_ctx *ctx, const char *verb, const char *path, int error);
/* Writes all of it. The number of the error, or 0. */
int wf_file_put(int fd, const wf_piece *pieces, int n);
/* Permissions of a new file. */
mode_t wf_file_mode(void);

#endif
