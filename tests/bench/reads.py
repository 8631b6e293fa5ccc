"""Budgets of reads, end to end over HTTP, at `--measurements` judged measurements (one million by default)."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import orjson
from sqlalchemy import text

from tests.bench.registry import Figure, row
from tests.bench.stage import Client, Stage, Times, in_turns, timed

ROUNDS = 60
CLIENTS = 8
BOARD = "/api/v1/board?project=bench%2Flarge&limit=50"

# What a board needs at the very least, as plain rows.
RAW_BOARD = text(
    """SELECT series_id, position, value, verdict, onset, change, regression_id, run_id FROM judgement
       WHERE series_id = ANY(:series) AND position BETWEEN :first AND :last AND superseded_at IS NULL
         AND branch_id IS NULL"""
)


@row("board", is_read=True)
def board(stage: Stage) -> Iterable[Figure]:
    """200 series × 50 commits."""
    filled = stage.filled
    shape = filled.shape
    answer = orjson.loads(stage.api.get(BOARD))
    cells = sum(len(part["cells"]["column"]) for part in answer["rows"])
    assert (len(answer["rows"]), cells) == (50, 50 * shape.series), "the board is complete"
    board_times, bare = stage.beside_bare(lambda: stage.api.get(BOARD), ROUNDS)
    with stage.connect() as connection:
        parameters = {
            "series": list(range(filled.first_series_id, filled.first_series_id + shape.series)),
            "first": shape.commits - 50,
            "last": shape.commits - 1,
        }

        def raw() -> bytes:
            return orjson.dumps([tuple(cell) for cell in connection.execute(RAW_BOARD, parameters)])

        again, raw_times = in_turns(lambda: stage.api.get(BOARD), raw, ROUNDS)
    yield Figure(
        what=f"board {shape.series} series × 50 commits, p50",
        value_ms=board_times.p50,
        yardstick="bare",
        yardstick_ms=bare.p50,
        at_most=60,
    )
    yield Figure(
        what="… p99 against the raw SQL", value_ms=again.p99, yardstick="raw p99", yardstick_ms=raw_times.p99, at_most=3
    )


@row("history", is_read=True)
def history(stage: Stage) -> Iterable[Figure]:
    """500 points of a series with change points."""
    filled = stage.filled
    series = filled.first_series_id + 9  # ids divisible by ten are those that got slower now and then
    path = f"/api/v1/series/{series}/points?last=500"
    answer = orjson.loads(stage.api.get(path))
    assert len(answer["position"]) == 500 and answer["change_points"], "500 points, with their change points"
    times, bare = stage.beside_bare(lambda: stage.api.get(path), ROUNDS * 2)
    yield Figure(
        what="history of 500 points, p50", value_ms=times.p50, yardstick="bare", yardstick_ms=bare.p50, at_most=15
    )


@row("compare", is_read=True)
def compare(stage: Stage) -> Iterable[Figure]:
    """Two commits × 200 series, by one client and by eight."""
    filled = stage.filled
    with stage.connect() as connection:
        base = connection.scalar(
            text("SELECT c.sha FROM branch_commit b JOIN commit c ON c.id = b.commit_id WHERE b.branch_id = :branch "
                 "AND b.position = :position"),
            {"branch": filled.branch_id, "position": filled.shape.commits - 120},
        )  # fmt: skip
    path = f"/api/v1/compare?project=bench%2Flarge&base={base}&head={filled.head}"
    series = filled.shape.measurements_of_a_commit
    assert len(orjson.loads(stage.api.get(path))["rows"]) == series, "every series is compared"
    times, bare = stage.beside_bare(lambda: stage.api.get(path), ROUNDS)
    yield Figure(
        what=f"compare two commits × {series} series, p50",
        value_ms=times.p50,
        yardstick="bare",
        yardstick_ms=bare.p50,
        at_most=50,
    )
    together = at_once(stage, path, ROUNDS // 4)
    yield Figure(
        what=f"… by {CLIENTS} clients, no error, p50",
        value_ms=together.p50,
        yardstick="one client",
        yardstick_ms=times.p50,
        at_most=10,
    )


def at_once(stage: Stage, path: str, rounds: int) -> Times:
    """Times seen by clients that all ask at the same time."""

    def ask(client: Client) -> list[float]:
        return [timed(lambda: client.get(path)) for _ in range(rounds)]

    clients = [Client(stage.api_port) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        return Times([ms for times in pool.map(ask, clients) for ms in times])
