/* SPDX-License-Identifier: MIT */
/* cmd_version.c - weft version: prints version, commit, build type and compiler. */
#include "cli/cli.h"
#include "weft_build.h"

static struct {
    bool json;
} options;

void wf_version_json(wf_json *j)
{
    wf_json_key(j, "version");
    wf_json_string(j, wf_version_string());
    wf_json_key(j, "commit");
    wf_json_string(j, WF_COMMIT);
    wf_json_key(j, "build");
    wf_json_string(j, WF_BUILD_TYPE);
    wf_json_key(j, "compiler");
    wf_json_string(j, WF_COMPILER);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    (void)ctx, (void)operands, (void)count;
    if (options.json) {
        wf_json j;
        wf_json_begin(&j, stdout);
        wf_json_object_begin(&j);
        wf_version_json(&j);
        wf_json_object_end(&j);
        wf_json_end(&j);
    } else {
        printf("weft %s (commit %s, %s, %s)\n", wf_version_string(), WF_COMMIT, WF_BUILD_TYPE,
               WF_COMPILER);
    }
    return WF_OK;
}

static const wf_flag flags[] = {WF_FLAG_JSON(&options.json), {0}};

const wf_command wf_cmd_version = {
    .name = "version",
    .doc = "print version, commit, build type and compiler",
    .operands = "",
    .examples = {"weft version --json"},
    .flags = flags,
    .run = run,
};
