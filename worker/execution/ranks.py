"""Explain torchrun's report of lost ranks, in words for the page of the run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.isolation.processes import signal_name

_ROOT_CAUSE = "Root Cause (first observed failure):"
_FIELD = re.compile(r"\s*(rank|exitcode)\s*:\s*(-?\d+)")


def lost_rank(log_tail: Sequence[str]) -> str | None:
    """The rank that torchrun saw fail first, and how; None where torchrun reports no such thing."""
    begins = next((number for number, line in enumerate(log_tail) if _ROOT_CAUSE in line), None)
    if begins is None:
        return None
    found = {
        match[1]: int(match[2]) for line in log_tail[begins : begins + 12] if (match := _FIELD.match(_unmarked(line)))
    }
    if "rank" not in found or "exitcode" not in found:
        return None
    code = found["exitcode"]
    # A shell reports a signal of its child as 128 + number.
    killed_by = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    ended = f"was killed by {signal_name(-killed_by)}" if killed_by else f"ended with exit code {code}"
    return f"rank {found['rank']} {ended}, and the others with it"


def _unmarked(line: str) -> str:
    """Torchrun writes its summary by a logger: the line may begin with the logger's mark."""
    return line.split("] ", 1)[1] if re.match(r"[EWI]\d{4} ", line) and "] " in line else line
