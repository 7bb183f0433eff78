#!/usr/bin/env bash
# Gives a new server its share of the requests step by step, and takes it back when your command
# says that it is not well.
#
#   canary.sh API UPSTREAM SERVER COMMAND [ARGUMENT ...]
#   STEPS='1 5 25 100' PAUSE=60 canary.sh http://127.0.0.1:8081/api app 10.0.0.9:8080 ./is-well
#
# The server is added with weight 0 if it is not there. Then it gets each weight of STEPS in turn,
# beside the others' (say 100 each); PAUSE seconds later COMMAND is asked, with the server's address
# as its last argument. When it fails, the weight is 0 again at once: requests in flight end, none
# begins, and sessions (sticky) go on.
#
# Ends with 0 when the server has its last weight, with 1 when it was taken back, with 2 when the
# API refused.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} upstream=$2 server=$3
shift 3
at="$api/v1/upstreams/$upstream/servers/${server//\//%2F}"

call() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 60 -o /dev/null "$@"
}

weigh() {
    echo "$server: weight $1"
    call -X PATCH "$at" -d "{\"weight\":$1}" || exit 2
}

# Only where it is not there: a server that has a share keeps it until the first step.
status=$(curl -sS --retry 5 --retry-connrefused -m 60 -o /dev/null -w '%{http_code}' "$at")
if [ "$status" = 404 ]; then
    call -X PUT -H 'If-None-Match: *' "$at" -d '{"weight":0}' || exit 2
fi

for weight in ${STEPS:-1 5 25 100}; do
    weigh "$weight"
    sleep "${PAUSE:-60}"
    if ! "$@" "$server"; then
        weigh 0
        echo "canary: $server: taken back at weight $weight: $*" >&2
        exit 1
    fi
done
echo "$server: has its share"
