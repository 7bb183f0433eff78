#!/usr/bin/env python3
"""Records which servers a stock nginx tries for each request, for the tests to compare with.

    ci/record.py [NGINX] > crates/core/tests/recorded/stock.json

NGINX is a stock binary, "nginx" unless said, with its own balancing modules and realip; Debian's
of the version that `ci/prepare.sh` installs. It runs with one worker process, all on loopback,
ports 18101 to 18140, which must be free. Requests are sent one after the other, each on a
connection of its own.

The file has for each case the method, the servers as they were written, and for each request the
servers that were tried, by their number. Request i has the key "key-i" and the address i of
"addresses", which real_ip takes for the client's. A server that "fails" answers every request
with 500, on which the next one is tried.
"""

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REQUESTS = 120
FIRST = 18101
FORBIDDEN = "backup"  # only round_robin and least_conn take it

ADDRESSES = [
    f"{(7 * i) % 223 + 1}.{(31 * i) % 256}.{(101 * i) % 256}.{i % 256}"
    if i % 4
    else f"2001:db8:{i:x}::{(i * 77) % 65536:x}"
    for i in range(REQUESTS)
]


def server(i, **more):
    return {"server": f"127.0.0.1:{FIRST + i}", **more}


def shapes():
    """Sets of servers, by name."""
    equal = [server(i) for i in range(3)]
    yield "equal", equal
    yield "weights", [server(0, weight=5), server(1, weight=3), server(2)]
    yield "ten", [server(i) for i in range(10)]
    yield "ten of all weights", [server(i, weight=1 + i * 7 % 5) for i in range(10)]
    yield "heavy", [server(0, weight=100), server(1), server(2, weight=17)]
    yield "one down", [server(0), server(1, weight=2, down=True), server(2), server(3, weight=3)]
    yield "most down", [server(i, down=i != 17) for i in range(20)]
    yield "all but two of forty down", [server(i, down=i % 20 != 13) for i in range(40)]
    yield "some fail", [
        server(0, weight=2, max_fails=0),
        server(1, weight=3, max_fails=0, fails=True),
        server(2, max_fails=0, fails=True),
        server(3, weight=2, max_fails=0),
        server(4, max_fails=0),
    ]
    yield "most fail", [server(i, max_fails=0, fails=i not in (4, 11)) for i in range(16)]
    yield "failing ones are left alone", [
        server(0, weight=3, max_fails=3, fails=True),
        server(1, weight=2),
        server(2, max_fails=1, fails=True),
        server(3),
    ]
    yield "a text without a port", [
        {"server": "127.0.9.1"},
        {"server": "127.0.9.2:80", "weight": 2},
        server(0),
    ]
    yield "backups", [
        server(0, weight=2, down=True),
        server(1, weight=3, backup=True),
        server(2, backup=True),
    ]
    yield "backups of failing ones", [
        server(0, weight=2, max_fails=2, fails=True),
        server(1, max_fails=1, fails=True),
        server(2, weight=3, backup=True),
        server(3, weight=2, backup=True),
    ]


DIRECTIVES = {
    "round_robin": "",
    "least_conn": "least_conn;",
    "hash": "hash $arg_key;",
    "hash consistent": "hash $arg_key consistent;",
    "ip_hash": "ip_hash;",
}


def cases():
    for method in DIRECTIVES:
        for name, servers in shapes():
            takes = method in ("round_robin", "least_conn")
            if takes or not any(FORBIDDEN in s for s in servers):
                yield {"method": method, "name": name, "servers": servers}


def line(s):
    words = [s["server"]]
    for key in ("weight", "max_fails"):
        if key in s:
            words.append(f"{key}={s[key]}")
    words.append("fail_timeout=1h")
    words += [flag for flag in ("down", "backup") if s.get(flag)]
    return f"server {' '.join(words)};"


def conf(all_cases):
    out = ["daemon off; master_process off; pid nginx.pid; error_log error.log;",
           "events { worker_connections 512; }", "http {", "access_log off;",
           "proxy_next_upstream error timeout http_500;"]
    for dir in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        out.append(f"{dir}_temp_path {dir};")
    for i in range(40):
        out.append(f"server {{ listen 127.0.0.1:{FIRST + i}; return 200; }}")
        out.append(f"server {{ listen 127.0.1.1:{FIRST + i}; return 500; }}")
    out.append("server { listen 127.0.9.1:80; listen 127.0.9.2:80; return 200; }")
    out.append("server { listen unix:front.sock; set_real_ip_from unix:;")
    out.append("real_ip_header X-Client; add_header X-Tried $upstream_addr always;")
    blocks = []
    for n, case in enumerate(all_cases):
        out.append(f"location = /{n} {{ proxy_pass http://u{n}; }}")
        servers = "\n".join(line(s) for s in case["servers"])
        blocks.append(f"upstream u{n} {{ {DIRECTIVES[case['method']]}\n{servers} }}")
    out += ["}", *blocks, "}"]
    return "\n".join(out)


def main():
    nginx = sys.argv[1] if len(sys.argv) > 1 else "nginx"
    version = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
    all_cases = list(cases())
    # A server that fails listens on an address of its own.
    for case in all_cases:
        for s in case["servers"]:
            if s.get("fails"):
                s["server"] = s["server"].replace("127.0.0.1", "127.0.1.1")
    with tempfile.TemporaryDirectory(prefix="peerage-record-") as prefix:
        text = conf(all_cases).replace("unix:front.sock", f"unix:{prefix}/front.sock")
        Path(prefix, "nginx.conf").write_text(text)
        process = subprocess.Popen([nginx, "-p", prefix, "-c", "nginx.conf"])
        try:
            front = Path(prefix, "front.sock")
            while not front.exists():
                if process.poll() is not None:
                    sys.exit("nginx did not start")
                time.sleep(0.05)
            for n, case in enumerate(all_cases):
                case["tried"] = [ask(str(front), n, i, case) for i in range(REQUESTS)]
        finally:
            process.terminate()
            process.wait()
    recorded = {"nginx": version.split("/")[1].split()[0], "addresses": ADDRESSES}
    print(json.dumps(recorded)[:-1] + ', "cases": [')
    print(",\n".join(json.dumps(case) for case in all_cases))
    print("]}")


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(path, n, i, case):
    """The numbers of the servers that a request tried."""
    connection = Connection(path)
    connection.request("GET", f"/{n}?key=key-{i}", headers={"X-Client": ADDRESSES[i]})
    tried = connection.getresponse().getheader("X-Tried")
    connection.close()
    names = [s["server"] if ":" in s["server"] else s["server"] + ":80" for s in case["servers"]]
    return [names.index(one) for one in tried.split(", ")]


if __name__ == "__main__":
    main()
