"""The speed that is watched beside gates that only count: a number without a fault tells less than how fast it went."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from backend.services.base.scope import find_scope
from backend.services.board.model import Board
from backend.services.reports.columns import key_of
from backend.store.reports import trends as store
from backend.store.reports.trends import WATCHED_SPEED


@dataclass(frozen=True, slots=True)
class WatchedSpeed:
    """A watched series, with its value by position on the branch."""

    series_id: int
    metric: str
    unit: str
    values: Mapping[int, float]


def watched_speeds(c: Connection, board: Board) -> dict[int, WatchedSpeed]:
    """By number of the column, the watched speed of variants whose gates are all exact counts; of the default branch
    alone, whose history is kept."""
    scope = find_scope(c, board.project, board.branch, board.testbed)
    if scope.testbed is None or scope.branch != scope.default_branch or not board.rows:
        return {}
    known = store.judged_series(c, scope.project.id, scope.testbed.id)
    timed = {key_of(each) for each in known if each.role == "gate" and not each.exact}
    watched = [each for each in known if each.metric == WATCHED_SPEED and key_of(each) not in timed]
    speeds = {key_of(each).text: each for each in watched}
    shown = {number: speeds[column.key] for number, column in enumerate(board.columns) if column.key in speeds}
    if not shown:
        return {}
    positions = [row.position for row in board.rows]
    points = store.commit_points(
        c, scope.project.id, [each.id for each in shown.values()], min(positions), max(positions)
    )
    values: dict[int, dict[int, float]] = {}
    for point in points:
        values.setdefault(int(point["series"]), {})[int(point["position"])] = float(point["value"])
    return {
        number: WatchedSpeed(each.id, each.metric, each.unit, values.get(each.id, {})) for number, each in shown.items()
    }
