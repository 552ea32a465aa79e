/* SPDX-License-Identifier: MIT */
/*
 * template.c - see template.h. Converts the variables, runs src/text/jinja, returns text with
 * marks.
 *
 * A template is parsed once and immutable; each rendering has its own arena and limits on steps,
 * memory and depth, because templates come from model files.
 */
#include "text/template.h"

#include "base/clock.h"
#include "base/mem.h"
#include "text/jinja/run.h"
#include "text/jinja/string.h"

/* Limits of a rendering: work, nested calls, bytes of memory. */
#define DEFAULT_STEPS 10000000
#define DEFAULT_DEPTH 100
#define DEFAULT_BYTES ((size_t)64 << 20)
/* Interpreter frames per nested call: an expression in a loop in an if in a macro. */
#define FRAMES_PER_CALL 16

struct wf_template {
    wf_ctx *ctx;
    wf_arena arena;   /* owns the tree */
    const char *what; /* the name in messages, in the arena */
    const wf_jnode *root;
};

wf_status wf_template_new(wf_ctx *ctx, const char *what, const char *text, size_t bytes,
                          wf_template **out)
{
    wf_status status = WF_ERR_MEMORY;
    *out = NULL;
    wf_template *t = wf_mem_new(ctx, sizeof *t);
    if (!t)
        return WF_ERR_MEMORY;
    t->ctx = ctx;
    wf_arena_init(&t->arena, ctx);
    t->what = wf_arena_strdup(&t->arena, what);
    if (t->what)
        status = wf_jparse(&t->arena, t->what, text, bytes, &t->root);
    if (status == WF_OK)
        *out = t;
    else
        wf_template_free(t);
    return status;
}

void wf_template_free(wf_template *t)
{
    if (!t)
        return;
    wf_arena_free(&t->arena);
    wf_mem_free(t->ctx, t);
}

/* ---- Variables ---- */

static wf_status to_value(wf_jrun *r, const wf_json_node *n, bool plain, wf_jvalue *out);

static wf_status to_string(wf_jrun *r, const char *text, size_t bytes, bool plain, wf_jvalue *out)
{
    return wf_jstr_new(r, (wf_jstr){.text = text, .bytes = bytes, .plain = plain}, out);
}

static wf_status to_list(wf_jrun *r, const wf_json_node *n, wf_jvalue *out)
{
    WF_TRY(wf_jseq_new(r, WF_J_LIST, n->count, out));
    for (size_t i = 0; i < n->count; i++) {
        wf_jvalue item;
        WF_TRY(to_value(r, &n->child[i], true, &item));
        WF_TRY(wf_jseq_push(r, out->u.seq, item));
    }
    return WF_OK;
}

static wf_status to_dict(wf_jrun *r, const wf_json_node *n, wf_jvalue *out)
{
    WF_TRY(wf_jdict_new(r, WF_J_DICT, out));
    for (size_t i = 0; i < n->count; i++) {
        wf_jvalue key, value;
        WF_TRY(to_string(r, n->child[i].key, n->child[i].key_bytes, true, &key));
        WF_TRY(to_value(r, &n->child[i], true, &value));
        WF_TRY(wf_jdict_push(r, out->u.dict, key, value));
    }
    return WF_OK;
}

/* Converts a JSON value. Strings point into the JSON tree, which outlives the run. plain: the
 * string is marked as text of the variables. */
static wf_status to_value(wf_jrun *r, const wf_json_node *n, bool plain, wf_jvalue *out)
{
    WF_TRY(wf_jrun_enter(r));
    switch (n->kind) {
    case WF_JSON_NULL: *out = wf_jnone(); break;
    case WF_JSON_BOOL: *out = wf_jbool(n->boolean); break;
    case WF_JSON_NUMBER: *out = n->whole ? wf_jint(n->integer) : wf_jfloat(n->number); break;
    case WF_JSON_STRING: WF_TRY(to_string(r, n->string, n->bytes, plain, out)); break;
    case WF_JSON_ARRAY: WF_TRY(to_list(r, n, out)); break;
    case WF_JSON_OBJECT: WF_TRY(to_dict(r, n, out)); break;
    }
    wf_jrun_leave(r);
    return WF_OK;
}

/* Direct string members are the template's own text; see template.h. */
static wf_status set_variables(wf_jrun *r, const wf_json_node *variables, wf_jscope *scope)
{
    for (size_t i = 0; i < variables->count; i++) {
        const wf_json_node *n = &variables->child[i];
        wf_jvalue value;
        wf_jstr *name = wf_jrun_alloc(r, 1, sizeof *name);
        if (!name)
            return wf_jrun_failed(r);
        *name = (wf_jstr){.text = n->key, .bytes = n->key_bytes};
        WF_TRY(to_value(r, n, false, &value));
        WF_TRY(wf_jscope_set(r, scope, name, value));
    }
    return WF_OK;
}

/* ---- Rendering ---- */

bool wf_template_marks(const wf_template *t)
{
    return t->root->op != 0;
}

/* Assignments of the template go to a scope of their own, inside that of the globals. */
static wf_status render(wf_jrun *r, const wf_template *t, const wf_json_node *variables)
{
    wf_jscope *scope;
    WF_TRY(wf_jscope_new(r, NULL, &r->globals));
    WF_TRY(wf_jglobals_set(r, r->globals));
    WF_TRY(set_variables(r, variables, r->globals));
    WF_TRY(wf_jscope_new(r, r->globals, &scope));
    return wf_jexec(r, t->root, scope);
}

/* Copies the output for the caller. Both copies count against the memory limit while they
 * coexist. */
static wf_status hand_over(wf_jrun *r, wf_rendered *out)
{
    size_t bytes = r->out.used;
    if (bytes > (r->max_bytes - r->bytes) / 3)
        return wf_jrun_fail(r, "the template needs more than %zu bytes of memory", r->max_bytes);
    out->text = wf_mem_new(r->ctx, bytes + 1);
    out->plain = wf_mem_new(r->ctx, bytes);
    out->generated = wf_mem_new(r->ctx, bytes);
    if (!out->text || !out->plain || !out->generated) {
        wf_rendered_free(r->ctx, out);
        return WF_ERR_MEMORY;
    }
    if (bytes) {
        memcpy(out->text, r->out.text, bytes);
        for (size_t i = 0; i < bytes; i++) {
            out->plain[i] = r->out.mark[i] & WF_J_PLAIN;
            out->generated[i] = r->out.mark[i] & WF_J_GENERATED ? 1 : 0;
        }
    }
    out->bytes = bytes;
    return WF_OK;
}

wf_status wf_template_render(const wf_template *t, wf_ctx *ctx, const wf_json_node *variables,
                             const wf_template_options *options, wf_rendered *out)
{
    const wf_template_options given = options ? *options : (wf_template_options){0};
    int depth = given.depth > 0 ? given.depth : DEFAULT_DEPTH;
    wf_jrun r = {
        .ctx = ctx,
        .what = t->what,
        .max_steps = given.steps ? given.steps : DEFAULT_STEPS,
        .max_bytes = given.bytes ? given.bytes : DEFAULT_BYTES,
        .max_calls = depth,
        .max_frames = depth > INT32_MAX / FRAMES_PER_CALL ? INT32_MAX : depth * FRAMES_PER_CALL,
        .held = ctx->mem.live_bytes,
        .line = 1,
        .now = given.now ? given.now : wf_clock_now(),
    };
    *out = (wf_rendered){0};
    if (variables->kind != WF_JSON_OBJECT)
        return wf_fail(ctx, WF_ERR_USAGE, "the variables of a chat template must be a JSON object");
    wf_arena_init(&r.arena, ctx);
    wf_status status = render(&r, t, variables);
    if (status == WF_OK)
        status = hand_over(&r, out);
    wf_arena_free(&r.arena);
    return status;
}

void wf_rendered_free(wf_ctx *ctx, wf_rendered *r)
{
    wf_mem_free(ctx, r->text);
    wf_mem_free(ctx, r->plain);
    wf_mem_free(ctx, r->generated);
    *r = (wf_rendered){0};
}
