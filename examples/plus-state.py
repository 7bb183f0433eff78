#!/usr/bin/env python3
"""Turns a state file of NGINX Plus into one PUT of a whole upstream.

    plus-state.py FILE                                    shows the body
    plus-state.py FILE API UPSTREAM                       sends it
    plus-state.py /var/lib/nginx/state/app.conf http://127.0.0.1:8081/api app

Method, hash key, defaults, host, and TLS name of the upstream stay as they are there.

What cannot be carried over is named, and nothing is sent, unless --anyway is given: then all the
rest is. Ends with 0 when all is done, 1 when something is not carried over, 2 when it failed.
"""

import argparse
import http.client
import json
import re
import sys
from urllib.parse import quote, urlsplit

NUMBERS = ("weight", "max_conns", "max_fails")
TEXTS = ("fail_timeout", "slow_start", "route")
ADMIN = ("down", "drain")
SETTINGS = ("method", "hash_key", "defaults", "host", "tls_name")
WORD = re.compile(r"""\s*(?:
    ([;{}])
  | "((?:\\.|[^"\\])*)"
  | '((?:\\.|[^'\\])*)'
  | \#[^\n]*
  | ((?:\\.|[^\s;{}"'#\\])(?:\\.|[^\s;{}\\])*)
)""", re.VERBOSE)


class Refused(Exception):
    pass


def statements(text):
    """Words up to each semicolon, with the line on which they begin; quotes as nginx reads them."""
    words, line, at, end = [], 0, 0, len(text.rstrip())
    while at < end:
        match = WORD.match(text, at)
        if not match:
            raise Refused(f"line {text.count(chr(10), 0, at) + 1}: cannot be read")
        mark, double, single, plain = match.groups()
        word = next((w for w in (double, single, plain) if w is not None), None)
        if word is not None:
            if not words:
                line = text.count("\n", 0, match.end()) + 1
            words.append(re.sub(r"\\(.)", r"\1", word))
        elif mark == ";":
            if words:
                yield line, words
            words = []
        elif mark:
            line = text.count("\n", 0, match.end()) + 1
            raise Refused(f"line {line}: a block in a state file")
        at = match.end()
    if words:
        raise Refused(f"line {line}: no semicolon: {' '.join(words)}")


def server(words):
    """The fields of a server, and what is not carried over of its line."""
    fields, lost = {"server": words[1]}, []
    for word in words[2:]:
        name, given, value = word.partition("=")
        if given and name in NUMBERS and value.isdigit():
            fields[name] = int(value)
        elif given and name in TEXTS:
            # nginx's plain numbers are seconds.
            fields[name] = f"{value}s" if name != "route" and value.isdigit() else value
        elif word == "backup":
            fields["backup"] = True
        elif word in ADMIN:
            if fields.get("admin", {}).get("state") != "down":
                fields["admin"] = {"state": word, "reason": "state file of NGINX Plus"}
        elif word != "resolve":  # names are resolved in any case
            lost.append(word)
    return fields, lost


def body(text):
    """The body of the PUT, and a line for each thing that is not in it."""
    servers, lost = [], []
    for line, words in statements(text):
        if words[0] != "server" or len(words) < 2:
            lost.append(f"line {line}: {' '.join(words)}")
            continue
        fields, rest = server(words)
        if any(word.startswith("service=") for word in rest):
            # Ports and weights are in SRV records: without these it is another server.
            lost.append(f"line {line}: the server {words[1]}, for {' '.join(rest)}")
            continue
        lost += [f"line {line}: {word} of the server {words[1]}" for word in rest]
        servers.append(fields)
    if not servers:
        lost.append("which has no server")
    return {"servers": servers}, lost


def put(api, upstream, content):
    to = urlsplit(api.rstrip("/"))
    if to.scheme not in ("http", "https") or not to.hostname:
        raise Refused(f"not the URL of an API: {api}")
    kind = http.client.HTTPSConnection if to.scheme == "https" else http.client.HTTPConnection
    path = f"{to.path}/v1/upstreams/{quote(upstream, safe='')}"

    def call(method, text=None):
        connection = kind(to.hostname, to.port, timeout=30)
        connection.request(method, path, text)
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace")
        connection.close()
        if answer.status not in (200, 201) and (method, answer.status) != ("GET", 404):
            raise Refused(f"the API answers {answer.status}: {said}")
        return answer.status, said

    # A PUT states the whole: what is not said goes to its default.
    status, said = call("GET")
    stays = json.loads(said) if status == 200 else {}
    whole = {name: stays[name] for name in SETTINGS if name in stays} | content
    print(call("PUT", json.dumps(whole))[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--anyway", action="store_true", help="send what can be carried over")
    parser.add_argument("file")
    parser.add_argument("api", nargs="?")
    parser.add_argument("upstream", nargs="?")
    given = parser.parse_args()
    if given.api and not given.upstream:
        parser.error("which upstream?")
    try:
        with open(given.file) as file:
            content, lost = body(file.read())
        for text in lost:
            print(f"plus-state: not carried over: {given.file}, {text}", file=sys.stderr)
        if not given.api:
            print(json.dumps(content, indent=2))
        elif lost and not given.anyway:
            print("plus-state: nothing sent", file=sys.stderr)
        else:
            put(given.api, given.upstream, content)
    except (Refused, OSError, ValueError, http.client.HTTPException) as error:
        print(f"plus-state: {error}", file=sys.stderr)
        return 2
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
