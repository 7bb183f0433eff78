#!/usr/bin/env bash
# Replaces all servers of an upstream, one after the other, each by release.sh.
#
#   rolling.sh API UPSTREAM REASON COMMAND [ARGUMENT ...]
#   rolling.sh http://127.0.0.1:8081/api app deploy-812 ./deploy 812
#
# COMMAND gets the server's address as its last argument. Ends at the first server that is not
# replaced, with what release.sh says of it; said again with the same REASON, it begins with all of
# them. Servers that are down or drain for another reason are somebody else's: they are named and
# left alone. SKIP in the environment names servers that are left out, such as one that has it already.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
api=${1%/} upstream=$2 reason=$3
shift 3
release=$(dirname "$0")/release.sh

# "ours" or "theirs", and the address, a line each; the one that failed last time comes first.
servers() {
    curl -sS --fail-with-body --retry 5 --retry-connrefused -m 60 "$api/v1/upstreams/$upstream" |
        python3 -c '
import json, sys
answer = json.load(sys.stdin)
if "servers" not in answer:
    sys.exit("rolling: " + answer.get("detail", str(answer)))
servers = answer["servers"]
for server in sorted(servers, key=lambda server: server["admin"]["state"] == "up"):
    admin = server["admin"]
    ours = admin["state"] == "up" or admin["reason"] == sys.argv[1]
    print("ours" if ours else "theirs", server["server"])
' "$reason"
}

list=$(servers)
[ -n "$list" ] || {
    echo "rolling: upstream $upstream has no servers" >&2
    exit 1
}
while read -r whose server; do
    if [[ " ${SKIP:-} " == *" $server "* ]]; then
        echo "$server: skipped"
    elif [ "$whose" = ours ]; then
        # Not what the list is read from: the command may read its input.
        "$release" "$api" "$upstream" "$server" "$reason" "$@" "$server" </dev/null
    else
        echo "$server: left alone, somebody has it down or drains it"
    fi
done <<<"$list"
