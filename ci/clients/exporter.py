"""What the exporter's page must hold: one series of each kind per peer, and only whole numbers.

    exporter.py PAGE API
"""

import json
import re
import sys
import urllib.request

STATES = {"up": 1, "draining": 2, "down": 3, "unavail": 4, "checking": 5, "unhealthy": 6}
OF_A_PEER = {
    "state": lambda peer: STATES[peer["state"]],
    "active": lambda peer: peer["active"],
    "limit": lambda peer: peer.get("max_conns", 0),
    "requests": lambda peer: peer["requests"],
    "sent": lambda peer: peer["sent"],
    "received": lambda peer: peer["received"],
    "fails": lambda peer: peer["fails"],
    "unavail": lambda peer: peer["unavail"],
    "header_time": lambda peer: peer.get("header_time", 0),
    "response_time": lambda peer: peer.get("response_time", 0),
}


def fail(text):
    sys.exit(f"exporter: {text}")


def series(path):
    """Name of a metric -> {labels: value}, of what the page says about nginx."""
    found = {}
    for line in open(path):
        match = re.fullmatch(r"(nginx(?:plus|exporter)?_\w+)(?:\{(.*)\})? (\S+)\n", line)
        if match:
            name, labels, value = match.groups()
            labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels or "")))
            if labels in found.setdefault(name, {}):
                fail(f"twice: {line}")
            found[name][labels] = float(value)
    return found


def upstreams(api):
    with urllib.request.urlopen(f"{api}/8/http/upstreams", timeout=10) as answer:
        return json.load(answer)


page, api = sys.argv[1], sys.argv[2]
found = series(page)
if found.get("nginxplus_up") != {(): 1.0}:
    fail(f"nginxplus_up is {found.get('nginxplus_up')}")

known = upstreams(api)
peers = {(("server", peer["server"]), ("upstream", name)): peer
         for name, upstream in known.items() for peer in upstream["peers"]}
for wanted in ["exporter-a", "exporter-b", "exporter-none"]:
    if wanted not in known:
        fail(f"no upstream {wanted}")
for wanted in ["exporter-a", "exporter-b"]:  # one address in both
    if (("server", "127.0.0.1:9"), ("upstream", wanted)) not in peers:
        fail(f"no 127.0.0.1:9 in {wanted}: {sorted(peers)}")

for kind, shown in OF_A_PEER.items():
    name = f"nginxplus_upstream_server_{kind}"
    got = found.get(name, {})
    if got.keys() != peers.keys():
        fail(f"{name} is about {sorted(got)}, the peers are {sorted(peers)}")
    for labels, value in got.items():
        if value != shown(peers[labels]):
            fail(f"{name} of {labels} is {value}, the peer {peers[labels]}")
if len(found["nginxplus_upstream_server_responses"]) != 5 * len(peers):
    fail("not five classes of responses for each peer")
for name, values in found.items():
    for labels, value in values.items():
        if value < 0 or value != int(value):
            fail(f"{name} of {labels} is {value}")

states = found["nginxplus_upstream_server_state"]
for upstream, address, state in [
    ("exporter-a", "127.0.0.1:9", "up"),
    ("exporter-a", "127.0.0.2:9", "down"),
    ("exporter-b", "127.0.0.1:9", "draining"),
]:
    if states[("server", address), ("upstream", upstream)] != STATES[state]:
        fail(f"{address} of {upstream} is not {state}: {states}")
print(f"exporter: nginxplus_up 1, {len(peers)} peers, {sum(map(len, found.values()))} series")
