#!/usr/bin/env bash
# Tenants in a Redis, from a fresh clone: routed, moved by one write, and served while Redis is down.
#
#   examples/tenants.sh
#
# Installs what is missing, builds the module, starts a redis-server of its own, stock nginx with
# tenants-redis.conf and two tiny backends, all on loopback; shows what happens, and stops what it
# started. Ends with 0 when every answer was the right one.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

say "installing what is missing, building the module"
export PEERAGE_PACKAGES="python3 redis-server procps"
. ci/prepare.sh
module=$(realpath "$(ci/build.sh)")
nginx=$(command -v nginx || echo /usr/sbin/nginx)
prefix=$(mktemp -d "${TMPDIR:-/tmp}/peerage-tenants.XXXXXX")

ended() {
    local status=$? file pid
    trap - EXIT
    [ "$status" = 0 ] || tail -n 20 "$prefix/error.log" >&2 || true
    for file in "$prefix"/*.pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || true
    done
    for _ in $(seq 50); do
        pgrep -f "$prefix" >/dev/null || break
        sleep 0.1
    done
    rm -rf "$prefix"
    exit "$status"
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mapfile -t ports < <(python3 -c '
import random, socket
found = []
while len(found) < 5:
    port = random.randrange(10000, 11000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    if port not in found:
        found.append(port)
print(*found, sep="\n")')
web=${ports[0]} api=http://127.0.0.1:${ports[1]}/api/v1 redis=${ports[2]}

redis_start() {
    redis-server --port "$redis" --bind 127.0.0.1 --save '' --dir "$prefix" --daemonize yes \
        --pidfile "$prefix/redis.pid" --logfile "$prefix/redis.log" >/dev/null
    for _ in $(seq 100); do
        if redis PING >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    return 1
}
redis() { redis-cli -p "$redis" "$@"; }

say "a Redis with two tenants, and two backends"
redis_start
for n in 3 4; do
    examples/instance.sh start "$prefix" "${ports[$n]}" "b$n" "v$((n - 2))"
done
redis HSET tenant:acme app orders-v1 status active
redis HSET tenant:globex app orders-v1 status suspended
redis SET app:orders-v1 "127.0.0.1:${ports[3]}"

say "nginx, with examples/tenants-redis.conf"
user=
[ "$(id -u)" != 0 ] || user='user root;'
mkdir "$prefix/logs"
{
    echo "load_module $module; $user pid $prefix/nginx.pid; worker_processes 2;"
    echo "events {} http { access_log off; client_body_temp_path $prefix/body;"
    echo "proxy_temp_path $prefix/proxy; fastcgi_temp_path $prefix/fastcgi;"
    echo "uwsgi_temp_path $prefix/uwsgi; scgi_temp_path $prefix/scgi;"
    sed -e "s|/var/lib/nginx/peerage/|$prefix/|; s|listen 8080|listen 127.0.0.1:$web|" \
        -e "s|127.0.0.1:8081|127.0.0.1:${ports[1]}|; s|127.0.0.1:6379|127.0.0.1:$redis|" \
        -e "s|logs/tenants.log|$prefix/logs/tenants.log|" examples/tenants-redis.conf
    echo "}"
} >"$prefix/nginx.conf"
"$nginx" -p "$prefix" -e "$prefix/error.log" -c "$prefix/nginx.conf" </dev/null

# What a tenant is answered: the status, and what the backend says.
answer() {
    curl -sS -m 5 -o "$prefix/out" -w '%{http_code}' -H "Host: $1.example.com" \
        "http://127.0.0.1:$web/"
    sed -n 's/^b[34] / /p' "$prefix/out" | tr -d '\n'
}
# Waits until a tenant is answered so.
expect() {
    local got=
    for _ in $(seq 100); do
        got=$(answer "$1" 2>/dev/null) || true
        if [ "$got" = "$2" ]; then
            echo "$1: $got"
            return 0
        fi
        sleep 0.05
    done
    echo "$1: $got, not $2" >&2
    return 1
}

expect acme "200 v1"
expect globex "403"
expect nobody "404"

say "the app moves, and its tenants with it: one write"
redis SET app:orders-v1 "127.0.0.1:${ports[4]}"
expect acme "200 v2"

say "globex is taken up again"
redis HSET tenant:globex status active
expect globex "200 v2"

say "Redis dies, nginx is restarted: who was known is served"
for _ in $(seq 100); do
    if grep -qs globex "$prefix/routes.json"; then break; fi
    sleep 0.1
done
kill -KILL "$(cat "$prefix/redis.pid")"
kill -QUIT "$(cat "$prefix/nginx.pid")"
for _ in $(seq 200); do
    [ -e "$prefix/nginx.pid" ] || break
    sleep 0.05
done
"$nginx" -p "$prefix" -e "$prefix/error.log" -c "$prefix/nginx.conf" </dev/null
expect acme "200 v2"
expect globex "200 v2"
expect nobody "503"

say "meanwhile a tenant is held by the API"
curl -sS --fail-with-body -m 10 -o /dev/null -X PUT "$api/routes/acme?force=1" \
    -d '{"upstream":"orders-v2","status":"suspended","reason":"unpaid","ttl":"1h"}'
expect acme "403"

say "all as it should be"
