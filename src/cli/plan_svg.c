/* SPDX-License-Identifier: MIT */
/*
 * plan_svg.c - draws a plan's memory as SVG. Above, live bytes at each step by kind; below, the
 * region: every block is a rectangle from its first to its last step, at its offset.
 */
#include "base/mem.h"
#include "base/writer.h"
#include "cli/plan.h"

enum { LEFT = 80, RIGHT = 20, WIDTH = 1100, TOP = 60, AREA = 180, GAP = 60, REGION = 360 };

typedef struct {
    const wf_plan_view *v;
    wf_writer w;
    /* Pixels per step, and per byte in the upper and in the lower part. */
    double per_step, per_byte_area, per_byte_region;
    uint64_t most; /* live bytes at the peak */
} drawing;

static double x_of(const drawing *d, int step)
{
    return LEFT + d->per_step * step;
}

/* Op names need no XML escaping. */
static void block_title(drawing *d, int block)
{
    char text[160] = "workspace", size[32];
    size_t len = 0;
    const wf_plan *plan = d->v->plan;
    const wf_lifetime *b = &plan->blocks[block];
    const wf_value *value = plan->block_info[block].value;
    if (value) {
        wf_text_append(text, sizeof text, &len, "%s ", wf_node_def(value->node)->name);
        wf_value_print(value, text, sizeof text, &len);
    }
    wf_writer_print(&d->w, "<title>%s: %s at %zu, steps %d to %d</title>", text,
                    wf_plan_bytes(b->bytes, size, sizeof size), b->offset, b->begin, b->end);
}

static void draw_axis(drawing *d, int top, int height, uint64_t most, const char *label)
{
    wf_writer_print(&d->w, "<text x=\"%d\" y=\"%d\" class=\"head\">%s</text>\n", LEFT, top - 8,
                    label);
    for (int i = 0; i <= 4; i++) {
        char size[32];
        double y = top + height - (double)height * i / 4;
        wf_writer_print(&d->w,
                        "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n",
                        LEFT, WIDTH - RIGHT, y, y);
        wf_writer_print(&d->w, "<text x=\"%d\" y=\"%.1f\" class=\"tick\">%s</text>\n", LEFT - 6,
                        y + 4, wf_plan_bytes(most / 4 * (uint64_t)i, size, sizeof size));
    }
}

/* Draws the area of one kind, stacked on the kinds below it. */
static void draw_band(drawing *d, int kind)
{
    const wf_plan_view *v = d->v;
    int steps = v->plan->step_count, bottom = TOP + AREA;
    wf_writer_print(&d->w, "<path fill=\"%s\" d=\"M", wf_use_infos[kind].color);
    /* The path runs along the upper edge from left to right, then back along the lower edge. Each
     * step is a horizontal piece. */
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < steps; i++) {
            int s = side == 0 ? i : steps - 1 - i;
            uint64_t sum = 0;
            for (int k = 0; k < kind + (side == 0); k++)
                sum += v->alive[s][k];
            double y = bottom - d->per_byte_area * (double)sum;
            wf_writer_print(&d->w, "%.1f %.1f %.1f %.1f ", x_of(d, side == 0 ? s : s + 1), y,
                            x_of(d, side == 0 ? s + 1 : s), y);
        }
    wf_writer_print(&d->w, "Z\"/>\n");
}

static void draw_blocks(drawing *d)
{
    const wf_plan *plan = d->v->plan;
    int bottom = TOP + AREA + GAP + REGION;
    for (int i = 0; i < plan->block_count; i++) {
        const wf_lifetime *b = &plan->blocks[i];
        if (b->bytes == 0)
            continue;
        double height = d->per_byte_region * (double)b->bytes;
        wf_writer_print(&d->w,
                        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\">",
                        x_of(d, b->begin), bottom - d->per_byte_region * (double)b->offset - height,
                        d->per_step * (b->end - b->begin + 1), height,
                        wf_use_infos[wf_plan_use(plan, i)].color);
        block_title(d, i);
        wf_writer_print(&d->w, "</rect>\n");
    }
}

static void draw_legend(drawing *d)
{
    int x = WIDTH - RIGHT - 330;
    for (int k = 0; k < WF_USE_COUNT; k++, x += 110)
        wf_writer_print(&d->w,
                        "<rect x=\"%d\" y=\"14\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                        "<text x=\"%d\" y=\"25\">%s</text>\n",
                        x, wf_use_infos[k].color, x + 18, wf_use_infos[k].name);
}

static void draw(drawing *d)
{
    const wf_plan_view *v = d->v;
    int height = TOP + AREA + GAP + REGION + 40;
    wf_writer_print(&d->w,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\">\n"
                    "<style>text{font:12px sans-serif;fill:#333}.head{font-weight:bold}"
                    ".tick{text-anchor:end;font-size:11px}.grid{stroke:#ddd}"
                    "rect{stroke:#fff;stroke-width:.2}</style>\n"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                    WIDTH, height, WIDTH, height);
    wf_writer_print(&d->w, "<text x=\"%d\" y=\"25\" class=\"head\">", LEFT);
    wf_writer_xml(&d->w, v->title, 200);
    wf_writer_print(&d->w, "</text>\n");
    draw_legend(d);
    draw_axis(d, TOP, AREA, d->most, "live bytes at each step");
    for (int k = 0; k < WF_USE_COUNT; k++)
        draw_band(d, k);
    draw_axis(d, TOP + AREA + GAP, REGION, v->plan->memory.activations,
              "the region: offset and lifetime of every value");
    draw_blocks(d);
    wf_writer_print(&d->w,
                    "<text x=\"%d\" y=\"%d\">the %d step%s of a run, in order</text>\n</svg>\n",
                    LEFT, height - 14, v->plan->step_count, WF_PLURAL(v->plan->step_count));
}

wf_status wf_plan_svg(wf_ctx *ctx, const wf_plan_view *v, const char *path)
{
    drawing d = {.v = v, .w = {.ctx = ctx}};
    int steps = v->plan->step_count;
    for (int k = 0; k < WF_USE_COUNT && steps > 0; k++)
        d.most += v->alive[v->busiest][k];
    d.per_step = steps > 0 ? (double)(WIDTH - LEFT - RIGHT) / steps : 0;
    d.per_byte_area = d.most > 0 ? (double)AREA / (double)d.most : 0;
    if (v->plan->memory.activations > 0)
        d.per_byte_region = (double)REGION / (double)v->plan->memory.activations;
    draw(&d);
    char *text;
    size_t bytes;
    WF_TRY(wf_writer_take(&d.w, &text, &bytes));
    wf_status status = wf_file_write(ctx, path, text, bytes);
    wf_mem_free(ctx, text);
    return status;
}
