#!/usr/bin/env python3
"""Holds the crates of `cargo metadata`, on standard input, against the rules of a deny.toml.

    cargo metadata --format-version 1 --locked | supply.py deny.toml

Of the rules those are known that stand in ours; another one is an error, not passed over.
"""

import collections
import json
import re
import sys
import tomllib

KNOWN = {
    "graph": {"all-features"},
    "licenses": {"allow"},
    "bans": {"multiple-versions", "wildcards", "allow-wildcard-paths", "deny", "skip"},
    "sources": {"unknown-registry", "unknown-git"},
}
# A crate that every Rust program that reads JSON has from the public registry.
PUBLIC = "serde"


def allowed(expression, allow):
    """Whether an SPDX expression can be met by licences that are allowed; "/" is an old OR."""
    tokens = re.findall(r"[()]|[^\s()/]+|/", expression.replace(" WITH ", "+WITH+"))
    at = 0

    def either():
        nonlocal at
        good = both()
        while at < len(tokens) and tokens[at] in ("OR", "/"):
            at += 1
            good = both() or good
        return good

    def both():
        nonlocal at
        good = one()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            good = one() and good
        return good

    def one():
        nonlocal at
        token, at = tokens[at], at + 1
        if token != "(":
            return token.replace("+WITH+", " WITH ") in allow
        good = either()
        at += 1
        return good

    return either()


def matches(spec, package):
    """Whether a rule's crate, `name` or `name:^1`, is this package."""
    name, _, version = spec.partition(":^")
    return name == package["name"] and (not version or package["version"].startswith(version + "."))


def reached(metadata):
    """The packages that some crate of ours needs, for any target; Cargo.lock has more."""
    needs = {node["id"]: [dep["pkg"] for dep in node["deps"]] for node in metadata["resolve"]["nodes"]}
    todo, seen = list(metadata["workspace_members"]), set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += needs[one]
    return [package for package in metadata["packages"] if package["id"] in seen]


def wrong(rules, packages):
    licenses, bans = rules["licenses"], rules["bans"]
    versions = collections.defaultdict(set)
    public = next(package["source"] for package in packages if package["name"] == PUBLIC)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        expression = package["license"]
        if not expression or not allowed(expression, licenses["allow"]):
            yield f"{name}: licence {expression}"
        if package["source"] not in (None, public):
            yield f"{name}: source {package['source']}"
        if any(matches(rule["crate"], package) for rule in bans["deny"]):
            yield f"{name}: is banned"
        if not any(matches(rule["crate"], package) for rule in bans["skip"]):
            versions[package["name"]].add(package["version"])
        for needed in package["dependencies"]:
            if package["source"] is None and needed["req"] == "*" and not needed.get("path"):
                yield f"{name}: any version of {needed['name']}"
    for name, found in versions.items():
        if len(found) > 1:
            yield f"{name}: {len(found)} versions: {', '.join(sorted(found))}"
    for rule in bans["skip"]:
        if not any(matches(rule["crate"], package) for package in packages):
            yield f"{rule['crate']}: is skipped, and not there"


def main():
    with open(sys.argv[1], "rb") as file:
        rules = tomllib.load(file)
    unknown = [f"{name}.{key}" for name, part in rules.items() for key in set(part) - KNOWN.get(name, set())]
    assert not unknown, f"rules that are not looked at: {unknown}"
    packages = reached(json.load(sys.stdin))
    found = list(wrong(rules, packages))
    for line in found:
        print(f"supply: {line}", file=sys.stderr)
    if not found:
        print(f"{len(packages)} crates, {len(rules['bans']['skip'])} of them in a second version")
    sys.exit(bool(found))


if __name__ == "__main__":
    assert allowed("(MIT OR X) AND Unicode-3.0", ["MIT", "Unicode-3.0"])
    assert not allowed("MIT AND X", ["MIT"]) and allowed("X/MIT", ["MIT"])
    assert not allowed("Apache-2.0 WITH LLVM-exception", ["Apache-2.0"])
    main()
