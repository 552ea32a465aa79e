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
