/* SPDX-License-Identifier: MIT */
/* figures.h - amounts and times as people read them, appended as wf_text_append does. */
#ifndef WF_CLI_FIGURES_H
#define WF_CLI_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* "350 MB" of bytes, "1.5" of other things. */
void wf_figure_amount(char *out, size_t cap, size_t *len, double amount, bool bytes);
/* "0:12", "1:02:03" */
void wf_figure_time(char *out, size_t cap, size_t *len, double seconds);
/* "850", "12.3k", "1.25M": three digits or more. */
void wf_figure_short(char *out, size_t cap, size_t *len, double amount);

#endif
