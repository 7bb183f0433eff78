"""A page of metrics of ten thousand servers: how long it holds the event loop up, and what it takes."""

import http.client
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from client import Client
from figures import median, save, size, table
from nginx import MODULE, Nginx, free_port
from process import cpu, memory

SERVERS = size(10000, 1000)
SCRAPES = size(20, 3)
HERE = os.path.dirname(os.path.abspath(__file__))


def conf(port):
    return f"""peerage_zone main 64m;
    server {{ listen 127.0.0.1:{port};
        location /api {{ peerage_api write=on; client_max_body_size 0; }}
        location /all {{ peerage_metrics; }}
        location /short {{ peerage_metrics servers=off; }} }}"""


def fill(client, upstreams):
    """So many upstreams, with all servers between them."""
    each = SERVERS // upstreams
    lines = []
    for u in range(upstreams):
        numbers = range(u * each, (u + 1) * each)
        servers = [{"server": f"10.0.{n >> 8}.{n & 255}:8080"} for n in numbers]
        lines.append(json.dumps({"upstream": f"svc-{u}", "servers": servers}) + "\n")
    body = "".join(lines).encode()
    head = f"PUT /api/v1/zones/main/import HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
    status, answer = client.send(head.encode() + body)
    if status != 200:
        raise SystemExit(f"answer {status}: {answer}")


class Turns:
    """The longest turn of nginx's event loop and their number, see tests/support/turns.c."""

    def __init__(self, prefix):
        library = f"{prefix}/turns.so"
        source = f"{HERE}/../../tests/support/turns.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        with open(f"{prefix}/turns", "wb") as out:
            out.write(bytes(16))
        with open(f"{prefix}/turns", "r+b") as file:
            self.words = mmap.mmap(file.fileno(), 16)
        os.environ["TURNS_FILE"] = f"{prefix}/turns"
        os.environ["TURNS_LIBRARY"] = library

    def forget(self):
        self.words[:] = bytes(16)

    def read(self):
        longest, turns = struct.unpack("qq", self.words[:])
        return longest / 1e6, turns


def main():
    prefix = tempfile.mkdtemp(prefix="peerage-bench-")
    rows, figures = [], []
    try:
        turns = Turns(prefix)
        for upstreams in (1, SERVERS // 20, SERVERS):
            port = free_port()
            os.environ["LD_PRELOAD"] = os.environ["TURNS_LIBRARY"]
            nginx = Nginx(conf(port), module=True)
            del os.environ["LD_PRELOAD"]
            fill(Client(port), upstreams)
            # It reads as fast as a page comes: who is slow makes the kernel work in nginx's time.
            reader = http.client.HTTPConnection("127.0.0.1", port)
            for path in ("all", "short"):
                longest, used, spans, count, length = [], [], [], 0, 0
                idle = memory(nginx.pids())[0]
                for _ in range(SCRAPES):
                    turns.forget()
                    before, begun = cpu(nginx.pids()), time.perf_counter()
                    reader.request("GET", f"/{path}")
                    answer = reader.getresponse()
                    status, body = answer.status, answer.read()
                    spans.append((time.perf_counter() - begun) * 1e3)
                    used.append((cpu(nginx.pids()) - before) / 1e6)
                    if status != 200:
                        raise SystemExit(f"answer {status}")
                    took, count = turns.read()
                    longest.append(took)
                    length = len(body)
                grown = memory(nginx.pids())[0] - idle
                rows.append((f"{upstreams:,}", "on" if path == "all" else "off", f"{length / 1e6:.1f}",
                             f"{count:,}", f"{median(longest):.2f}", f"{max(longest):.2f}", f"{median(used):.0f}",
                             f"{median(spans):.0f}", f"{grown:.1f}"))
                figures.append({"upstreams": upstreams, "servers": path == "all", "bytes": length,
                                "turns": count, "longest_ms": longest, "cpu_ms": used})
            nginx.stop()
        print(f"{SERVERS:,} servers, {SCRAPES} scrapes each")
        table(("upstreams", "servers=", "MB", "turns", "longest turn, ms of CPU", "of all", "CPU, ms",
               "answer, ms", "memory kept, MB"), rows)
        save("scrape", servers=SERVERS, rows=figures)
    finally:
        shutil.rmtree(prefix)


if __name__ == "__main__":
    if not MODULE:
        sys.exit("scrape: needs PEERAGE_MODULE")
    main()
