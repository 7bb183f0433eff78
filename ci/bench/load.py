"""A steady load from a process of its own, one request after the other; nothing is tried again."""

import gc
import multiprocessing
import select
import socket
import struct
import time

fork = multiprocessing.get_context("fork")


class Load:
    """Requests on fresh connections, or in turn on `kept` ones, `rate` a second.

    With a rate, a request that the one before has held up counts from when it was due.
    """

    def __init__(self, port, kept=0, rate=None, host="bench"):
        self.port, self.kept, self.rate = port, kept, rate
        end = "close" if not kept else "keep-alive"
        self.request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: {end}\r\n\r\n".encode()
        self.stopped = fork.Event()
        self.ours, theirs = fork.Pipe()
        self.process = fork.Process(target=self._run, args=(theirs,), daemon=True)
        self.process.start()
        assert self.ours.recv() == "begun"

    def stop(self):
        """Ends it; returns the seconds that answers took, and what failed."""
        self.stopped.set()
        times, failed = self.ours.recv()
        self.process.join()
        return times, failed

    def _run(self, pipe):
        gc.disable()
        idle = [None] * self.kept
        times, failed, nth, begun = [], [], 0, time.perf_counter()
        pipe.send("begun")
        while not self.stopped.is_set():
            start = time.perf_counter()
            due = begun + nth / self.rate if self.rate else start
            if due > start:
                time.sleep(due - start)
                start = time.perf_counter()
            else:
                start = due
            at = nth % self.kept if self.kept else None
            nth += 1
            conn = idle[at] if self.kept else None
            try:
                # As a client does that keeps connections: one that the server has closed is left.
                if conn is None or select.select([conn], [], [], 0)[0]:
                    conn = socket.create_connection(("127.0.0.1", self.port), timeout=30)
                    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conn.sendall(self.request)
                closes = self._answer(conn)
                times.append(time.perf_counter() - start)
            except OSError as error:
                failed.append(repr(error))
                closes = True
            if closes and conn is not None:
                conn.close()
                conn = None
            if self.kept:
                idle[at] = conn
        pipe.send((times, failed))

    def _answer(self, conn):
        """Reads one; tells whether the connection ends with it."""
        text = b""
        while b"\r\n\r\n" not in text:
            text += self._more(conn)
        head, body = text.split(b"\r\n\r\n", 1)
        head = head.lower()
        length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._more(conn)
        if not head.startswith(b"http/1.1 200"):
            raise OSError(f"status {head[9:12].decode()}")
        return b"connection: close" in head

    def _more(self, conn):
        data = conn.recv(65536)
        if not data:
            raise ConnectionError("closed without an answer")
        return data


class Bursts:
    """Connections that each send a request and then each read the answer: the CPU of nginx alone
    is of interest, and its work is the same in each burst."""

    def __init__(self, port, request, connections=16):
        self.request = request
        self.sockets = []
        for _ in range(connections):
            conn = socket.create_connection(("127.0.0.1", port))
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Blocking, as MSG_WAITALL needs it, but not for ever.
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 30, 0))
            self.sockets.append(conn)
        # All answers are as long as the first one.
        self.sockets[0].sendall(request)
        self.first = self.sockets[0].recv(65536)
        self._check(self.first)

    def send(self, rounds):
        """Returns the number of requests."""
        length = len(self.first)
        for _ in range(rounds):
            for conn in self.sockets:
                conn.sendall(self.request)
            for conn in self.sockets:
                self._check(conn.recv(length, socket.MSG_WAITALL))
        return rounds * len(self.sockets)

    def _check(self, answer):
        if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(self.first[-8:]):
            raise SystemExit(f"an unexpected answer: {answer!r}")
