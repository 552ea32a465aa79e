/* SPDX-License-Identifier: MIT */
/*
 * live.c - see live.h.
 *
 * The line is made of fields with weights; fields are dropped, least weight first, until it fits
 * the terminal. Texts from the model are escaped, so that a sample cannot control the terminal.
 */
#include "cli/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/figures.h"
#include "cli/term.h"

#define REDRAW_NS 100000000u   /* ns; on a terminal, 10 per second */
#define REPORT_NS 10000000000u /* ns; in a log, every 10 s */
#define FIRST_LINES 5          /* of a log: one for each step */
#define KEEP 0.95              /* decay of the mean loss per step */
#define LONGEST 8192           /* bytes of a message */

/* ---- The text ---- */

/* A figure of the line. When there is no room those with the least weight go first; 0 stays. */
typedef struct {
    char text[64];
    int weight;
    const char *color; /* NULL: none */
} field;

enum { MOST_FIELDS = 12 };

typedef struct {
    field field[MOST_FIELDS];
    int count;
} fields;

/* Appends an empty field and returns its text, FIELD bytes. */
static char *add(fields *f, int weight, const char *color)
{
    wf_assert(f->count < MOST_FIELDS);
    field *new = &f->field[f->count++];
    new->weight = weight;
    new->color = color;
    new->text[0] = '\0';
    return new->text;
}

#define FIELD sizeof(((field *)0)->text)

static void add_loss(fields *f, const wf_live *l)
{
    const wf_train_step *p = &l->last;
    size_t len = 0;
    snprintf(add(f, 0, p->applied ? "\x1b[36m" : "\x1b[31m"), FIELD, "loss %.4f", p->loss);
    if (l->weight > 0 && l->seen > 1)
        wf_text_append(add(f, 5, NULL), FIELD, &len, "mean %.4f", l->sum / l->weight);
}

static void add_speed(fields *f, const wf_train_step *p)
{
    size_t len = 0;
    if (p->seconds < 10)
        wf_text_append(add(f, 3, NULL), FIELD, &len, "%.*f ms", p->seconds < 0.01 ? 1 : 0,
                       p->seconds * 1e3);
    else
        wf_text_append(add(f, 3, NULL), FIELD, &len, "%.1f s", p->seconds);
    if (p->tokens_per_second > 0) {
        char *text = add(f, 8, NULL);
        len = 0;
        wf_figure_short(text, FIELD, &len, p->tokens_per_second);
        wf_text_append(text, FIELD, &len, " tok/s");
    }
    if (p->share > 0)
        snprintf(add(f, 4, NULL), FIELD, "%.0f%% of peak", p->share * 100);
}

static void add_rest(fields *f, const wf_train_step *p)
{
    size_t len = 0;
    if (p->memory > 0)
        wf_figure_amount(add(f, 2, NULL), FIELD, &len, (double)p->memory, true);
    if (p->skipped > 0)
        snprintf(add(f, 9, "\x1b[33m"), FIELD, "%lld skipped", (long long)p->skipped);
    if (p->left > 0 && isfinite(p->left)) {
        char *text = add(f, 10, NULL);
        len = 0;
        wf_figure_time(text, FIELD, &len, p->left);
        wf_text_append(text, FIELD, &len, " left");
    }
}

static void fill(fields *f, const wf_live *l)
{
    const wf_train_step *p = &l->last;
    bool plain = p->norm >= 0.01 && p->norm < 1000;
    f->count = 0;
    if (p->steps > 0)
        snprintf(add(f, 0, NULL), FIELD, "step %lld/%lld %d%%", (long long)p->step,
                 (long long)p->steps, (int)(100 * ((double)p->step / (double)p->steps)));
    else
        snprintf(add(f, 0, NULL), FIELD, "step %lld", (long long)p->step);
    add_loss(f, l);
    snprintf(add(f, 6, NULL), FIELD, plain ? "norm %.2f" : "norm %.1e", p->norm);
    snprintf(add(f, 7, NULL), FIELD, "lr %.2e", p->rate);
    add_speed(f, p);
    add_rest(f, p);
}

/* Returns the columns of all fields with two spaces between them. The fields are ASCII. */
static int width_of(const fields *f)
{
    int width = -2;
    for (int i = 0; i < f->count; i++)
        width += (int)strlen(f->field[i].text) + 2;
    return width;
}

/* Drops the least important field; false when all remaining fields must stay. */
static bool drop_one(fields *f)
{
    int least = -1;
    for (int i = 0; i < f->count; i++)
        if (f->field[i].weight > 0 && (least < 0 || f->field[i].weight < f->field[least].weight))
            least = i;
    if (least < 0)
        return false;
    f->count--;
    memmove(&f->field[least], &f->field[least + 1], (size_t)(f->count - least) * sizeof(field));
    return true;
}

void wf_live_text(const wf_live *l, int columns, char *out, size_t cap)
{
    fields f;
    size_t len = 0;
    fill(&f, l);
    while (columns > 0 && width_of(&f) > columns && drop_one(&f))
        ;
    out[0] = '\0';
    int room = columns > 0 ? columns : (int)cap;
    for (int i = 0; i < f.count && room > 0; i++) {
        const char *gap = i == 0 ? "" : columns > 0 ? "  " : ", ";
        const char *color = columns > 0 && l->color ? f.field[i].color : NULL;
        wf_text_append(out, cap, &len, "%.*s%s", room, gap, color ? color : "");
        room -= (int)strlen(gap);
        wf_text_append(out, cap, &len, "%.*s%s", room > 0 ? room : 0, f.field[i].text,
                       color ? "\x1b[0m" : "");
        room -= (int)strlen(f.field[i].text);
    }
}

/* ---- Writing ---- */

static void show(wf_live *l, uint64_t now)
{
    char text[1024];
    wf_live_text(l, l->terminal ? wf_term_columns(STDERR_FILENO) : 0, text, sizeof text);
    fprintf(stderr, l->terminal ? "\r%s\x1b[K" : "%s\n", text);
    fflush(stderr);
    l->shown = now;
    l->waiting = false;
}

void wf_live_begin(wf_live *l, int64_t every)
{
    *l = (wf_live){.every = every,
                   .shown = wf_clock_ns(),
                   .terminal = wf_term_is(STDERR_FILENO),
                   .color = wf_term_color(STDERR_FILENO)};
}

/* Decides whether a step is shown now. */
static bool is_due(const wf_live *l, uint64_t now)
{
    if (l->terminal)
        return l->seen == 1 || now - l->shown >= REDRAW_NS;
    if (l->seen <= FIRST_LINES || l->last.step == l->last.steps)
        return true;
    return l->every > 0 ? l->last.step % l->every == 0 : now - l->shown >= REPORT_NS;
}

void wf_live_step(wf_live *l, const wf_train_step *p)
{
    uint64_t now = wf_clock_ns();
    l->settled = false;
    l->last = *p;
    l->seen++;
    l->waiting = true;
    if (isfinite(p->loss)) {
        /* sum / weight is the exponential mean without the bias of its start. */
        l->sum = KEEP * l->sum + (1 - KEEP) * p->loss;
        l->weight = KEEP * l->weight + (1 - KEEP);
    }
    if (is_due(l, now))
        show(l, now);
}

/* Prints untrusted text; newlines and tabs stay. */
static void put_harmless(const char *text)
{
    char one[WF_TEXT_ESCAPE];
    for (size_t left = strlen(text), taken; left > 0; text += taken, left -= taken) {
        taken = wf_text_escape(one, text, left);
        fputs(*text == '\n' ? "\n" : *text == '\t' ? "\t" : one, stderr);
    }
}

/* Makes the line of the current step final, so that a message follows it. */
static void settle(wf_live *l)
{
    if (l->terminal && l->seen > 0 && !l->settled) {
        show(l, wf_clock_ns());
        putc('\n', stderr);
        l->settled = true;
    } else if (!l->terminal && l->waiting) {
        show(l, wf_clock_ns());
    }
}

void wf_live_say(wf_live *l, const char *fmt, ...)
{
    char text[LONGEST];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    settle(l);
    put_harmless(text);
    putc('\n', stderr);
    fflush(stderr);
}

void wf_live_log(void *user, wf_log_level level, const char *message)
{
    if (level >= WF_LOG_WARN)
        wf_live_say(user, "weft: %s", message);
}

void wf_live_end(wf_live *l)
{
    if (l->seen == 0)
        return;
    if (l->waiting)
        show(l, wf_clock_ns());
    if (l->terminal && !l->settled)
        fputs("\n", stderr);
    l->seen = 0;
}
