#!/usr/bin/env bash
# Builds the nginx whose source comes in a crate, unless it is there already.
#
#   ci/newer/nginx.sh DIR [OPTION ...]     DIR/src and DIR/src/objs/nginx, configured with these too
set -euo pipefail

dir=$1
shift
# Without --with-debug, unlike Debian's.
options=(--with-compat --with-threads --with-http_ssl_module --with-http_v2_module
    --with-http_realip_module --with-http_auth_request_module --with-http_stub_status_module "$@")

# cargo brings the crate; nothing of it is compiled, since it would want to fetch more.
crate=$(cargo metadata --manifest-path "$(dirname "$0")/Cargo.toml" --locked --format-version 1 \
    --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    grep -o '"manifest_path":"[^"]*/nginx-src-[^"/]*/' | cut -d'"' -f4)
stamp="$crate ${options[*]}"
[ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

echo "newer: building nginx from $crate" >&2
rm -rf "$dir"
mkdir -p "$dir"
cp -R "$crate/nginx" "$dir/src"
(
    cd "$dir/src"
    auto/configure "${options[@]}"
    make -j"$(nproc)"
) >"$dir/build.log" 2>&1 || {
    echo "newer: nginx does not build, see $dir/build.log" >&2
    exit 1
}
echo "$stamp" >"$dir/stamp"
