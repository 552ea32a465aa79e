/* SPDX-License-Identifier: MIT */
/* file_priv.h - shared by the files of base that write files. */
#ifndef WF_BASE_FILE_PRIV_H
#define WF_BASE_FILE_PRIV_H

#include <sys/stat.h>

#include "base/file.h"

/* Fails with "cannot VERB 'PATH': WHY"; error is an errno value. */
wf_status wf_file_fail(wf_ctx *ctx, const char *verb, const char *path, int error);
/* Fault injection (wf_ctx_fail_io): returns whether this call must fail as if the system had
 * returned EIO. Called before every file is created, written, synced or renamed. */
bool wf_file_fault(wf_ctx *ctx);
/* Writes all pieces completely. Returns an errno value, or 0. */
int wf_file_put(int fd, const wf_piece *pieces, int n);
/* Returns the permissions of a new file: 0666 without the umask. */
mode_t wf_file_mode(void);

#endif
