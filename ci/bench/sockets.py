"""WebSockets: a backend that answers each byte with itself, and clients that stay."""

import os
import random
import selectors
import signal
import socket

HANDSHAKE = (b"GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
ACCEPTED = (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
# A text frame of a client, "hi" under a mask of zeroes.
FRAME = b"\x81\x82\x00\x00\x00\x00hi"


class Echo:
    """A process that listens on these addresses, accepts upgrades, and answers frames."""

    def __init__(self, addresses):
        listeners = []
        for address in addresses:
            listener = socket.create_server(address, backlog=4096)
            listener.setblocking(False)
            listeners.append(listener)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._serve(listeners)
            finally:
                os._exit(1)
        for listener in listeners:
            listener.close()

    def _serve(self, listeners):
        ready = selectors.DefaultSelector()
        for listener in listeners:
            ready.register(listener, selectors.EVENT_READ, None)
        while True:
            for key, _ in ready.select():
                if key.data is None:
                    conn, _ = key.fileobj.accept()
                    conn.setblocking(False)
                    ready.register(conn, selectors.EVENT_READ, {"head": b""})
                    continue
                conn, state = key.fileobj, key.data
                try:
                    if self._answer(conn, state):
                        continue
                except OSError:
                    pass
                ready.unregister(conn)
                conn.close()

    def _answer(self, conn, state):
        """Tells whether the connection goes on."""
        data = conn.recv(65536)
        if not data:
            return False
        if state["head"] is None:
            conn.sendall(data)
            return True
        state["head"] += data
        if not state["head"].endswith(b"\r\n\r\n"):
            return True
        upgrade = b"upgrade: websocket" in state["head"].lower()
        state["head"] = None
        conn.sendall(ACCEPTED if upgrade else PLAIN)
        return upgrade

    def stop(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Clients:
    """Connections that stay open; what nginx or the backend closes is dropped."""

    def __init__(self, port, count):
        self.port, self.choice = port, random.Random(1)
        self.opened = self.dropped = 0
        self.open = [self._open() for _ in range(count)]

    def _open(self):
        conn = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        conn.sendall(HANDSHAKE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = conn.recv(4096)
            if not data:
                raise SystemExit("closed before the upgrade")
            head += data
        if not head.startswith(b"HTTP/1.1 101"):
            raise SystemExit(f"no upgrade: {head!r}")
        self.opened += 1
        return conn

    def _alive(self, conn):
        try:
            conn.sendall(FRAME)
            answer = b""
            while len(answer) < len(FRAME):
                data = conn.recv(4096)
                if not data:
                    return False
                answer += data
            return answer == FRAME
        except OSError:
            return False

    def renew(self, count):
        """As people come and go: some leave, as many come; who leaves is still there before."""
        for _ in range(count):
            at = self.choice.randrange(len(self.open))
            self.dropped += not self._alive(self.open[at])
            self.open[at].close()
            self.open[at] = self._open()

    def close(self):
        """Counts those that are still there, and ends all."""
        for conn in self.open:
            self.dropped += not self._alive(conn)
            conn.close()
        self.open = []
        return self.dropped
