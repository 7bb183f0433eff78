"""Pictures of the figures: `pictures.py FROM TO` makes an SVG in TO of each file of figures in FROM
that has one, and prints the line by which a page beside TO shows it. Figures of a trial (--quick)
are marked as such, and make no pictures elsewhere than beside them."""

import json
import os
import sys

from svg import Picture, kind


def ratios(picture, rows):
    """Bars of ratios, with where they lie at 95 % if that is known."""
    bars = []
    for row in rows:
        bar = (row["name"], row["ratio"], f"{row['ratio']:.3f}", kind(row["name"]))
        bars.append(bar + ((row["low"], row["high"]) if "low" in row else ()))
    picture.bars(bars, goal=1)


def instructions(figures):
    picture = Picture("Instructions per proxied request, stock nginx with zone = 1")
    ratios(picture, [row for row in figures["rows"] if row["base"] != row["name"]])
    return picture


def cpu(figures):
    picture = Picture("CPU time per proxied request, stock nginx with zone = 1")
    ratios(picture, [row for row in figures["rows"] if row["base"] != row["name"]])
    picture.note(f"medians of {figures['rounds']} rounds; the thin line is where they lie at 95 %")
    return picture


def updates(figures):
    servers, workers = figures["servers"], figures["workers"]
    picture = Picture(f"One update of {servers} servers until {workers} workers answer from it")
    bars, fleet = [], None
    for row in figures["rows"]:
        if fleet is not None and row["upstreams"] != fleet:
            bars.append(None)
        fleet = row["upstreams"]
        ms = row["p50"]
        text = f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
        way = row["name"].split(", cached")[0]
        bars.append((f"{fleet:,} upstreams: {way}", ms, text, kind(way)))
    marks = [(0.1, "0.1"), (1, "1 ms"), (10, "10"), (100, "100"), (1000, "1 s"), (10000, "10 s")]
    picture.bars(bars, log=(0.1, 30000), marks=marks)
    picture.note("medians; the axis is logarithmic")
    return picture


def traffic(figures):
    picture = Picture("Latency of traffic, quiet runs = 1")
    bars = []
    for row in figures["rows"]:
        look = "ours" if "changes" in row["name"] else "stock"
        name = f"{row['of']}, {row['name']}"
        bars.append((name, row["ratio"], f"{row['ratio']:.3f}", look, row["low"], row["high"]))
    picture.bars(bars, goal=1)
    picture.note(f"medians of {figures['rounds']} rounds; the thin line is where they lie at 95 %")
    return picture


def websockets(figures):
    sockets, changes = figures["sockets"], figures["changes"]
    picture = Picture(f"{sockets:,} WebSockets through {changes} changes")
    looks = ["ours", "stock", "more"]
    if kind(figures["rows"][0]["name"]) != "ours":
        looks = looks[1:]
    shown = list(zip(figures["rows"], looks))
    for what, title in (("workers", "worker processes"), ("rss", "MB resident, all of them")):
        series = [(row["name"], look, [sample[what] for sample in row["over"]]) for row, look in shown]
        picture.lines(title, series, "changes →")
    text = "{name}: {dropped:,} of {opened:,} dropped"
    picture.legend([(text.format(**row), look) for row, look in shown])
    return picture


def main(source, target):
    os.makedirs(target, exist_ok=True)
    for make in (instructions, cpu, updates, traffic, websockets):
        name = make.__name__
        try:
            with open(os.path.join(source, f"{name}.json")) as text:
                figures = json.load(text)
        except FileNotFoundError:
            print(f"no figures of {name} in {source}")
            continue
        if figures["quick"] and target != source:
            print(f"no picture of {name}: its figures are of a trial")
            continue
        picture = make(figures)
        if figures["quick"]:
            picture.note("a trial of the benchmark (--quick): these figures say nothing")
        picture.save(os.path.join(target, f"{name}.svg"))
        print(f"![{picture.title}]({os.path.basename(target)}/{name}.svg)")


if __name__ == "__main__":
    main(*sys.argv[1:])
