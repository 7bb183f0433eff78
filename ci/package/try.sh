#!/usr/bin/env bash
# Installs the package, upgrades it under load, and removes it, as apt and dpkg do on a server.
#
#   ci/package/try.sh OLD.deb NEW.deb NGINX.deb
#
# For a machine that is thrown away after it (ci/fresh.sh): it starts Debian's nginx as a service,
# writes its configuration, and purges the package. NGINX.deb is what is installed once more, as an
# upgrade of nginx would.
set -euo pipefail
cd "$(dirname "$0")/../.."
old=$1 new=$2 own=$3
[ -e /made ] || { echo "try: not a tree of ci/fresh.sh" >&2; exit 2; }

site=/etc/nginx/conf.d/peerage.conf
state=/var/lib/nginx/peerage
link=/etc/nginx/modules-enabled/50-mod-http-peerage.conf
api=http://127.0.0.1:8081/api/v1
work=$(mktemp -d)
load=

failed() {
    echo "try: $*" >&2
    tail -n 20 /var/log/nginx/error.log "$work"/*.log >&2 || true
    exit 1
}
until_ok() {
    for _ in $(seq 200); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    failed "not so within 20 s: $*"
}
# Of what comes in, or of what COMMAND says: whether it has this text.
has() {
    local text=$1
    shift
    grep -qF -- "$text" <<<"$("$@" 2>&1)"
}
call() { curl -fsS -m 10 "$@"; }
served() { call http://127.0.0.1:8080/; }
master() { cat /run/nginx.pid; }
packages() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" </dev/null >"$work/apt.log" 2>&1 || {
        cat "$work/apt.log" >&2
        failed "apt-get $*"
    }
}
begin_load() {
    python3 examples/load.py 127.0.0.1 8080 250 "$work/report" </dev/null &
    load=$!
}
end_load() {
    kill "$load"
    wait "$load"
    echo "   $1: $(sed -n 's/^requests //p' "$work/report") requests, $(sed -n 's/^failed //p' "$work/report") failed"
    grep -qx 'failed 0' "$work/report" || { cat "$work/report" >&2; failed "requests failed: $1"; }
}
# What was said at run time still holds.
kept() {
    has broken call "$api/upstreams/app/servers/127.0.0.1:9002" || failed "$1: the reason is lost"
    has 127.0.0.1:9003 call "$api/upstreams/app" || failed "$1: the third server is lost"
}

# Services start here; there is no other that could be meant.
printf '#!/bin/sh\nexit 0\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
for n in 1 2 3; do
    examples/instance.sh start "$work" 900$n b$n v1
done

echo "-- install beside a running nginx"
service nginx start >/dev/null
until_ok call http://127.0.0.1/
before=$(master)
packages install "$old"
[ "$(readlink "$link")" = /usr/share/nginx/modules-available/mod-http-peerage.conf ] || failed "not enabled"
[ "$(stat -c '%U:%G %a' "$state")" = "www-data:www-data 700" ] || failed "$(stat -c '%U:%G %a' "$state")"
nginx -t -q
[ "$(master)" = "$before" ] || failed "nginx was started anew"
dpkg-query -W -f '   ${Package} ${Version}, ${Depends}\n' libnginx-mod-http-peerage

echo "-- serve"
cat >"$site" <<'END'
peerage_zone main 4m state=/var/lib/nginx/peerage/main.json;
upstream app {
    peerage main;
    server 127.0.0.1:9001;
    server 127.0.0.1:9002;
}
server {
    listen 127.0.0.1:8080;
    location / { proxy_pass http://app; }
}
server {
    listen 127.0.0.1:8081;
    location /api { peerage_api write=on; }
}
END
service nginx reload >/dev/null
until_ok served
until_ok call "$api/ready?require=app"
call -X PUT -d '{}' "$api/upstreams/app/servers/127.0.0.1:9003" >/dev/null
call -X POST "$api/upstreams/app/servers/127.0.0.1:9002/down?reason=broken" >/dev/null
kept "first"

echo "-- upgrade of the package under load"
begin_load
until_ok served
sleep 1
running=$(call "$api/" | grep -oE '"build": ?"[0-9a-f]{16}"')
packages install "$new"
# Whether the answer, and it is one, has something else.
answers_without() {
    local answer
    answer=$(call "$api/") && ! grep -qF -- "$1" <<<"$answer"
}
until_ok answers_without "${running/build/build_on_disk}"
[ "$(master)" = "$before" ] || failed "the upgrade has started nginx anew"
grep -q "/etc/init.d/nginx upgrade" "$work/apt.log" || failed "the package does not say what is left to do"
kept "package"
/etc/init.d/nginx upgrade >/dev/null
[ "$(master)" != "$before" ] || failed "the master is the old one"
until_ok answers_without "$running"
kept "nginx upgraded"
end_load "package upgraded, then nginx by USR2"

echo "-- upgrade of nginx's own package under load"
before=$(master)
begin_load
until_ok served
dpkg -i "$own" >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; failed "nginx's package"; }
[ "$(master)" != "$before" ] || failed "the master is the old one"
kept "nginx's package"
end_load "nginx's package"

echo "-- removal while the configuration still has the directives"
begin_load
until_ok served
packages remove libnginx-mod-http-peerage
! nginx -t -q 2>"$work/test" || failed "the configuration is accepted without the module"
kept "removed"
end_load "package removed, its code goes on"
[ -e "$state/main.json" ] || failed "the state file is gone with the package"
packages install "$new"
nginx -t -q
[ -L "$link" ] || failed "not enabled again"

echo "-- as in a container: nothing to be written but /tmp and the state, and no root"
service nginx stop >/dev/null
rm -f "$state"/*
install -m 666 /dev/null "$work/container.log"
# What stands for the image, in a mount namespace that goes with it.
unshare --mount --propagation unchanged bash -euc '
    mount --bind / /mnt
    mount --bind "$1" "/mnt$1"
    mount -o remount,bind,ro /mnt
    mount -t tmpfs tmpfs /mnt/tmp
    mount --bind /dev /mnt/dev
    mount --bind /proc /mnt/proc
    cp examples/docker/nginx.conf /mnt/tmp/nginx.conf
    ! touch /mnt/root/written 2>/dev/null
    exec chroot /mnt setpriv --reuid www-data --regid www-data --clear-groups --bounding-set=-all \
        --no-new-privs nginx -e stderr -c /tmp/nginx.conf -g "daemon off;"
' - "$state" >"$work/container.log" 2>&1 &
container=$!
until_ok call "$api/ready?require=app"
call -X PUT -d '{}' "$api/upstreams/app/servers/127.0.0.1:9001" >/dev/null
until_ok served
kill -QUIT "$container"
wait "$container" || { cat "$work/container.log" >&2; failed "as in a container"; }
! grep -E '\[(warn|alert|crit|emerg)\]' "$work/container.log" >&2 || failed "as in a container"
grep -q 127.0.0.1:9001 "$state"/main.json* || failed "the state is not on the volume"
service nginx start >/dev/null
until_ok served

echo "-- removal and purge"
mv "$site" "$site.off"
service nginx reload >/dev/null
before=$(master)
packages purge libnginx-mod-http-peerage
nginx -t -q
until_ok call http://127.0.0.1/
[ "$(master)" = "$before" ] || failed "nginx was started anew"
service nginx restart >/dev/null
until_ok call http://127.0.0.1/
[ ! -e "$state" ] && [ ! -L "$link" ] && [ ! -e /usr/lib/nginx/modules/ngx_http_peerage_module.so ] ||
    failed "the purge leaves something"
[ -z "$(find /etc/nginx/modules-enabled -name '*peerage*')" ] || failed "the purge leaves a link"

bad=$(grep -E '\[(alert|crit)\]|\[emerg\]' /var/log/nginx/error.log | grep -v 'unknown directive "peerage' || true)
[ -z "$bad" ] || { echo "$bad" >&2; failed "nginx complains"; }
for n in 1 2 3; do
    examples/instance.sh stop "$work" 900$n b$n
done
service nginx stop >/dev/null
rm -rf "$work" "$site.off" /usr/sbin/policy-rc.d
echo "-- package ok"
