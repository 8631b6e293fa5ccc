"""What a metric says of itself, in the contract and for the judge alike. Standard library only, as the contract."""

from enum import StrEnum


class Direction(StrEnum):
    """Which way of the metric is better."""

    LOWER = "lower"
    HIGHER = "higher"


class Role(StrEnum):
    """The role of a metric. Only a gate turns red; the others are judged and shown."""

    GATE = "gate"
    WATCH = "watch"
    DERIVED = "derived"
    PHASE = "phase"
