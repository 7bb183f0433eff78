#!/usr/bin/env bash
# Everything that must hold before a change lands: the README's test command.
#
#   ci/test.sh            all steps
#   ci/test.sh STEP ...   only these, by the first word that they print
#
# Installs what is missing. Ends at the first step that fails, and says which.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=" $* "
target=${CARGO_TARGET_DIR:-target}
begun=$SECONDS

step() {
    local name=$1 start=$SECONDS
    shift
    [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
    echo "== $name"
    if ! "$@"; then
        echo "== $name FAILED after $((SECONDS - start)) s: $*"
        exit 1
    fi
    echo "== $name ok, $((SECONDS - start)) s"
}

# Also when steps are picked: cargo needs what it exports.
echo "== prepare"
export PEERAGE_PACKAGES="valgrind python3 python3-venv g++ strace redis-server"
. ci/prepare.sh

# The stories wait for processes more than they compute: two at a time.
stories() {
    # Without a real Consul they have the fake alone, and say so.
    PEERAGE_CONSUL=$(ci/consul.sh | tail -n 1) && export PEERAGE_CONSUL || unset PEERAGE_CONSUL
    cargo test -p peerage --tests -- --test-threads=2
}

# The workspace, and the one of the fuzz targets.
formatted() {
    cargo fmt --all --check && cargo fmt --manifest-path crates/core/fuzz/Cargo.toml --check
}

step format formatted
step lint ci/lint.sh
step supply ci/supply.sh
step build ci/build.sh --faults
step symbols ci/lint.sh --symbols "$target/release/libpeerage.so"
step clippy cargo clippy --workspace --all-targets -- -D warnings
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
step unit cargo test -p peerage-core -p peerage-zone -p peerage-shm
step crash cargo test -p peerage-zone --features points --test crash --test cache_crash --test ends_crash
step fuzz ci/fuzz.sh 5
# Optimised across crates it would build longer than it runs.
step loom env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo test -p peerage-shm --test loom --release
step fork cargo test -p peerage-shm --features points --test fork
step promtool ci/promtool.sh
step examples ci/examples.sh
step stories stories
step torture ci/torture.sh 60
step schema ci/schemathesis.sh
step clients ci/clients.sh
step page ci/page.sh
echo "== all ok, $((SECONDS - begun)) s"
