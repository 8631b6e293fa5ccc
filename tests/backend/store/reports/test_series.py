"""Series by their names."""

from sqlalchemy import Connection

from backend.store.reports.series import SeriesFilter, escaped, list_series, series_info, siblings
from tests.backend.services.loom import Loom


def test_a_series_is_read_by_its_number_and_one_that_is_not_there_is_none(connection: Connection) -> None:
    loom = Loom(connection)
    loom.run(0, 100.0)
    (series,) = loom.rows("SELECT id FROM series")[0]
    info = series_info(connection, series)
    assert info is not None and (info.project, info.metric, info.unit) == ("northsea/loom", "step_ms", "ms")
    assert series_info(connection, series + 1) is None


def test_series_of_one_variant_are_siblings_gates_first(connection: Connection) -> None:
    loom = Loom(connection)
    phase = loom.measurement("forward_ms", 1.0, role="phase")
    loom.deliver(loom.run_of(0, [phase, loom.measurement("step_ms", 100.0)]))
    (series,) = loom.rows("SELECT id FROM series WHERE role = 'phase'")[0]
    assert [row[1:] for row in siblings(connection, series)] == [
        ("step_ms", "ms", "gate"),
        ("forward_ms", "ms", "phase"),
    ]


def test_a_list_goes_on_after_a_number_and_takes_every_word_literally(connection: Connection) -> None:
    loom = Loom(connection)
    loom.deliver(loom.run_of(0, [loom.measurement("step_ms", 100.0), loom.measurement("host_syncs", 3, unit="1")]))
    (project,) = loom.rows("SELECT id FROM project")[0]

    def listed(words: list[str], after: int = 0) -> list[str]:
        return [row.metric for row in list_series(connection, project, SeriesFilter(words=words), after=after, limit=9)]

    first, second = (row.id for row in list_series(connection, project, SeriesFilter(), after=0, limit=9))
    assert len(listed([])) == 2 and len(listed([], after=first)) == 1 and listed([], after=second) == []
    assert listed(["gpt", "step_ms"]) == ["step_ms"]
    assert listed(["stepxms"]) == listed(["%"]) == []


def test_what_like_would_take_as_a_pattern_is_escaped() -> None:
    assert escaped(r"50%_\ ") == r"50\%\_\\ "
