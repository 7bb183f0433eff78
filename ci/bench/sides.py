"""The configurations that are compared: stock nginx, peerage, and balancing in Lua."""

import glob
import json
import os

from client import Client
from nginx import free_port

HOST = "svc-a.internal"
REQUEST = f"GET /some/path HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
LUA = os.environ.get("PEERAGE_LUA", "")
LUA_WAYS = {"decoded": "decoded per request", "cached": "cached per version", "synced": "by timer"}
KEEP = "keepalive 64;"
if LUA:
    # nginx finds the module's libraries beside it.
    os.environ["LD_LIBRARY_PATH"] = ":".join(glob.glob(f"{LUA}/usr/lib/*-linux-*"))


class Side:
    """`http(port)` is its configuration, `main` what stands before, `fill(port)`, if any, comes after."""

    def __init__(self, name, http, module=False, main="", fill=None):
        self.name, self.http, self.module, self.main = name, http, module, main
        self.fill = fill
        # Compared over fewer runs.
        self.slow = fill is not None


def backend(ports):
    """Answers at once on each of the ports."""
    listen = " ".join(f"listen 127.0.0.1:{port};" for port in ports)
    return f'server {{ {listen} location / {{ return 200 "an answer of some length\\n"; }} }}'


def front(port, to, more=""):
    """The same in all: a server of many names that passes all on over kept connections."""
    return f"""
    server {{
        listen 127.0.0.1:{port};
        server_name ~^(?<svc>[a-z0-9-]+)\\.internal$;
        location / {{
            proxy_pass http://{to};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
        {more}
    }}"""


def servers(ports):
    return " ".join(f"server 127.0.0.1:{port};" for port in ports)


def stock(name, ports, zone=True, method=""):
    lines = ("zone z 1m; " if zone else "") + f"{servers(ports)} {method} {KEEP}"
    return Side(name, lambda port: f"upstream app {{ {lines} }}" + front(port, "app"))


def fixed(name, ports, method=""):
    lines = f"peerage main; {servers(ports)} {method} {KEEP}"
    http = lambda port: f"peerage_zone main 1m; upstream app {{ {lines} }}" + front(port, "app")
    return Side(name, http, module=True)


def variable(name, ports):
    """The name comes from the request: an upstream that is declared, found in the zone by name."""
    http = lambda port: (
        "peerage_zone main 4m;"
        f"upstream svc-a {{ peerage main; {servers(ports)} }}"
        f"upstream all {{ peerage main name=$svc; {KEEP} }}"
    ) + front(port, "all")
    return Side(name, http, module=True)


def fleet(name, ports, upstreams):
    """The same with many upstreams besides, all made through the API, each of as many servers."""
    http = lambda port: (
        f"peerage_zone main 256m; upstream all {{ peerage main name=$svc; {KEEP} }}"
    ) + front(port, "all", "location /api { peerage_api write=on; }")

    def fill(port):
        client = Client(port)
        put(client, "svc-a", [f"127.0.0.1:{p}" for p in ports])
        for u in range(upstreams - 1):
            put(client, f"svc-{u}", [f"10.{u >> 8}.{u & 255}.{s + 1}:80" for s in range(len(ports))])

    return Side(name, http, module=True, fill=fill)


def routed(name, ports, routes):
    """The name is that of the app which the request's tenant has, one of many."""
    api = free_port()
    http = lambda port: (
        "peerage_zone main 64m;"
        f"upstream app {{ peerage main; {servers(ports)} }}"
        f"upstream all {{ peerage main name=$peerage_route; {KEEP} }}"
        f"server {{ listen 127.0.0.1:{api}; location /api {{ peerage_api write=on; }} }}"
        "peerage_route $svc;"
    ) + front(port, "all")

    def fill(port):
        client = Client(api)
        for begin in range(0, routes, 10_000):
            keys = [f"svc-{i}" for i in range(begin, min(begin + 10_000, routes))]
            lines = [json.dumps({"key": key, "upstream": "app"}) for key in ["svc-a", *keys]]
            body = "\n".join(lines).encode()
            head = f"POST /api/v1/routes HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}"
            status, answer = client.send(head.encode() + b"\r\n\r\n" + body)
            if status != 200:
                raise SystemExit(f"answer {status}: {answer}")

    return Side(name, http, module=True, fill=fill)


def stored(name, ports, redis):
    """The same, with the tenants in a Redis that is told of changes, and an app that it alone has."""
    http = lambda port: (
        f"peerage_zone main 1m; peerage_redis routes server=127.0.0.1:{redis.port};"
        f"upstream all {{ peerage main name=$peerage_route; {KEEP} }}"
        "peerage_route $svc redis=routes;"
    ) + front(port, "all")

    def fill(_):
        redis.call("HSET", "tenant:svc-a", "app", "orders", "status", "active")
        redis.call("SET", "app:orders", ",".join(f"127.0.0.1:{port}" for port in ports))

    return Side(name, http, module=True, fill=fill)


def put(client, upstream, addresses):
    """States one upstream through the API."""
    body = {"servers": [{"server": address} for address in addresses]}
    status, answer = client.call("PUT", f"/api/v1/upstreams/{upstream}", body)
    if status not in (200, 201):
        raise SystemExit(f"answer {status}: {answer}")


def lua_main():
    modules = ("ndk_http_module", "ngx_http_lua_module")
    return "".join(f"load_module {LUA}/usr/lib/nginx/modules/{name}.so;\n" for name in modules)


def lua_http(way, fill):
    """Balancing by the name `$svc` in an upstream `lua`; `fill` is Lua that fills `dict`."""
    here = os.path.dirname(os.path.abspath(__file__))
    (native,) = glob.glob(f"{LUA}/usr/lib/*/lua/5.1")
    timer = 'init_worker_by_lua_block { require("balancer").fetch_each(1) }' if way == "synced" else ""
    return f"""
    lua_package_path "{here}/?.lua;{LUA}/usr/share/lua/5.1/?.lua;;";
    lua_package_cpath "{native}/?.so;;";
    lua_shared_dict peers 64m;
    init_by_lua_block {{ require("balancer") local dict = ngx.shared.peers {fill} }}
    {timer}
    upstream lua {{
        server 0.0.0.1;
        balancer_by_lua_block {{ require("balancer").{way}(ngx.var.svc) }}
        {KEEP}
    }}"""


def lua(way, ports):
    """Ten names in the dict, of which one is asked for."""
    value = json.dumps([["127.0.0.1", port] for port in ports])
    fill = " ".join(f"dict:set('svc-{letter}', '{value}')" for letter in "abcdefghij")
    http = lambda port: lua_http(way, fill) + front(port, "lua")
    return Side(f"Lua, {LUA_WAYS[way]}", http, main=lua_main())


def lua_ways(ports):
    """All ways of balancing in Lua; none where there is no Lua module."""
    if not LUA:
        print("without Lua: set PEERAGE_LUA (ci/bench/lua.sh)", flush=True)
        return []
    return [lua(way, ports) for way in LUA_WAYS]
