#!/usr/bin/env bash
# Stories in an nginx and a module built with AddressSanitizer (nginx's source is ci/newer's).
#
#   ci/asan.sh [STORY ...]     these story files of tests/, or those of the API and of proxying
#
# All of it lies in target/asan; the stories themselves are those of target.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/prepare.sh
asan=$(realpath -m "${CARGO_TARGET_DIR:-target}")/asan
# Each palloc becomes a malloc of its own, so that no overflow stays inside a pool.
ci/newer/nginx.sh "$asan/nginx" --with-debug --with-ld-opt=-fsanitize=address \
    --with-cc-opt="-O1 -g -fno-omit-frame-pointer -fsanitize=address -DNGX_DEBUG_PALLOC=1"

host=$(rustc -vV | sed -n 's/^host: //p')
# The run-time library is the one that nginx brings, gcc's.
env NGINX_SOURCE_DIR="$asan/nginx/src" NGINX_BUILD_DIR="$asan/nginx/src/objs" RUSTC_BOOTSTRAP=1 \
    RUSTFLAGS="-Zsanitizer=address -Zexternal-clangrt -Cforce-frame-pointers=yes" \
    CARGO_TARGET_DIR="$asan" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    cargo build --release -p peerage --features panic --target "$host"

rm -rf "$asan/reports"
mkdir "$asan/reports"
export PEERAGE_NGINX=$asan/nginx/src/objs/nginx PEERAGE_MODULE=$asan/$host/release/libpeerage.so
# An error is a killed worker, so that its story fails too.
export ASAN_OPTIONS=abort_on_error=1:detect_odr_violation=0:detect_leaks=0:log_path=$asan/reports/asan

stories=("$@")
[ $# != 0 ] || stories=(release balancing connections composing reload state api api_hostile)
start=$SECONDS failed=0
cargo test -p peerage --no-fail-fast "${stories[@]/#/--test=}" -- --test-threads=2 || failed=1
for report in "$asan"/reports/*; do
    [ -e "$report" ] || continue
    head -n 40 "$report"
    failed=1
done
[ "$failed" = 0 ] || exit 1
echo "== stories with AddressSanitizer ok, $((SECONDS - start)) s"
