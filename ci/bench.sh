#!/usr/bin/env bash
# What it costs, side by side with stock nginx in one run. Prints tables.
#
#   ci/bench.sh [instructions] [scale] [changes] [stopped] [picks]   all, or these
#
# instructions   per proxied request, by callgrind (repeatable to 0.1 %)
# scale          10,000 upstreams of 20 servers: start, one change, bytes a server
# changes        a second through the API, with each way to keep them
# stopped        latency while one worker is stopped, beside runs without
# picks          nanoseconds a pick with 1, 2 and 8 processes
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=" ${*:-instructions scale changes stopped picks} "
export PEERAGE_PACKAGES="python3 valgrind"
. ci/prepare.sh
if [ -z "${PEERAGE_MODULE:-}" ]; then
    PEERAGE_MODULE=$(ci/build.sh)
fi
export PEERAGE_MODULE PYTHONDONTWRITEBYTECODE=1

echo "$(nginx -v 2>&1 || /usr/sbin/nginx -v 2>&1), $(nproc) cores"
for part in instructions scale changes stopped; do
    if [[ $wanted == *" $part "* ]]; then
        echo
        python3 "ci/bench/$part.py"
    fi
done
if [[ $wanted == *" picks "* ]]; then
    echo
    cargo bench -q -p peerage-zone --bench picks
fi
