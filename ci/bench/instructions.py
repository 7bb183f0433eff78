"""Instructions per proxied request, by callgrind, beside stock nginx on the same binary.

Each configuration runs with few and with many requests; the difference is what requests cost,
without start and stop. What the C library spends on the same memory depends on where it lies, by up
to 3 %: each figure is the mean of four layouts, which differ by a variable or more that is there and
not used.
"""

import sides
from client import Client
from figures import save, size, table
from nginx import MODULE, Nginx, free_port
from redis import Redis

FEW, MANY = size((1000, 2000), (200, 400))
LAYOUTS = [" ".join(f"map $uri $unused{i} {{ default 1; }}" for i in range(n)) for n in range(4)]
UPSTREAMS = size(10000, 300)
ROUTES = size(100_000, 1_000)


def measure(side):
    """Instructions for one request."""
    layouts = LAYOUTS[:2] if side.slow else LAYOUTS
    return sum(measure_as(side, layout) for layout in layouts) / len(layouts)


def measure_as(side, layout):
    """The same with more in the configuration."""
    counts = {}
    for n in (FEW, MANY):
        port = free_port()
        when = "later" if side.fill else True
        nginx = Nginx(layout + side.http(port), module=side.module, main=side.main, callgrind=when)
        if side.fill:
            side.fill(port)
            nginx.count()
        client = Client(port)
        for _ in range(n):
            status, _ = client.send(sides.REQUEST)
            if status != 200:
                raise SystemExit(f"status {status}: {open(nginx.prefix + '/error.log').read()}")
        counts[n] = nginx.stop()
    return (counts[MANY] - counts[FEW]) / (MANY - FEW)


def main():
    many = [free_port() for _ in range(20)]
    ports = many[:4]
    backend = Nginx(sides.backend(many))
    first = sides.stock("stock with zone, 4 servers", ports)
    compared = [
        first,
        sides.stock("stock without zone, 4 servers", ports, zone=False),
    ]
    if MODULE:
        compared += [
            sides.fixed("peerage, 4 servers", ports),
            sides.variable("peerage, name from a variable", ports),
        ]
    compared = [(side, first) for side in compared + sides.lua_ways(ports)]
    if MODULE:
        least = sides.stock("stock with zone, least_conn", ports, method="least_conn;")
        compared += [(least, least), (sides.fixed("peerage, least_conn", ports,
                                                  "peerage_method least_conn;"), least)]
        wide = sides.stock("stock with zone, 20 servers", many)
        wide.slow = True
        name = f"peerage, by variable, {UPSTREAMS:,} × 20"
        compared += [(wide, wide), (sides.fleet(name, many, UPSTREAMS), wide)]
        named = next(side for side, _ in compared if side.name == "peerage, name from a variable")
        redis = Redis()
        compared += [
            (sides.routed(f"peerage, a route of the zone, one of {ROUTES:,}", ports, ROUTES), named),
            (sides.stored("peerage, a tenant in a Redis, cached", ports, redis), named),
        ]
    rows, counts = [], {}
    for side, base in compared:
        counts[side] = measure(side)
        rows.append({"name": side.name, "instructions": counts[side], "base": base.name,
                     "ratio": counts[side] / counts[base]})
    backend.stop()
    if MODULE:
        redis.stop()
    print("instructions per proxied request")
    table(("configuration", "instructions", "ratio", "to"), [
        (row["name"], f"{row['instructions']:,.0f}", f"{row['ratio']:.3f}", row["base"])
        for row in rows
    ])
    save("instructions", rows=rows)


main()
