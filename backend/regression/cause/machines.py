"""How readings of a machine are to be understood: which canaries are times, which parts of an environment count."""

from __future__ import annotations

TIME_SUFFIXES = ("_ns", "_us", "_ms", "_s")
"""A canary named after a time costs more when it rises; every other one (TFLOP/s, GB/s) when it falls."""
NOT_COMPARED = frozenset({"hash", "hostname", "pid", "git"})
"""Of an environment's fingerprint: what differs between two runs without anyone having changed anything, and the commit
itself, which is what is being asked about."""
