/* SPDX-License-Identifier: MIT */
/* axis.c - axes of charts: ranges, ticks and labels. */
#include "train/axis.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

/* The margin is 4% of the range at each end, on a logarithmic axis of its logarithm. */
wf_axis wf_axis_make(wf_axis_kind kind, double low, double high, bool log, bool room)
{
    if (log) {
        double factor = room || low == high ? pow(high / low, 0.04) : 1;
        factor = low == high ? 1.1 : factor;
        return (wf_axis){kind, low / factor, high * factor, true};
    }
    double around = room ? (high - low) * 0.04 : 0;
    /* Widen a range that is too small to distinguish its ends. */
    if (high - low <= fabs(high) * 1e-9 || high - low < 1e-30)
        around = fabs(high) > 1e-20 ? fabs(high) * 0.1 : 1;
    return (wf_axis){kind, low - around, high + around, false};
}

double wf_axis_place(const wf_axis *a, double value)
{
    if (a->log)
        return value > 0 ? log(value / a->low) / log(a->high / a->low) : -1;
    return (value - a->low) / (a->high - a->low);
}

/* Returns the smallest round step >= `least`: 1, 2 or 5 times a power of ten, or a usual unit of
 * time. */
static double round_step(wf_axis_kind kind, double least)
{
    static const double clock[] = {1,   2,   5,    10,   15,   30,    60,    120,   300,
                                   600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400};
    static const double nice[] = {1, 2, 5, 10};
    if (kind == WF_AXIS_TIME && least > 0.5 && least <= 86400)
        for (size_t i = 0; i < sizeof clock / sizeof *clock; i++)
            if (clock[i] >= least)
                return clock[i];
    double unit = kind == WF_AXIS_TIME && least > 86400 ? 86400 : 1;
    double power = pow(10, floor(log10(least / unit))), step = power;
    /* The slack keeps an exact step from being rounded up by its last bit. */
    for (int i = 0; i < 4 && step < least / unit * (1 - 1e-9); i++)
        step = power * nice[i];
    step *= unit;
    return kind == WF_AXIS_COUNT && step < 1 ? 1 : step;
}

static int log_ticks(const wf_axis *a, double ticks[WF_AXIS_TICKS])
{
    static const double digit[] = {1, 2, 5};
    int first = (int)floor(log10(a->low)), last = (int)ceil(log10(a->high)), n = 0;
    int each = last - first > 7 ? 1 : 3; /* show each digit's lines, or only powers of ten */
    /* At most about 20 powers of ten, however wide the range is. */
    int skip = (last - first) / 20 + 1;
    for (int p = first; p <= last; p += skip)
        for (int i = 0; i < each; i++) {
            double value = digit[i] * pow(10, p);
            if (value >= a->low && value <= a->high && n < WF_AXIS_TICKS)
                ticks[n++] = value;
        }
    return n;
}

int wf_axis_ticks(const wf_axis *a, int about, double ticks[WF_AXIS_TICKS])
{
    int n = 0;
    if (a->log && a->high / a->low > 8)
        return log_ticks(a, ticks);
    double step = round_step(a->kind, (a->high - a->low) / about);
    double slack = step * 1e-6;
    for (double i = ceil((a->low - slack) / step); n < WF_AXIS_TICKS; i++) {
        if (i * step > a->high + slack)
            break;
        ticks[n++] = i == 0 ? 0 : i * step; /* avoids -0 */
    }
    return n;
}

/* Rounds before printing: wf_text_from_double prints all digits that identify a double. */
const char *wf_axis_number(double value, int digits, char out[WF_AXIS_LABEL])
{
    if (value != 0 && fabs(value) <= 1e30 && fabs(value) >= 1e-30) {
        double scale = pow(10, digits - 1 - floor(log10(fabs(value))));
        value = scale < 1 ? round(value * scale) * round(1 / scale) : round(value * scale) / scale;
    }
    wf_text_from_double(out, value);
    return out;
}

const char *wf_axis_label(wf_axis_kind kind, double value, char out[WF_AXIS_LABEL])
{
    static const struct {
        double unit;
        const char *name;
    } counts[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}},
      times[] = {{86400, " d"}, {3600, " h"}, {60, " min"}};
    double unit = 1;
    const char *name = kind == WF_AXIS_TIME ? " s" : "";
    for (size_t i = 0; kind == WF_AXIS_COUNT && unit == 1 && i < 4; i++)
        if (fabs(value) >= counts[i].unit) {
            unit = counts[i].unit;
            name = counts[i].name;
        }
    for (size_t i = 0; kind == WF_AXIS_TIME && unit == 1 && i < 3; i++)
        if (fabs(value) >= 2 * times[i].unit || value == times[i].unit) {
            unit = times[i].unit;
            name = times[i].name;
        }
    char number[WF_AXIS_LABEL];
    snprintf(out, WF_AXIS_LABEL, "%.*s%s", 40, wf_axis_number(value / unit, 6, number), name);
    return out;
}
