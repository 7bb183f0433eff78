#!/usr/bin/env bash
# A smoke run in an nginx newer than Debian's: 1.28, whose source a crate carries (ci/newer).
#
#   ci/newer.sh [STORY ...]     these story files of tests/, or those that touch every room
#
# All of it lies in target/newer; the stories themselves are those of target.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/prepare.sh
newer=$(realpath -m "${CARGO_TARGET_DIR:-target}")/newer
ci/newer/nginx.sh "$newer/nginx"
PEERAGE_MODULE=$(
    export NGINX_SOURCE_DIR=$newer/nginx/src NGINX_BUILD_DIR=$newer/nginx/src/objs CARGO_TARGET_DIR=$newer
    ci/build.sh
)
export PEERAGE_MODULE PEERAGE_NGINX=$newer/nginx/src/objs/nginx
"$PEERAGE_NGINX" -v

stories=("$@")
[ $# != 0 ] || stories=(harness release balancing connections composing reload state api)
start=$SECONDS
cargo test -p peerage --no-fail-fast "${stories[@]/#/--test=}" -- --test-threads=2
echo "== stories in a newer nginx ok, $((SECONDS - start)) s"
