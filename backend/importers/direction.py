"""Which way a value is better: decided by the unit, or else by the name of the metric."""

import re
from functools import lru_cache

from backend.contract import Direction

TIMES = "ns us µs μs ms s sec secs second seconds min minutes h hours nanoseconds microseconds milliseconds"
SIZES = "b kb mb gb tb kib mib gib tib byte bytes kilobytes megabytes gigabytes kbytes mbytes gbytes"
LOWER_UNITS = frozenset(f"{TIMES} {SIZES} j joules wh kwh w watts watt mj cycles instructions allocs".split())
HIGHER_UNITS = frozenset("flops mflops gflops tflops pflops qps rps tps fps iops bps kbps mbps gbps".split())
# Whatever is done in a time, a rate is better high: req/s, MiB/s, tokens per second.
RATE = re.compile(r"(/| per )(s|sec|second|seconds|min|minute)$")
# Per one piece of work it is time, memory or allocations, better low.
PER_WORK = re.compile(r"/(op|ops|iter|iters|iteration|call|query|request|req|token|tok|step|item|element|run|exec)$")

# Words in a metric's name that say which way it is better; the higher ones are asked first ("tokens per second").
HIGHER_WORDS = frozenset(
    "throughput tps qps rps ops bandwidth busbw algbw bw flops tflops gflops mfu hfu speedup accuracy utilization "
    "utilisation goodput rate acc em f1 bleu".split()
)
HIGHER_PHRASES = ("per_s", "per-s", "per s", "/s", "iter/sec")
LOWER_WORDS = frozenset(
    "latency time duration ms us ns s sec seconds ttft tpot itl e2el memory mem bytes size loss error errors breaks "
    "compile overhead perplexity ppl walltime".split()
)


@lru_cache(4096)
def direction_of_unit(unit: str) -> Direction | None:
    """Which way a value of this unit is better; None if the unit does not decide."""
    plain = " ".join(unit.strip().lower().split())
    if plain in LOWER_UNITS or PER_WORK.search(plain):
        return Direction.LOWER
    if plain in HIGHER_UNITS or RATE.search(plain):
        return Direction.HIGHER
    return None


def direction_of_name(metric: str) -> Direction | None:
    """Which way a metric of this name is better; None if no word in it decides."""
    name = metric.lower()
    words = set(re.split(r"[^a-z0-9]+", name))
    if words & HIGHER_WORDS or any(phrase in name for phrase in HIGHER_PHRASES):
        return Direction.HIGHER
    return Direction.LOWER if words & LOWER_WORDS else None
