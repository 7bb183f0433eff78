"""A keep-alive HTTP client of constant requests, for what is measured per request."""

import json
import socket


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def send(self, request):
        """Sends one request as it stands; returns (status, body)."""
        self.socket.sendall(request)
        while b"\r\n\r\n" not in self.rest:
            self._more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding") == "chunked":
            body = self._chunks()
        else:
            body = self._take(int(headers.get("content-length", 0)))
        return int(lines[0].split(" ")[1]), body

    def call(self, method, target, body=None):
        """One call of the API; returns (status, JSON or bytes)."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(data)}\r\n\r\n"
        status, answer = self.send(head.encode() + data)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer

    def _more(self):
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by nginx")
        self.rest += data

    def _take(self, n):
        while len(self.rest) < n:
            self._more()
        taken, self.rest = self.rest[:n], self.rest[n:]
        return taken

    def _chunks(self):
        out = b""
        while True:
            while b"\r\n" not in self.rest:
                self._more()
            size, self.rest = self.rest.split(b"\r\n", 1)
            piece = self._take(int(size, 16) + 2)
            if piece == b"\r\n":
                return out
            out += piece[:-2]
