"""CPU time per proxied request, user and system, in bursts that take turns.

All sides run at once, each with one process and kept connections, and get the same bursts in a new
order each round. A ratio is that of two bursts of one round; the control is a second stock nginx.
"""

import random
import time

import sides
from figures import interval, median, save, size, table
from load import Bursts
from nginx import MODULE, Nginx, free_port
from process import cpu

ROUNDS = size(80, 12)
BURST = size(100, 30)  # of 16 requests each
UPSTREAMS = size(10000, 300)


class Runs:
    """A side that runs, and which one it is compared with."""

    def __init__(self, side, base=None):
        self.name, self.base, self.took = side.name, base or self, []
        port = free_port()
        self.nginx = Nginx(side.http(port), module=side.module, main=side.main, wait=port)
        if side.fill:
            side.fill(port)
        self.bursts = Bursts(port, sides.REQUEST)
        self.bursts.send(BURST)

    def burst(self):
        before = cpu(self.nginx.pids())
        requests = self.bursts.send(BURST)
        time.sleep(0.002)  # the end of the last request comes after its answer
        self.took.append((cpu(self.nginx.pids()) - before) / requests / 1000)


def row(run):
    ratios = [own / base for own, base in zip(run.took, run.base.took)]
    low, high = interval(ratios)
    return {"name": run.name, "us": median(run.took), "base": run.base.name,
            "ratio": median(ratios), "low": low, "high": high}


def main():
    many = [free_port() for _ in range(20)]
    few = many[:4]
    backend = Nginx(sides.backend(many))
    stock = Runs(sides.stock("stock with zone, 4 servers", few))
    runs = [stock]
    try:
        runs += [
            Runs(sides.stock("the same again (control)", few), stock),
            Runs(sides.stock("stock without zone, 4 servers", few, zone=False), stock),
        ]
        runs += [Runs(side, stock) for side in sides.lua_ways(few)]
        if MODULE:
            runs.append(Runs(sides.fixed("peerage, 4 servers", few), stock))
            name = "stock with zone, 20 servers"
            runs.append(Runs(sides.stock(name, many)))
            fleet = sides.fleet(f"peerage, by variable, {UPSTREAMS:,} × 20", many, UPSTREAMS)
            runs.append(Runs(fleet, runs[-1]))
        turns = random.Random(1)
        for _ in range(ROUNDS):
            order = runs[:]
            turns.shuffle(order)
            for run in order:
                run.burst()
    finally:
        for run in runs:
            run.nginx.stop()
        backend.stop()

    rows = [row(run) for run in runs]
    print(f"CPU time per proxied request, medians of {ROUNDS} bursts of {16 * BURST:,} requests")
    table(("configuration", "µs", "ratio", "95 % of it within", "to"), [
        (r["name"], f"{r['us']:.2f}", f"{r['ratio']:.3f}", f"{r['low']:.3f} – {r['high']:.3f}", r["base"])
        for r in rows
    ])
    save("cpu", rows=rows, rounds=ROUNDS, requests=16 * BURST)


main()
