/* SPDX-License-Identifier: MIT */
/* file_priv.h - what the files that write files share. */
#ifndef WF_BASE_FILE_PRIV_H
#define WF_BASE_FILE_PRIV_H

#include <sys/stat.h>

#include "base/file.h"

/* "cannot VERB 'PATH': WHY" */
wf_status wf_file_fail(wf_ctx *ctx, const char *verb, const char *path, int error);
/* Whether this is the call that is to fail on purpose (wf_ctx_fail_io): it does then as if the system had said
 * EIO. Asked before every file is made, written to, synced or renamed. */
bool wf_file_fault(wf_ctx *ctx);
/* Writes all of it. The number of the error, or 0. */
int wf_file_put(int fd, const wf_piece *pieces, int n);
/* Permissions of a new file. */
mode_t wf_file_mode(void);

#endif
