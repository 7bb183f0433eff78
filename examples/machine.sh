#!/usr/bin/env bash
# Takes a whole machine out of every upstream, waits until its last request is done, runs your
# command (an upgrade, a reboot), brings it back, waits until all of its servers are eligible.
#
#   machine.sh API IP REASON COMMAND [ARGUMENT ...]
#   machine.sh http://127.0.0.1:8081/api 10.0.0.1 kernel-6.1.90 ssh 10.0.0.1 'apt upgrade -y'
#
# Ends with 0 when the machine is back. Otherwise:
#   1  nothing was run, the machine is as it was: its requests did not end within WAIT, an upstream
#      would keep fewer than MIN_UP servers, or somebody took it down for another reason
#   2  the command failed: the machine stays down, for you to look at
#   3  a server of it was not eligible in time
#
# A server that somebody took down by itself stays down. WAIT (30s), UP_WAIT (60s) and MIN_UP (1) in
# the environment change the limits.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} ip=$2 reason=$3
shift 3
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

verb() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 300 -o "$answer" -X POST -G \
        --data-urlencode "if_reason=$reason" "$api/v1/hosts/$ip/$1" "${@:2}"
}

refused() {
    printf 'machine: %s: %s: %s\n' "$ip" "$1" "$(tr -d '\n' <"$answer")" >&2
}

echo "$ip: down, waiting for its last request"
if ! verb down -d "wait=${WAIT:-30s}" -d "min_up=${MIN_UP:-1}" --data-urlencode "reason=$reason"; then
    refused "not taken down"
    if grep -q '"drained"' "$answer"; then
        verb up || refused "not brought back either"
    fi
    exit 1
fi

echo "$ip: drained, running: $*"
if ! "$@"; then
    printf 'machine: %s: the command failed, the machine stays down: %s\n' "$ip" "$*" >&2
    exit 2
fi

echo "$ip: up, waiting until its servers are eligible"
if ! verb up -d "wait=${UP_WAIT:-60s}"; then
    refused "not up"
    exit 3
fi
echo "$ip: back"
