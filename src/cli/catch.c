/* SPDX-License-Identifier: MIT */
/*
 * catch.c - see catch.h.
 *
 * The handler only stores the signal's number, which is all that is safe there. Handlers are per
 * process, so only one section may be between wf_catch_begin and wf_catch_end at a time.
 */
#include "cli/catch.h"

#include <signal.h>
#include <stddef.h>

static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};
#define DEADLY ((int)(sizeof deadly / sizeof *deadly))

static volatile sig_atomic_t caught;    /* number of the deferred signal; 0: none */
static struct sigaction before[DEADLY]; /* restored by wf_catch_end */

static void on_signal(int number)
{
    caught = number;
}

void wf_catch_begin(void)
{
    /* SA_RESETHAND: a second signal has its default effect, in case the work polls rarely. */
    struct sigaction catch = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&catch.sa_mask);
    for (int i = 0; i < DEADLY; i++) {
        sigaction(deadly[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(deadly[i], &catch, NULL);
    }
}

bool wf_caught(void)
{
    return caught != 0;
}

void wf_catch_end(void)
{
    for (int i = 0; i < DEADLY; i++)
        sigaction(deadly[i], &before[i], NULL);
    if (caught)
        /* With the old handlers restored this has the effect that the signal would have had. */
        raise(caught);
}
