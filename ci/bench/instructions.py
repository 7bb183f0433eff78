"""Instructions per proxied request, by callgrind, beside stock nginx on the same binary.

Each configuration runs twice, with few and with many requests; the difference is what requests
cost, without start and stop.
"""

import os
import sys

from client import Client
from nginx import MODULE, Nginx, free_port

FEW, MANY = 2000, 6000
REQUEST = b"GET /some/path HTTP/1.1\r\nHost: svc-a.internal\r\n\r\n"

LOCATION = """
    server {{
        listen 127.0.0.1:{port};
        server_name ~^(?<svc>[a-z0-9-]+)\\.internal$;
        location / {{
            proxy_pass http://{to};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}"""


def servers(ports):
    return " ".join(f"server 127.0.0.1:{p};" for p in ports)


def measure(http, module=False):
    """Instructions for one request."""
    counts = {}
    for n in (FEW, MANY):
        port = free_port()
        nginx = Nginx(http(port), module=module, callgrind=True)
        client = Client(port)
        for _ in range(n):
            status, _ = client.send(REQUEST)
            if status != 200:
                raise SystemExit(f"status {status}: {open(nginx.prefix + '/error.log').read()}")
        counts[n] = nginx.stop()
    return (counts[MANY] - counts[FEW]) / (MANY - FEW)


def main():
    ports = [free_port() for _ in range(4)]
    answer = " ".join(f"listen 127.0.0.1:{p};" for p in ports)
    backend = Nginx(f'server {{ {answer} location / {{ return 200 "an answer of some length\\n"; }} }}')

    def block(text):
        return lambda port: f"upstream app {{ {text} }}" + LOCATION.format(port=port, to="app")

    def variable(port):
        # The name comes from the request: an upstream that is declared, found in the zone by name.
        return (
            "peerage_zone main 4m;"
            f"upstream svc-a {{ peerage main; {servers(ports)} }}"
            "upstream all { peerage main name=$svc; keepalive 16; }"
        ) + LOCATION.format(port=port, to="all")

    stock = f"zone z 1m; {servers(ports)} keepalive 16;"
    rows = [("stock, no zone", block(f"{servers(ports)} keepalive 16;"), False)]
    if MODULE:
        ours = f"peerage main; {servers(ports)} keepalive 16;"
        rows += [
            ("peerage, 4 servers", lambda port: "peerage_zone main 1m;" + block(ours)(port), True),
            ("peerage, name from a variable", variable, True),
        ]
    try:
        base = measure(block(stock))
        print(f"{'instructions per proxied request':38} {'':>9} {'ratio':>7}")
        print(f"{'stock with zone, 4 servers':38} {base:9.0f} {1:7.4f}", flush=True)
        for name, http, module in rows:
            count = measure(http, module)
            print(f"{name:38} {count:9.0f} {count / base:7.4f}", flush=True)
    finally:
        backend.stop()


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    main()
