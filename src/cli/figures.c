/* SPDX-License-Identifier: MIT */
/* figures.c - see figures.h. */
#include "cli/figures.h"

#include "base/text.h"

void wf_figure_amount(char *out, size_t cap, size_t *len, double amount, bool bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int i = 0;
    /* 999.5 would print as 1000. */
    for (; bytes && amount >= 999.5 && i < 4; i++)
        amount /= 1000;
    bool tenths = amount < 9.95 && amount != (int)amount;
    wf_text_append(out, cap, len, "%.*f%s%s", tenths ? 1 : 0, amount, bytes ? " " : "",
                   bytes ? units[i] : "");
}

void wf_figure_time(char *out, size_t cap, size_t *len, double seconds)
{
    /* Bounded before the conversion to long, which would be undefined for infinity. */
    long s = seconds < 1e8 ? (long)(seconds + 0.5) : 100000000;
    if (s >= 3600)
        wf_text_append(out, cap, len, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        wf_text_append(out, cap, len, "%ld:%02ld", s / 60, s % 60);
}

void wf_figure_short(char *out, size_t cap, size_t *len, double amount)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int i = 0;
    for (; amount >= (i == 0 ? 9999.5 : 999.5) && i < 4; i++)
        amount /= 1000;
    wf_text_append(out, cap, len, "%.*f%s",
                   i == 0 || amount >= 99.95 ? 0
                   : amount >= 9.995         ? 1
                                             : 2,
                   amount, units[i]);
}
