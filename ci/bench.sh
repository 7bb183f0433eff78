#!/usr/bin/env bash
# What it costs, side by side with stock nginx in one run. Prints tables.
#
#   ci/bench.sh [--quick] [--out DIR] [NAME ...]      all, or these
#
# instructions   per proxied request, by callgrind (repeatable to 0.1 %)
# cpu            CPU time per proxied request, in bursts that take turns
# updates        one update until all workers answer from it: API, Lua, reload; failed requests
# traffic        latency while 20 changes a second happen, beside equal runs without
# websockets     2,000 WebSockets through 100 changes; processes, memory, TLS sessions resumed
# events         1,000 listeners: idle, and until an event has reached all
# scale          10,000 upstreams of 20 servers: start, one change, bytes a server
# changes        a second through the API, with each way to keep them
# stopped        latency while one worker is stopped, beside runs without
# checks         health checks: how soon a failure is known; cost of 10,000 servers
# scrape         a page of metrics of 10,000 servers: the longest turn of the event loop, memory
# picks          nanoseconds a pick with 1, 2 and 8 processes
# routes         nanoseconds a look-up of a route among up to 1,000,000
# pictures       of the figures, into docs/benchmarks
#
# Figures are kept as JSON in target/bench, or in DIR. With --quick all is small: that tries the
# benchmarks, not nginx; its pictures go beside its figures.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,22s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

scripts=(instructions cpu updates traffic websockets events scale changes stopped scrape checks)
out=target/bench pictures=docs/benchmarks
names=()
export QUICK=0
while [ $# -gt 0 ]; do
    case $1 in
        --quick) QUICK=1; shift ;;
        --out) [ $# -ge 2 ] || usage; out=$2; shift 2 ;;
        *) [[ " ${scripts[*]} picks routes pictures " == *" $1 "* ]] || usage; names+=("$1"); shift ;;
    esac
done
[ "$QUICK" = 0 ] || pictures=$out
wanted=" ${names[*]:-${scripts[*]} picks routes pictures} "
export BENCH_OUT=$out PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

if [ "$wanted" = " pictures " ]; then
    exec python3 ci/bench/pictures.py "$out" "$pictures"
fi
export PEERAGE_PACKAGES="python3 valgrind redis-server"
. ci/prepare.sh
if [ -z "${PEERAGE_MODULE:-}" ]; then
    PEERAGE_MODULE=$(ci/build.sh)
fi
if [ -z "${PEERAGE_LUA:-}" ] && [[ $wanted =~ \ (instructions|cpu|updates)\  ]]; then
    PEERAGE_LUA=$(ci/bench/lua.sh) || PEERAGE_LUA=
fi
export PEERAGE_MODULE PEERAGE_LUA=${PEERAGE_LUA:-}

echo "$(nginx -v 2>&1 || /usr/sbin/nginx -v 2>&1), $(nproc) cores"
failed=()
for part in "${scripts[@]}"; do
    if [[ $wanted == *" $part "* ]]; then
        echo
        python3 "ci/bench/$part.py" || failed+=("$part")
    fi
done
for part in picks routes; do
    if [[ $wanted == *" $part "* ]]; then
        echo
        cargo bench -q -p peerage-zone --bench "$part" || failed+=("$part")
    fi
done
if [[ $wanted == *" pictures "* ]]; then
    echo
    python3 ci/bench/pictures.py "$out" "$pictures"
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "bench: failed: ${failed[*]}" >&2
    exit 1
fi
