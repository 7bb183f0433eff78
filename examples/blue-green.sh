#!/usr/bin/env bash
# Moves all requests of an alias from one upstream to another, in one write (blue-green.conf).
#
#   blue-green.sh API ALIAS UPSTREAM
#   blue-green.sh http://127.0.0.1:8081/api shop green
#
# Requests that begin after the answer go to UPSTREAM, in every worker process; those in flight end
# where they are. The way back is the same call with the other name. Refuses (1) an upstream with
# fewer than MIN_ELIGIBLE (1) servers that take requests, and an alias that somebody else moved
# meanwhile.
set -euo pipefail

if [ $# != 3 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} alias=$2 to=$3

field() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

call() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 60 "$@"
}

fail() {
    echo "blue-green: $*" >&2
    exit 1
}

upstream=$(call "$api/v1/upstreams/$to") || fail "upstream $to: $upstream"
eligible=$(field eligible <<<"$upstream")
[ "$eligible" -ge "${MIN_ELIGIBLE:-1}" ] || fail "upstream $to: $eligible servers take requests"

route=$(call "$api/v1/routes/$alias") || fail "alias $alias: $route"
from=$(field upstream <<<"$route")
answer=$(call -X PATCH -H "If-Match: \"$(field digest <<<"$route")\"" "$api/v1/routes/$alias" \
    -d "{\"upstream\":\"$to\"}") || fail "alias $alias: $answer"
echo "$alias: $to, was $from"
