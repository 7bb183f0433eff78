#!/usr/bin/env bash
# Sends a real nginx what docs/openapi.json allows and what it forbids, and holds every answer
# against it: no error of the server, no status, field or type that is not in the document.
#
#   ci/schemathesis.sh [SECONDS]     for about so long, 45 unless said
#
# PEERAGE_MODULE names the module, else target/release/libpeerage.so is taken. Needs the Python
# package index once; what was installed stays in target/schemathesis.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-45}
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(realpath "${CARGO_TARGET_DIR:-target}")
module=$(realpath "${PEERAGE_MODULE:-$target/release/libpeerage.so}")
nginx=$(command -v nginx || echo /usr/sbin/nginx)
how=$PWD/ci/schema
document=$PWD/docs/openapi.json

tool=$target/schemathesis
stamp=$(sha256sum <"$how/requirements.txt")
if [ "$(cat "$tool/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$tool"
    python3 -m venv "$tool"
    "$tool/bin/pip" install -q --disable-pip-version-check -r "$how/requirements.txt"
    echo "$stamp" >"$tool/stamp"
fi

prefix=$(mktemp -d "${TMPDIR:-/tmp}/peerage-schema.XXXXXX")
master=
finish() {
    local status=$?
    if [ -n "$master" ]; then
        kill -QUIT "$master" 2>/dev/null || true
        wait "$master" || true
    fi
    if [ "$status" != 0 ] && [ -e "$prefix/error.log" ]; then
        echo "schemathesis: the end of nginx's error log:" >&2
        grep -vE '\[(notice|info)\]' "$prefix/error.log" | tail -n 20 >&2 || true
    fi
    rm -rf "$prefix"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A port that was free a moment ago.
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
user=
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
    log_format answer "\$status \$request_method \$request_uri";
    access_log answers.log answer;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    client_max_body_size 8m;
    peerage_zone main 4m state=$prefix/main.json;
    # Nothing is sent to them.
    upstream app { peerage main; server 10.0.0.1:8080 weight=3; server 10.0.0.2:8080; server 10.0.0.3:8080; }
    upstream web { peerage main; server 10.0.0.1:8080; server 10.0.0.3:8080; }
    server { listen 127.0.0.1:$port; location /api { peerage_api write=on; } }
}
END
"$nginx" -p "$prefix/" -c nginx.conf -e error.log &
master=$!
api=http://127.0.0.1:$port/api
up=
for _ in $(seq 100); do
    if curl -fs -m 5 "$api/v1/ready?require=app,web" >/dev/null; then
        up=1
        break
    fi
    sleep 0.1
done
[ -n "$up" ] || { echo "schemathesis: nginx does not answer" >&2; exit 1; }

cd "$prefix"
failed=0
PEERAGE_API=$api PYTHONPATH=$how PYTHONDONTWRITEBYTECODE=1 "$tool/bin/schemathesis" \
    --config-file "$how/schemathesis.toml" run "$document" --url "$api" \
    --max-time "$seconds" --warnings off --no-color || failed=$?
echo "answers: $(awk '{ n[$1]++ } END { for (s in n) print n[s], "x", s }' answers.log | sort -k3 | paste -sd, -)"
[ -z "${PEERAGE_KEEP:-}" ] || cp answers.log error.log "$target/"
if grep -E '\[(alert|emerg|crit)\]' error.log >&2; then
    echo "schemathesis: nginx complains" >&2
    failed=1
fi
exit "$failed"
