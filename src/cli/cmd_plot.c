/* SPDX-License-Identifier: MIT */
/* cmd_plot.c - weft plot: compares training runs in a table and a chart. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/path.h"
#include "cli/braille.h"
#include "cli/cli.h"
#include "cli/figures.h"
#include "cli/term.h"

enum { TERMINAL_ROWS = 16 }; /* of the chart, without its axis */

static struct {
    const char *out, *x;
    double smooth;
    bool log_y, json, overwrite;
} options = {.x = "steps", .smooth = -1};

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;
    wf_chart_options chart;
    wf_chart_run run[WF_CHART_RUNS];
    wf_history history[WF_CHART_RUNS];
    const char *log[WF_CHART_RUNS]; /* paths of the logs, which -o must not replace */
    int count;                      /* runs read so far */
} comparison;

/* ---- Reading ---- */

static wf_status parse_options(wf_ctx *ctx, wf_chart_options *out)
{
    static const char *const axes[] = {"steps", "tokens", "seconds"};
    int axis = 0;
    while (axis < 3 && strcmp(axes[axis], options.x) != 0)
        axis++;
    if (axis == 3)
        return wf_fail(ctx, WF_ERR_USAGE, "--x must be steps, tokens or seconds, not '%s'",
                       options.x);
    *out = (wf_chart_options){(wf_curve_x)axis, options.smooth, options.log_y};
    return WF_OK;
}

/* Reads one log. The run counts from then on, so that the caller frees its history even if reading
 * fails. */
static wf_status read_run(comparison *c, const char *path)
{
    const char *log = path;
    wf_history *h = &c->history[c->count];
    h->ctx = c->ctx;
    if (wf_path_look(path) == WF_PATH_FOLDER) {
        log = wf_path_join(&c->arena, path, WF_RECORD_LOG);
        if (!log)
            return WF_ERR_MEMORY;
        if (wf_path_look(log) == WF_PATH_NONE)
            return wf_fail(
                c->ctx, WF_ERR_IO,
                "there is no " WF_RECORD_LOG " in '%s'; give the folder of a training run", path);
    }
    c->log[c->count] = log;
    c->run[c->count++] = (wf_chart_run){path, h};
    WF_TRY(wf_history_read(h, log));
    if (h->ignored > 0)
        wf_ctx_log(c->ctx, WF_LOG_WARN, "skipped %lld invalid line%s of '%s'",
                   (long long)h->ignored, WF_PLURAL(h->ignored), log);
    if (h->count == 0 && h->valid_count == 0)
        return wf_fail(c->ctx, WF_ERR_FORMAT, "'%s' has no steps yet", log);
    return WF_OK;
}

/* Names the runs by the ends of their paths that distinguish them. */
static wf_status name_runs(comparison *c)
{
    const char *names[WF_CHART_RUNS];
    for (int i = 0; i < c->count; i++) {
        char *path = wf_arena_strdup(&c->arena, c->run[i].name);
        if (!path)
            return WF_ERR_MEMORY;
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';)
            path[--n] = '\0';
        const char *slash = strrchr(path, '/');
        names[i] = slash && slash[1] ? slash + 1 : path;
    }
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < i; k++)
            /* Two runs end alike: keep the full paths for all. */
            if (strcmp(names[i], names[k]) == 0)
                return WF_OK;
    for (int i = 0; i < c->count; i++)
        c->run[i].name = names[i];
    return WF_OK;
}

/* ---- Results ---- */

static wf_status write_svg(comparison *c)
{
    char *svg;
    size_t bytes;
    WF_TRY(wf_chart_draw(c->ctx, c->run, c->count, &c->chart, &svg, &bytes));
    wf_status status = wf_file_write(c->ctx, options.out, svg, bytes);
    wf_mem_free(c->ctx, svg);
    return status;
}

/* Prints nothing if the terminal is too narrow for a chart. */
static wf_status draw_terminal(comparison *c)
{
    wf_writer w = {.ctx = c->ctx};
    char *text;
    size_t bytes;
    wf_braille_draw(&w, c->run, c->count, &c->chart, wf_term_columns(STDOUT_FILENO), TERMINAL_ROWS,
                    wf_term_color(STDOUT_FILENO));
    WF_TRY(wf_writer_take(&w, &text, &bytes));
    wf_put(text, bytes);
    if (bytes > 0)
        putchar('\n');
    wf_mem_free(c->ctx, text);
    return WF_OK;
}

/* Returns the last step of a run; zeros and NAN if it has no steps. */
static wf_history_step last_step(const wf_history *h)
{
    return h->count > 0 ? h->steps[h->count - 1] : (wf_history_step){.loss = NAN};
}

static void put_loss(double loss)
{
    if (isfinite(loss))
        printf("  %10.4f", loss);
    else
        printf("  %10s", "-");
}

/* Returns the width of the name column in bytes; non-ASCII names may be misaligned. */
static int name_width(const comparison *c)
{
    int width = 3;
    for (int i = 0; i < c->count; i++) {
        int n = (int)strlen(WF_FOREIGN(c->run[i].name));
        width = n > width ? n : width;
    }
    return width < 40 ? width : 40;
}

static void print_table(const comparison *c)
{
    int width = name_width(c);
    bool color = wf_term_color(STDOUT_FILENO);
    printf("%-*s  %8s  %10s  %10s  %10s  %8s  %7s\n", width, "run", "steps", "loss", "valid",
           "best valid", "tok/s", "skipped");
    for (int i = 0; i < c->count; i++) {
        const wf_history *h = &c->history[i];
        const wf_history_step last = last_step(h);
        const wf_history_valid *best = wf_history_best(h);
        char speed[32];
        size_t len = 0;
        wf_figure_short(speed, sizeof speed, &len, wf_history_speed(h));
        printf("%s%-*s%s  %8lld", color ? wf_braille_color(i) : "", width,
               WF_FOREIGN(c->run[i].name), color ? "\x1b[0m" : "", (long long)last.step);
        put_loss(last.loss);
        put_loss(h->valid_count ? h->valids[h->valid_count - 1].loss : NAN);
        put_loss(best ? best->loss : NAN);
        printf("  %8s  %7d\n", speed, last.skipped);
    }
}

static void json_real(wf_json *j, const char *key, double value)
{
    wf_json_key(j, key);
    wf_json_double(j, value);
}

static void json_int(wf_json *j, const char *key, int64_t value)
{
    wf_json_key(j, key);
    wf_json_int(j, value);
}

static void json_valid(wf_json *j, const char *key, const wf_history_valid *v)
{
    wf_json_key(j, key);
    if (!v) {
        wf_json_null(j);
        return;
    }
    wf_json_object_begin(j);
    json_int(j, "step", v->step);
    json_real(j, "loss", v->loss);
    json_real(j, "bits_per_byte", v->bits_per_byte);
    wf_json_object_end(j);
}

static void print_json(const comparison *c)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_array_begin(&j);
    for (int i = 0; i < c->count; i++) {
        const wf_history *h = &c->history[i];
        const wf_history_step last = last_step(h);
        wf_json_object_begin(&j);
        wf_json_key(&j, "run");
        wf_json_string(&j, c->run[i].name);
        json_int(&j, "step", last.step);
        json_int(&j, "steps", h->wanted);
        json_real(&j, "loss", last.loss);
        json_valid(&j, "valid", h->valid_count ? &h->valids[h->valid_count - 1] : NULL);
        json_valid(&j, "best_valid", wf_history_best(h));
        json_int(&j, "tokens", last.tokens);
        json_real(&j, "seconds", last.seconds);
        json_real(&j, "tokens_per_second", wf_history_speed(h));
        json_int(&j, "skipped", last.skipped);
        json_int(&j, "ignored_lines", h->ignored);
        wf_json_object_end(&j);
    }
    wf_json_array_end(&j);
    wf_json_end(&j);
}

static wf_status compare(comparison *c, char *const *paths, int count)
{
    WF_TRY(parse_options(c->ctx, &c->chart));
    for (int i = 0; i < count; i++)
        WF_TRY(read_run(c, paths[i]));
    WF_TRY(name_runs(c));
    if (options.out) {
        WF_TRY(wf_output_check(c->ctx, options.out, options.overwrite, c->log, c->count));
        WF_TRY(write_svg(c));
    }
    if (options.json) {
        print_json(c);
        return WF_OK;
    }
    if (wf_term_is(STDOUT_FILENO))
        WF_TRY(draw_terminal(c));
    print_table(c);
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    /* Static, hence zero: it can be freed after any failure. */
    static comparison c;
    c.ctx = ctx;
    if (count == 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the runs are missing; give their folders: weft plot RUN...");
    wf_arena_init(&c.arena, ctx);
    wf_status status = compare(&c, operands, count);
    for (int i = 0; i < c.count; i++)
        wf_history_free(&c.history[i]);
    wf_arena_free(&c.arena);
    return status;
}

static const wf_flag flags[] = {
    {"output", 'o', "FILE", "draw the curves to FILE as SVG", .text = &options.out,
     .offer = WF_OFFER_FILES},
    {"smooth", 's', "X", "smoothing of the loss, from 0 (none) to below 1", .real = &options.smooth,
     .range = "0,1)", .fallback = "by the number of steps"},
    {"x", 'x', "AXIS", "the x axis", .text = &options.x,
     .offer = {.choices = "steps tokens seconds"}},
    {"log-y", 0, NULL, "use a logarithmic y axis", .on = &options.log_y},
    WF_FLAG_OVERWRITE(&options.overwrite),
    WF_FLAG_JSON(&options.json),
    {0},
};

const wf_command wf_cmd_plot = {
    .name = "plot",
    .doc = "compare training runs in a table and a chart",
    .operands = "RUN...",
    .max_operands = WF_CHART_RUNS,
    .offers = {WF_OFFER_FILES},
    .details = "RUN is the folder of a training run, or its " WF_RECORD_LOG
               ". Prints the last and the best losses and, on a terminal, a small chart. Writes a "
               "file only with -o; the run itself keeps loss.svg in its folder up to date.",
    .examples = {"weft plot runs/a", "weft plot runs/a runs/b -o compared.svg --x tokens"},
    .flags = flags,
    .run = run,
};
