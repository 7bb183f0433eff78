#!/usr/bin/env bash
# Fuzzes every parser of outside input: the targets of crates/core/fuzz, one after the other.
#
#   ci/fuzz.sh [SECONDS [TARGET ...]]     so long for each target (10), these or all
#
# A finding is a failure, and how to see it again is printed; its input becomes a test in
# crates/core/tests/hostile.rs. All of it lies in target/fuzz; what was found to be of interest stays
# there, for the next run. The directory is one of cargo-fuzz, too, which builds with the same flags.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
shift $(($# > 0 ? 1 : 0))
# The engine is C++.
export PEERAGE_PACKAGES="${PEERAGE_PACKAGES:-} g++"
. ci/prepare.sh

fuzz=crates/core/fuzz
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz
targets=("$@")
if [ $# = 0 ]; then
    mapfile -t targets < <(basename -s .rs -a "$fuzz"/fuzz_targets/*.rs)
fi

cargo run -q -p peerage-core --example fuzz_seeds -- "$out/seeds"
# As cargo-fuzz has them; for another target than the host, so that build scripts go without.
host=$(rustc -vV | sed -n 's/^host: //p')
env CARGO_TARGET_DIR="$out" RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build -q --locked --release --manifest-path "$fuzz/Cargo.toml" --target "$host" \
    "${targets[@]/#/--bin=}"

failed=0
for target in "${targets[@]}"; do
    mkdir -p "$out/corpus/$target" "$out/findings"
    log=$out/$target.log
    run=("$out/$host/release/$target" -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=5)
    if "${run[@]}" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$out/findings/$target-" \
        "$out/corpus/$target" "$out/seeds/$target" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        printf '%-10s %9s executions, %5s points covered\n' "$target" "$runs" "$covered"
        continue
    fi
    failed=1
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "$target: a finding, in $log:"
    grep -m 1 -A 3 -E 'panicked at|ERROR: ' "$log" || tail -n 20 "$log"
    [ -z "$finding" ] || printf 'again: %s %s\nshorter: %s -minimize_crash=1 -runs=100000 %s\n' \
        "${run[*]}" "$finding" "${run[*]}" "$finding"
done
exit $failed
