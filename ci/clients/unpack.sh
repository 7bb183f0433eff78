#!/usr/bin/env bash
# Unpacks packages of Debian below the build's directory and installs nothing: prints where.
#
#   unpack.sh NAME PACKAGE ...       as target/clients/NAME
#
# Needs the package index once; what is there already is not asked for again.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
shift

mkdir -p "${CARGO_TARGET_DIR:-target}/clients"
all=$(realpath "${CARGO_TARGET_DIR:-target}/clients")
dir=$all/$name
if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$*" ]; then
    echo "clients: unpacking $*" >&2
    new=$(mktemp -d "$all/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    # Root's downloads need no other user, who may have no way into this directory.
    fetch() { (cd "$new" && apt-get -qq -o APT::Sandbox::User=root download "$@" >&2); }
    if ! fetch "$@"; then
        sudo=()
        [ "$(id -u)" = 0 ] || sudo=(sudo -n)
        "${sudo[@]}" apt-get -qq update >&2
        fetch "$@"
    fi
    for package in "$new"/*.deb; do
        dpkg -x "$package" "$new/root"
        rm "$package"
    done
    echo "$*" >"$new/root/stamp"
    rm -rf "$dir"
    mv "$new/root" "$dir"
fi
echo "$dir"
