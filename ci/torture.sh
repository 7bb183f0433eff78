#!/usr/bin/env bash
# Random operations against a model, under traffic, while nginx is reloaded, killed, and starved of disk.
#
#   ci/torture.sh [SECONDS] [SEED]     60 s and a seed of the clock; the seed of a failure replays it
#
# PEERAGE_TORTURE_WITH=disk,upgrade,always says what is tried beside the rest (tests/torture.rs);
# with PEERAGE_FAULTS_MODULE, the build with points, workers die and stop at those.
set -euo pipefail
cd "$(dirname "$0")/.."

export PEERAGE_TORTURE_SECONDS=${1:-60} PEERAGE_TORTURE_SEED=${2:-$(date +%s)}
echo "== torture: seed $PEERAGE_TORTURE_SEED, $PEERAGE_TORTURE_SECONDS s"
. ci/prepare.sh
[ -n "${PEERAGE_MODULE:-}" ] || [ -f "${CARGO_TARGET_DIR:-target}/release/libpeerage.so" ] || ci/build.sh
if ! RUST_BACKTRACE=0 cargo test -q -p peerage --test torture -- --nocapture; then
    echo "== torture FAILED; again: ci/torture.sh $PEERAGE_TORTURE_SECONDS $PEERAGE_TORTURE_SEED"
    exit 1
fi
