#!/usr/bin/env bash
# Drives the upstreams of a running nginx with Debian's package of NGINX Plus's Go client, and
# sends it what the example of consul-template renders.
#
#   go.sh API        http://127.0.0.1:8081/api, with write=on; upstreams go-* are its own
#
# Go and the client are unpacked below the build's directory, not installed.
set -euo pipefail
api=${1%/}
here=$(dirname "$(realpath "$0")")
examples=$here/../../examples/consul-template

client=$("$here/unpack.sh" go-client golang-github-nginxinc-nginx-plus-go-client-dev)
# The package of the compiler has the version in its name.
version=$(apt-cache show golang-go | sed -n 's/^Depends:.*golang-\([0-9.]*\)-go.*/\1/p' | head -n 1)
root=$("$here/unpack.sh" go "golang-$version-go" "golang-$version-src")

# Nothing but what was unpacked: no modules, no proxy, no C.
export GOROOT=$root/usr/lib/go-$version GOPATH=$client/usr/share/gocode GOCACHE=$root/cache
export GO111MODULE=off GOFLAGS='' GOPROXY=off GOENV=off CGO_ENABLED=0 GOMAXPROCS=2
finish() {
    local status=$?
    for upstream in go-driven go-beside go-template; do
        curl -sS -m 10 -o /dev/null -X DELETE "$api/v1/upstreams/$upstream" || true
    done
    exit "$status"
}
trap finish EXIT

"$GOROOT/bin/go" build -o "$root/drive" "$here/go/main.go"
"$root/drive" "$api"

"$GOROOT/bin/go" run "$here/go/template.go" "$examples/app.json.ctmpl" >"$root/app.json"
"$examples/put.sh" "$root/app.json" "$api/v1/upstreams/go-template" >/dev/null
servers=$(curl -sS --fail-with-body -m 10 "$api/v1/upstreams/go-template" |
    python3 -c 'import json, sys
print(*((s["server"], s["labels"]["node"]) for s in json.load(sys.stdin)["servers"]))')
wanted="('127.0.0.1:8080', 'app \"1\"') ('[2001:db8::2]:8081', 'app2')"
[ "$servers" = "$wanted" ] || { echo "go: the template gives $servers" >&2; exit 1; }
echo "go: the template of consul-template is a set of servers"
