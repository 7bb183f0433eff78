"""Latency of traffic while one worker is stopped (SIGSTOP), beside equal runs without it."""

import os
import random
import signal
import socket
import threading
import time

from client import Client
from figures import save, size
from nginx import Nginx, free_port

PAIRS = size(5, 1)
SECONDS = size(10, 1)
RATE = 200
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


def one(port):
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(REQUEST)
        while s.recv(4096):
            pass
    return time.monotonic() - begun


def traffic(port, changes):
    """Requests on fresh connections at a steady rate, with 20 changes a second."""
    times, failed, end = [], [], time.monotonic() + SECONDS

    def ask():
        try:
            times.append(one(port))
        except OSError as error:
            failed.append(error)

    def change():
        n = 0
        while time.monotonic() < end:
            n += 1
            try:
                changes(n)
            except OSError:
                pass
            time.sleep(0.05)

    changer = threading.Thread(target=change)
    changer.start()
    threads, next_ = [], time.monotonic()
    while time.monotonic() < end:
        thread = threading.Thread(target=ask)
        thread.start()
        threads.append(thread)
        next_ += 1 / RATE
        time.sleep(max(0, next_ - time.monotonic()))
    for thread in threads + [changer]:
        thread.join()
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100], times[-1], len(failed)


def main():
    answer = free_port()
    backend = Nginx(f'server {{ listen 127.0.0.1:{answer}; location / {{ return 200 "ok"; }} }}')
    port, api = free_port(), free_port()
    http = f"""peerage_zone main 1m;
    upstream app {{ peerage main; server 127.0.0.1:{answer}; keepalive 8; }}
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://app; }} }}
    server {{ listen 127.0.0.1:{api}; location /api {{ peerage_api write=on; }} }}"""
    nginx = Nginx(http, module=True, workers=4)

    def changes(n):
        client = Client(api)
        client.socket.settimeout(1)
        target = f"/api/v1/upstreams/app/servers/127.0.0.1:{answer}"
        client.call("PATCH", target, {"weight": 1 + n % 9})

    print(f"{RATE} requests/s, 20 changes/s, 4 workers, {SECONDS:g} s each, {PAIRS} pairs; ms")
    print("| one worker | median | 99 % | longest | failed |")
    print("|---|---|---|---|---|")
    rows = []
    for pair in range(2 * PAIRS):
        stop = pair % 2 == 1
        victim = random.choice(nginx.running())
        if stop:
            os.kill(victim, signal.SIGSTOP)
        median, p99, longest, failed = traffic(port, changes)
        if stop:
            os.kill(victim, signal.SIGCONT)
            time.sleep(1)
        name = "stopped" if stop else "runs"
        rows.append({"name": name, "median": median, "p99": p99, "longest": longest,
                     "failed": failed})
        print(f"| {name} | {median * 1e3:.2f} | {p99 * 1e3:.2f} | {longest * 1e3:.1f} | {failed} |", flush=True)
    nginx.stop()
    backend.stop()
    save("stopped", rows=rows)


main()
