#!/usr/bin/env bash
# Gives a new server its share of the requests step by step, and takes it back when your command
# says that it is not well.
#
#   canary.sh API UPSTREAM SERVER COMMAND [ARGUMENT ...]
#   STEPS='1 5 25 100' PAUSE=60 canary.sh http://127.0.0.1:8081/api app 10.0.0.9:8080 ./is-well
#
# The server is added with weight 0 if it is not there. Then it gets each weight of STEPS in turn,
# beside the others' (say 100 each); PAUSE seconds later COMMAND is asked, with the server's address
# as its last argument. When it fails, or a signal comes, the weight is 0 again at once: requests in
# flight end, none begins, and sessions (sticky) go on.
#
# Ends with 0 when the server has its last weight. Otherwise:
#   1  it was taken back
#   2  the API refused, or somebody has the server down: it has the weight that was said last
#   3  it is not well, and the API did not take it back
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} upstream=$2 server=$3
shift 3
at="$api/v1/upstreams/$upstream/servers/${server//\//%2F}"
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

# No answer, and 503, are tried again: said twice it changes nothing.
call() {
    local try status
    for try in 1 2 3 4 5; do
        [ "$try" = 1 ] || sleep 1
        status=$(curl -sS -m 60 -o "$answer" -w '%{http_code}' "$@") || true
        case $status in
            000 | 503) ;;
            *) break ;;
        esac
    done
    case $status in
        2??) ;;
        404) return 4 ;;
        *) return 1 ;;
    esac
}

refused() {
    echo "canary: $server: $1: $(tr -d '\n' <"$answer")" >&2
}

weigh() {
    call -X PATCH "$at" -d "{\"weight\":$1}" || return
    echo "$server: weight $1"
}

# Without requests nobody can say that it is well.
still_up() {
    call "$at" || {
        refused "no answer"
        exit 2
    }
    python3 -c '
import json, sys
admin = json.load(sys.stdin)["admin"]
sys.exit(0 if admin["state"] == "up" else "canary: somebody has it " + admin["state"])
' <"$answer" || exit 2
}

taken_back() {
    trap '' INT TERM
    weigh 0 || {
        refused "NOT taken back from weight $weight"
        exit 3
    }
    echo "canary: $server: taken back at weight $weight: $1" >&2
    exit "$2"
}

# Only where it is not there: a server that has a share keeps it until the first step.
found=0
call "$at" || found=$?
if [ "$found" = 4 ]; then
    found=0
    call -X PUT -H 'If-None-Match: *' "$at" -d '{"weight":0}' || found=$?
fi
if [ "$found" != 0 ]; then
    refused "not added"
    exit 2
fi
still_up

for weight in ${STEPS:-1 5 25 100}; do
    trap 'taken_back "stopped" 130' INT
    trap 'taken_back "stopped" 143' TERM
    if ! weigh "$weight"; then
        refused "weight $weight refused"
        exit 2
    fi
    # In the background, so that a signal does not wait for it.
    sleep "${PAUSE:-60}" &
    wait $!
    "$@" "$server" || taken_back "$*" 1
    still_up
done
echo "$server: has its share"
