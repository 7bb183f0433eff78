#!/usr/bin/env bash
# The module by nginx's own build system: in nginx itself, and as a file for load_module.
#
#   ci/build-nginx.sh static|dynamic|debian [STORY ...]
#
# static     ./configure --add-module=…/nginx, make, make install: nginx with the module in it
# dynamic    ./configure --add-dynamic-module=…/nginx, make, make install: nginx and the module's file
# debian     the same with the source of nginx-dev and "make modules": a file for the installed nginx
#
# The source of the nginx that is installed is configured as Debian's own, prefix aside. Then
# examples/quickstart.sh runs in it, and these story files of tests/, or those that touch every room.
# All of it lies in target/build-nginx.
set -euo pipefail
cd "$(dirname "$0")/.."

how=${1:-}
case $how in
    static | dynamic | debian) shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
export PEERAGE_PACKAGES="dpkg-dev python3"
. ci/prepare.sh
here=$PWD
base=$(realpath -m "${CARGO_TARGET_DIR:-target}")/build-nginx
dir=$base/$how

# The source of the installed version, as Debian has it of nginx, from where the package came.
source_of_debian() {
    local version
    version=$(dpkg-query -W -f '${source:Version}' nginx)
    [ "$(cat "$base/source/version" 2>/dev/null)" != "$version" ] || return 0
    rm -rf "$base/source"
    mkdir -p "$base/source/lists/partial" "$base/source/nginx"
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 'Origin: Debian' |
        awk -v keys=/usr/share/keyrings/debian-archive-keyring.gpg \
            '{ print "deb-src [signed-by=" keys "] " $1 " " $2 " main" }' |
        sort -u >"$base/source/sources.list"
    # Lists of its own: the machine's stay as they are.
    local own=(-q -o "Dir::Etc::SourceList=$base/source/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$base/source/lists" -o "Dir::Cache=$base/source" -o APT::Sandbox::User=root)
    {
        apt-get "${own[@]}" update &&
            (cd "$base/source" && apt-get "${own[@]}" source --tar-only "nginx=$version") &&
            tar -xf "$base"/source/nginx_*.orig.tar.* -C "$base/source/nginx" --strip-components=1
    } >"$base/source.log" 2>&1 || {
        echo "build-nginx: no source of nginx $version, see $base/source.log" >&2
        return 1
    }
    echo "$version" >"$base/source/version"
}

# Configures and makes in the directory of a source: COMMAND ...
made() {
    "$@" >>"$dir/build.log" 2>&1 || {
        tail -n 30 "$dir/build.log" >&2
        echo "build-nginx: $* failed, see $dir/build.log" >&2
        exit 1
    }
}

mkdir -p "$dir"
: >"$dir/build.log"
NGX_CONF_FLAGS=()
. /usr/share/nginx/src/conf_flags
flags=("${NGX_CONF_FLAGS[@]}")
if [ "$how" = debian ]; then
    # nginx-dev's source stays as it is: objects go to a directory of ours.
    cd /usr/share/nginx/src
    made ./configure "${flags[@]}" --builddir="$dir/objs" --add-dynamic-module="$here/nginx"
    made make -f "$dir/objs/Makefile" modules
    export PEERAGE_NGINX=/usr/sbin/nginx PEERAGE_MODULE=$dir/objs/ngx_http_peerage_module.so
else
    source_of_debian
    # What cargo has built before is of use again.
    mkdir -p "$dir/src"
    cp -R "$base/source/nginx/." "$dir/src"
    cd "$dir/src"
    rm -rf "$dir/root"
    flags+=(--prefix="$dir/root" --modules-path="$dir/root/modules" --conf-path="$dir/root/nginx.conf"
        --error-log-path="$dir/root/error.log" --pid-path="$dir/root/nginx.pid")
    if [ "$how" = static ]; then
        made ./configure "${flags[@]}" --add-module="$here/nginx"
    else
        made ./configure "${flags[@]}" --add-dynamic-module="$here/nginx"
    fi
    made make
    # Without cargo: nothing is left to be built.
    made env PATH=/usr/bin:/bin make install
    export PEERAGE_NGINX=$dir/root/sbin/nginx PEERAGE_MODULE=builtin
    [ "$how" = static ] || PEERAGE_MODULE=$dir/root/modules/ngx_http_peerage_module.so
fi
cd "$here"

# Nothing of the library is seen outside: nginx reaches it by its table of modules alone.
built=$PEERAGE_MODULE
[ "$how" != static ] || built=$PEERAGE_NGINX
seen=$(nm -D --defined-only "$built" | awk '{ print $3 }' | grep -E '^_ZN|^_R|^rust_|peerage' || true)
[ -z "$seen" ] || { echo "build-nginx: names that others see: $seen" >&2; exit 1; }
"$PEERAGE_NGINX" -v
examples/quickstart.sh

stories=("$@")
[ $# != 0 ] || stories=(release balancing connections composing reload state upgrade api routing)
start=$SECONDS
cargo test -p peerage --no-fail-fast "${stories[@]/#/--test=}" -- --test-threads=2
echo "== nginx's own build, $how: ok, stories $((SECONDS - start)) s"
