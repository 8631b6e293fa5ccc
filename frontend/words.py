"""How each state looks and reads: class, glyph, words. One table, used by cells, tags, keys and accessible names.

Triangles say where performance went (▼ worse, ▲ better), never where a number went.
"""

from dataclasses import dataclass

from backend.services.board.cells import CellState


@dataclass(frozen=True, slots=True)
class Look:
    """`css` is the class of cells and tags, `words` name the state, `key` explains it beside a `sample`."""

    css: str
    glyph: str
    words: str
    key: str
    sample: str = ""


LOOKS: dict[CellState, Look] = {
    CellState.REGRESSION: Look("r", "▼", "regression, starts here", "slower, starts here", "▼7.4"),
    CellState.STILL_UNOWNED: Look("t", "▽", "still slower, unassigned", "still slower, unassigned", "▽"),
    CellState.STILL_OWNED: Look("k", "▽", "still slower, assigned", "still slower, assigned", "▽"),
    CellState.SUSPECT: Look("u", "?", "suspect, being confirmed", "suspect, confirming", "?5.6"),
    CellState.IMPROVEMENT: Look("i", "▲", "improvement", "faster", "▲6.0"),
    CellState.UNCHANGED: Look("s", "", "unchanged", "unchanged"),
    CellState.UNSTEADY: Look("n", "~", "too unsteady to judge", "too unsteady to judge", "~23"),
    CellState.INSUFFICIENT: Look("n", "", "too little history", "too little history", "2/5"),
    CellState.QUARANTINED: Look("q", "Q", "quarantined, not judged", "quarantined", "Q"),
    CellState.FAILED: Look("f", "✕", "failed", "failed", "✕"),
    CellState.RUNNING: Look("g", "", "running", "running"),
    CellState.QUEUED: Look("w", "", "queued", "queued"),
    CellState.NOT_APPLICABLE: Look("x", "–", "not applicable", "not applicable"),
    CellState.EMPTY: Look("e", "", "not benchmarked", "not benchmarked"),
}

# A column has moved when any of these is in it; what runs, waits, fails or is too young did not move.
MOVED = frozenset(
    {
        CellState.REGRESSION,
        CellState.STILL_UNOWNED,
        CellState.STILL_OWNED,
        CellState.SUSPECT,
        CellState.IMPROVEMENT,
        CellState.QUARANTINED,
        CellState.FAILED,
    }
)
SLOWER_NOW = frozenset({CellState.REGRESSION, CellState.STILL_UNOWNED, CellState.STILL_OWNED})

# (class, glyph) of a stored verdict and of a regression's state, for tags.
VERDICTS: dict[str, tuple[str, str]] = {
    "regression": ("r", "▼"),
    "improvement": ("i", "▲"),
    "unchanged": ("s", ""),
    "suspect": ("u", "?"),
    "unsteady": ("n", "~"),
    "insufficient": ("n", ""),
}
REGRESSION_STATES: dict[str, tuple[str, str]] = {
    "suspect": ("u", "?"),
    "confirmed": ("t", "▼"),
    "acknowledged": ("k", "▽"),
    "fixed": ("i", "▲"),
    "expected": ("s", ""),
    "invalid": ("s", ""),
    "withdrawn": ("s", ""),
}
RUN_STATES: dict[str, tuple[str, str]] = {
    "queued": ("w", "○"),
    "leased": ("g", "◔"),
    "running": ("g", "◔"),
    "done": ("s", "✓"),
    "failed": ("f", "✕"),
    "cancelled": ("s", "–"),
    "superseded": ("s", "–"),
    "quarantined": ("q", "Q"),
    "incomplete": ("n", ""),
    "ok": ("s", "✓"),
    "check_failed": ("f", "✕"),
    "out_of_memory": ("f", "✕"),
    "timeout": ("f", "✕"),
    "not_applicable": ("x", "–"),
}

# Phases in the order of a step, with the colour token of each.
PHASES: dict[str, tuple[str, str]] = {
    "data_wait": ("data wait", "--c-data"),
    "host_to_device": ("host to device", "--c-opt"),
    "forward": ("forward", "--c-fwd"),
    "backward": ("backward", "--c-bwd"),
    "exposed_communication": ("exposed comm", "--c-comm"),
    "optimizer": ("optimizer", "--c-opt"),
    "idle": ("idle", "--c-idle"),
    "other": ("other", "--c-other"),
}


def plural(number: int, one: str, many: str | None = None) -> str:
    """1 run, 3 runs."""
    return f"{number} {one if number == 1 else many or one + 's'}"


OVER_YARDSTICK = "_over_yardstick"


def metric_note(metric: str) -> str:
    """What a metric is, where its name alone does not tell."""
    if metric.endswith(OVER_YARDSTICK):
        measured = metric.removesuffix(OVER_YARDSTICK).replace("_", " ")
        return f"{metric}: time of a {measured}, divided by that of a fixed workload timed with it; it has no unit."
    return ""
