/* SPDX-License-Identifier: MIT */
/* json.c - JSON trees (base/json_tree.h). */
#include "fuzz.h"

#include "base/json_tree.h"

/* Visits every node, and looks up every member by its key. */
static size_t walk(const wf_json_node *node, int depth)
{
    size_t nodes = 1;
    fuzz_check(depth <= WF_JSON_TREE_DEPTH + 1);
    if (node->kind == WF_JSON_STRING)
        fuzz_check(wf_utf8_valid(node->string, node->bytes) && node->string[node->bytes] == '\0');
    if (node->kind == WF_JSON_NUMBER && node->whole)
        fuzz_check((double)node->integer == node->number);
    if (node->kind != WF_JSON_ARRAY && node->kind != WF_JSON_OBJECT)
        return nodes;
    for (size_t i = 0; i < node->count; i++) {
        const wf_json_node *child = &node->child[i];
        fuzz_check((child->key != NULL) == (node->kind == WF_JSON_OBJECT));
        if (child->key) {
            fuzz_check(wf_utf8_valid(child->key, child->key_bytes));
            fuzz_check(wf_json_get_n(node, child->key, child->key_bytes) == child);
        }
        nodes += walk(child, depth + 1);
    }
    return nodes;
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_arena arena;
    wf_json_node *root;
    wf_arena_init(&arena, ctx);
    if (wf_json_parse(&arena, "input", (const char *)data, size, &root) == WF_OK) {
        fuzz_check(walk(root, 1) <= size);
        fuzz_check(wf_json_get(root, "no such member \x01") == NULL);
    }
    wf_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 18, 256}, data, size);
}
