/* SPDX-License-Identifier: MIT */
/* cmd_devices.c - weft devices: lists the devices of this machine. */
#include "cli/cli.h"

static struct {
    bool json;
} options;

/* Failures to open are results, not errors: their messages are shown. */
void wf_devices_open_all(wf_ctx *ctx, wf_found_devices *all)
{
    const wf_device_ops *ops;
    for (all->count = 0; (ops = wf_device_ops_get(all->count)); all->count++) {
        wf_assert(all->count < WF_MAX_KINDS);
        wf_found_device *f = &all->found[all->count];
        *f = (wf_found_device){.kind = ops->kind, .doc = ops->doc};
        size_t len = 0;
        if (wf_device_open(ctx, ops->kind, &f->device) != WF_OK)
            wf_text_append(f->why, sizeof f->why, &len, "%s", wf_ctx_message(ctx));
    }
}

void wf_devices_close_all(wf_found_devices *all)
{
    while (all->count > 0)
        wf_device_close(all->found[--all->count].device);
}

static void print_text(const wf_found_devices *all)
{
    printf("%-8s %7s  %s\n", "device", "threads", "description");
    for (int i = 0; i < all->count; i++) {
        const wf_found_device *f = &all->found[i];
        if (f->device && f->device->threads > 0)
            printf("%-8s %7d  %s\n", f->kind, f->device->threads, wf_device_description(f->device));
        else if (f->device) /* a plugin has its own threads */
            printf("%-8s %7s  %s\n", f->kind, "-", wf_device_description(f->device));
        else
            printf("%-8s %7s  not available: %s\n", f->kind, "-", f->why);
        printf("%-8s %7s  %s\n", "", "", f->doc);
    }
}

static void print_device(wf_json *j, const wf_found_device *f)
{
    wf_json_object_begin(j);
    wf_json_key(j, "device");
    wf_json_string(j, f->kind);
    wf_json_key(j, "doc");
    wf_json_string(j, f->doc);
    wf_json_key(j, "available");
    wf_json_bool(j, f->device != NULL);
    if (f->device) {
        wf_json_key(j, "description");
        wf_json_string(j, wf_device_description(f->device));
        wf_json_key(j, "threads");
        wf_json_int(j, f->device->threads);
    } else {
        wf_json_key(j, "error");
        wf_json_string(j, f->why);
    }
    wf_json_object_end(j);
}

static void print_json(const wf_found_devices *all)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_key(&j, "devices");
    wf_json_array_begin(&j);
    for (int i = 0; i < all->count; i++)
        print_device(&j, &all->found[i]);
    wf_json_array_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    (void)operands, (void)count;
    /* One device of every kind, or the reason why it cannot be opened. */
    wf_found_devices all;
    wf_devices_open_all(ctx, &all);
    (options.json ? print_json : print_text)(&all);
    wf_devices_close_all(&all);
    return WF_OK;
}

/* ---- The command ---- */

bool wf_device_words(int index, const char **name, const char **doc)
{
    const wf_device_ops *ops = wf_device_ops_get(index);
    if (!ops)
        return false;
    *name = ops->kind;
    *doc = ops->doc;
    return true;
}

bool wf_auto_words(int index, const char **name, const char **doc)
{
    if (index > 0)
        return wf_device_words(index - 1, name, doc);
    *name = "auto";
    *doc = "the fastest device for the work";
    return true;
}

static const wf_flag flags[] = {WF_FLAG_JSON(&options.json), {0}};
static const wf_help_table environment = {.title = "environment", .rows = wf_environment_words};

const wf_command wf_cmd_devices = {
    .name = "devices",
    .doc = "list the devices of this machine",
    .operands = "",
    .details =
        "The name of a device is its kind, with an optional argument after a colon: cpu:4 has 4 "
        "threads, cuda:1 is the second GPU, pjrt:PLUGIN.so loads a plugin.",
    .table = &environment,
    .examples = {"weft devices", "WEFT_CPU=avx2 weft devices"},
    .flags = flags,
    .run = run,
};
