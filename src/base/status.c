/* SPDX-License-Identifier: MIT */
/* status.c - the version string and the texts of status codes, which need no context. */
#include "weft.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *wf_version_string(void)
{
    return STRING(WF_VERSION_MAJOR) "." STRING(WF_VERSION_MINOR) "." STRING(WF_VERSION_PATCH);
}

/* No default case: the compiler warns about a status without a text. */
const char *wf_status_string(wf_status status)
{
    switch (status) {
    case WF_OK: return "ok";
    case WF_ERR_USAGE: return "invalid argument or call";
    case WF_ERR_MEMORY: return "out of memory";
    case WF_ERR_IO: return "input or output failed";
    case WF_ERR_FORMAT: return "malformed data";
    case WF_ERR_UNSUPPORTED: return "not supported";
    case WF_ERR_GRAPH: return "invalid graph";
    case WF_ERR_DEVICE: return "device failure";
    case WF_ERR_INTERNAL: return "internal error";
    }
    return "unknown status";
}
