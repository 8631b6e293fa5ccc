"""Words for a change of cost: a time becomes slower, memory use becomes more memory, a count becomes more.

Sizes are of cost, so that 5 % means the same for latency and throughput; the words say what that means for a reader.
"""

from collections.abc import Iterable

from backend.contract import TIME_UNITS

MEMORY_UNITS = frozenset({"B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB", "bytes"})
# The suite's ratios are times against a yardstick's.
SPEED_UNITS = TIME_UNITS | {"ratio", "tflops", "gb_per_s"}


def worse_word(unit: str | None, direction: str | None) -> str:
    """The word for more cost: 12 % `slower`, `more memory`, `more` (of a count) or `worse` (of a score)."""
    if unit in MEMORY_UNITS:
        return "more memory"
    if unit in SPEED_UNITS or (unit or "").endswith("/s"):
        return "slower"
    return "worse" if direction == "higher" else "more"


BETTER = {"slower": "faster", "more memory": "less memory", "more": "less", "worse": "better"}


def change_word(unit: str | None, direction: str | None, change: float) -> str:
    """The same for a change of cost in either direction."""
    worse = worse_word(unit, direction)
    return worse if change > 0 else BETTER[worse]


def common_word(words: Iterable[str]) -> str:
    """One word for several changes, all worse or all better: the one they share, if they share it."""
    found = set(words)
    if len(found) == 1:
        return found.pop()
    return "better" if found <= set(BETTER.values()) else "worse"
