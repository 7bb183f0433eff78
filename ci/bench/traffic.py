"""Latency of traffic while 20 changes a second happen, beside equal runs without.

Each round has three runs in a new order: two that are quiet, one with changes. What the two quiet
ones differ by is what equal runs differ by here.
"""

import math
import random
import threading
import time

import sides
from client import Client
from figures import interval, median, quantile, save, size, table
from load import Load
from nginx import MODULE, Nginx, free_port

ROUNDS = size(40, 3)
SECONDS = size(2, 0.5)
CHANGES = 20  # a second
REQUESTS = 1000  # a second
SERVERS = 20
KEPT = 16


class Changer:
    """Changes to the upstream that serves the traffic: a server goes down and comes back, weights."""

    def __init__(self, api, addresses):
        self.client, self.addresses, self.done = Client(api), addresses, 0

    def run(self, stopped):
        begun, n = time.monotonic(), 0
        while not stopped.wait(max(0, begun + n / CHANGES - time.monotonic())):
            n += 1
            self.change()

    def change(self):
        # down, up, weight, weight: of one server after the other.
        step, turn = self.done % 4, self.done // 4
        target = f"/api/v1/upstreams/app/servers/{self.addresses[turn % len(self.addresses)]}"
        if step < 2:
            status, answer = self.client.call("POST", f"{target}/{'down' if step == 0 else 'up'}")
        else:
            status, answer = self.client.call("PATCH", target, {"weight": 4 - step})
        if status != 200 or not answer["changed"]:
            raise SystemExit(f"answer {status}: {answer}")
        self.done += 1


def traffic(port, changer=None):
    """The answers' times of one run."""
    stopped, load = threading.Event(), Load(port, kept=KEPT, rate=REQUESTS)
    thread = threading.Thread(target=changer.run, args=(stopped,)) if changer else None
    if thread:
        thread.start()
    time.sleep(SECONDS)
    stopped.set()
    if thread:
        thread.join()
    times, failed = load.stop()
    if failed:
        raise SystemExit(f"{len(failed)} failed, the first: {failed[0]}")
    return times


def compared(rows, share):
    """Runs with changes to the mean of the quiet ones beside them, and these to each other."""
    of = lambda row, name: quantile(row[name], share)
    pairs = {"20 changes a second": [], "equal runs (control)": []}
    for row in rows:
        quiet, again = of(row, "quiet"), of(row, "again")
        pairs["20 changes a second"].append((of(row, "changes"), math.sqrt(quiet * again)))
        pairs["equal runs (control)"].append((again, quiet))
    for name, both in pairs.items():
        ratios = [one / base for one, base in both]
        low, high = interval(ratios)
        yield {"name": name, "us": median([one for one, _ in both]) * 1e6,
               "quiet_us": median([base for _, base in both]) * 1e6,
               "ratio": median(ratios), "low": low, "high": high}


def main():
    ports = [free_port() for _ in range(SERVERS)]
    backend = Nginx(sides.backend(ports))
    port, api = free_port(), free_port()
    http = f"""peerage_zone main 1m;
    upstream app {{ peerage main; {sides.servers(ports)} keepalive 64; }}
    server {{ listen 127.0.0.1:{api}; location /api {{ peerage_api write=on; }} }}"""
    nginx = Nginx(http + sides.front(port, "app"), module=True, workers=2)
    nginx.running()
    changer = Changer(api, [f"127.0.0.1:{p}" for p in ports])
    traffic(port)
    rows, turns = [], random.Random(1)
    for _ in range(ROUNDS):
        order = ["quiet", "changes", "again"]
        turns.shuffle(order)
        rows.append({name: traffic(port, changer if name == "changes" else None) for name in order})
    nginx.stop()
    backend.stop()

    requests = sum(len(times) for row in rows for times in row.values())
    print(f"{ROUNDS} rounds of {SECONDS:g} s, {requests:,} requests, {changer.done:,} changes")
    out = []
    for share, text in ((0.5, "median"), (0.99, "99 %")):
        out += [{"of": text} | row for row in compared(rows, share)]
    table(("", "", "µs", "quiet, µs", "ratio", "95 % of it within"), [
        (r["name"], r["of"], f"{r['us']:.0f}", f"{r['quiet_us']:.0f}", f"{r['ratio']:.3f}",
         f"{r['low']:.3f} – {r['high']:.3f}") for r in out
    ])
    save("traffic", rows=out, rounds=ROUNDS, seconds=SECONDS, requests=requests, changes=changer.done)


if __name__ == "__main__":
    if not MODULE:
        raise SystemExit("traffic: needs PEERAGE_MODULE")
    main()
