"""Where torchrun put this process: its rank, how many there are, and where they meet. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class BadPlace(ValueError):
    """Variables of torchrun that contradict each other."""


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One process among the ranks."""

    rank: int
    ranks: int
    rank_here: int
    ranks_here: int
    store_is_kept: bool = False
    """Whether torchrun itself keeps the store at the meeting point."""
    attempt: str = "0"


def place_of(environ: Mapping[str, str]) -> RankPlace | None:
    """The place that torchrun gave this process, or None where it did not start it."""
    if not all(name in environ for name in NEEDED):
        return None
    numbers = {}
    for name, fallback in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", environ["RANK"])):
        text = environ.get(name, fallback)
        if not text.isdigit():
            raise BadPlace(f"{name} is '{text}'; torchrun sets it to a whole number")
        numbers[name] = int(text)
    rank, ranks = numbers["RANK"], numbers["WORLD_SIZE"]
    if rank >= ranks:
        raise BadPlace(f"RANK is {rank} and WORLD_SIZE {ranks}; ranks count from 0 to WORLD_SIZE - 1")
    here = environ.get("LOCAL_WORLD_SIZE", str(ranks))
    kept = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return RankPlace(rank, ranks, numbers["LOCAL_RANK"], int(here) if here.isdigit() else ranks, kept, attempt)
