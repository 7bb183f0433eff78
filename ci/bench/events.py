"""A thousand listeners of events: what they cost while nothing happens, and how soon all hear."""

import select
import socket
import time

from client import Client
from figures import median, quantile, save, size, table
from nginx import MODULE, Nginx, free_port
from process import cpu, memory, ticks

LISTENERS = size(1000, 100)
SECONDS = size(3, 1)
EVENTS = size(50, 10)
REQUEST = b"GET /api/v1/events HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n"


class Listeners:
    def __init__(self, port):
        self.port, self.epoll, self.sockets = port, select.epoll(), {}

    def add(self, count):
        for _ in range(count):
            conn = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            conn.sendall(REQUEST)
            head = b""
            # The answer's head, then the number after which the stream goes on.
            while head.count(b"\n\n") < 1:
                head += conn.recv(4096)
            assert head.startswith(b"HTTP/1.1 200"), head
            conn.setblocking(False)
            self.epoll.register(conn, select.EPOLLIN)
            self.sockets[conn.fileno()] = conn

    def hear(self):
        """Waits until each has read one event."""
        left = {number: b"" for number in self.sockets}
        while left:
            ready = self.epoll.poll(10)
            if not ready:
                raise SystemExit(f"{len(left)} listeners hear nothing")
            for number, _ in ready:
                data = self.sockets[number].recv(65536)
                if not data:
                    raise SystemExit("a stream has ended")
                heard = left.pop(number, b"") + data
                if not (b"\ndata: " in heard and heard.rstrip(b"\r\n").endswith(b"}")):
                    left[number] = heard


def main():
    port = free_port()
    http = f"""peerage_zone main 1m;
    upstream app {{ peerage main; server 10.0.0.1:80; server 10.0.0.2:80; }}
    server {{ listen 127.0.0.1:{port}; location /api {{ peerage_api write=on; }} }}"""
    nginx = Nginx(http, module=True, workers=2, connections=4096)
    pids = nginx.running()
    listeners = Listeners(port)
    # What each takes: of the second half, when all that is shared is in use already.
    listeners.add(LISTENERS // 2)
    before = memory(pids)[1]
    listeners.add(LISTENERS - LISTENERS // 2)
    each = (memory(pids)[1] - before) * 1024 / (LISTENERS - LISTENERS // 2)
    time.sleep(0.3)
    begun = ticks(pids), cpu(pids)
    time.sleep(SECONDS)
    used, spent = ticks(pids) - begun[0], (cpu(pids) - begun[1]) / 1e6

    client, answers, reached, costs = Client(port), [], [], []
    for n in range(EVENTS):
        at, work = time.perf_counter(), cpu(pids)
        target = "/api/v1/upstreams/app/servers/10.0.0.1:80"
        status, answer = client.call("PATCH", target, {"weight": 2 + n % 9})
        answers.append((time.perf_counter() - at) * 1e3)
        assert status == 200 and answer["changed"], answer
        listeners.hear()
        reached.append((time.perf_counter() - at) * 1e3)
        costs.append((cpu(pids) - work) / 1e6)
    nginx.stop()

    rows = [
        (f"{LISTENERS:,} idle listeners, ticks of 10 ms in {SECONDS} s", f"{used}"),
        ("the same, ms of CPU", f"{spent:.3f}"),
        ("memory of a listener, KB", f"{each:.1f}"),
        (f"an event reaches all {LISTENERS:,}, median, ms", f"{median(reached):.1f}"),
        (f"the same, longest of {EVENTS}, ms", f"{max(reached):.1f}"),
        ("the answer to the change itself, median, ms", f"{median(answers):.2f}"),
        ("CPU of an event for all, ms", f"{median(costs):.1f}"),
    ]
    table(("events", ""), rows)
    save("events", listeners=LISTENERS, seconds=SECONDS, ticks=used, cpu_ms=spent, kb=each,
         reached_p50=median(reached), reached_p99=quantile(reached, 0.99), reached_max=max(reached),
         answer_p50=median(answers), event_cpu_ms=median(costs))


if __name__ == "__main__":
    if not MODULE:
        raise SystemExit("events: needs PEERAGE_MODULE")
    main()
