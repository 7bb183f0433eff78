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
#
# WAIT (30s), UP_WAIT (60s) and MIN_UP (1) in the environment change the limits.
set -euo pipefail

if [ $# -lt 5 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} upstream=$2 server=$3 reason=$4
shift 4
at="$api/v1/upstreams/$upstream/servers/${server//\//%2F}"
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# Transient answers (503, 504, no connection) are tried again: a verb said twice changes nothing,
# and a server that is down already is still waited for.
verb() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 300 -o "$answer" -X POST -G \
        --data-urlencode "if_reason=$reason" "$at/$1" "${@:2}"
}

refused() {
    printf 'release: %s: %s: %s\n' "$server" "$1" "$(tr -d '\n' <"$answer")" >&2
}

echo "$server: down, waiting for its last request"
if ! verb down -d "wait=${WAIT:-30s}" -d "min_up=${MIN_UP:-1}" --data-urlencode "reason=$reason"; then
    refused "not taken down"
    if grep -q '"drained"' "$answer"; then
        verb up || refused "not brought back either"
    fi
    exit 1
fi

echo "$server: drained, replacing: $*"
if ! "$@"; then
    printf 'release: %s: the command failed, the server stays down: %s\n' "$server" "$*" >&2
    exit 2
fi

echo "$server: up, waiting until it is eligible"
if ! verb up -d "wait=${UP_WAIT:-60s}"; then
    refused "not up"
    exit 3
fi
echo "$server: back"
