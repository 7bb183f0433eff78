#!/usr/bin/env python3
"""What is in the module, from what cargo says of it: a bill of materials and the licences.

    crates.py sbom NGINX           CycloneDX 1.5, for the module of this version of nginx
    crates.py copyright            as Debian's packages have it

Reads "cargo metadata" on standard input. A crate is in the module where a dependency leads to it
that is not of a build script, a test, or a macro; those that only build it are in the bill too, as
excluded. The time is that of SOURCE_DATE_EPOCH.
"""

import datetime
import json
import os
import pathlib
import re
import sys
import tomllib

ROOT = "peerage"
APACHE = "/usr/share/common-licenses/Apache-2.0"


class Crates:
    def __init__(self, metadata):
        self.packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
        self.root = next(p for p in self.packages if self.packages[p]["name"] == ROOT)
        self.needs = {
            id: sorted(dep["pkg"] for dep in deps
                       if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]))
            for id, deps in nodes.items()
        }
        linked = {
            id: [dep["pkg"] for dep in deps
                 if any(kind["kind"] is None for kind in dep["dep_kinds"])
                 and not self.is_macro(dep["pkg"])]
            for id, deps in nodes.items()
        }
        self.all = self.reach(self.needs)
        self.linked = self.reach(linked)
        lock = pathlib.Path(metadata["workspace_root"], "Cargo.lock").read_text()
        self.sums = {(p["name"], p["version"]): p.get("checksum")
                     for p in tomllib.loads(lock)["package"]}

    def is_macro(self, id):
        return any("proc-macro" in target["kind"] for target in self.packages[id]["targets"])

    def reach(self, edges):
        seen, left = set(), [self.root]
        while left:
            id = left.pop()
            if id not in seen:
                seen.add(id)
                left += edges[id]
        return seen

    def sorted(self, ids):
        """Without our own; by name and version."""
        packages = [self.packages[id] for id in ids if self.packages[id]["source"]]
        return sorted(packages, key=lambda package: (package["name"], package["version"]))


def licence(package):
    """The SPDX expression; the slash is what crates wrote before there was OR."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "NOASSERTION")


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(crates, package, id):
    found = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if id in crates.linked else "excluded",
        "licenses": [{"expression": licence(package)}],
        "purl": purl(package),
    }
    digest = crates.sums.get((package["name"], package["version"]))
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def sbom(crates, nginx):
    packages = {id: crates.packages[id] for id in crates.all}
    order = sorted(packages, key=lambda id: purl(packages[id]))
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    root = component(crates, packages[crates.root], crates.root)
    del root["scope"]
    root["properties"] = [{"name": "nginx", "value": nginx}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": root},
        "components": [component(crates, packages[id], id) for id in order if id != crates.root],
        "dependencies": [
            {"ref": purl(packages[id]),
             "dependsOn": [purl(packages[need]) for need in crates.needs[id]]}
            for id in order
        ],
    }


def texts(package):
    """The files that say its licence, but for one with Apache's own text alone."""
    directory = pathlib.Path(package["manifest_path"]).parent
    for file in sorted(directory.iterdir()):
        if re.match(r"(UN)?LICEN[CS]E|COPYING|NOTICE", file.name, re.I) and file.is_file():
            text = "\n".join(line.rstrip() for line in file.read_text().strip().splitlines())
            told = re.search(r"NOTICE|THIRD", file.name, re.I) or "Permission is hereby granted" in text
            if told or not text.startswith("Apache License"):
                yield file.name, text


def copyright(crates):
    linked = crates.sorted(crates.linked)
    print("peerage is licensed under the Apache License, Version 2.0; on Debian systems its text")
    print(f"is {APACHE}.\n")
    print("The module holds parts of Rust's standard library (MIT OR Apache-2.0, the Rust Project")
    print("contributors) and these crates, each under the licence beside it. Where Apache-2.0 is")
    print("one to choose, it is chosen; the texts of all others follow.\n")
    for package in linked:
        by = ", ".join(re.sub(r" <.*?>", "", author) for author in package["authors"])
        print(f"  {package['name']} {package['version']}: {licence(package)}" + (f"; {by}" if by else ""))
    found = {}
    for package in linked:
        for name, text in texts(package):
            found.setdefault(text, []).append(f"{package['name']} {package['version']} ({name})")
    for text, users in found.items():
        print("\n" + "-" * 78)
        print("\n".join(users) + ":\n")
        print(text)


def main():
    what = sys.argv[1:2] + [len(sys.argv)]
    if what not in (["sbom", 3], ["copyright", 2]):
        sys.exit(__doc__)
    crates = Crates(json.load(sys.stdin))
    if what[0] == "sbom":
        print(json.dumps(sbom(crates, sys.argv[2]), indent=1))
    else:
        copyright(crates)


main()
