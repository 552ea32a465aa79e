/* SPDX-License-Identifier: MIT */
/* figures.h - formats amounts and times for people; appends like wf_text_append. */
#ifndef WF_CLI_FIGURES_H
#define WF_CLI_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* "350 MB" for bytes, "1.5" otherwise. */
void wf_figure_amount(char *out, size_t cap, size_t *len, double amount, bool bytes);
/* "0:12", "1:02:03" */
void wf_figure_time(char *out, size_t cap, size_t *len, double seconds);
/* "850", "12.3k", "1.25M": at least three digits. */
void wf_figure_short(char *out, size_t cap, size_t *len, double amount);

#endif
