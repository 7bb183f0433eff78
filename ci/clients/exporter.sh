#!/usr/bin/env bash
# Has Debian's package of the NGINX Prometheus exporter scrape a running nginx as NGINX Plus.
#
#   exporter.sh API     http://127.0.0.1:8081/api, with write=on; upstreams exporter-* are its own
#
# The exporter is unpacked below the build's directory, never installed or started as a service.
set -euo pipefail
api=${1%/}
here=$(dirname "$(realpath "$0")")
root=$("$here/unpack.sh" exporter prometheus-nginx-exporter)

exporter=
page=$(mktemp)
finish() {
    local status=$?
    if [ -n "$exporter" ]; then
        kill "$exporter" 2>/dev/null || true
        wait "$exporter" || true
    fi
    [ "$status" = 0 ] || sed 's/^/exporter: /' "$page.log" >&2 || true
    rm -f "$page" "$page.log"
    for upstream in exporter-a exporter-b exporter-none; do
        curl -sS -m 10 -o /dev/null -X DELETE "$api/v1/upstreams/$upstream" || true
    done
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

put() {
    curl -sS --fail-with-body -m 10 -o /dev/null -X PUT "$api/v1/upstreams/$1" -d "$2"
}
# One address in both, every state that an operator can set, and none at all.
put exporter-a '{"servers": [
    {"server": "127.0.0.1:9", "max_conns": 7},
    {"server": "127.0.0.2:9", "admin": {"state": "down"}},
    {"server": "unix:/run/app.sock", "backup": true}]}'
put exporter-b '{"servers": [
    {"server": "127.0.0.1:9", "admin": {"state": "drain"}},
    {"server": "[::1]:9", "weight": 0}]}'
put exporter-none '{"servers": []}'

# A port that was free a moment ago.
port=$(python3 -c 'import socket
print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
"$root/usr/bin/prometheus-nginx-exporter" -nginx.plus "-nginx.scrape-uri=$api" \
    "-web.listen-address=127.0.0.1:$port" >"$page.log" 2>&1 &
exporter=$!
for _ in $(seq 100); do
    if curl -fs -m 10 -o "$page" "http://127.0.0.1:$port/metrics"; then break; fi
    kill -0 "$exporter" || exit 1
    sleep 0.1
done

python3 "$here/exporter.py" "$page" "$api"
