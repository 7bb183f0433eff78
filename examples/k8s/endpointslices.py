#!/usr/bin/env python3
"""Follows the EndpointSlices of a Kubernetes cluster and keeps an upstream for each service.

    endpointslices.py [options] API
    endpointslices.py --namespace shop --selector edge=yes http://127.0.0.1:8081/api

Endpoints that are ready are the servers of the upstream; each change is one PUT of the whole set.
One that terminates and still serves drains: it gets no new request while others are there, and
goes when the cluster takes it away. A server that a person has taken down stays down: a PUT does
not touch that, and neither does a drain or its end, which carry a reason of their own.

An upstream that has the name of a service is this script's: other servers in it go with its first
PUT. Other upstreams are never touched; its own are known by a label of their servers.

Inside a pod, server, token, and certificate authority of the cluster are found where a pod has
them. Elsewhere: kubectl proxy --port 8001, and --server http://127.0.0.1:8001.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
import threading
import time
import traceback
from contextlib import closing
from urllib.parse import quote, urlencode, urlsplit

LABEL = "by"
NAME = "endpointslices"  # the label's value, and the reason of a drain
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
WATCH = 300  # seconds; then everything is listed and stated anew
QUIET = 15  # seconds without an answer


def say(text):
    print(f"endpointslices: {text}", file=sys.stderr, flush=True)


class Failed(Exception):
    """A call that may be made again, after so many seconds where the answer said."""

    def __init__(self, text, after=None):
        super().__init__(text)
        self.after = after


def connect(url, timeout, tls=None):
    if url.scheme == "https":
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout, context=tls)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)


class Upstreams:
    """The API of peerage."""

    def __init__(self, base, settings):
        self.base = urlsplit(base.rstrip("/"))
        self.settings = settings

    def call(self, method, path, body=None):
        """Status and JSON of an answer; Failed where it is to be asked again."""
        connection = connect(self.base, QUIET)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"{self.base.path}/v1/{path}", text)
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        after = answer.headers.get("Retry-After", "")
        if answer.status >= 500:
            said = " ".join(said[:200].split())
            after = int(after) if after.isdigit() else None
            raise Failed(f"{method} {path}: {answer.status} {said}", after)
        try:
            return answer.status, json.loads(said or "null")
        except ValueError as error:
            raise Failed(f"{method} {path}: {answer.status}, and no JSON") from error

    def written(self):
        """The names of the upstreams that have servers of ours."""
        names, after = set(), ""
        while after is not None:
            status, page = self.call("GET", f"servers?label={LABEL}:{NAME}&limit=1000{after}")
            if status != 200:
                raise Failed(f"the servers cannot be listed: {status} {page}")
            names |= {server["upstream"] for server in page["servers"]}
            after = page["next"] and f"&after={quote(str(page['next']), safe='')}"
        return names

    def servers(self, name):
        """What is there now: address -> whether we drain it."""
        status, said = self.call("GET", f"upstreams/{name}")
        servers = said["servers"] if status == 200 else []
        return {server["server"]: server["admin"]["state"] == "drain"
                and server["admin"]["reason"] == NAME for server in servers}

    def put(self, name, servers):
        servers = [{"server": server, "labels": {LABEL: NAME}} for server in servers]
        body = self.settings | {"servers": servers}
        self.refused(name, *self.call("PUT", f"upstreams/{name}", body))

    def delete(self, name):
        status, said = self.call("DELETE", f"upstreams/{name}")
        if status == 409:  # a block of the configuration names it
            self.put(name, [])
        elif status != 404:
            self.refused(name, status, said)

    def verb(self, name, server, verb):
        """Drains, or ends the drain; a person's own down or drain is left as it is (409)."""
        reason = f"?if_reason={NAME}" + (f"&reason={NAME}" if verb == "drain" else "")
        path = f"upstreams/{name}/servers/{quote(server, safe='')}/{verb}{reason}"
        status, said = self.call("POST", path)
        if status not in (404, 409):
            self.refused(name, status, said)

    @staticmethod
    def refused(name, status, said):
        if status >= 300:
            say(f"upstream {name}: {status} {json.dumps(said)}")


class Cluster:
    """The list and the watch of an API server."""

    def __init__(self, options):
        self.url = urlsplit(options.server)
        self.token = options.token_file
        path = "/apis/discovery.k8s.io/v1/"
        self.path = path + (f"namespaces/{options.namespace}/" if options.namespace else "")
        self.query = {"labelSelector": options.selector} if options.selector else {}
        self.tls = ssl.create_default_context(cafile=options.ca)

    def get(self, query, timeout):
        connection = connect(self.url, timeout, self.tls)
        headers = {"Accept": "application/json"}
        if self.token:
            with open(self.token) as file:  # read each time: tokens are exchanged
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        path = f"{self.path}endpointslices?{urlencode(query)}"
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            said = answer.read(500).decode(errors="replace")
            raise Failed(f"the API server: {answer.status} {said}")
        return connection, answer

    def list(self):
        connection, answer = self.get(self.query, QUIET)
        with closing(connection):
            whole = json.load(answer)
        return whole["items"] or [], whole["metadata"]["resourceVersion"]

    def watch(self, version):
        """Events until the server ends the watch."""
        query = self.query | {"watch": "1", "resourceVersion": version, "timeoutSeconds": WATCH}
        connection, answer = self.get(query, WATCH + QUIET)
        with closing(connection):
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":  # such as a version that is too old
                    raise Failed(f"the watch: {event['object'].get('message')}")
                yield event["type"], event["object"]


class Services:
    """The slices that are known, and what the upstreams are to be."""

    def __init__(self, options):
        self.options = options
        self.slices = {}  # (namespace, name) -> slice

    def upstream(self, piece):
        """The name of the upstream that a slice belongs to."""
        labels = piece["metadata"].get("labels") or {}
        service = labels.get("kubernetes.io/service-name")
        if not service or piece["addressType"] != self.options.family:
            return None
        return self.options.name.format(service=service, namespace=piece["metadata"]["namespace"])

    def take(self, kind, piece):
        """Takes an event in; tells whose upstream may be another now."""
        key = piece["metadata"]["namespace"], piece["metadata"]["name"]
        before = self.slices.pop(key, None)
        if kind != "DELETED":
            self.slices[key] = piece
        return {self.upstream(p) for p in (before, piece) if p} - {None}

    def names(self):
        return {self.upstream(piece) for piece in self.slices.values()} - {None}

    def wanted(self, name):
        """The servers that are ready, and those that drain; None where the service has gone."""
        pieces = [piece for piece in self.slices.values() if self.upstream(piece) == name]
        if not pieces:
            return None
        ready, ending = set(), set()
        for piece in pieces:
            port = self.port(piece)
            if port is None:
                continue
            for endpoint in piece.get("endpoints") or []:
                is_so = endpoint.get("conditions") or {}
                if not endpoint.get("addresses"):
                    continue
                address = endpoint["addresses"][0]  # the others are as good
                server = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                if is_so.get("ready") is not False and not is_so.get("terminating"):
                    ready.add(server)
                elif is_so.get("terminating") and is_so.get("serving"):
                    ending.add(server)
        if not ready:  # better these than none
            ready, ending = ending, set()
        return ready, ending - ready

    def port(self, piece):
        for port in piece.get("ports") or []:
            wanted = self.options.port in (None, port.get("name"))
            if wanted and port.get("protocol", "TCP") == "TCP":
                return port.get("port")
        return None


class Agent:
    """Two threads: this one follows the cluster, the other one writes what is to be."""

    def __init__(self, options):
        self.upstreams = Upstreams(options.api, options.settings)
        self.cluster = Cluster(options)
        self.services = Services(options)
        self.due = {}  # upstream -> when it is to be written
        self.changed = threading.Condition()

    def follow(self):
        pause = 1
        while True:
            try:
                pieces, version = self.cluster.list()
                names = self.upstreams.written()
                with self.changed:
                    self.services.slices.clear()
                    for piece in pieces:
                        self.services.take("ADDED", piece)
                    self.mark(names | self.services.names())
                pause = 1
                for kind, piece in self.cluster.watch(version):
                    if kind != "BOOKMARK":
                        with self.changed:
                            self.mark(self.services.take(kind, piece))
            except (Failed, OSError, http.client.HTTPException, ValueError) as error:
                say(f"{error}, again in {pause} s")
                time.sleep(pause)
                pause = min(2 * pause, 30)

    def mark(self, names):
        self.due.update((name, 0) for name in names)
        self.changed.notify()

    def write(self):
        pauses = {}
        while True:
            with self.changed:
                now = time.monotonic()
                name = min(self.due, key=self.due.get, default=None)
                if name is None or self.due[name] > now:
                    self.changed.wait(None if name is None else self.due[name] - now)
                    continue
                del self.due[name]
                wanted = self.services.wanted(name)
            try:
                self.state(name, wanted)
                pauses.pop(name, None)
            except Failed as error:
                pause = error.after or pauses.get(name, 1)
                pauses[name] = min(2 * pause, 30)
                say(f"{error}, again in {pause} s")
                with self.changed:
                    self.due.setdefault(name, time.monotonic() + pause)

    def state(self, name, wanted):
        if wanted is None:
            self.upstreams.delete(name)
            return
        ready, ending = wanted
        present = self.upstreams.servers(name)
        for server, draining in present.items():
            if draining and server not in ending:  # it may be another pod by now
                self.upstreams.verb(name, server, "up")
            elif server in ending and not draining:
                self.upstreams.verb(name, server, "drain")
        self.upstreams.put(name, sorted(ready | (ending & present.keys())))


def options():
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    inside = host and (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    account = ACCOUNT if os.path.exists(ACCOUNT) else None
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("api", help="where peerage_api stands, such as http://127.0.0.1:8081/api")
    add("--server", default=inside, help="the API server of the cluster")
    add("--token-file", default=account and f"{account}/token")
    add("--ca", default=account and f"{account}/ca.crt")
    add("--namespace", help="of all namespaces unless said")
    add("--selector", help="by labels of slices, which have those of their service")
    add("--name", default="{service}", help="of an upstream: '{namespace}.{service}'")
    add("--port", help="the name of the port, else the first one")
    add("--family", default="IPv4", choices=["IPv4", "IPv6"])
    add("--settings", type=json.loads, default={},
        help="""of each upstream, as of a PUT: '{"method": "least_conn"}'""")
    given = parser.parse_args()
    if not given.server:
        parser.error("not in a pod: --server is missing")
    return given


def or_end(work):
    """An agent without its second thread would look alive and do nothing."""
    def run():
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return run


if __name__ == "__main__":
    agent = Agent(options())
    threading.Thread(target=or_end(agent.write), daemon=True).start()
    try:
        agent.follow()
    except KeyboardInterrupt:
        pass
