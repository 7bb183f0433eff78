#!/usr/bin/env bash
# A smoke run in an nginx newer than Debian's: 1.28, whose source a crate carries (ci/newer).
#
#   ci/newer.sh [STORY ...]     these story files of tests/, or those that touch every room
#
# All of it lies in target/newer; the stories themselves are those of target.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/prepare.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
crate=$(cargo metadata --manifest-path ci/newer/Cargo.toml --locked --format-version 1 \
    --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    grep -o '"manifest_path":"[^"]*/nginx-src-[^"/]*/' | cut -d'"' -f4)
version=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$crate/nginx/src/core/nginx.h")
newer=$target/newer/$version

# Without --with-debug, unlike Debian's: some structs are shorter.
options=(--with-compat --with-threads --with-http_ssl_module --with-http_v2_module
    --with-http_realip_module --with-http_auth_request_module --with-http_stub_status_module)
stamp="$crate ${options[*]}"
if [ "$(cat "$newer/stamp" 2>/dev/null)" != "$stamp" ]; then
    echo "== nginx $version" >&2
    rm -rf "$newer"
    mkdir -p "$newer"
    cp -R "$crate/nginx" "$newer/src"
    (
        cd "$newer/src"
        auto/configure "${options[@]}" && make -j"$(nproc)"
    ) >"$newer/build.log" 2>&1 || {
        echo "newer: nginx $version does not build, see $newer/build.log" >&2
        exit 1
    }
    echo "$stamp" >"$newer/stamp"
fi

echo "== the module for $version" >&2
PEERAGE_MODULE=$(
    export NGINX_SOURCE_DIR=$newer/src NGINX_BUILD_DIR=$newer/src/objs CARGO_TARGET_DIR=$target/newer
    ci/build.sh
)
export PEERAGE_MODULE PEERAGE_NGINX=$newer/src/objs/nginx
"$PEERAGE_NGINX" -v

stories=("$@")
[ $# != 0 ] || stories=(harness release balancing connections composing reload state api)
start=$SECONDS
cargo test -p peerage "${stories[@]/#/--test=}" -- --test-threads=2
echo "== stories in nginx $version ok, $((SECONDS - start)) s"
