/* SPDX-License-Identifier: MIT */
/* braille.h - curves of runs as text for a terminal: each character has two by four dots. */
#ifndef WF_CLI_BRAILLE_H
#define WF_CLI_BRAILLE_H

#include "base/writer.h"
#include "train/chart.h"

/* Smoothed losses, and of a single run its validation losses, in `rows` lines of at most `columns` columns, with an
 * axis below. Nothing when there is no point or no room. */
void wf_braille_draw(wf_writer *w, const wf_chart_run *runs, int n, const wf_chart_options *o,
                     int columns, int rows, bool color);
/* The colour of a run there, as an escape. */
const char *wf_braille_color(int run);

#endif
