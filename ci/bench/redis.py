"""A redis-server of a benchmark's own, on loopback."""

import socket
import subprocess
import tempfile
import time

from nginx import free_port


class Redis:
    def __init__(self):
        self.port = free_port()
        self.dir = tempfile.TemporaryDirectory(prefix="peerage-bench-redis.")
        args = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir.name]
        self.process = subprocess.Popen(["redis-server", *args], stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.call("PING")
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("redis-server does not answer")

    def call(self, *words):
        """Sends a command, and waits for the beginning of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            s.sendall((f"*{len(words)}\r\n" + "".join(parts)).encode())
            answer = s.recv(4096)
        if answer.startswith(b"-"):
            raise SystemExit(f"redis-server: {answer}")
        return answer

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.dir.cleanup()
