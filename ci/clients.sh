#!/usr/bin/env bash
# Drives a real nginx with clients that others have written, each against a fresh one: what they
# were made for works here unchanged.
#
#   ci/clients.sh [CLIENT ...]     all, or these: plusapi go exporter
#
# PEERAGE_MODULE names the module, else target/release/libpeerage.so is taken. Needs the Python
# package index and Debian's once; what was fetched stays in target/clients, nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p "${CARGO_TARGET_DIR:-target}/clients"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
module=$(realpath "${PEERAGE_MODULE:-$target/release/libpeerage.so}")
nginx=$(command -v nginx || echo /usr/sbin/nginx)
how=$PWD/ci/clients
tools=$target/clients

prefix=$(mktemp -d "${TMPDIR:-/tmp}/peerage-clients.XXXXXX")
master=
stop() {
    [ -n "$master" ] || return 0
    kill -QUIT "$master" 2>/dev/null || true
    wait "$master" || true
    master=
}
finish() {
    local status=$?
    stop
    if [ "$status" != 0 ] && [ -e "$prefix/error.log" ]; then
        echo "clients: the end of nginx's error log:" >&2
        tail -n 20 "$prefix/error.log" >&2
    fi
    rm -rf "$prefix"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Starts nginx; the API is at $url/api.
start() {
    # A port that was free a moment ago.
    local port user=
    port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
    url=http://127.0.0.1:$port
    [ "$(id -u)" != 0 ] || user="user root;"
    cat >"$prefix/nginx.conf" <<END
load_module $module;
$user
daemon off;
worker_processes 2;
pid nginx.pid;
error_log error.log notice;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    peerage_zone main 4m;
    upstream app { peerage main; server $1; server 127.0.0.2:8080 backup; }
    upstream web { peerage main; server $1; }
    server {
        listen 127.0.0.1:$port;
        location /api { peerage_api write=on; }
        location / { proxy_pass http://app; }
    }
}
END
    "$nginx" -p "$prefix/" -c nginx.conf -e error.log &
    master=$!
    for _ in $(seq 100); do
        curl -fs -m 5 "$url/api/v1/ready?require=app,web" >/dev/null && return 0
        sleep 0.1
    done
    echo "clients: nginx does not answer" >&2
    return 1
}

# PyPI's nginxplusapi.
plusapi() {
    local stamp
    stamp=$(sha256sum <"$how/requirements.txt")
    if [ "$(cat "$tools/python/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$tools/python"
        python3 -m venv "$tools/python"
        "$tools/python/bin/pip" install -q --disable-pip-version-check -r "$how/requirements.txt"
        echo "$stamp" >"$tools/python/stamp"
    fi
    start 127.0.0.1:8080
    PYTHONDONTWRITEBYTECODE=1 "$tools/python/bin/python" "$how/plusapi.py" "$url" app 127.0.0.3:8080
    stop
}

# A program of ours with NGINX Plus's Go client library.
go() {
    start 127.0.0.1:8080
    "$how/go.sh" "$url/api"
    stop
}

# Prometheus' exporter for NGINX, in Plus mode.
exporter() {
    start 127.0.0.1:8080
    "$how/exporter.sh" "$url/api"
    stop
}

clients=("$@")
[ $# != 0 ] || clients=(plusapi go exporter)
for client in "${clients[@]}"; do
    begun=$SECONDS
    "$client"
    echo "clients: $client ok, $((SECONDS - begun)) s"
done
if grep -E '\[(alert|emerg|crit)\]' "$prefix/error.log" >&2; then
    echo "clients: nginx complains" >&2
    exit 1
fi
