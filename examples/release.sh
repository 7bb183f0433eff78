#!/usr/bin/env bash
# Replaces one instance without losing a request: takes it out, waits until its last request is
# done, runs your command, brings it back, waits until it is eligible.
#
#   release.sh API UPSTREAM SERVER REASON COMMAND [ARGUMENT ...]
#   release.sh http://127.0.0.1:8081/api app 10.0.0.1:8080 deploy-812 ssh app1 deploy 812
#
# REASON names this release: a server that an operator took down for another reason is left alone.
# Ends with 0 when the instance is back. Otherwise:
#   1  nothing was replaced, the server is as it was
#   2  the command failed: the server stays down, for you to look at
#   3  the new instance was not eligible in time
#   4  nothing was replaced, and the API did not bring the server back: it may be down
# A signal before the command has begun is as 1, but for the status.
#
# WAIT (30s), UP_WAIT (60s) and MIN_UP (1) in the environment change the limits.
set -euo pipefail

if [ $# -lt 5 ]; then
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
me=release
name=$3 reason=$4
at="${1%/}/v1/upstreams/$2/servers/${3//\//%2F}"
shift 4
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/verbs.sh"

take_out
echo "$name: drained, replacing: $*"
if ! "$@"; then
    printf 'release: %s: the command failed, the server stays down: %s\n' "$name" "$*" >&2
    exit 2
fi
echo "$name: up, waiting until it is eligible"
bring_back
