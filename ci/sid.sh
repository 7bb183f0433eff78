#!/usr/bin/env bash
# Stories in the newest nginx that Debian has, where `sticky` is: unpacked aside, the system stays.
#
#   ci/sid.sh [STORY ...]     these story files of tests/, or those that touch every room
#   ci/sid.sh --env           no stories: prints PEERAGE_NGINX and PEERAGE_MODULE for the shell
#
# All of it lies in target/sid; remove that to take a newer one. The packages come from where this
# machine's own do, of the suite PEERAGE_SUITE (sid), and run with that suite's C library.
set -euo pipefail
cd "$(dirname "$0")/.."

export PEERAGE_PACKAGES="patchelf ${PEERAGE_PACKAGES:-}"
. ci/prepare.sh
sid=$(realpath -m "${CARGO_TARGET_DIR:-target}")/sid
libraries=$sid/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)

# apt with lists of its own, which knows no package as installed.
aside() {
    local command=$1
    shift
    "$command" -q -o Dir::Etc::SourceList="$sid/apt/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$sid/apt/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$sid/apt/cache" -o APT::Sandbox::User=root "$@"
}

# The libraries that packages need.
libraries_of() {
    aside apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances "$@" | sed -nE 's/^ *Depends: ((lib|zlib)[^ ]*)$/\1/p' | sort -u
}

unpack() {
    local mirror first second package
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | sort -u)
    mirror=${mirror%%$'\n'*}
    [ -n "$mirror" ] || {
        echo "sid: apt knows no mirror of Debian (apt-get update?)" >&2
        return 1
    }
    rm -rf "$sid"
    mkdir -p "$sid"/apt/{lists,cache/archives}/partial "$sid/packages"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror" \
        "${PEERAGE_SUITE:-sid} main" >"$sid/apt/sources.list"
    aside apt-get update
    first=$(libraries_of nginx)
    # shellcheck disable=SC2086
    second=$(libraries_of $first)
    # shellcheck disable=SC2086
    (cd "$sid/packages" && aside apt-get download nginx nginx-dev \
        $(printf '%s\n' $first $second | sort -u))
    for package in "$sid"/packages/*.deb; do
        dpkg -x "$package" "$sid/root"
    done
    rm -rf "$sid/packages" "$sid/apt"
    # Its own loader and libraries, in the program itself: what it starts is it again (USR2).
    patchelf --set-interpreter "$(echo "$libraries"/ld-linux-*.so.*)" --force-rpath \
        --set-rpath "$libraries" --output "$sid/nginx" "$sid/root/usr/sbin/nginx"
    peerage_configure "$sid/root/usr/share/nginx/src" "$sid"
    touch "$sid/unpacked"
}

[ -e "$sid/unpacked" ] || unpack >&2
faults=(--faults)
[ "${1:-}" != --env ] || faults=()
PEERAGE_MODULE=$(
    export NGINX_SOURCE_DIR=$sid/src NGINX_BUILD_DIR=$sid/src/objs CARGO_TARGET_DIR=$sid
    ci/build.sh "${faults[@]}"
)
PEERAGE_NGINX=$sid/nginx PEERAGE_FAULTS_MODULE=$sid/faults/libpeerage.so
export PEERAGE_NGINX PEERAGE_MODULE PEERAGE_FAULTS_MODULE
if [ "${1:-}" = --env ]; then
    echo "export PEERAGE_NGINX=$PEERAGE_NGINX PEERAGE_MODULE=$PEERAGE_MODULE"
    exit
fi
"$PEERAGE_NGINX" -v

stories=("$@")
[ $# != 0 ] || stories=(harness sticky release balancing connections composing reload state upgrade
    api api_access api_conditions config_errors)
start=$SECONDS
cargo test -p peerage --no-fail-fast "${stories[@]/#/--test=}" -- --test-threads=2
echo "== stories in nginx of ${PEERAGE_SUITE:-sid} ok, $((SECONDS - start)) s"
