"""Health checks: how soon a failure is known, and what probing ten thousand servers costs."""

import asyncio
import http.client
import json
import random
import socket
import threading
import time

import sides
from client import Client
from figures import interval, median, quantile, save, size, table
from load import Load
from nginx import Nginx, free_port
from process import cpu

PEERS = size(50, 10)
SERVERS = size(10000, 500)
SECONDS = size(20, 3)
ROUNDS = size(10, 2)
RATE = 500  # requests a second


class Servers:
    """Servers that answer, refuse connections, or say nothing, each as it is told."""

    def __init__(self, n):
        self.probes, self.silent, self.open = 0, set(), {}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.ports = [free_port() for _ in range(n)]
        for port in self.ports:
            self.call(self.listen(port))

    def call(self, step):
        return asyncio.run_coroutine_threadsafe(step, self.loop).result()

    async def listen(self, port):
        async def serve(reader, writer):
            self.open.setdefault(port, set()).add(writer)
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    self.probes += 1
                    if port not in self.silent:
                        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
        setattr(self, f"s{port}", await asyncio.start_server(serve, "127.0.0.1", port))

    async def refuse(self, port):
        getattr(self, f"s{port}").close()
        for writer in self.open.pop(port, ()):
            writer.transport.abort()


def detection(every, fails, kind):
    """How long each of so many failures was unknown, ms, and probes a second before."""
    servers = Servers(PEERS)
    port = free_port()
    lines = "".join(f"server 127.0.0.1:{p};" for p in servers.ports)
    nginx = Nginx(f"""peerage_zone main 2m;
        upstream app {{ peerage main; peerage_check interval={every}ms fails={fails}; {lines} }}
        server {{ listen 127.0.0.1:{port}; location /api {{ peerage_api write=on; }} }}""",
                  module=True, workers=4)
    time.sleep(2 * every / 1000)
    before, begun = servers.probes, time.monotonic()
    time.sleep(4 * every / 1000)
    rate = (servers.probes - before) / (time.monotonic() - begun)
    failed, known = {}, {}

    def fail():
        order = random.sample(servers.ports, PEERS)
        for p in order:
            time.sleep(every / 1000 / PEERS)
            failed[p] = time.monotonic()
            if kind == "refuses":
                servers.call(servers.refuse(p))
            else:
                servers.silent.add(p)

    thread = threading.Thread(target=fail)
    thread.start()
    client = Client(port)
    while len(known) < PEERS:
        status, seen = client.call("GET", "/api/v1/upstreams/app")
        now = time.monotonic()
        for server in seen["servers"]:
            p = int(server["server"].rsplit(":", 1)[1])
            if server["state"] == "unhealthy" and p not in known:
                known[p] = now
    thread.join()
    nginx.stop()
    return [(known[p] - failed[p]) * 1000 for p in servers.ports], rate


def fill(port, check):
    """500 upstreams, with all servers between them; as many addresses of the loopback."""
    lines = []
    for u in range(SERVERS // 20):
        numbers = range(u * 20, u * 20 + 20)
        servers = [{"server": f"127.{1 + (n >> 16)}.{n >> 8 & 255}.{n & 255}:{check['port']}"} for n in numbers]
        line = {"upstream": f"svc-{u}", "servers": servers}
        lines.append(json.dumps(line | ({"check": check} if check["on"] else {})))
    body = "\n".join(lines).replace('"on": true, ', "").encode() + b"\n"
    http_client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    http_client.request("PUT", "/api/v1/zones/main/import", body)
    answer = http_client.getresponse()
    if answer.status != 200:
        raise SystemExit(f"answer {answer.status}: {answer.read()}")


def front(check, workers=2):
    """An nginx with all servers, checked so or not, and an upstream for traffic."""
    port, api, ports = free_port(), free_port(), BACKEND["ports"]
    nginx = Nginx(f"""peerage_zone main 64m;
        upstream app {{ peerage main; {sides.servers(ports)} keepalive 64; }}
        server {{ listen 127.0.0.1:{api};
            location /api {{ peerage_api write=on; client_max_body_size 0; }} }}"""
                  + sides.front(port, "app"), module=True, workers=workers, connections=24000)
    fill(api, {"on": check is not None, **(check or {}), "port": BACKEND["checked"]})
    return nginx, port, api


BACKEND = {}


def begin():
    """One nginx behind all of it."""
    BACKEND["ports"] = [free_port() for _ in range(4)]
    BACKEND["checked"] = free_port()
    text = sides.backend(BACKEND["ports"])
    text += f"server {{ listen {BACKEND['checked']} backlog=8192; return 200; }}"
    BACKEND["nginx"] = Nginx(text, connections=30000, wait=BACKEND["ports"][0])


def cost(name, check):
    """What probing all of them takes of a core."""
    nginx, _, api = front(check)
    time.sleep(size(12, 6))
    pids = nginx.running()
    before, begun = cpu(pids), time.monotonic()
    time.sleep(SECONDS)
    share = (cpu(pids) - before) / 1e9 / (time.monotonic() - begun)
    client = Client(api)
    _, seen = client.call("GET", "/api/v1/upstreams/svc-1")
    checks = [s["counters"]["health_checks"] for s in seen["servers"]]
    if check and not all(c["checks"] >= 2 and c["fails"] == 0 for c in checks):
        raise SystemExit(f"{name}: {checks[0]}")
    nginx.stop()
    return share


def latency(check):
    """The answers' times of one run."""
    nginx, port, _ = front(check)
    time.sleep(size(7, 2))
    load = Load(port, kept=16, rate=RATE)
    time.sleep(size(5, 1))
    times, failed = load.stop()
    nginx.stop()
    if failed:
        raise SystemExit(f"{len(failed)} failed, the first: {failed[0]}")
    return quantile(times, 0.99)


def main():
    rows, found = [], []
    for every, fails in ((500, 2), (1000, 2), (2000, 3)):
        for kind in ("refuses", "is silent"):
            times, rate = detection(every, fails, kind)
            timeout = min(1000, every)
            bound = every * fails + timeout
            found.append({"interval": every, "fails": fails, "kind": kind, "times": times, "rate": rate})
            rows.append([f"{every / 1000:g} s x {fails}", kind, f"{sum(times) / len(times) / 1000:.2f}",
                         f"{max(times) / 1000:.2f}", f"{bound / 1000:g}", f"{rate:.0f}"])
    table(["interval x fails", f"of {PEERS} servers, each", "mean, s", "longest, s", "bound, s",
           "probes a second before"], rows)
    begin()
    five = {"interval": "5s"}
    kinds = [("none", None), ("http, connections kept", five), ("http, reuse=off", five | {"reuse": False}),
             ("tcp", five | {"type": "tcp"})]
    costs = [(name, cost(name, check)) for name, check in kinds]
    table([f"checks of {SERVERS:,} servers every 5 s", "of one core, %"],
          [[name, f"{share * 100:.1f}"] for name, share in costs])
    pairs = []
    for _ in range(ROUNDS):
        order = [("with", five), ("without", None), ("again", None)]
        random.shuffle(order)
        pairs.append({name: latency(check) for name, check in order})
    ratios = {
        "with checks": [p["with"] / p["without"] for p in pairs],
        "equal runs (control)": [p["again"] / p["without"] for p in pairs],
    }
    rows = []
    for name, values in ratios.items():
        low, high = interval(values)
        rows.append([name, f"{median(values):.2f}", f"{low:.2f} to {high:.2f}"])
    table([f"p99 of {RATE} requests a second, to runs without", "ratio", "95 %"], rows)
    BACKEND["nginx"].stop()
    save("checks", detection=found, cost=costs, p99=pairs)


main()
