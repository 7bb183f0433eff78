#!/usr/bin/env bash
# Takes a whole machine out of every upstream, waits until its last request is done, runs your
# command (an upgrade, a reboot), brings it back, waits until all of its servers are eligible.
#
#   machine.sh API IP REASON COMMAND [ARGUMENT ...]
#   machine.sh http://127.0.0.1:8081/api 10.0.0.1 kernel-6.1.90 ssh 10.0.0.1 'apt upgrade -y'
#
# COMMAND is to end when the machine is well again: of a reboot, when it is back. Ends with 0 when the
# machine is back. Otherwise:
#   1  nothing was run, the machine is as it was: its requests did not end within WAIT, an upstream
#      would keep fewer than MIN_UP servers, or somebody took it down for another reason
#   2  the command failed: the machine stays down, for you to look at
#   3  a server of it was not eligible in time
#   4  nothing was run, and the API did not bring the machine back: it may be down
# A signal before the command has begun is as 1, but for the status.
#
# A server that somebody took down by itself stays down. WAIT (30s), UP_WAIT (60s) and MIN_UP (1) in
# the environment change the limits.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,19s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
me=machine
name=$2 reason=$3
at="${1%/}/v1/hosts/$2"
shift 3
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/verbs.sh"

take_out
echo "$name: drained, running: $*"
if ! "$@"; then
    printf 'machine: %s: the command failed, the machine stays down: %s\n' "$name" "$*" >&2
    exit 2
fi
echo "$name: up, waiting until its servers are eligible"
bring_back
