"""TLS clients that come again with the session they were given, and how many are known again."""

import os
import socket
import ssl
import subprocess

VERSIONS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}


def certificate(folder):
    """Makes a key and a certificate of a day; returns nginx's lines for them."""
    key, cert = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "1", "-subj", "/CN=bench", "-keyout", key, "-out", cert],
        check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return f"ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;"


class Visitors:
    """Clients of one version of TLS, each with the last session it was given."""

    def __init__(self, port, version, count):
        self.port, self.known, self.came = port, 0, 0
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.context.minimum_version = self.context.maximum_version = VERSIONS[version]
        self.sessions = [None] * count
        self._come()

    def come(self):
        """Each comes on a new connection; what is counted is whether nginx resumed its session."""
        known = self._come()
        self.known += known
        self.came += len(self.sessions)

    def _come(self):
        known = 0
        for at, session in enumerate(self.sessions):
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
                with self.context.wrap_socket(plain, session=session) as conn:
                    conn.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
                    answer = b""
                    while data := conn.recv(4096):
                        answer += data
                    if not answer.startswith(b"HTTP/1.1 200"):
                        raise SystemExit(f"an unexpected answer: {answer!r}")
                    known += conn.session_reused
                    # With TLS 1.3 the session comes after the handshake, with the answer at the latest.
                    self.sessions[at] = conn.session
        return known

    def share(self):
        return self.known / self.came
