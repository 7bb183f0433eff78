#!/usr/bin/env bash
# Unpacks nginx's Lua module of Debian and what it needs beside the build, not into the system, and
# prints the directory: for ci/bench/sides.py. Says why and ends with 1 where that cannot be, or
# where this nginx does not take the module.
set -euo pipefail
cd "$(dirname "$0")/../.."

dir=$PWD/target/bench-lua
packages=(libnginx-mod-http-lua libnginx-mod-http-ndk lua-resty-core lua-resty-lrucache lua-cjson
    libluajit2-5.1-2 libluajit2-5.1-common libpcre3)
if [ ! -e "$dir/done" ]; then
    command -v apt-get >/dev/null || {
        echo "lua: no Debian" >&2
        exit 1
    }
    rm -rf "$dir"
    mkdir -p "$dir/packages"
    (
        cd "$dir/packages"
        apt-get -qq download "${packages[@]}" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }
        for package in *.deb; do
            dpkg-deb -x "$package" "$dir"
        done
    ) || {
        echo "lua: cannot download ${packages[*]} (apt-get update?)" >&2
        exit 1
    }
    touch "$dir/done"
fi
cat >"$dir/nginx.conf" <<END
load_module $dir/usr/lib/nginx/modules/ndk_http_module.so;
load_module $dir/usr/lib/nginx/modules/ngx_http_lua_module.so;
pid $dir/pid;
events { }
END
LD_LIBRARY_PATH=$(echo "$dir"/usr/lib/*-linux-*) "${PEERAGE_NGINX:-/usr/sbin/nginx}" -q -t \
    -e "$dir/log" -c "$dir/nginx.conf" || {
    echo "lua: the module is not for this nginx" >&2
    exit 1
}
echo "$dir"
