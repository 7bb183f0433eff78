"""Ten thousand upstreams of twenty servers: start, one change, bytes a server."""

import os
import random
import shutil
import sys
import tempfile
import time

from client import Client
from figures import median, quantile, save, size
from nginx import MODULE, Nginx, free_port

UPSTREAMS = int(os.environ.get("UPSTREAMS", size(10000, 300)))
SERVERS = 20
CHANGES = size(1000, 100)
ZONE = os.environ.get("ZONE", "256m")

PLAIN = b"GET /nothing HTTP/1.1\r\nHost: bench\r\n\r\n"


def http(port, prefix, zone):
    block = ""
    if zone:
        block = (
            f"peerage_zone main {ZONE} state={prefix}/main.json;"
            f"upstream all {{ peerage main name=$host; }}"
        )
    api = "location /api { peerage_api write=on; client_max_body_size 8m; }" if zone else ""
    proxy = "location /all { proxy_pass http://all; }" if zone else ""
    return f"""{block}
    server {{ listen 127.0.0.1:{port}; location /nothing {{ return 200 "{{}}"; }} {api} {proxy} }}"""


def address(upstream, server):
    return f"10.{upstream >> 8 & 255}.{upstream & 255}.{server + 1}:8080"


def started(text, module=False, prefix=None, port=None):
    """An nginx and the seconds until it has answered a request."""
    begun = time.monotonic()
    nginx = Nginx(text, module=module, prefix=prefix)
    client = Client(port)
    client.send(PLAIN)
    return nginx, client, time.monotonic() - begun


def start_seconds(text, port, **more):
    times = []
    for _ in range(5):
        nginx, _, seconds = started(text, port=port, **more)
        nginx.stop()
        times.append(seconds)
    return median(times)


def must(answer):
    status, body = answer
    if not 200 <= status < 300:
        raise SystemExit(f"answer {status}: {body}")
    return body


def latencies(client):
    """Microseconds of CHANGES changes, and of as many plain answers between them."""
    choice = random.Random(1)
    changes, plain = [], []
    for turn in range(CHANGES):
        u, s = choice.randrange(UPSTREAMS), choice.randrange(SERVERS)
        target = f"/api/v1/upstreams/svc-{u}/servers/{address(u, s)}"
        begun = time.perf_counter()
        answer = client.call("PATCH", target, {"weight": 2 + turn % 100})
        changes.append((time.perf_counter() - begun) * 1e6)
        must(answer)
        begun = time.perf_counter()
        client.send(PLAIN)
        plain.append((time.perf_counter() - begun) * 1e6)
    return changes, plain


def main():
    port = free_port()
    empty = start_seconds(http(port, "", False), port)
    prefix = tempfile.mkdtemp(prefix="peerage-bench-")
    try:
        text = http(port, prefix, True)
        bare = start_seconds(text, port, module=True, prefix=prefix)
        nginx, client, _ = started(text, module=True, prefix=prefix, port=port)
        before = must(client.call("GET", "/api/v1/zones/main"))["bytes"]["used"]
        begun = time.monotonic()
        for u in range(UPSTREAMS):
            servers = [{"server": address(u, s)} for s in range(SERVERS)]
            must(client.call("PUT", f"/api/v1/upstreams/svc-{u}", {"servers": servers}))
        created = time.monotonic() - begun
        used = must(client.call("GET", "/api/v1/zones/main"))["bytes"]["used"] - before
        begun = time.monotonic()
        must(client.call("POST", "/api/v1/zones/main/flush"))
        flushed = time.monotonic() - begun
        changes, plain = latencies(client)
        nginx.stop()
        full = start_seconds(text, port, module=True, prefix=prefix)
        size = os.path.getsize(f"{prefix}/main.json")
        rows = [
            ("an upstream created by PUT", f"{created / UPSTREAMS * 1e6:.0f} us"),
            ("zone bytes per server", f"{used / UPSTREAMS / SERVERS:.1f}"),
            ("state file", f"{size / 1e6:.1f} MB"),
            ("flush", f"{flushed:.2f} s"),
            ("start, stock nginx, nothing in it", f"{empty:.3f} s"),
            ("start, zone empty", f"{bare:.3f} s"),
            ("start, zone full, from the state file", f"{full:.3f} s"),
            ("  beyond the empty nginx", f"{full - empty:.3f} s"),
        ]
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            one, none = quantile(changes, share), quantile(plain, share)
            rows.append((f"one change, {name}", f"{one:.0f} us"))
            rows.append((f"  return 200, {name}", f"{none:.0f} us"))
            rows.append(("  beyond it", f"{one - none:.0f} us"))
        print(f"{UPSTREAMS} upstreams x {SERVERS} servers")
        for name, value in rows:
            print(f"{name:40} {value:>12}")
        save("scale", upstreams=UPSTREAMS, servers=SERVERS, rows=rows)
    finally:
        shutil.rmtree(prefix)


if __name__ == "__main__":
    if not MODULE:
        sys.exit("scale: needs PEERAGE_MODULE")
    main()
