#!/usr/bin/env bash
# Builds with the oldest Rust that Cargo.toml allows, or with the one that is named.
#
#   ci/msrv.sh [VERSION]
#
# Takes a toolchain that rustup has or can get; says so and ends well where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)}
if ! cargo "+$version" --version >/dev/null 2>&1 &&
    ! rustup toolchain install --profile minimal "$version" >/dev/null 2>&1; then
    echo "msrv: SKIPPED: no Rust $version to be had"
    exit 0
fi
. ci/prepare.sh
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/msrv
export CARGO_TARGET_DIR
cargo "+$version" check --locked --workspace --all-targets
cargo "+$version" build --locked --release --package peerage
echo "msrv: $(cargo "+$version" --version) builds it"
