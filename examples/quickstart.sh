#!/usr/bin/env bash
# From a fresh clone to a rolling release without a lost request.
#
#   examples/quickstart.sh [--keep]
#
# Installs what is missing, builds the module, starts stock nginx with it and three tiny backends
# on loopback, then replaces all three backends under load, through the API. Ends with 0 when no
# request failed, and stops what it started; --keep leaves it running and says how to stop it.
# PEERAGE_NGINX names another nginx, PEERAGE_MODULE a module that is built already, or "builtin".
set -euo pipefail
cd "$(dirname "$0")/.."

keep=
case ${1:-} in
    '') ;;
    --keep) keep=1 ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
        exit 64
        ;;
esac

say() { printf '\n== %s\n' "$*"; }

say "installing what is missing, building the module"
export PEERAGE_PACKAGES="python3"
. ci/prepare.sh
module=${PEERAGE_MODULE:-$(ci/build.sh)}
[ "$module" = builtin ] || module=$(realpath "$module")
nginx=${PEERAGE_NGINX:-$(command -v nginx || echo /usr/sbin/nginx)}

prefix=$(mktemp -d "${TMPDIR:-/tmp}/peerage-quickstart.XXXXXX")

# Ends what this script started, and nothing else: nginx by its pid file, the others by theirs.
# With --keep it is written out as a script of its own.
stop_all() {
    local file pid
    for file in "$prefix"/*.pid; do
        pid=$(cat "$file" 2>/dev/null) || continue
        case $file in
            */nginx.pid) kill -QUIT "$pid" 2>/dev/null || true ;;
            *) kill "$pid" 2>/dev/null || true ;;
        esac
        for _ in $(seq 50); do
            # Gone, or a zombie that nobody has reaped yet.
            grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        rm -f "$file"
    done
    rm -rf "$prefix"
}

ended() {
    local status=$?
    trap - EXIT
    if [ "$status" != 0 ] && [ -s "$prefix/error.log" ]; then
        say "the end of nginx's error log"
        tail -n 20 "$prefix/error.log"
    fi
    if [ -n "$keep" ] && [ "$status" = 0 ]; then
        printf '#!/usr/bin/env bash\nprefix=%q\n%s\nstop_all\n' "$prefix" "$(declare -f stop_all)" \
            >"$prefix/stop.sh"
        say "left running: http://127.0.0.1:$web/ and $api/v1/upstreams/app"
        echo "stop it with: bash $prefix/stop.sh"
    else
        stop_all
    fi
    exit "$status"
}
trap ended EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits up to ten seconds for a command to succeed.
until_ok() {
    for _ in $(seq 100); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "quickstart: not so within 10 s: $*" >&2
    return 1
}

answers() {
    curl -fsS -m 5 "http://127.0.0.1:$1/"
}

# Free ports on loopback, below those that the kernel gives to outgoing connections.
mapfile -t ports < <(python3 -c '
import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
found = []
while len(found) < 5:
    port = random.randrange(10000, max(low, 11000))
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    if port not in found:
        found.append(port)
print(*found, sep="\n")')
web=${ports[0]}
api=http://127.0.0.1:${ports[4]}/api

say "starting three backends, version v1: ports ${ports[*]:1:3}"
for n in 1 2 3; do
    examples/instance.sh start "$prefix" "${ports[$n]}" b$n v1
done

say "starting $("$nginx" -v 2>&1 | sed 's/.*: //') with the module: port $web, API at $api"
user= builtin=()
[ "$(id -u)" != 0 ] || user='user root;'
[ "$module" != builtin ] || builtin=(-e '/^load_module/d')
sed "${builtin[@]}" -e "s|@MODULE@|$module|; s|@PREFIX@|$prefix|; s|@USER@|$user|; s|@WEB@|$web|; s|@API@|${ports[4]}|" \
    -e "s|@B1@|${ports[1]}|; s|@B2@|${ports[2]}|; s|@B3@|${ports[3]}|" \
    examples/quickstart.conf.in >"$prefix/nginx.conf"
"$nginx" -p "$prefix" -e "$prefix/error.log" -c "$prefix/nginx.conf" </dev/null >>"$prefix/nginx.out" 2>&1 ||
    { cat "$prefix/nginx.out" >&2; exit 1; }
until_ok answers "$web"
until_ok curl -fsS -m 5 "$api/v1/upstreams/app"

say "load: 250 requests a second, each on a fresh connection"
python3 examples/load.py 127.0.0.1 "$web" 250 "$prefix/report" </dev/null >"$prefix/load.log" 2>&1 &
load=$!
echo $load >"$prefix/load.pid"
sleep 2

for n in 1 2 3; do
    say "releasing v2 on server $n of 3"
    examples/release.sh "$api" app "127.0.0.1:${ports[$n]}" deploy-2 \
        examples/instance.sh replace "$prefix" "${ports[$n]}" b$n v2
    sleep 1
done

sleep 1
kill "$load"
wait "$load" || { cat "$prefix/load.log" >&2; exit 1; }
rm -f "$prefix/load.pid"

say "result"
cat "$prefix/report"
failed=$(awk '$1 == "failed" { print $2 }' "$prefix/report")
curl -fsS -m 5 "http://127.0.0.1:$web/"
if [ "$failed" != 0 ]; then
    echo "quickstart: $failed requests failed"
    exit 1
fi
for version in v1 v2; do
    grep -q "^answer $version " "$prefix/report" || {
        echo "quickstart: $version never answered"
        exit 1
    }
done
echo "three servers replaced, no request failed"
