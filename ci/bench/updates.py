"""One update of 20 servers until all workers answer from it, by the size of the fleet: through the
API, through Lua's shared dict, and by a reload of stock nginx; and what requests fail meanwhile.

The update changes all servers of one upstream, from one half of the backend's addresses to the
other. It is through when each worker has answered from the new ones; new connections are spread
over the workers by the kernel (reuseport). The same look without an update is the floor.
"""

import http.client
import json
import os
import socket
import tempfile
import time

import sides
from client import Client
from figures import median, quantile, save, size
from load import Load
from nginx import MODULE, Nginx, free_port

FLEETS = size((10, 100, 1000, 10000), (10, 200))
SERVERS = int(os.environ.get("SERVERS", 20))
WORKERS = 2
UPDATES = size(200, 20)
# A reload of 10,000 upstreams takes 10 s and more.
RELOADS = size({10: 60, 100: 60, 1000: 20, 10000: 3}, {10: 5, 200: 5})
LOADED = size({10: 30, 100: 30, 1000: 10, 10000: 2}, {10: 3, 200: 3})
HALVES = ("127.0.1", "127.0.2")
WAY = "cached"


class Backend:
    """Twenty addresses of each half; an answer tells the half."""

    def __init__(self):
        self.port, ready = free_port(), free_port()
        blocks = f"server {{ listen 127.0.0.1:{ready}; }}"
        for half in HALVES:
            listen = " ".join(f"listen {address};" for address in self.of(half))
            blocks += f'server {{ {listen} location / {{ return 200 "{half}"; }} }}'
        self.nginx = Nginx(blocks)

    def of(self, half):
        return [f"{half}.{n + 1}:{self.port}" for n in range(SERVERS)]


def other(upstream):
    """Addresses of the rest of the fleet, which nobody asks for."""
    return [f"10.{upstream >> 8}.{upstream & 255}.{s + 1}:80" for s in range(SERVERS)]


def listener(port, to):
    return f"""server {{
        listen 127.0.0.1:{port} reuseport;
        set $svc svc-0;
        location / {{
            proxy_pass http://{to}; proxy_http_version 1.1; proxy_set_header Connection "";
            add_header X-Pid $pid;
        }}
    }}"""


class Api:
    """Ours: a PUT of the upstream."""

    name = "peerage, API"

    def __init__(self, backend, fleet):
        self.backend, self.port, api = backend, free_port(), free_port()
        http = f"""peerage_zone main 256m;
        upstream all {{ peerage main name=$svc; keepalive 64; }}
        server {{ listen 127.0.0.1:{api}; location /api {{ peerage_api write=on; }} }}"""
        self.nginx = Nginx(http + listener(self.port, "all"), module=True, workers=WORKERS)
        self.client = Client(api)
        for u in range(1, fleet):
            sides.put(self.client, f"svc-{u}", other(u))
        self.update(HALVES[0])

    def update(self, half):
        sides.put(self.client, "svc-0", self.backend.of(half))


class Lua:
    """The dict, with each worker's copy kept until the version moves."""

    name = f"Lua, shared dict, {sides.LUA_WAYS[WAY]}"

    def __init__(self, backend, fleet):
        self.backend, self.port, self.api = backend, free_port(), free_port()
        # The rest of the fleet, written in Lua.
        fill = f"""
            local peers = {{}}
            for s = 1, {SERVERS} do peers[s] = {{"10.0.0." .. s, 80}} end
            local text = require("cjson").encode(peers)
            for u = 1, {fleet - 1} do dict:set("svc-" .. u, text) end
            dict:set("svc-0", {json.dumps(self._value(HALVES[0]))})"""
        http = sides.lua_http(WAY, fill) + listener(self.port, "lua") + f"""
        server {{
            listen 127.0.0.1:{self.api};
            location / {{ content_by_lua_block {{ require("balancer").update("svc-0") }} }}
        }}"""
        self.nginx = Nginx(http, main=sides.lua_main(), workers=WORKERS)
        self.client = http_client(self.api)

    def _value(self, half):
        return json.dumps([[a.split(":")[0], self.backend.port] for a in self.backend.of(half)])

    def update(self, half):
        self.client.request("PUT", "/", self._value(half))
        answer = self.client.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()


def http_client(port):
    client = http.client.HTTPConnection("127.0.0.1", port)
    client.connect()
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


class Reload:
    """Stock nginx: the upstream's own file written anew, then a reload."""

    name = "stock, reload"

    def __init__(self, backend, fleet):
        self.backend, self.port = backend, free_port()
        blocks = []
        for u in range(1, fleet):
            lines = " ".join(f"server {address};" for address in other(u))
            blocks.append(f"upstream svc-{u} {{ {lines} keepalive 64; }}\n")
        self.folder = tempfile.TemporaryDirectory(prefix="peerage-bench-")
        self._write(HALVES[0])
        http = f"include {self.folder.name}/app.conf;\n{''.join(blocks)}" + listener(self.port, "svc-0")
        self.nginx = Nginx(http, workers=WORKERS)

    def _write(self, half):
        lines = " ".join(f"server {address};" for address in self.backend.of(half))
        with open(f"{self.folder.name}/app.conf", "w") as out:
            out.write(f"upstream svc-0 {{ {lines} keepalive 64; }}\n")

    def update(self, half):
        self._write(half)
        self.nginx.reload()

    def end(self):
        self.folder.cleanup()


REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


def look(side, half):
    """Asks on new connections until each process that takes any answers from the half, and those
    of before a reload are gone; returns the seconds until the last of this was seen in an answer."""
    begun = last = time.perf_counter()
    new = set()
    while not (len(new) == WORKERS and set(side.nginx.pids()) == new):
        with socket.create_connection(("127.0.0.1", side.port), timeout=120) as conn:
            conn.sendall(REQUEST)
            answer = b""
            while data := conn.recv(4096):
                answer += data
        now = time.perf_counter()
        pid = int(answer.split(b"X-Pid: ", 1)[1].split(b"\r\n", 1)[0])
        if not answer.endswith(half.encode()):
            new.discard(pid)
            last = now
        elif pid not in new:
            new.add(pid)
            last = now
        if now - begun > 120:
            raise SystemExit(f"no end of the update after 120 s: {answer!r}")
    return last - begun


def run(kind, backend, fleet):
    side = kind(backend, fleet)
    updates = RELOADS[fleet] if kind is Reload else UPDATES
    look(side, HALVES[0])
    floor, times, at = [], [], 0
    for _ in range(updates):
        floor.append(look(side, HALVES[at]))
        at = 1 - at
        begun = time.perf_counter()
        side.update(HALVES[at])
        called = time.perf_counter() - begun
        times.append(called + look(side, HALVES[at]))

    loads = {"fresh": Load(side.port), "kept": Load(side.port, kept=8)}
    loaded = LOADED[fleet] if kind is Reload else UPDATES // 2
    for _ in range(loaded):
        at = 1 - at
        side.update(HALVES[at])
        look(side, HALVES[at])
        time.sleep(0.05)
    asked, failed = {}, {}
    for name, load in loads.items():
        good, bad = load.stop()
        asked[name], failed[name] = len(good) + len(bad), bad
    side.nginx.stop()
    if kind is Reload:
        side.end()
    return {
        "name": side.name, "upstreams": fleet, "updates": updates, "loaded": loaded,
        "p50": median(times) * 1e3, "p99": quantile(times, 0.99) * 1e3, "floor": median(floor) * 1e3,
        "asked": asked, "failed": {name: len(bad) for name, bad in failed.items()},
        "failures": sorted({text for bad in failed.values() for text in bad})[:4],
    }


def failures(row, name):
    return f"{row['failed'][name]:,} of {row['asked'][name]:,} in {row['loaded']}"


def main():
    kinds = ([Api] if MODULE else []) + ([Lua] if sides.LUA else []) + [Reload]
    backend, rows = Backend(), []
    print(f"one update of {SERVERS} servers until {WORKERS} workers answer from it, ms")
    head = ("upstreams", "way", "median", "99 %", "floor", "failed, fresh", "failed, kept")
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for fleet in FLEETS:
        for kind in kinds:
            row = run(kind, backend, fleet)
            rows.append(row)
            p99 = f"{row['p99']:,.2f}"
            if row["updates"] < 20:
                p99 += f" (longest of {row['updates']})"
            print(f"| {fleet:,} | {row['name']} | {row['p50']:,.2f} | {p99} | {row['floor']:,.2f} "
                  f"| {failures(row, 'fresh')} | {failures(row, 'kept')} |", flush=True)
    backend.nginx.stop()
    save("updates", rows=rows, servers=SERVERS, workers=WORKERS)


main()
