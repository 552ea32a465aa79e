/* SPDX-License-Identifier: MIT */
/*
 * cmd_ops.c - weft ops: prints the tables of ops, attributes, kernels and StableHLO emitters.
 *
 * Everything is read from the tables that the engine itself uses, so the output cannot disagree
 * with it. Devices that cannot be opened are listed with the reason.
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/expansion.h"
#include "graph/lower/stablehlo.h"

static struct {
    const char *device;
    bool json;
} options;

/* Fails with a suggestion if there is no such op. */
wf_status wf_find_op(wf_ctx *ctx, const char *name, wf_op *out)
{
    const char *names[WF_OP_COUNT];
    int found = wf_op_find(name);
    if (found >= 0) {
        *out = (wf_op)found;
        return WF_OK;
    }
    for (int i = 0; i < WF_OP_COUNT; i++)
        names[i] = wf_op_get((wf_op)i)->name;
    return wf_no_such(ctx, "op", name, names, WF_OP_COUNT, "weft ops");
}

/* ---- Reading the tables ---- */

static bool has_flag(wf_op op, uint32_t flag)
{
    return (wf_op_get(op)->flags & flag) != 0;
}

/* Returns the types of the first operand that some kernel accepts; 0: no kernel or no device. */
static wf_type_set kernel_types(const wf_found_device *f, wf_op op)
{
    return f->device && f->device->kernels ? wf_kernel_types(f->device->kernels, op) : 0;
}

typedef void kernel_fn(void *user, const wf_found_device *f, const wf_kernel *k);

/* Calls fn with every kernel of the op, in the order in which the device tries them. */
static void each_kernel(const wf_found_device *f, wf_op op, kernel_fn *fn, void *user)
{
    if (!f->device || !f->device->kernels)
        return;
    for (const wf_kernel *const *table = f->device->kernels; *table; table++)
        for (const wf_kernel *k = *table; k->launch; k++)
            if (k->op == op)
                fn(user, f, k);
}

static const char *attr_kind(wf_attr_kind kind)
{
    switch (kind) {
    case WF_ATTR_INT: return "integer";
    case WF_ATTR_REAL: return "real";
    case WF_ATTR_TYPE: return "type";
    case WF_ATTR_DIMS: return "list";
    case WF_ATTR_SHAPE: return "shape";
    case WF_ATTR_STREAM: return "stream";
    }
    return "";
}

/* ---- All ops, as a table ---- */

/* Returns the columns: the types that some kernel of some device has. */
static wf_type_set all_types(const wf_found_devices *all)
{
    wf_type_set types = 0;
    for (int i = 0; i < all->count; i++)
        for (int op = 0; op < WF_OP_COUNT; op++)
            types |= kernel_types(&all->found[i], (wf_op)op);
    return types;
}

static int longest_name(void)
{
    size_t longest = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        size_t length = strlen(wf_op_get((wf_op)op)->name);
        longest = length > longest ? length : longest;
    }
    return (int)longest;
}

static bool has_kernels(const wf_found_device *f)
{
    return f->device && f->device->kernels;
}

/* Returns whether the device has no kernel for the op and runs its expansion. */
static bool is_expanded(const wf_found_device *f, wf_op op)
{
    if (!f->device || wf_op_is_core(op))
        return false;
    return has_kernels(f) ? kernel_types(f, op) == 0 : !wf_stablehlo_has(op);
}

/* Prints one mark per device with kernels, in the order of the list. `types` is the column's
 * set. */
static void print_cell(const wf_found_devices *all, wf_op op, wf_type_set types)
{
    char marks[WF_MAX_KINDS + 1] = "";
    for (int i = 0, n = 0; i < all->count; i++) {
        wf_type_set have = kernel_types(&all->found[i], op) & types;
        if (has_kernels(&all->found[i]))
            marks[n++] = has_flag(op, WF_FLAG_SOURCE)      ? '-'
                         : have == types                   ? 'x'
                         : have != 0                       ? 's'
                         : is_expanded(&all->found[i], op) ? 'e'
                                                           : '.';
    }
    printf(" %5s", marks);
}

/* Returns the mark of the column hlo, for devices that compile whole graphs. */
static const char *program_form(wf_op op)
{
    return has_flag(op, WF_FLAG_SOURCE) ? "-" : wf_stablehlo_has(op) ? "x" : "e";
}

static void print_rows(const wf_found_devices *all)
{
    wf_type_set columns = all_types(all);
    int width = longest_name();
    for (int op = -1; op < WF_OP_COUNT; op++) { /* -1: the heading */
        if (op < 0)
            printf("%-*s  form      grad", width, "op");
        else
            printf("%-*s  %-8s  %-4s", width, wf_op_get((wf_op)op)->name,
                   wf_op_is_core((wf_op)op) ? "core" : "expanded",
                   wf_op_is_differentiable((wf_op)op) ? "yes" : "-");
        for (int type = 0; type <= WF_BLOCK_FIRST;
             type++) { /* the last column: all quantized types */
            wf_type_set types = type < WF_BLOCK_FIRST ? wf_type_bit((wf_type)type) : WF_TYPES_BLOCK;
            if (!(columns & types))
                continue;
            else if (op < 0)
                printf(" %5s", type < WF_BLOCK_FIRST ? wf_type_name((wf_type)type) : "quant");
            else
                print_cell(all, (wf_op)op, types);
        }
        printf("  %3s\n", op < 0 ? "hlo" : program_form((wf_op)op));
    }
}

/* need: ops other than sources, which have no kernels because the caller provides their memory. */
static void print_device_summary(const wf_found_device *f)
{
    int have = 0, need = 0, written = 0, expanded = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        written += wf_stablehlo_has((wf_op)op);
        have += kernel_types(f, (wf_op)op) != 0;
        need += !has_flag((wf_op)op, WF_FLAG_SOURCE);
        expanded += is_expanded(f, (wf_op)op);
    }
    if (!f->device)
        printf("%s: not available: %s\n", f->kind, f->why);
    else if (!f->device->kernels)
        printf("%s: compiles whole graphs; %d ops are emitted directly, %d expanded\n", f->kind,
               written, need - written);
    else
        printf("%s: kernels for %d of %d ops that need one, %d expanded\n", f->kind, have, need,
               expanded);
}

/* Prints the ops that a device expands, and the cost in an example. */
static wf_status print_device_expansions(wf_ctx *ctx, const wf_found_device *f)
{
    bool any = false;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        wf_expansion e;
        char call[256], text[128];
        if (!is_expanded(f, (wf_op)op))
            continue;
        WF_TRY(wf_expansion_example(ctx, f->device, (wf_op)op, &e, call, sizeof call));
        if (!any)
            printf("\nexpanded on %s, with the cost of the first selftest case:\n", f->kind);
        any = true;
        printf("  %-*s  %s\n", longest_name(), wf_op_get((wf_op)op)->name,
               wf_expansion_text(&e, text, sizeof text));
    }
    return WF_OK;
}

static void print_table(const wf_found_devices *all)
{
    int core = 0, gradients = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        core += wf_op_is_core((wf_op)op);
        gradients += wf_op_is_differentiable((wf_op)op);
    }
    print_rows(all);
    printf("\n%d ops: %d core, %d expanded into core ops; %d have a gradient\n", WF_OP_COUNT, core,
           WF_OP_COUNT - core, gradients);
    for (int i = 0; i < all->count; i++)
        print_device_summary(&all->found[i]);
    puts("x: kernel for this type of the first operand; s: for some types of the column;");
    puts("e: expanded into core ops; .: no kernel; -: needs no kernel");
    puts("quant: all quantized types. A matmul's weight may have more types: see weft ops linear.");
    puts("hlo: x: emitted as StableHLO for devices that compile whole graphs; e: expanded first");
    int kernels = 0;
    for (int i = 0; i < all->count; i++)
        kernels += has_kernels(&all->found[i]);
    if (kernels > 1)
        puts("A cell has one mark for each device with kernels, in the order above.");
}

/* ---- One op ---- */

/* Prints the label on the first line of a field, blanks on the others. */
static void print_label(const char **label)
{
    printf("%-12s", *label);
    *label = "";
}

static void print_operands(const wf_op_def *def)
{
    printf("%-12s", "operands");
    if (def->max_in == 0)
        puts("none");
    else if (def->max_in == WF_MANY)
        printf("%d or more\n", def->min_in);
    else if (def->min_in == def->max_in)
        printf("%d\n", def->min_in);
    else
        printf("%d to %d\n", def->min_in, def->max_in);
}

static void print_attributes(const wf_op_def *def)
{
    const char *label = "attributes";
    for (const wf_attr_field *f = def->fields; f->name; f++) {
        print_label(&label);
        char number[WF_TEXT_DOUBLE];
        wf_text_from_double(number, f->default_value);
        bool has_default = f->kind == WF_ATTR_INT || f->kind == WF_ATTR_REAL;
        printf("%-16s %-8s %s%s%s%s\n", f->name, attr_kind(f->kind), f->doc,
               has_default ? " (default " : "", has_default ? number : "", has_default ? ")" : "");
    }
    if (!def->fields->name)
        printf("%-12snone\n", label);
}

/* Rows of elementwise ops hold expressions: "da; db" for two operands. In all other rows the text
 * is the end of a function name. */
static void print_gradient(wf_op op)
{
    const wf_op_def *def = wf_op_get(op);
    const char *label = "gradient", *text = def->grad_text;
    if (def->grad == wf_grad_refuse) {
        printf("%-12snone: asking for it is an error\n", label);
    } else if (!wf_op_is_differentiable(op)) {
        printf("%-12szero\n", label);
    } else if (!has_flag(op, WF_FLAG_ELEMENTWISE)) {
        printf("%-12swf_grad_%s\n", label, text);
    } else {
        for (char operand = def->max_in == 1 ? 'x' : 'a'; *text; operand++) {
            size_t length = strcspn(text, ";");
            print_label(&label);
            printf("d%c = %.*s\n", operand, (int)length, text);
            text += length;
            text += strspn(text, "; ");
        }
    }
}

static wf_status print_expansion(wf_ctx *ctx, wf_op op)
{
    const char *text = wf_op_get(op)->expand_text;
    wf_expansion e;
    char call[256], cost[128];
    if (wf_op_is_core(op)) {
        printf("%-12snone: a core op\n", "expansion");
        return WF_OK;
    }
    printf("%-12s%s%s\n", "expansion", has_flag(op, WF_FLAG_ELEMENTWISE) ? "y = " : "wf_expand_",
           text);
    WF_TRY(wf_expansion_example(ctx, NULL, op, &e, call, sizeof call));
    printf("%-12s%s\n%-12sfor %s\n", "", wf_expansion_text(&e, cost, sizeof cost), "", call);
    return WF_OK;
}

static void print_types(wf_type_set types)
{
    for (int type = 0; type < WF_TYPE_COUNT; type++)
        if (types & wf_type_bit((wf_type)type))
            printf(" %s", wf_type_name((wf_type)type));
}

static void print_kernel(void *user, const wf_found_device *f, const wf_kernel *k)
{
    print_label(user);
    printf("%s %s:", f->kind, k->name);
    print_types(k->types);
    if (k->weights) {
        printf("; second operand");
        print_types(k->weights);
    }
    printf("; %s operands, %s\n", k->strided ? "strided" : "dense",
           k->nondeterministic ? "not deterministic" : "deterministic");
}

static void print_kernels(const wf_found_devices *all, wf_op op)
{
    const char *label = "kernels";
    if (has_flag(op, WF_FLAG_SOURCE)) {
        printf("%-12snone: the caller provides the memory\n", label);
        return;
    }
    for (int i = 0; i < all->count; i++) {
        const wf_found_device *f = &all->found[i];
        each_kernel(f, op, print_kernel, &label);
        if (kernel_types(f, op) == 0) {
            print_label(&label);
            const char *form = wf_stablehlo_has(op) ? "as StableHLO" : "expanded";
            printf("%s: %s\n", f->kind,
                   !f->device           ? f->why
                   : is_expanded(f, op) ? "expanded"
                   : has_kernels(f)     ? "none"
                                        : form);
        }
    }
}

static wf_status print_op(wf_ctx *ctx, const wf_found_devices *all, wf_op op)
{
    const wf_op_def *def = wf_op_get(op);
    printf("%s\n%s\n\n", def->name, def->doc);
    printf("%-12s%s%s%s\n", "form", wf_op_is_core(op) ? "core" : "expanded",
           has_flag(op, WF_FLAG_UPDATE) ? ", updates a state" : "",
           has_flag(op, WF_FLAG_VIEW) ? ", may be a view" : "");
    print_operands(def);
    print_attributes(def);
    print_gradient(op);
    WF_TRY(print_expansion(ctx, op));
    print_kernels(all, op);
    return WF_OK;
}

/* ---- JSON ---- */

static void put_string(wf_json *j, const char *key, const char *value)
{
    wf_json_key(j, key);
    wf_json_string(j, value);
}

static void put_bool(wf_json *j, const char *key, bool value)
{
    wf_json_key(j, key);
    wf_json_bool(j, value);
}

static void put_attributes(wf_json *j, const wf_op_def *def)
{
    wf_json_key(j, "attributes");
    wf_json_array_begin(j);
    for (const wf_attr_field *f = def->fields; f->name; f++) {
        wf_json_object_begin(j);
        put_string(j, "name", f->name);
        put_string(j, "kind", attr_kind(f->kind));
        put_string(j, "doc", f->doc);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

static void put_types(wf_json *j, const char *key, wf_type_set types)
{
    wf_json_key(j, key);
    wf_json_array_begin(j);
    for (int type = 0; type < WF_TYPE_COUNT; type++)
        if (types & wf_type_bit((wf_type)type))
            wf_json_string(j, wf_type_name((wf_type)type));
    wf_json_array_end(j);
}

static void put_kernel(void *user, const wf_found_device *f, const wf_kernel *k)
{
    wf_json *j = user;
    wf_json_object_begin(j);
    put_string(j, "device", f->kind);
    put_string(j, "name", k->name);
    put_types(j, "types", k->types);
    if (k->weights)
        put_types(j, "weights", k->weights);
    put_bool(j, "strided", k->strided);
    put_bool(j, "deterministic", !k->nondeterministic);
    wf_json_object_end(j);
}

static void put_op(wf_json *j, const wf_found_devices *all, wf_op op)
{
    const wf_op_def *def = wf_op_get(op);
    wf_json_object_begin(j);
    put_string(j, "name", def->name);
    put_string(j, "doc", def->doc);
    put_bool(j, "core", wf_op_is_core(op));
    put_bool(j, "differentiable", wf_op_is_differentiable(op));
    put_bool(j, "source", has_flag(op, WF_FLAG_SOURCE));
    put_bool(j, "view", has_flag(op, WF_FLAG_VIEW));
    put_bool(j, "update", has_flag(op, WF_FLAG_UPDATE));
    wf_json_key(j, "min_operands");
    wf_json_int(j, def->min_in);
    wf_json_key(j, "max_operands");
    wf_json_int(j, def->max_in);
    put_attributes(j, def);
    put_string(j, "gradient", def->grad_text);
    put_string(j, "expansion", def->expand_text);
    put_bool(j, "stablehlo", wf_stablehlo_has(op));
    wf_json_key(j, "expanded_on");
    wf_json_array_begin(j);
    for (int i = 0; i < all->count; i++)
        if (is_expanded(&all->found[i], op))
            wf_json_string(j, all->found[i].kind);
    wf_json_array_end(j);
    wf_json_key(j, "kernels");
    wf_json_array_begin(j);
    for (int i = 0; i < all->count; i++)
        each_kernel(&all->found[i], op, put_kernel, j);
    wf_json_array_end(j);
    wf_json_object_end(j);
}

/* Prints the ops [begin, end). */
static void print_json(const wf_found_devices *all, int begin, int end)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_key(&j, "ops");
    wf_json_array_begin(&j);
    for (int op = begin; op < end; op++)
        put_op(&j, all, (wf_op)op);
    wf_json_array_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

/* ---- The command ---- */

/* Opens the device of --device as the only entry. */
static wf_status open_one(wf_ctx *ctx, wf_found_devices *all)
{
    wf_found_device *f = &all->found[0];
    WF_TRY(wf_device_open(ctx, options.device, &f->device));
    f->kind = f->device->target.name;
    f->doc = f->device->ops->doc;
    all->count = 1;
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_op op = (wf_op)0;
    if (count > 0)
        WF_TRY(wf_find_op(ctx, operands[0], &op));
    wf_found_devices all = {.count = 0};
    wf_status status = WF_OK;
    if (options.device)
        WF_TRY(open_one(ctx, &all));
    else
        wf_devices_open_all(ctx, &all);
    if (options.json)
        print_json(&all, op, count > 0 ? (int)op + 1 : WF_OP_COUNT);
    else if (count > 0)
        status = print_op(ctx, &all, op);
    else
        print_table(&all);
    if (options.device && !options.json && count == 0)
        status = print_device_expansions(ctx, &all.found[0]);
    wf_devices_close_all(&all);
    return status;
}

bool wf_op_words(int index, const char **name, const char **doc)
{
    if (index >= WF_OP_COUNT)
        return false;
    *name = wf_op_get((wf_op)index)->name;
    *doc = wf_op_get((wf_op)index)->doc;
    return true;
}

bool wf_type_words(int index, const char **name, const char **doc)
{
    wf_type type = (wf_type)(index + 1); /* WF_TYPE_NONE is 0 */
    if (index + 1 >= WF_TYPE_COUNT)
        return false;
    *name = wf_type_name(type);
    *doc = NULL;
    return true;
}

static const wf_flag flags[] = {
    {"device", 'd', "D", "only this device, with the ops that it expands", .text = &options.device,
     .fallback = "all devices", .offer = {.words = wf_device_words}},
    WF_FLAG_JSON(&options.json),
    {0},
};

const wf_command wf_cmd_ops = {
    .name = "ops",
    .doc = "list the ops and the types that each device supports",
    .operands = "[OP]",
    .max_operands = 1,
    .offers = {{.words = wf_op_words}},
    .details = "Without OP, prints a table of all ops. With OP, prints its operands, attributes, "
               "gradient, expansion into core ops, and kernels.",
    .examples = {"weft ops", "weft ops attention"},
    .flags = flags,
    .run = run,
};
