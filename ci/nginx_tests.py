#!/usr/bin/env python3
"""nginx's own tests of upstreams, each as it is and with its upstream blocks taken over.

    ci/nginx_tests.py CHECKOUT [TEST ...]

CHECKOUT is nginx's test suite (the repository nginx-tests). Every test with an upstream block of
http{} runs on the nginx of PEERAGE_NGINX (/usr/sbin/nginx) first, then, as a copy, with `peerage`
in each of these blocks and nginx's balancing directives in our words. A line for each test says
how many checks passed and how many of its blocks were switched; exit status 1 says that a check
passed on stock and twice not on ours. The suite needs perl, and its ports 8000 to 8999 free.

PEERAGE_MODULE is the module, by default that of the target directory.
"""

import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NGINX = os.environ.get("PEERAGE_NGINX", "/usr/sbin/nginx")
TARGET = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
MODULE = pathlib.Path(os.environ.get("PEERAGE_MODULE", f"{TARGET}/release/libpeerage.so")).resolve()
LIMIT = 120  # seconds for one test

# Checks that fail because we differ on purpose: test, the checks' names, why.
ON_PURPOSE = [
    ("proxy_non_idempotent.t", {"get", "get 404", "get non_idempotent", "post non_idempotent"},
     "an address stands once in an upstream, so that the second is written in another way"),
    ("upstream_sticky_drain.t", {"drained never rr"},
     "a reload does not begin round robin anew"),
]

BLOCK = re.compile(r"^([ \t]*)upstream\s+\S+\s*\{\n(.*?)^[ \t]*\}", re.M | re.S)
# What a test writes as a file of its own between << 'EOF' and EOF.
HEREDOC = re.compile(r"<<\s*['\"]?(\w+)['\"]?.*?^\1$", re.M | re.S)
# nginx's balancing directives in our words.
METHODS = [
    (r"least_conn;", "peerage_method least_conn;"),
    (r"ip_hash;", "peerage_method ip_hash;"),
    (r"hash\s+(\S+);", r"peerage_method hash; peerage_hash_key \1;"),
    (r"hash\s+(\S+)\s+consistent;", r"peerage_method hash consistent; peerage_hash_key \1;"),
    (r"random;", "peerage_method random;"),
    (r"random\s+two(\s+least_conn)?;", "peerage_method random two;"),
    (r"least_time\s+(header|last_byte);", r"peerage_method least_time \1;"),
]
# Of a server's address, nginx has any number in a block; to us they are as many ways to write it.
SPELLINGS = ["127.0.0.1:{}", "0.0.0.0:%%PORT_{}%%", "[::ffff:127.0.0.1]:%%PORT_{}%%"]


class Refused(Exception):
    """Why a block stays nginx's own."""


def translated(line, known):
    """A line of a block with nginx's balancing directives in our words."""
    for pattern, words in METHODS:
        found = re.match(rf"(\s*){pattern}(\s*)$", line)
        if found:
            ours = re.sub(pattern, words, line.strip())
            for directive in ours.split(";")[:-1]:
                method = directive.strip()
                if method.startswith("peerage_method") and method not in known:
                    raise Refused(f"no {method}")
            return f"{found.group(1)}{ours}"
    if re.match(r"\s*(least_time|random)\b", line):
        raise Refused(f"no word for {line.strip()}")
    return line


def switched(block, known):
    """The block taken over."""
    lines, seen = [], collections.Counter()
    for line in block.group(2).splitlines():
        if re.match(r"\s*zone\s", line):
            continue
        if re.match(r"\s*server\s.*\b(resolve|service=\S+)", line):
            raise Refused("names looked up at run time")
        found = re.match(r"(\s*server\s+)127\.0\.0\.1:(8\d\d\d)(.*)$", line)
        if found:
            port = found.group(2)
            if seen[port] == len(SPELLINGS):
                raise Refused(f"port {port} more than {len(SPELLINGS)} times")
            if seen[port]:
                address = SPELLINGS[seen[port]].format(port)
                line = f"{found.group(1)}{address}{found.group(3)}"
            seen[port] += 1
        lines.append(translated(line, known))
    head = block.group(0)[: block.start(2) - block.start(0)]
    indent = block.group(1)
    body = "\n".join(lines)
    return f"{head}{indent}    peerage nginx_tests;\n{body}\n{indent}}}"


def taken_over(text, known):
    """A test's text with its blocks switched; how many there are, and why some are not."""
    count, left = 0, []

    def one(block):
        nonlocal count
        count += 1
        try:
            return switched(block, known)
        except Refused as why:
            left.append(str(why))
            return block.group(0)

    return BLOCK.sub(one, text), count, left


def blocks(text):
    """Whether the test has a block of http{} in what it writes."""
    return any(BLOCK.search(doc.group(0)) for doc in HEREDOC.finditer(text))


def known_methods(program, directory):
    """The methods that the module has."""
    known = set()
    for _, words in METHODS:
        for method in ("header", "last_byte") if "\\1" in words.split(";")[0] else ("",):
            line = words.replace("\\1", method).split(";")[0]
            conf = directory / "nginx.conf"
            conf.write_text(
                f"load_module {MODULE}; pid {directory}/pid; error_log stderr; events {{}}\n"
                "http { peerage_zone z 1m;\n"
                f"upstream u {{ peerage z; {line}; server 127.0.0.1:1; }} }}\n"
            )
            command = [program, "-t", "-p", directory, "-e", "stderr", "-c", conf]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                known.add(line)
    return known


def wrapper(directory):
    """A program that runs nginx, and names no dynamic modules that it may not have."""
    program = directory / "nginx"
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$*" = -V ]; then\n'
        f'    "{NGINX}" -V 2>&1 | sed "s/--with-[a-z_]*=dynamic//g" >&2; exit\n'
        "fi\n"
        f'exec "{NGINX}" "$@"\n'
    )
    program.chmod(0o755)
    return program


Result = collections.namedtuple("Result", "checks planned skipped text")


def run(test, environment):
    """Runs one test; its checks by number: whether it passed, and its name."""
    cwd = test.parent
    # As root, workers are another user and cannot read what tests write for them.
    nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        ["perl", f"-I{cwd}/lib", test], cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True,
        errors="replace", **nobody,
    )
    try:
        text, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        text += f"\n# ended after {LIMIT} s\n"
    checks, planned, skipped = {}, 0, None
    for line in text.splitlines():
        found = re.match(r"1\.\.(\d+)(?: # SKIP (.*))?$", line, re.I)
        if found:
            planned, skipped = int(found.group(1)), found.group(2)
        found = re.match(r"(not )?ok (\d+)(?: - (.*?))?( # (?:TODO|skip).*)?$", line)
        if found:
            passed = not found.group(1) or bool(found.group(4))
            checks[int(found.group(2))] = passed, found.group(3) or ""
    return Result(checks, planned, skipped, text)


def lost(name, stock, ours):
    """Checks that passed on stock and not on ours, but for those that differ on purpose."""
    failed = [(number, what) for number, (passed, what) in stock.checks.items()
              if passed and not ours.checks.get(number, (False,))[0]]
    return [(number, what) for number, what in failed
            if not any(name == test and what in names for test, names, _ in ON_PURPOSE)]


def passes(result):
    return sum(passed for passed, _ in result.checks.values())


def said(result):
    if result.skipped is not None:
        return "skip"
    return f"{passes(result)}/{max(len(result.checks), result.planned)}"


def chosen(suite, names):
    """The tests to run: those named, or all with an upstream block that is http's."""
    tests = [suite / name for name in names] or sorted(suite.glob("*.t"))
    for test in tests:
        text = test.read_text(errors="replace")
        # Other modules, and names that nginx looks up at run time.
        other = re.match(r"stream_|mail_|.*_(resolve|service)", test.name)
        if names or (not other and blocks(text)):
            yield test, text


class Suite:
    """The suite as it is and a copy whose blocks are taken over, where anybody may read them."""

    def __init__(self, checkout, work):
        self.stock, self.ours = work / "stock", work / "ours"
        shutil.copytree(checkout, self.stock, ignore=shutil.ignore_patterns(".git"))
        shutil.copytree(checkout, self.ours, ignore=shutil.ignore_patterns(".git", "*.t"))
        module = shutil.copy(MODULE, work / "module.so")
        program = wrapper(work)
        self.known = known_methods(program, work)
        self.plain = {k: v for k, v in os.environ.items() if not k.startswith("TEST_NGINX_")}
        self.plain["TEST_NGINX_BINARY"] = str(program)
        self.taken_over = self.plain | {
            "TEST_NGINX_GLOBALS": f"load_module {module};\n",
            "TEST_NGINX_GLOBALS_HTTP": "peerage_zone nginx_tests 1m;\n",
        }

    def compare(self, name, text):
        """Runs a test both ways: the results, what is lost, how many blocks of how many."""
        changed, count, left = taken_over(text, self.known)
        (self.ours / name).write_text(changed)
        stock = run(self.stock / name, self.plain)
        ours = run(self.ours / name, self.taken_over)
        failed = lost(name, stock, ours)
        if failed:
            # Some go by time, and a busy machine has little of it: what counts fails twice.
            ours = run(self.ours / name, self.taken_over)
            failed = [check for check in lost(name, stock, ours) if check in failed]
        notes = left + [f"on purpose: {why}" for test, _, why in ON_PURPOSE if test == name]
        note = f"{count - len(left)}/{count} {'; '.join(sorted(set(notes)))}".rstrip()
        print(f"{name:38} {said(stock):>8} {said(ours):>8}  {note}", flush=True)
        for number, what in failed:
            print(f"    lost: {number} - {what}")
        return stock, ours, failed, (count - len(left), count)


def main():
    if len(sys.argv) < 2 or not (pathlib.Path(sys.argv[1]) / "lib/Test/Nginx.pm").is_file():
        sys.exit(__doc__)
    if not MODULE.is_file():
        sys.exit(f"no module at {MODULE}: ci/build.sh makes it")
    checkout, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    work = pathlib.Path(tempfile.mkdtemp(prefix="peerage-nginx-tests-"))
    work.chmod(0o755)
    total = collections.Counter()
    try:
        suite = Suite(checkout, work)
        print(f"{'test':38} {'stock':>8} {'ours':>8}  switched")
        for test, text in chosen(checkout, names):
            stock, ours, failed, (switched_blocks, all_blocks) = suite.compare(test.name, text)
            if failed and names:
                print(ours.text)
            total["skipped" if stock.skipped is not None else "run"] += 1
            total["checks"] += passes(stock)
            total["lost"] += len(failed)
            total["switched"] += switched_blocks
            total["blocks"] += all_blocks
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"== {total['run']} tests, {total['checks']} checks that pass on stock,"
          f" {total['lost']} of them lost; {total['switched']} of {total['blocks']} blocks switched;"
          f" {total['skipped']} tests skip themselves")
    sys.exit(0 if total["checks"] and not total["lost"] else 1)


if __name__ == "__main__":
    main()
