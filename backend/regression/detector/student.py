"""Student's distribution. scipy's functions take a third of a second to load, and most processes never ask."""

from __future__ import annotations

from functools import lru_cache


def load() -> None:
    """For a process that will be asked: so that the first question need not wait."""
    quantile(1.0, 0.5)


@lru_cache(maxsize=1024)
def quantile(freedom: float, share: float) -> float:
    """The value below which this share of Student's distribution lies, with so many degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))
