"""`tidemark detect`: histories in, their regressions and the last verdict out, one JSON object a line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from backend.metric import Direction
from backend.records import record
from backend.regression.cost import typical, value_of
from backend.regression.detector.density import Floats
from backend.regression.detector.detector import Detector
from backend.regression.detector.memory import Change
from backend.regression.detector.smoothing import restart
from backend.regression.policy import Policy
from backend.regression.series import verdicts
from backend.regression.series.explain import explain
from backend.regression.series.limits import Limits, limits_of
from backend.regression.series.noisy import SeenRun
from backend.regression.series.state import Suspect
from backend.regression.series.suspects import followed, runs_returning
from backend.regression.terms import Judgement, Point, SeriesKind

_POLICY = Policy()
DIRECTIONS: Final = {
    "lower_is_better": Direction.LOWER,
    "higher_is_better": Direction.HIGHER,
    "lower": Direction.LOWER,
    "higher": Direction.HIGHER,
}
LEAST, MOST = 1e-100, 1e100
"""Numbers between which ratios and bands are finite numbers, too."""
ACCEPTED: Final = "accepted: a number from 1e-100 to 1e100"
SUSPECT_RUNS = 24
"""So many newest runs are looked at for a suspect."""

Values = Sequence[float | Sequence[float]]


@record()
class GivenHistory:
    """The history of one series, oldest commit first: a number a commit, or the numbers of its samples."""

    series_id: str | int | None
    direction: Direction
    values: Values

    @classmethod
    def of(cls, given: object) -> GivenHistory:
        """The history in a JSON object; raises ValueError, which says what is accepted."""
        if not isinstance(given, dict):
            raise ValueError(f"found {json.dumps(given)[:40]}; expected a JSON object")
        for name in ("direction", "values"):
            if name not in given:
                raise ValueError(f"'{name}' is missing")
        direction, values, series_id = given["direction"], given["values"], given.get("series_id")
        if not isinstance(direction, str) or direction not in DIRECTIONS:
            raise ValueError(f"direction is {json.dumps(direction)[:40]}; accepted: {', '.join(DIRECTIONS)}")
        if not _names_a_series(series_id):
            raise ValueError(f"series_id is {json.dumps(series_id)[:40]}; accepted: a text or a whole number")
        if not isinstance(values, list):
            raise ValueError(f"values is {json.dumps(values)[:40]}; accepted: a list")
        check_values(values)
        return cls(series_id, DIRECTIONS[direction], values)


def _names_a_series(series_id: object) -> bool:
    return isinstance(series_id, (str, int, type(None))) and not isinstance(series_id, bool)


def check_values(values: Sequence[object]) -> None:
    """Raises ValueError at the first value that has no relative change; values count from 0, as indices do."""
    if _are_plainly_measured(values):
        return
    for place, value in enumerate(values):
        samples = value if isinstance(value, list) else [value]
        if not samples:
            raise ValueError(f"values[{place}] is empty; {ACCEPTED}, or a list of such numbers")
        for number, sample in enumerate(samples):
            if not _is_measured(sample):
                where = f"values[{place}][{number}]" if isinstance(value, list) else f"values[{place}]"
                raise ValueError(f"{where} is {json.dumps(sample)[:40]}; {ACCEPTED}")


def _are_plainly_measured(values: Sequence[object]) -> bool:
    """Whether all are numbers that can be judged, or all lists of such; False where it takes a closer look to tell."""
    kinds = set(map(type, values))
    flat: list[Any] = list(chain.from_iterable(values)) if kinds == {list} and all(values) else list(values)  # type: ignore[arg-type]
    try:
        return set(map(type, flat)) <= {int, float} and min(flat, default=1) >= LEAST and LEAST <= sum(flat) <= MOST
    except OverflowError:
        return False


def _is_measured(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST <= value <= MOST


def log_costs(values: Values, higher_is_better: bool) -> Floats:
    """One log cost a commit: its value, or what is typical of its samples."""
    sign = -1.0 if higher_is_better else 1.0
    try:
        rows = np.asarray(values, dtype=np.float64)
    except ValueError:  # commits with different numbers of samples
        rows = np.array([typical([math.log(x) for x in v]) if isinstance(v, list) else math.log(v) for v in values])  # type: ignore[arg-type]
    else:
        rows = np.log(rows)
        if rows.ndim == 2:
            count = rows.shape[1]
            cut = max(1, count // 4) if count >= 3 else 0
            rows = np.sort(rows, axis=1)[:, cut : count - cut].mean(axis=1) if count > 1 else rows[:, 0]
    single: Floats = (sign * rows).astype(np.float32).astype(np.float64)
    return single


def detect_record(record: object) -> dict[str, Any]:
    """The regressions of a history (see `GivenHistory.of`), and what the service would say at its last commit."""
    history = GivenHistory.of(record)
    if not history.values:
        return {"series_id": history.series_id, "regressions": [], "verdict": None, "why": "There are no values."}
    x = log_costs(history.values, history.direction is Direction.HIGHER)
    detector = Detector(assumed_noise=_POLICY.prior_noise)
    changes = detector.feed(x, np.arange(len(x)), _POLICY)
    last = _last_judgement(history.direction, detector, float(x[-1]), changes)
    since = last.since_position
    names = {} if since is None else {since: f"index {since}"}
    told = {} if "sees" not in last.numbers else {"sees_pct": round(100 * last.numbers["sees"], 1)}
    return {
        "series_id": history.series_id,
        "regressions": _regressions(changes),
        "verdict": last.verdict.value,
        **told,
        "why": explain(last, "The value", commit_names=names),
    }


def answers(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The answer to every line that is not empty; one that cannot be judged is answered with its number, counted from
    1, and its `error`."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        given: object = None
        try:
            given = json.loads(line)
            yield detect_record(given)
        except json.JSONDecodeError as error:
            yield {"line": number, "error": f"this is not JSON, one object a line: {error}"}
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            series_id = given.get("series_id") if isinstance(given, dict) else None
            named = {"series_id": series_id} if series_id is not None and _names_a_series(series_id) else {}
            yield {"line": number, **named, "error": str(error)}


def _regressions(changes: Sequence[Change]) -> list[dict[str, Any]]:
    ends = {ended.onset: change.onset for change in changes for ended in change.fixed}
    return [
        {
            "index": change.onset,
            "detected_at": change.detected,
            "magnitude_pct": round(100 * math.expm1(change.size), 3),
            "kind": "drift" if change.drift else "step",
            "ended": ends.get(change.onset),
        }
        for change in changes
        if change.past_threshold and change.size > 0
    ]


def _last_judgement(direction: Direction, detector: Detector, x: float, changes: Sequence[Change]) -> Judgement:
    """What is said of the last run, whose log cost is x. As the service's judge says it, but that a suspect is looked
    for among the newest runs alone, all by the limits of today."""
    kind, place = SeriesKind(direction), int(detector.places[-1])
    accepted = changes[-1] if changes and changes[-1].detected == place else None
    limits = limits_of(detector.model, detector, _POLICY) if detector.model is not None else None
    run = SeenRun(Point(place, "", ()), value_of(x, direction), x, 0.0, 0.0, 0)
    smooth = restart(detector.segment[-12:], detector.assumed_noise if limits is None else limits.model.scale)
    runs = len(detector.segment)
    if limits is None or not (limits.opened or runs >= detector.least(_POLICY)):
        return verdicts.too_young(kind, run, detector, smooth, _POLICY, ())
    suspect, returning = _newest(detector, limits)
    return verdicts.of_run(
        kind,
        run,
        smooth,
        limits,
        runs=runs,
        accepted=accepted,
        suspect=suspect if accepted is None else None,
        returning=returning,
        events=(),
    )


def _newest(detector: Detector, limits: Limits) -> tuple[Suspect | None, int]:
    """The suspect that the newest runs are, and how many of them look as before an open regression."""
    suspect, returning, least = None, 0, detector.least(_POLICY)
    first = max(0, len(detector.segment) - SUSPECT_RUNS)
    newest = detector.segment[first:]
    if not limits.opened and not (newest > limits.model.level + max(limits.least_change, limits.high)).any():
        return None, 0
    for number, x in enumerate(newest.tolist(), first):
        if number >= least:
            suspect = followed(
                suspect, x, int(detector.places[number]), int(detector.places[number - 1]), limits, _POLICY
            )
        returning = runs_returning(returning, x, limits)
    return suspect, returning
