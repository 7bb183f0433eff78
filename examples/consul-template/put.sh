#!/usr/bin/env bash
# Sends a rendered file to the API: the command of a template.
#
#   put.sh FILE URL          URL is that of the upstream: http://127.0.0.1:8081/api/v1/upstreams/app
#
# Says the same again while nginx cannot take it now. A file without a server is not sent, since
# an outage of the catalogue looks like one; with EMPTY=ok in the environment it is.
set -euo pipefail

if [ $# != 2 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 64
fi
if [ "${EMPTY:-}" != ok ] && ! grep -qE -- '"server"[[:space:]]*:' "$1"; then
    echo "put: no server in $1, nothing sent" >&2
    exit 1
fi
curl -sS --fail-with-body --retry 5 --retry-connrefused -m 30 -X PUT --data-binary "@$1" "$2"
echo
