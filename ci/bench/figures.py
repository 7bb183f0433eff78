"""What was measured: medians, how sure they are, a table, and a file from which pictures are made."""

import json
import math
import os
import platform

QUICK = os.environ.get("QUICK") == "1"
OUT = os.environ.get("BENCH_OUT", "target/bench")


def size(full, quick):
    """How many: figures need the full number, a trial of the benchmark itself does not."""
    return quick if QUICK else full


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(values):
    """Where the median of endless such values lies, at 95 %: by order alone, whatever their shape."""
    ordered, n = sorted(values), len(values)
    below, left = 0.0, -1
    while left + 1 < n // 2 and below + math.comb(n, left + 1) / 2**n <= 0.025:
        left += 1
        below += math.comb(n, left) / 2**n
    left = max(left, 0)
    return ordered[left], ordered[n - 1 - left]


def table(head, rows):
    """Prints rows of text as a table of Markdown."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def save(name, **figures):
    """Writes target/bench/NAME.json."""
    os.makedirs(OUT, exist_ok=True)
    whole = {"name": name, "quick": QUICK, "cores": os.cpu_count(), "kernel": platform.release()}
    path = os.path.join(OUT, f"{name}.json")
    with open(path, "w") as out:
        json.dump(whole | figures, out, indent=1)
        out.write("\n")
    print(f"figures: {path}", flush=True)
