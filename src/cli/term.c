/* SPDX-License-Identifier: MIT */
/* term.c - see term.h. */
#include "cli/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool wf_term_is(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

bool wf_term_color(int fd)
{
    const char *plain = getenv("NO_COLOR");
    return wf_term_is(fd) && !(plain && plain[0]);
}

int wf_term_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

int wf_term_rows(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

wf_status wf_term_choose_color(wf_ctx *ctx, const char *when, int fd, bool *out)
{
    *out = strcmp(when, "always") == 0 || (strcmp(when, "auto") == 0 && wf_term_color(fd));
    if (strcmp(when, "always") != 0 && strcmp(when, "auto") != 0 && strcmp(when, "never") != 0)
        return wf_fail(ctx, WF_ERR_USAGE, "--color must be auto, always or never, not '%s'", when);
    return WF_OK;
}
