#!/usr/bin/env python3
"""A tiny backend: answers every request with its name and version, keeps connections alive.

    backend.py PORT NAME VERSION

SIGTERM ends it at once: whoever stops it has drained it before.
"""

import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave as one

    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length:
            self.rfile.read(length)
        body = f"{NAME} {VERSION}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Version", VERSION)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass  # the client has closed


if __name__ == "__main__":
    PORT, NAME, VERSION = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it outlives the terminal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    Server(("127.0.0.1", PORT), Answer).serve_forever()
