"""What processes use: CPU time and memory."""

import time


def cpu(pids):
    """Nanoseconds of CPU, user and system, that these have used since they began."""
    # The clock of another process's CPU time, as clock_getcpuclockid makes its number.
    return sum(time.clock_gettime_ns((~pid) << 3 | 2) for pid in pids)


def ticks(pids):
    """The same in ticks of 10 ms, as ps counts them."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            total += sum(int(word) for word in stat.read().rsplit(") ", 1)[1].split()[11:13])
    return total


def memory(pids):
    """Megabytes: resident (shared pages in each), and with shared pages divided among all."""
    resident = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                parts = {line.split(":")[0]: line.split()[1] for line in rollup if "kB" in line}
        except (FileNotFoundError, ProcessLookupError):
            continue
        resident += int(parts.get("Rss", 0))
        shared += int(parts.get("Pss", 0))
    return resident / 1024, shared / 1024
