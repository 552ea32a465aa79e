/* SPDX-License-Identifier: MIT */
/* braille.h - draws loss curves as text: each Braille character has 2 x 4 dots. */
#ifndef WF_CLI_BRAILLE_H
#define WF_CLI_BRAILLE_H

#include "base/writer.h"
#include "train/chart.h"

/* Draws the smoothed losses, and the validation losses of a single run, in `rows` lines of at most
 * `columns` columns, with an axis below. Draws nothing without points or room. */
void wf_braille_draw(wf_writer *w, const wf_chart_run *runs, int n, const wf_chart_options *o,
                     int columns, int rows, bool color);
/* Returns the escape sequence of the color of a run. */
const char *wf_braille_color(int run);

#endif
