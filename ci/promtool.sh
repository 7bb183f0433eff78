#!/usr/bin/env bash
# Prometheus's own opinion of what is made for it: the rules of examples/ and their test.
#
#   ci/promtool.sh           prints what it checked
#   ci/promtool.sh --tools   only makes the tools, for the story tests/metrics.rs
#
# Debian's packages are unpacked aside, in target/promtool; nothing is installed or started.
set -euo pipefail
cd "$(dirname "$0")/.."
export PEERAGE_PACKAGES="python3 ${PEERAGE_PACKAGES:-}"
. ci/prepare.sh
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/promtool

download() {
    apt-get download -q -o APT::Sandbox::User=root prometheus python3-prometheus-client python3-decorator
}

unpack() {
    local package
    rm -rf "$tools"
    mkdir -p "$tools/packages"
    (cd "$tools/packages" && { download || { apt-get update -q && download; }; })
    for package in "$tools"/packages/*.deb; do
        dpkg -x "$package" "$tools/packages/root"
    done
    mv "$tools/packages/root/usr/lib/python3/dist-packages" "$tools/python"
    mv "$tools/packages/root/usr/bin/promtool" "$tools/promtool"
    rm -rf "$tools/packages"
}

[ -e "$tools/python/decorator.py" ] || unpack >&2
[ "${1:-}" != --tools ] || exit 0
"$tools/promtool" --version 2>&1 | head -1
"$tools/promtool" check rules examples/alerts.yml
"$tools/promtool" test rules examples/alerts_test.yml
