#!/usr/bin/env bash
# A real Consul to test against: 1.8.7, as Debian 11 packages it, unpacked aside.
#
#   ci/consul.sh [DIR]     prints the path of the binary; all of it lies in DIR (target/consul)
#
# The package comes from the mirror that this machine's apt already has for Debian's main, with a
# list of its own: the machine's sources, lists and packages stay as they are, and no root is needed.
# Quick where it is there already. Where it cannot be had, this says why and ends with 3.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bullseye
out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/consul}")
binary=$out/root/usr/bin/consul
without() {
    echo "consul: cannot be had here: $1" >&2
    exit 3
}

if [ ! -x "$binary" ]; then
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || without "no apt"
    targets=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(ORIGIN)|$(RELEASE)' \
        'Created-By: Packages' 2>/dev/null) || without "apt has no sources"
    # Of Debian's own suites, not those for security: the machine's release, by its mirror.
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$(awk -v main="$codename" '$2 == "main" && $0 ~ ("[|]" main "$") { print $1; exit }' <<<"$targets")
    [ -n "$mirror" ] || without "apt has no source of Debian's main"

    mkdir -p "$out/lists/partial" "$out/cache/archives/partial"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -r "$keys" ] || without "no keys of Debian's archive ($keys)"
    echo "deb [signed-by=$keys] $mirror $suite main" >"$out/sources.list"
    own=(-o "Dir::Etc::SourceList=$out/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$out/lists" -o "Dir::Cache=$out/cache"
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Debug::NoLocking=1)
    apt-get -qq "${own[@]}" update >"$out/log" 2>&1 && ! grep -q '^[EW]: ' "$out/log" ||
        without "the mirror has no \"$suite\", see $out/log"
    (cd "$out" && apt-get -qq "${own[@]}" download "consul/$suite") >>"$out/log" 2>&1 ||
        without "\"$suite\" has no such package for this machine, see $out/log"
    package=$(ls -t "$out"/consul_*.deb | head -n 1)
    rm -rf "$out/root.new"
    dpkg -x "$package" "$out/root.new"
    rm -rf "$out/root"
    mv "$out/root.new" "$out/root"
fi

version=$("$binary" version 2>/dev/null | sed -n 1p) || without "it does not run here"
echo "consul: $version" >&2
echo "$binary"
