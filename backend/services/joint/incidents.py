"""From the incidents of the fleet judge to regressions: each is kept as a word, and change points follow it.

A word is told once and updated, never taken apart: a judge that begins anew finds the words it had told by what they
say. Regressions are made of change points, as everywhere; a word brings those of its series on all its testbeds
together, says whose doing they are, and holds them back where that is not the code's.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.joint.terms import Incident
from backend.regression.terms import ChangeKind, Reason, Verdict
from backend.services.alarms import alarms
from backend.services.joint.reading import Columns
from backend.services.judging import rejudging
from backend.store.joint import incidents as store
from backend.store.joint.incidents import Word
from backend.store.judging import judgements as judgement_store
from backend.store.judging import series as series_store
from backend.store.judging.judgements import Restatement
from backend.store.regressions import regressions as regression_store
from backend.store.regressions.regressions import ChangePointRow

SAME_WITHIN = 10
"""Commits between two accounts of one incident."""
SAME_DRIFT = 60
NEWEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNews:
    """What the judge of one suite has to tell."""

    columns: Columns
    incidents: tuple[Incident, ...]
    numbers: MutableMapping[int, int]
    """Incident to the word that was told of it."""
    since: int | None
    """The judge has just begun: what it finds before this commit is history. None: it goes on."""


def heed(c: Connection, project_id: int, news: Sequence[FleetNews], now: datetime) -> list[int]:
    """Tell what changed, and let the change points follow. Returns the regressions that changed."""
    words = [word for item in news for word in _tell(c, project_id, item, now) if word.kind in alarms.HEEDED]
    # In the order in which an arriving result takes its locks: all series first, then the lock of the project.
    series_store.lock_by_id(c, _series_to_change(c, words))
    touched = {number for word in words for number in _follow(c, word, now)}
    again = [item for point in regression_store.points_of(c, touched) for item in _said_again(point)]
    series_store.recompute_rollups(c, judgement_store.restate(c, again, now))
    return sorted(touched)


def _series_to_change(c: Connection, words: Sequence[Word]) -> list[int]:
    """Those that have change points under the words, and all others of their regressions: their judgements follow."""
    points = regression_store.open_points(c, {number for word in words for number in word.series})
    regressions = {point.regression_id for point in points} | {word.regression_id for word in words}
    points += regression_store.points_of(c, [number for number in regressions if number is not None])
    return sorted({point.series_id for point in points})


def _tell(c: Connection, project_id: int, news: FleetNews, now: datetime) -> list[Word]:
    """The words behind incidents, new or updated."""
    known = {word.id: word for word in store.words_of_suite(c, project_id, news.columns.suite)}
    told = []
    for incident in news.incidents:
        word = _word(news.columns, incident, known.get(news.numbers.get(incident.id, -1)))
        if word.id == 0:
            taken = set(news.numbers.values())
            same = [old for old in known.values() if old.id not in taken and _is_same(old, word)]
            if not same and news.since is not None and incident.first_bad < news.since:
                continue
            word = _word(news.columns, incident, same[-1] if same else None)
        if word.id == 0:
            word = _word(news.columns, incident, None, id=store.tell(c, project_id, word, now))
        elif word != known[word.id]:
            store.retell(c, word, now)
        known[word.id], news.numbers[incident.id] = word, word.id
        told.append(word)
    return told


def _word(columns: Columns, incident: Incident, told: Word | None, *, id: int = 0) -> Word:
    return Word(
        id=id if told is None else told.id,
        suite=columns.suite,
        kind=incident.kind.value,
        cause=incident.cause.value,
        worker=incident.worker,
        testbeds=tuple(sorted(incident.testbeds)),
        series=columns.ids(incident.series, incident.testbeds),
        first_bad_position=incident.first_bad,
        range_start=incident.range_start,
        range_end=incident.range_end,
        magnitude=incident.magnitude,
        drift=incident.drift,
        closed_position=incident.closed_by,
        regression_id=None if told is None else told.regression_id,
    )


def _is_same(told: Word, word: Word) -> bool:
    """Whether two accounts, of judges that began at different runs, are of one incident."""
    alike = (told.kind, told.cause, told.worker) == (word.kind, word.cause, word.worker)
    within = SAME_DRIFT if told.drift or word.drift else SAME_WITHIN
    near = abs(told.first_bad_position - word.first_bad_position) <= within
    return alike and near and bool(told.series & word.series)


def _follow(c: Connection, word: Word, now: datetime) -> list[int]:
    """Let the change points of its series follow a word. Returns the regressions that changed."""
    points = regression_store.open_points(c, word.series)
    # One whose change points have all ended may still be closed by the word that holds it.
    series = [point.series_id for point in points] or ([] if word.regression_id is None else sorted(word.series))
    last = series_store.last_point(c, series[0]) if series else None
    return [] if last is None else alarms.heed(c, rejudging.arrival_of(c, last, now), word)


def _said_again(point: ChangePointRow) -> list[Restatement]:
    """The judgements of a change point: they name its regression, are red only where the code is to blame, and only
    until it is over."""
    if point.state == "fixed" and point.fixed_position is not None:
        return [_restated(point, Verdict.UNCHANGED, Verdict.SUSPECT, Verdict.REGRESSION, over=point.fixed_position)]
    if point.state not in ("suspect", "confirmed"):
        return []
    red = point.state == "confirmed" and not point.held_back
    if point.state == "confirmed" and point.kind == ChangeKind.STEP:
        return [_restated(point, Verdict.REGRESSION if red else Verdict.SUSPECT, Verdict.SUSPECT, Verdict.REGRESSION)]
    # Of a drift only where it began is red, and of a suspect nothing.
    said = [_restated(point, Verdict.SUSPECT, Verdict.SUSPECT)]
    if point.state == "confirmed":
        said.append(_restated(point, Verdict.REGRESSION if red else Verdict.SUSPECT, Verdict.REGRESSION))
    return said


def _restated(point: ChangePointRow, verdict: Verdict, *instead_of: Verdict, over: int | None = None) -> Restatement:
    return Restatement(
        series_id=point.series_id,
        first=point.onset_position if over is None else over,
        last=NEWEST,
        verdict=verdict,
        reason=None if over is None else Reason.RETURNED,
        onset_position=point.onset_position if over is None else None,
        regression_id=point.regression_id if over is None else None,
        instead_of=instead_of,
        since=point.onset_position,
    )
