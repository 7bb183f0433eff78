#!/usr/bin/env bash
# The cases at full size (hours of load, hundreds of killed workers): what ci/test.sh runs short.
#
#   ci/long.sh [STORY ...]     all stories of tests/, then the oldest Rust, fuzzing, schemathesis, a newer
#                              nginx, ASan, torture, how soon failures are known, nginx's own build,
#                              a fresh machine; or these
set -euo pipefail
cd "$(dirname "$0")/.."

export PEERAGE_LONG=1 PEERAGE_PACKAGES="valgrind python3 python3-venv g++ strace redis-server"
. ci/prepare.sh
ci/build.sh --faults
ci/promtool.sh --tools
ci/examples.sh
PEERAGE_CONSUL=$(ci/consul.sh | tail -n 1) && export PEERAGE_CONSUL || unset PEERAGE_CONSUL

stories=("$@")
if [ $# = 0 ]; then
    mapfile -t stories < <(basename -s .rs -a tests/*.rs)
fi
# One at a time: they measure memory, rates and times.
for story in "${stories[@]}"; do
    echo "== $story"
    start=$SECONDS
    cargo test -p peerage --test "$story" -- --test-threads=1
    echo "== $story ok, $((SECONDS - start)) s"
done
cargo test -p peerage-shm --release
if [ $# = 0 ]; then
    ci/msrv.sh
    ci/fuzz.sh 60
    ci/schemathesis.sh 300
    env -u PEERAGE_LONG ci/newer.sh
    env -u PEERAGE_LONG ci/asan.sh
    for seed in 1 2 3; do
        ci/torture.sh 600 "$seed"
    done
    env -u PEERAGE_LONG ci/bench.sh checks
    for how in static dynamic debian; do
        env -u PEERAGE_LONG ci/build-nginx.sh "$how"
    done
    env -u PEERAGE_LONG ci/fresh.sh
fi
