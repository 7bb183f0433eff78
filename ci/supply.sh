#!/usr/bin/env bash
# Whose code is built in: licences, sources, bans, and duplicates of all crates that ours need, held
# against deny.toml, which cargo-deny reads as well.
#
#   ci/supply.sh
#
# Fails where Cargo.lock is not what Cargo.toml asks for, too.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo metadata --format-version 1 --locked --all-features | python3 ci/supply.py deny.toml
