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
. ci/scratch.sh
how=$PWD/ci/clients
scratch clients

# Starts nginx, whose first server is $1; the API is at $url/api.
start() {
    start_nginx app,web <<END
    peerage_zone main 4m;
    upstream app { peerage main; server $1; server 127.0.0.2:8080 backup; }
    upstream web { peerage main; server $1; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location / { proxy_pass http://app; }
    }
END
    url=http://127.0.0.1:$port
}

# PyPI's nginxplusapi.
plusapi() {
    local python=$target/clients/python
    python_tools "$python" "$how/requirements.txt"
    start 127.0.0.1:8080
    PYTHONDONTWRITEBYTECODE=1 "$python/bin/python" "$how/plusapi.py" "$url" app 127.0.0.3:8080
    stop_nginx
}

# A program of ours with NGINX Plus's Go client library.
go() {
    start 127.0.0.1:8080
    "$how/go.sh" "$url/api"
    stop_nginx
}

# Prometheus' exporter for NGINX, in Plus mode.
exporter() {
    start 127.0.0.1:8080
    "$how/exporter.sh" "$url/api"
    stop_nginx
}

mkdir -p "$target/clients"
clients=("$@")
[ $# != 0 ] || clients=(plusapi go exporter)
for client in "${clients[@]}"; do
    begun=$SECONDS
    "$client"
    echo "clients: $client ok, $((SECONDS - begun)) s"
done
check_log
