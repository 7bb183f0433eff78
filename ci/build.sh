#!/usr/bin/env bash
# Builds the module and prints its path.
#
#   ci/build.sh [--features LIST]     target/release/libpeerage.so, and beside it a copy under the
#                                     name that load_module lines use
#   ci/build.sh --faults              target/faults/libpeerage.so first: with fault points and
#                                     panics on demand, for tests alone
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

features=() faults=
while [ $# -gt 0 ]; do
    case $1 in
        --features) [ $# -ge 2 ] || usage; features=(--features "$2"); shift 2 ;;
        --faults) faults=1; shift ;;
        *) usage ;;
    esac
done
. ci/prepare.sh
target=${CARGO_TARGET_DIR:-target}
made=$target/release/libpeerage.so

if [ -n "$faults" ]; then
    # In the same directory, so that everything but our own crates is compiled once. Should it
    # end half-way, nothing may take the faulty build for the real one.
    trap 'rm -f "$made"' EXIT
    cargo build --release -p peerage --features points,panic >&2
    mkdir -p "$target/faults"
    cp "$made" "$target/faults/new.$$.so"
    mv "$target/faults/new.$$.so" "$target/faults/libpeerage.so"
    trap - EXIT
fi
cargo build --release -p peerage "${features[@]}" >&2

# By rename: an nginx that has the old file mapped must not see it change.
cp "$made" "$target/release/new.$$.so"
mv "$target/release/new.$$.so" "$target/release/ngx_http_peerage_module.so"
echo "$made"
