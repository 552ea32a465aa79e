#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: tests/with_plugin.sh COMMAND...
# Runs the command with "--device pjrt:PLUGIN" appended. The plugin is WEFT_PJRT_PLUGIN, or
# WEFT_TEST_PJRT, which tools/fetch_pjrt.sh installs. Exits 77 (skipped) when there is no such file.
set -eu
plugin=${WEFT_PJRT_PLUGIN:-${WEFT_TEST_PJRT:-}}
if [ ! -f "$plugin" ]; then
    echo "skipped: there is no PJRT plugin '$plugin'; tools/fetch_pjrt.sh build-pjrt fetches one"
    exit 77
fi
exec "$@" --device "pjrt:$plugin"
