#!/usr/bin/env python3
"""A steady load: one fresh connection a request, nothing tried again, every failure counted.

    load.py HOST PORT RATE REPORT

Sends RATE requests a second until SIGTERM (at most ten minutes), then writes to the file REPORT:

    requests N
    failed N
    rate N              requests a second, reached
    slowest N           milliseconds
    answer VERSION N    by the X-Version of the answer
    error TEXT N        what the failures were
"""

import collections
import signal
import socket
import sys
import threading
import time

THREADS = 8
LONGEST = 600.0


def request(host, port):
    """Returns (version, None), or (None, what was wrong)."""
    try:
        with socket.create_connection((host, port), timeout=30) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")
            data = b""
            while piece := s.recv(65536):
                data += piece
    except OSError as error:
        return None, error.strerror or type(error).__name__
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = lines[0].partition(" ")[2]
    if not status.startswith("200"):
        return None, status or "closed without an answer"
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    if len(body) != int(headers.get("content-length", len(body))):
        return None, "body cut short"
    return headers.get("x-version", "?"), None


def main():
    host, port, rate, report = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    lock = threading.Lock()
    answers, errors = collections.Counter(), collections.Counter()
    slowest = 0.0
    begun = time.monotonic()

    def work(index):
        nonlocal slowest
        turn = index
        while not stop.is_set():
            due = begun + turn / rate
            turn += THREADS
            if stop.wait(max(0.0, due - time.monotonic())):
                return
            start = time.monotonic()
            version, error = request(host, port)
            with lock:
                slowest = max(slowest, time.monotonic() - start)
                if error is None:
                    answers[version] += 1
                else:
                    errors[error] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    stop.wait(LONGEST)
    stop.set()
    for thread in threads:
        thread.join()
    passed = time.monotonic() - begun
    good, failed = sum(answers.values()), sum(errors.values())
    with open(report, "w") as out:
        print("requests", good + failed, file=out)
        print("failed", failed, file=out)
        print("rate", int((good + failed) / passed + 0.5), file=out)
        print("slowest", int(slowest * 1000), file=out)
        for version, n in sorted(answers.items()):
            print("answer", version, n, file=out)
        for error, n in errors.most_common():
            print("error", error.replace(" ", "-"), n, file=out)


if __name__ == "__main__":
    main()
