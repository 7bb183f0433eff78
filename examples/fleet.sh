#!/usr/bin/env bash
# One word to several nginx, each with its own zone, and whether they agree.
#
#   fleet.sh say CALL API ...      POST v1/CALL to each, one after the other
#   fleet.sh compare API ...       compares the digests of all upstreams with those of the first
#
#   A="http://lb1:8081/api http://lb2:8081/api http://lb3:8081/api"
#   fleet.sh say 'hosts/10.0.0.1/down?wait=30s&missing=ok&reason=disk&if_reason=disk' $A
#   fleet.sh compare $A
#
# A call of hosts with missing=ok holds on a box that does not know the machine yet, too. Said again
# it changes nothing: where a box failed (1), mend it and say the whole again. Boxes that differ are
# shown, name by name, and are 1 as well.
set -euo pipefail

usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

get() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 60 "$@"
}

say() {
    local call=$1 api answer
    shift
    for api in "$@"; do
        if ! answer=$(get -m 300 -X POST "${api%/}/v1/$call"); then
            echo "fleet: $api: $answer" >&2
            exit 1
        fi
        echo "$api: done"
    done
}

# Name and digest of each upstream of a box, a line each, page by page.
digests() {
    local page next=()
    while true; do
        page=$(get -G -d limit=1000 "${next[@]}" "$1/v1/upstreams") || return 1
        page=$(python3 -c '
import json, sys
try:
    upstreams = json.load(sys.stdin)
except ValueError:
    sys.exit(1)
for name, upstream in upstreams.items():
    print(name, upstream["digest"])' <<<"$page") || return 1
        [ -n "$page" ] || return 0
        echo "$page"
        next=(--data-urlencode "after=$(tail -n 1 <<<"$page" | cut -d ' ' -f 1)")
    done
}

compare() {
    local first=${1%/} api wanted found status=0
    shift
    wanted=$(digests "$first") || {
        echo "fleet: $first: no answer" >&2
        exit 1
    }
    for api in "$@"; do
        if ! found=$(digests "${api%/}"); then
            echo "fleet: $api: no answer" >&2
            status=1
        elif [ "$found" = "$wanted" ]; then
            echo "$api: as $first"
        else
            diff --label "$first" --label "$api" -u0 <(echo "$wanted") <(echo "$found") || status=1
        fi
    done
    return $status
}

case ${1:-} in
    say | compare) [ $# -ge 3 ] || usage ;;
    *) usage ;;
esac
"$@"
