# Sourced by scripts that drive a real nginx: one of their own, in a directory that goes with them.
#
#   scratch NAME                   makes $prefix; at the end it goes, and nginx is stopped
#   start_nginx UPSTREAMS <<END    what stands in http{}, {port} for a free port, which is $port then;
#                                  returns once nginx knows these upstreams
#   stop_nginx
#   check_log                      fails where nginx complains
#   python_tools DIR REQUIREMENTS  a virtual environment with these packages, made anew if they change
#
# PEERAGE_MODULE names the module, else target/release/libpeerage.so is taken.

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
module=$(realpath "${PEERAGE_MODULE:-$target/release/libpeerage.so}")
nginx=$(command -v nginx || echo /usr/sbin/nginx)
master=

scratch() {
    name=$1
    prefix=$(mktemp -d "${TMPDIR:-/tmp}/peerage-$name.XXXXXX")
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

finish() {
    local status=$?
    stop_nginx
    if [ "$status" != 0 ] && [ -e "$prefix/error.log" ]; then
        echo "$name: the end of nginx's error log:" >&2
        grep -vE '\[(notice|info)\]' "$prefix/error.log" | tail -n 20 >&2 || true
    fi
    rm -rf "$prefix"
    exit "$status"
}

stop_nginx() {
    [ -n "$master" ] || return 0
    kill -QUIT "$master" 2>/dev/null || true
    wait "$master" || true
    master=
}

start_nginx() {
    local http user=
    # A port that was free a moment ago.
    port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
    http=$(cat)
    [ "$(id -u)" != 0 ] || user="user root;"
    cat >"$prefix/nginx.conf" <<END
load_module $module;
$user
daemon off;
worker_processes 2;
pid nginx.pid;
error_log error.log notice;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
${http//\{port\}/$port}
}
END
    "$nginx" -p "$prefix/" -c nginx.conf -e error.log &
    master=$!
    for _ in $(seq 100); do
        curl -fs -m 5 "http://127.0.0.1:$port/api/v1/ready?require=$1" >/dev/null && return 0
        sleep 0.1
    done
    echo "$name: nginx does not answer" >&2
    return 1
}

check_log() {
    if grep -E '\[(alert|emerg|crit)\]' "$prefix/error.log" >&2; then
        echo "$name: nginx complains" >&2
        return 1
    fi
}

python_tools() {
    local stamp
    stamp=$(sha256sum <"$2")
    [ "$(cat "$1/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/pip" install -q --disable-pip-version-check -r "$2"
    echo "$stamp" >"$1/stamp"
}
