"""Drives the interface with the client of the Python package index.

    plusapi.py URL UPSTREAM ADDRESS

Adds the server ADDRESS to UPSTREAM, sets it down, up and draining, and removes it; each step is
looked at through the client and through v1/.
"""

import json
import sys
import urllib.request

import nginxPlusAPI

url, upstream, address = sys.argv[1:]
upstreams = nginxPlusAPI.Client(url).HTTPUpstreams


def v1():
    """The server as the module's own interface shows it."""
    path = f"{url}/api/v1/upstreams/{upstream}/servers/{address}"
    with urllib.request.urlopen(path, timeout=10) as answer:
        return json.load(answer)


def peer(id):
    """The server as the client shows it."""
    found = [peer for peer in upstreams.getUpstream(upstream).peers if peer.id == id]
    assert len(found) == 1, found
    return found[0]


def is_(got, wanted):
    assert got == wanted, f"{got!r} instead of {wanted!r}"


before = upstreams.getUpstreamServers(upstream)
assert upstream in vars(upstreams.getAllUpstreams())

server = upstreams.addServer(upstream, address, weight=2)
is_((server.server, server.weight, server.down), (address, 2, False))
is_(v1()["origin"], "api")
try:
    upstreams.addServer(upstream, address)
except BaseException as error:
    assert "409" in str(error) and "EntryExists" in str(error), error
else:
    raise AssertionError("the same address twice")

assert upstreams.setServerDown(upstream, server.id).down
is_((v1()["admin"]["state"], peer(server.id).state), ("down", "down"))
assert not upstreams.setServerUp(upstream, server.id).down
is_((v1()["admin"]["state"], peer(server.id).state), ("up", "up"))
assert upstreams.setServerDrain(upstream, server.id).drain
is_((v1()["admin"]["state"], peer(server.id).state), ("drain", "draining"))
assert not hasattr(upstreams.setServerUp(upstream, server.id), "drain")
is_(v1()["admin"]["state"], "up")
is_(upstreams.getUpstreamServer(upstream, server.id).id, server.id)

assert upstreams.resetStats(upstream)
is_(peer(server.id).requests, 0)
rest = upstreams.deleteServer(upstream, server.id)
is_([one.id for one in rest], [one.id for one in before])
is_(upstreams.getUpstreamServers("nothing"), None)
