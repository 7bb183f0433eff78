#!/usr/bin/env bash
# A fresh machine: Debian 12 with nothing but its base, the Rust toolchain, and a clone of this.
#
#   ci/fresh.sh [--in DIR] [--dirty] [STEP ...]
#
# quickstart           examples/quickstart.sh, as a newcomer runs it
# package              the Debian package is made; it installs, serves, is upgraded under load, and goes
# test                 ci/test.sh; test:lint,unit runs these of its steps alone
#
# All three unless named, in this order. The tree comes from debootstrap and the mirror that this
# machine's apt has, and goes at the end; with --in it is made in DIR where it is not there, and stays
# there. --dirty adds to the clone what is not committed. Mounts and processes live in namespaces of
# their own, so that none outlives a step, however it ends. Needs root; says so and ends well else.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
usage() {
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
without() {
    echo "fresh: SKIPPED: $1"
    exit 0
}

keep= dirty= steps=()
while [ $# -gt 0 ]; do
    case $1 in
        --in) [ $# -ge 2 ] || usage; keep=$2; shift 2 ;;
        --dirty) dirty=1; shift ;;
        quickstart | package | test | test:*) steps+=("$1"); shift ;;
        *) usage ;;
    esac
done
[ ${#steps[@]} != 0 ] || steps=(quickstart package test)

[ "$(id -u)" = 0 ] || without "only root makes such a tree"
command -v apt-get >/dev/null || without "no apt, which knows a mirror of Debian"
export PEERAGE_PACKAGES="debootstrap git"
. ci/prepare.sh
unshare --mount --pid --fork --net true 2>/dev/null || without "no namespaces here"
# Suite and address of Debian's own lists, the first of each.
sources=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
    awk -v suite="$suite" 'index($1, suite) == 1 && !seen[$1]++')
mirror=$(awk -v suite="$suite" '$1 == suite { print $2 }' <<<"$sources")
[ -n "$mirror" ] || without "apt has no source of Debian's $suite"

if [ -n "$keep" ]; then
    mkdir -p "$keep"
    tree=$(realpath "$keep")
else
    tree=$(mktemp -d "${TMPDIR:-/tmp}/peerage-fresh.XXXXXX")
fi
# The root of all its users, not only of the one who makes it.
chmod 755 "$tree"
child=
finish() {
    local status=$?
    trap - EXIT
    # All that it has started and mounted goes with it.
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
    rm -f "$tree.debootstrap"
    [ -n "$keep" ] || rm -rf --one-file-system "$tree"
    [ "$status" = 0 ] || echo "== fresh FAILED"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What is mounted or started here is gone when the command ends.
alone() {
    local status=0
    # In the background, so that a signal does not wait for it.
    unshare --mount --pid --fork --kill-child --mount-proc "$@" </dev/null &
    child=$!
    wait "$child" || status=$?
    child=
    return "$status"
}

# Mounts what a machine has, in namespaces of its own; then runs a command in the clone: DIR COMMAND.
enter() {
    local tree=$1 node
    shift
    mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
    for node in null zero full random urandom tty; do
        touch "$tree/dev/$node"
        mount --bind "/dev/$node" "$tree/dev/$node"
    done
    mkdir "$tree/dev/shm" "$tree/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    ln -s /proc/self/fd "$tree/dev/fd"
    ln -s fd/0 "$tree/dev/stdin"
    ln -s fd/1 "$tree/dev/stdout"
    ln -s fd/2 "$tree/dev/stderr"
    mount -t proc proc "$tree/proc"
    mount -t sysfs -o ro sysfs "$tree/sys"
    mount -t tmpfs -o mode=755 tmpfs "$tree/run"
    ip link set lo up 2>/dev/null || true
    exec chroot "$tree" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash -c 'cd /srv/peerage && exec "$@"' - "$@"
}

inside() {
    alone bash -euc "$(declare -f enter); enter \"\$@\"" - "$tree" "$@"
}
# The same with a loopback of its own and no other network, so that port 80 is free.
apart() {
    alone --net bash -euc "$(declare -f enter); enter \"\$@\"" - "$tree" "$@"
}

make_tree() {
    alone debootstrap --variant=minbase --include=ca-certificates "$suite" "$tree" "$mirror" \
        >"$tree.debootstrap" 2>&1 || {
        tail -n 20 "$tree.debootstrap" >&2
        return 1
    }
    rm -f "$tree.debootstrap"
    awk -v keys=/usr/share/keyrings/debian-archive-keyring.gpg \
        '{ print "deb [signed-by=" keys "] " $2 " " $1 " main" }' <<<"$sources" >"$tree/etc/apt/sources.list"
    # Where the mirror is behind a gate of its own, its certificates too.
    if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
        cp /usr/local/share/ca-certificates/*.crt "$tree/usr/local/share/ca-certificates"
        alone chroot "$tree" update-ca-certificates >/dev/null
    fi
    # As every machine has it; debootstrap leaves that to installers.
    printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$tree/etc/hosts"
    mkdir -p "$tree/opt/rust" "$tree/srv/peerage"
    cp -R "$(rustc --print sysroot)"/{bin,lib} "$tree/opt/rust"
    touch "$tree/made"
}

clone() {
    # What an earlier run built here stays, the sources are those of now.
    find "$tree/srv/peerage" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
    rm -rf "$tree/clone"
    git clone -q --no-hardlinks . "$tree/clone"
    [ -z "$dirty" ] || git diff --binary HEAD | git -C "$tree/clone" apply --whitespace=nowarn --allow-empty
    cp -R "$tree/clone/." "$tree/srv/peerage"
    rm -rf "$tree/clone"
}

# Two packages of two builds, which differ by their version.
package() {
    inside env PEERAGE_PACKAGES=lintian ci/package.sh
    cp "$tree"/srv/peerage/target/package/libnginx-mod-http-peerage_*.deb "$tree/srv/old.deb"
    cp "$tree"/srv/peerage/Cargo.{toml,lock} "$tree/srv"
    sed -i '0,/^version = /s/^version = ".*"/version = "0.1.999"/' "$tree/srv/peerage/Cargo.toml"
    inside cargo update --quiet --offline --workspace
    inside ci/package.sh
    cp "$tree"/srv/peerage/target/package/libnginx-mod-http-peerage_*.deb "$tree/srv/new.deb"
    mv "$tree"/srv/Cargo.{toml,lock} "$tree/srv/peerage"
    # nginx as its own upgrade brings it.
    rm -f "$tree"/srv/nginx_*.deb
    inside bash -c 'cd /srv && apt-get -qq download nginx'
    apart bash -c 'exec ci/package/try.sh /srv/old.deb /srv/new.deb /srv/nginx_*.deb'
}

step() {
    local name=$1 start=$SECONDS
    shift
    echo "== fresh: $name"
    "$@"
    echo "== fresh: $name ok, $((SECONDS - start)) s"
}

begun=$SECONDS
[ -e "$tree/made" ] || step "Debian $suite by debootstrap, Rust $(rustc --version | cut -d' ' -f2)" make_tree
step "clone of $(git rev-parse --short HEAD)${dirty:+ and what is not committed}" clone
for name in "${steps[@]}"; do
    case $name in
        quickstart) step quickstart inside examples/quickstart.sh ;;
        package) step package package ;;
        test) step test inside ci/test.sh ;;
        test:*)
            # shellcheck disable=SC2046
            step "$name" inside ci/test.sh $(tr , ' ' <<<"${name#test:}")
            ;;
    esac
done
echo "== fresh: all ok, $((SECONDS - begun)) s"
