"""An nginx of the benchmark's own: configuration, start, stop, under callgrind when asked."""

import atexit
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAM = os.environ.get("PEERAGE_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("PEERAGE_MODULE", "")
# Thousands of connections, for clients and for nginx: as many descriptors as are allowed.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
# A benchmark that is told to end takes its nginx with it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def free_port(given=[20000 + os.getpid() % 5000]):
    """A port that is free now, below the range of outgoing connections."""
    while True:
        given[0] += 1
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", given[0]))
            except OSError:
                continue
        return given[0]


class Nginx:
    """One process without a master unless `workers` is given; `main` is for its main context.

    Under callgrind, instructions are counted from the start, or `"later"`, from `count` on.
    """

    def __init__(self, http, module=False, workers=0, callgrind=False, prefix=None, wait=None,
                 main="", connections=512):
        self.own = prefix is None
        self.prefix = prefix or tempfile.mkdtemp(prefix="peerage-bench-")
        self.callgrind = callgrind
        self.workers = workers
        load = f"load_module {os.path.abspath(MODULE)};\n" if module else ""
        user = "user root;\n" if os.geteuid() == 0 else ""
        temp = "\n".join(
            f"{name}_temp_path {self.prefix}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        master = f"master_process on; worker_processes {workers};" if workers else "master_process off;"
        head = (
            f"{load}{main}{user}daemon off; {master} pid {self.prefix}/pid;\n"
            f"error_log {self.prefix}/error.log warn;\n"
            f"events {{ worker_connections {connections}; }}\n"
            f"http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 600s;\n{temp}\n"
        )
        with open(f"{self.prefix}/nginx.conf", "w") as out:
            out.write(f"{head}{http}\n}}\n")
        command = [PROGRAM, "-p", self.prefix, "-e", f"{self.prefix}/error.log",
                   "-c", f"{self.prefix}/nginx.conf"]
        if callgrind:
            command = ["valgrind", "-q", "--tool=callgrind",
                       f"--instr-atstart={'no' if callgrind == 'later' else 'yes'}",
                       f"--callgrind-out-file={self.prefix}/callgrind.out"] + command
        ports = [int(p) for p in re.findall(r"listen 127\.0\.0\.1:(\d+)", http)]
        begun = time.monotonic()
        with open(f"{self.prefix}/stderr", "w") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        atexit.register(self._end)
        for port in ports if wait is None else [wait]:
            self._accepts(port)
        self.start_seconds = time.monotonic() - begun

    def _accepts(self, port):
        for _ in range(60000):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"nginx ended: {open(self.prefix + '/stderr').read()}")
            time.sleep(0.001)
        raise SystemExit("nginx does not accept connections")

    def _end(self):
        """After an error: what `stop` has not ended."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        if self.own:
            shutil.rmtree(self.prefix, ignore_errors=True)

    def pids(self):
        """The processes that answer requests, those that a reload has told to go included."""
        if not self.workers:
            return [self.process.pid]
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            return [int(pid) for pid in children.read().split()]

    def running(self):
        """The processes that answer requests, once all have started."""
        while self.workers and len(self.pids()) < self.workers:
            time.sleep(0.001)
        return self.pids()

    def count(self):
        """Lets callgrind count from here."""
        subprocess.run(["callgrind_control", "-i", "on", str(self.process.pid)], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        """Ends it; returns the instructions that callgrind counted."""
        for _ in range(20):
            # Without a master, a signal just before nginx waits for events is not seen until one comes.
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(3)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            raise SystemExit("nginx does not end")
        log = open(f"{self.prefix}/error.log").read()
        grave = [line for line in log.splitlines() if re.search(r"\[(alert|emerg|crit)\]", line)]
        if grave:
            raise SystemExit("unexpected in the error log: " + "\n".join(grave[:5]))
        count = None
        if self.callgrind:
            out = open(f"{self.prefix}/callgrind.out").read()
            count = int(re.search(r"^(?:summary|totals): (\d+)", out, re.M).group(1))
        if self.own:
            shutil.rmtree(self.prefix)
        return count
