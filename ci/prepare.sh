#!/usr/bin/env bash
# Makes this machine ready to build and test: installs what is missing, configures nginx's headers.
#
#   ci/prepare.sh       run: prints NGINX_SOURCE_DIR and NGINX_BUILD_DIR for the shell
#   . ci/prepare.sh     sourced: exports them
#
# PEERAGE_PACKAGES names more packages to install (python3, valgrind). Quick when there is nothing to do, and
# then needs no root. The variables are taken as they are when both are set already (another
# nginx than Debian's).

peerage_prepare() {
    local root
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || return
    command -v cargo >/dev/null || {
        echo "prepare: Rust is missing: install rustc and cargo 1.88 or newer (rustup.rs)" >&2
        return 1
    }
    # shellcheck disable=SC2086
    peerage_packages nginx nginx-dev libclang-dev gcc make curl openssl libpcre2-dev libssl-dev \
        zlib1g-dev ${PEERAGE_PACKAGES:-} || return
    if [ -z "${NGINX_SOURCE_DIR:-}" ] || [ -z "${NGINX_BUILD_DIR:-}" ]; then
        peerage_headers "$root" || return
    fi
    export NGINX_SOURCE_DIR NGINX_BUILD_DIR
}

# Installs those of the packages that are missing; leaves no nginx running that was not before.
peerage_packages() {
    command -v dpkg-query >/dev/null || {
        echo "prepare: no Debian: make sure of these by hand: $*" >&2
        return 0
    }
    local have missing=() package
    have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null)
    for package in "$@"; do
        grep -qx "installed $package" <<<"$have" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    echo "prepare: installing ${missing[*]}" >&2
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || {
            echo "prepare: as root, please: apt-get install --no-install-recommends ${missing[*]}" >&2
            return 1
        }
        sudo=(sudo)
        [ -t 0 ] || sudo+=(-n)
    fi
    local before policy=
    before=$(peerage_service)
    # While packages are installed, none of them may start a service. One of ours that lies there was
    # left by a run that was killed.
    if [ ! -e /usr/sbin/policy-rc.d ] || grep -qs '^# peerage' /usr/sbin/policy-rc.d; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\n# peerage: while packages are installed\nexit 101\n' |
            "${sudo[@]}" tee "$policy" >/dev/null || return
        "${sudo[@]}" chmod 755 "$policy"
    fi
    local done=0 apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get -qq -y -o Dpkg::Use-Pty=0)
    (
        # Also where it is stopped.
        [ -z "$policy" ] || trap '"${sudo[@]}" rm -f "$policy"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"
    ) </dev/null >&2 || done=$?
    if [ -z "$before" ] && [ -n "$(peerage_service)" ]; then
        "${sudo[@]}" kill -QUIT "$(peerage_service)"
    fi
    if [ "$done" != 0 ]; then
        echo "prepare: apt-get could not install ${missing[*]}" >&2
        return "$done"
    fi
    # The tests start their own nginx; the service, where this brought it, stays off.
    if [[ " ${missing[*]} " == *" nginx "* ]] && [ -d /run/systemd/system ]; then
        "${sudo[@]}" systemctl disable --quiet --now nginx || true
    fi
}

# The pid of the nginx that the system runs as a service, if any.
peerage_service() {
    local pid
    pid=$(cat /run/nginx.pid 2>/dev/null) || return 0
    if [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = nginx ]; then
        echo "$pid"
    fi
}

# nginx-dev has headers and `configure` but no objs/: makes them beside the build, once a version.
peerage_headers() {
    local root=$1 from=/usr/share/nginx/src version dir stamp
    version=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$from/src/core/nginx.h") || return
    dir=$root/target/nginx/$version
    stamp=$(dpkg-query -W nginx-dev 2>/dev/null || echo "$version")
    if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
        echo "prepare: configuring nginx $version" >&2
        peerage_configure "$from" "$dir" && echo "$stamp" >"$dir/stamp" || return
    fi
    NGINX_SOURCE_DIR=$dir/src
    NGINX_BUILD_DIR=$dir/src/objs
}

# Configures a copy of nginx-dev's source as DIR/src: FROM DIR.
peerage_configure() {
    local from=$1 dir=$2 new=$2/new.$$
    mkdir -p "$dir"
    cp -R "$from" "$new" || return
    (
        cd "$new" || exit
        # shellcheck disable=SC1091
        . ./conf_flags
        ./configure "${NGX_CONF_FLAGS[@]}" >../configure.log 2>&1
    ) || {
        echo "prepare: configure failed, see $dir/configure.log" >&2
        rm -rf "$new"
        return 1
    }
    rm -rf "$dir/src"
    mv "$new" "$dir/src"
}

peerage_prepared=0
peerage_prepare || peerage_prepared=$?
if [ "${BASH_SOURCE[0]}" != "$0" ]; then
    return "$peerage_prepared"
fi
[ "$peerage_prepared" = 0 ] || exit "$peerage_prepared"
echo "export NGINX_SOURCE_DIR=$NGINX_SOURCE_DIR"
echo "export NGINX_BUILD_DIR=$NGINX_BUILD_DIR"
