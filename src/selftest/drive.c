/* SPDX-License-Identifier: MIT */
/*
 * drive.c - runs a case on a device, in a session of its own, so that no state survives from
 * another case.
 */
#include <stdio.h>
#include <string.h>

#include "selftest/case.h"

wf_status wf_case_read(wf_case *c, const char *name, wf_value *value, const void *same)
{
    wf_assert(c->reads < WF_CASE_READS);
    wf_read *r = &c->read[c->reads];
    r->value = value;
    r->same = same;
    r->size = wf_type_bytes(value->type, wf_value_count(value));
    r->bytes = wf_arena_alloc(&c->arena, r->size);
    if (!r->bytes)
        return WF_ERR_MEMORY;
    snprintf(r->name, sizeof r->name, "%s", value->state ? value->state->name : name);
    c->reads++;
    return value->state ? WF_OK : wf_output(c->g, name, value);
}

/* Writes the contents of operands to the device; states: only those of states. */
static wf_status write_operands(wf_case *c, wf_session *session, wf_exec *exec, bool states)
{
    for (int i = 0; i < c->operands; i++) {
        const wf_operand *o = &c->operand[i];
        if (o->node->op == WF_OP_state)
            WF_TRY(wf_session_write(session, o->node->name, o->bytes, o->size));
        else if (!states && o->node->op == WF_OP_input)
            WF_TRY(wf_exec_write(exec, o->node->name, o->bytes, o->size));
    }
    return WF_OK;
}

static wf_status read_result(const wf_read *r, wf_session *session, wf_exec *exec, void *to)
{
    return r->value->state ? wf_session_read(session, r->name, to, r->size)
                           : wf_exec_read(exec, r->name, to, r->size);
}

/* Runs again with the original states and the inputs of the first run, which must be unchanged. */
static wf_status run_again(wf_case *c, wf_session *session, wf_exec *exec, bool *repeats)
{
    WF_TRY(write_operands(c, session, exec, true));
    WF_TRY(wf_exec_run(exec));
    *repeats = true;
    for (int i = 0; i < c->reads; i++) {
        void *bytes = wf_arena_alloc(&c->arena, c->read[i].size);
        if (!bytes)
            return WF_ERR_MEMORY;
        WF_TRY(read_result(&c->read[i], session, exec, bytes));
        if (memcmp(bytes, c->read[i].bytes, c->read[i].size) != 0)
            *repeats = false;
    }
    return WF_OK;
}

wf_status wf_case_run_with(wf_case *c, wf_graph *graph, wf_device *device,
                           const wf_compile_options *options, bool *repeats)
{
    wf_session *session = NULL;
    wf_exec *exec = NULL;
    wf_status status = wf_session_new(device, &session);
    if (!status)
        status = wf_compile_with(session, graph, options, &exec);
    if (!status)
        status = write_operands(c, session, exec, false);
    if (!status)
        status = wf_exec_run(exec);
    for (int i = 0; !status && i < c->reads; i++)
        status = read_result(&c->read[i], session, exec, c->read[i].bytes);
    if (!status && repeats)
        status = run_again(c, session, exec, repeats);
    wf_exec_free(exec);
    wf_session_free(session);
    return status;
}

wf_status wf_case_run(wf_case *c, wf_graph *graph, wf_device *device, bool *repeats)
{
    const wf_compile_options as_written = {.without = WF_PASS_FOLD | WF_PASS_FUSE};
    return wf_case_run_with(c, graph, device, &as_written, repeats);
}
