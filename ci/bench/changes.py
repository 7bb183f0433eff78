"""Changes a second through the API, by how they are kept: and what one costs on the disk."""

import glob
import os
import tempfile
import threading
import time

from client import Client
from figures import save, size
from nginx import Nginx, free_port

SECONDS = size(4, 0.5)
SERVERS = 20
MODES = ("no file", "flush=off", "flush=1s", "flush=always")


def started(mode):
    port = free_port()
    state = "" if mode == "no file" else f"state={{prefix}}/main.json {mode}"
    http = f"""peerage_zone main 16m {state};
    upstream all {{ peerage main name=$host; }}
    server {{ listen 127.0.0.1:{port}; location /api {{ peerage_api write=on; }} }}"""
    prefix = tempfile.mkdtemp(prefix="peerage-bench-")
    return Nginx(http.replace("{prefix}", prefix), module=True, workers=2, prefix=prefix), port


def written(prefix):
    return sum(os.path.getsize(name) for name in glob.glob(f"{prefix}/main.json*"))


def bytes_of_one(nginx, client):
    """Few enough that no snapshot takes the journal's place meanwhile."""
    sizes = []
    for weights in ((), range(2, 202)):
        for weight in weights:
            call = ("PATCH", "/api/v1/upstreams/u0/servers/10.0.0.7:80", {"weight": weight})
            assert client.call(*call)[0] == 200
        assert client.call("POST", "/api/v1/zones/main/flush")[0] == 200
        sizes.append(written(nginx.prefix))
    return (sizes[1] - sizes[0]) / 200


def run(mode, clients):
    nginx, port = started(mode)
    first = Client(port)
    for n in range(clients):
        servers = [{"server": f"10.0.{n}.{i + 1}:80"} for i in range(SERVERS)]
        assert first.call("PUT", f"/api/v1/upstreams/u{n}", {"servers": servers})[0] == 201
    cost = bytes_of_one(nginx, first) if mode in MODES[2:] else 0
    done, end = [0] * clients, time.monotonic() + SECONDS

    def change(n):
        client, target = Client(port), f"/api/v1/upstreams/u{n}/servers/10.0.{n}.7:80"
        while time.monotonic() < end:
            done[n] += 1
            status, answer = client.call("PATCH", target, {"weight": 1 + done[n] % 9})
            assert status == 200, answer

    threads = [threading.Thread(target=change, args=(n,)) for n in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = sum(done) / (time.monotonic() - begun)
    nginx.stop()
    return rate, cost


print(f"changes of one weight among {SERVERS} servers, 2 workers, {SECONDS:g} s each")
print("| kept | 1 client, changes/s | 16 clients, changes/s | bytes a change |")
print("|---|---|---|---|")
rows = []
for mode in MODES:
    (one, cost), (many, _) = run(mode, 1), run(mode, 16)
    rows.append({"name": mode, "one": one, "many": many, "bytes": cost})
    print(f"| {mode} | {one:,.0f} | {many:,.0f} | {cost:.0f} |", flush=True)
save("changes", rows=rows)
