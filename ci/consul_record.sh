#!/usr/bin/env bash
# Records what a real Consul answers: crates/core/tests/data/consul/*.http, which tests read.
#
#   ci/consul_record.sh [DIR]      what is recorded goes to DIR
#
# Each file is an answer as curl prints it with -i. Names of nodes, ports and times differ from run
# to run; the tests go by none of them.
set -euo pipefail
cd "$(dirname "$0")/.."

consul=$(ci/consul.sh)
out=$(realpath -m "${1:-crates/core/tests/data/consul}")
mkdir -p "$out"
scratch=$(mktemp -d)
pid=
end() {
    [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || true
    pid=
}
trap 'end; rm -rf "$scratch"' EXIT

# start DIR [ARGUMENT ...]: a server with its data in DIR; http is its address.
start() {
    local data=$scratch/$1 base=$((20000 + RANDOM % 20000))
    shift
    http=127.0.0.1:$base
    "$consul" agent -server -bind=127.0.0.1 -data-dir="$data" -node=n1 -log-level=err \
        -http-port="$base" -dns-port=-1 -grpc-port=-1 -serf-lan-port=$((base + 1)) \
        -serf-wan-port=-1 -server-port=$((base + 2)) "$@" >"$scratch/log" 2>&1 &
    pid=$!
    for _ in $(seq 200); do
        curl -s -o /dev/null "http://$http/v1/status/leader" && return
        sleep 0.1
    done
    cat "$scratch/log" >&2
    return 1
}

# save NAME PATH [CURL-ARGUMENT ...]
save() {
    local name=$1 path=$2
    shift 2
    curl -sS -i "$@" "http://$http$path" | sed 's/\r$//' >"$out/$name.http"
    echo "$name: $(head -n 1 "$out/$name.http")"
}
put() { curl -fsS -X PUT -o /dev/null ${2:+-d "$2"} "http://$http$1"; }
led() {
    for _ in $(seq 200); do
        [ "$(curl -s "http://$http/v1/status/leader")" != '""' ] &&
            curl -fsS -o /dev/null "http://$http/v1/catalog/services" && return
        sleep 0.1
    done
    return 1
}
web=/v1/health/service/web

start one -bootstrap
led
save unknown "$web"
put /v1/agent/service/register '{"ID":"web-1","Name":"web","Tags":["lb","v1","v1"],"Address":"127.0.0.1",
    "Port":8081,"Meta":{"zone":"a"},"Weights":{"Passing":9,"Warning":2},
    "Check":{"CheckID":"web-1","TTL":"1h","Status":"passing"}}'
put /v1/agent/service/register '{"ID":"web-2","Name":"web","Tags":["lb"],"Address":"::1","Port":8082,
    "Check":{"CheckID":"web-2","TTL":"1h","Status":"passing"}}'
# No address of its own: the node's; and one without a port, which nobody can be sent to.
put /v1/agent/service/register '{"ID":"web-3","Name":"web","Port":8083}'
put /v1/agent/service/register '{"ID":"web-4","Name":"web","Address":"127.0.0.1"}'
put /v1/agent/service/register '{"ID":"db-1","Name":"db","Port":5432}'
save registered "$web"
save services /v1/catalog/services
save tagged "$web?tag=v1"
save filtered "$web?filter=Service.Meta.zone%20%3D%3D%20%22a%22"
save bad_filter "$web?filter=Nonsense"
put /v1/agent/check/fail/web-1
save critical "$web"
put /v1/agent/check/warn/web-1
save warning "$web"
put /v1/agent/check/pass/web-1
put "/v1/agent/service/maintenance/web-1?enable=true&reason=upgrade"
save maintenance "$web"
put "/v1/agent/service/maintenance/web-1?enable=false"
put "/v1/agent/maintenance?enable=true"
save node_maintenance "$web"
put "/v1/agent/maintenance?enable=false"
put /v1/agent/service/deregister/web-2
save deregistered "$web"
save no_datacenter "$web?dc=nowhere"
end

start two -bootstrap
led
save empty_restart "$web"
end

start three -bootstrap-expect=2
save no_leader "$web"
end

start four -bootstrap -hcl 'acl { enabled = true default_policy = "deny" }'
for _ in $(seq 100); do
    [ "$(curl -s "http://$http/v1/status/leader")" != '""' ] && break
    sleep 0.1
done
save denied "$web"
save bad_token "$web" -H 'X-Consul-Token: 11111111-2222-3333-4444-555555555555'
