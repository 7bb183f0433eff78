"""WebSockets through many changes: dropped, processes, memory, and TLS sessions that are resumed.

Each change gives the upstream another server in place of the one it has; between two changes one
in a hundred WebSockets ends and another begins. Ours changes through the API, stock nginx by
reload: without a limit for its old processes, and with worker_shutdown_timeout.
"""

import tempfile
import time

import sides
from client import Client
from figures import save, size, table
from nginx import MODULE, Nginx, free_port
from process import memory
from sockets import Clients, Echo
from tls import VERSIONS, Visitors, certificate

SOCKETS = size(2000, 100)
CHANGES = size(100, 10)
VISITORS = 5
WORKERS = 2
SHUTDOWN = size("5s", "1s")


class Site:
    """nginx in front of the WebSockets."""

    def __init__(self, name, backend, module=False, main=""):
        self.name, self.backend, self.module = name, backend, module
        self.folder = tempfile.TemporaryDirectory(prefix="peerage-bench-")
        self.port, self.tls, self.api = free_port(), free_port(), free_port()
        if module:
            upstream = f"""peerage_zone main 1m; upstream app {{ peerage main; }}
            server {{ listen 127.0.0.1:{self.api}; location /api {{ peerage_api write=on; }} }}"""
        else:
            self._write(0)
            upstream = f"include {self.folder.name}/app.conf;"
        http = upstream + f"""
        server {{
            listen 127.0.0.1:{self.port};
            listen 127.0.0.1:{self.tls} ssl;
            {certificate(self.folder.name)}
            ssl_session_cache shared:tls:10m;
            proxy_read_timeout 1h;
            location / {{ return 200 "ok"; }}
            location /ws {{
                proxy_pass http://app;
                proxy_http_version 1.1;
                proxy_set_header Upgrade $http_upgrade;
                proxy_set_header Connection Upgrade;
            }}
        }}"""
        self.nginx = Nginx(http, module=module, workers=WORKERS, main=main, connections=8192)
        self.nginx.running()
        if module:
            self.client = Client(self.api)
            self.change(0)

    def _write(self, n):
        with open(f"{self.folder.name}/app.conf", "w") as out:
            out.write(f"upstream app {{ server {self.backend[n % 2]}; }}\n")

    def change(self, n):
        """Makes it, and waits until it is in force."""
        if self.module:
            sides.put(self.client, "app", [self.backend[n % 2]])
            return
        self._write(n)
        before = set(self.nginx.pids())
        self.nginx.reload()
        while True:
            old = [pid for pid in before if not leaving(pid)]
            if not old and len(set(self.nginx.pids()) - before) >= WORKERS:
                break
            time.sleep(0.005)

    def stop(self):
        self.nginx.stop()
        self.folder.cleanup()


def leaving(pid):
    """Whether the process is gone or takes no more connections."""
    try:
        with open(f"/proc/{pid}/cmdline") as title:
            text = title.read()
        return not text or "shutting down" in text
    except (FileNotFoundError, ProcessLookupError):
        return True


def run(site):
    clients = Clients(site.port, SOCKETS)
    visitors = {version: Visitors(site.tls, version, VISITORS) for version in VERSIONS}
    begun, over = time.monotonic(), []

    def sample():
        pids = site.nginx.pids()
        resident, shared = memory(pids)
        over.append({"s": round(time.monotonic() - begun, 2), "workers": len(pids),
                     "rss": round(resident, 1), "pss": round(shared, 1)})

    sample()
    for n in range(1, CHANGES + 1):
        site.change(n)
        for visitor in visitors.values():
            visitor.come()
        clients.renew(SOCKETS // 100)
        time.sleep(0.05)
        sample()
    dropped = clients.close()
    site.stop()
    return {"name": site.name, "dropped": dropped, "opened": clients.opened, "over": over,
            "resumed": {version: visitor.share() for version, visitor in visitors.items()}}


def main():
    port = free_port()
    addresses = [("127.0.1.1", port), ("127.0.2.1", port)]
    backend = [f"{host}:{port}" for host, port in addresses]
    makes = [
        ("stock, reload", {}),
        (f"stock, reload, worker_shutdown_timeout {SHUTDOWN}",
         {"main": f"worker_shutdown_timeout {SHUTDOWN};\n"}),
    ]
    if MODULE:
        makes.insert(0, ("peerage, API", {"module": True}))
    rows = []
    for name, more in makes:
        echo = Echo(addresses)
        try:
            rows.append(run(Site(name, backend, **more)))
        finally:
            echo.stop()

    print(f"{SOCKETS:,} WebSockets through {CHANGES} changes, {WORKERS} workers")
    grown = lambda row, what: f"{row['over'][0][what]:g} → {row['over'][-1][what]:g}"
    most = lambda row, what: f"{max(sample[what] for sample in row['over']):g}"
    head = ("changed by", "dropped, of", "processes", "at most", "MB resident", "MB, shared ones once",
            *(f"{version} resumed" for version in VERSIONS))
    table(head, [
        (row["name"], f"{row['dropped']:,} of {row['opened']:,}", grown(row, "workers"), most(row, "workers"),
         grown(row, "rss"), grown(row, "pss"),
         *(f"{share:.1%}" for share in row["resumed"].values())) for row in rows
    ])
    save("websockets", rows=rows, sockets=SOCKETS, changes=CHANGES)


if __name__ == "__main__":
    main()
