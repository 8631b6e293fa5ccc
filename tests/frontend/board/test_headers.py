"""How the columns of a board are named: nothing that tells a variant from its siblings is ever cut."""

from collections.abc import Sequence

from backend.services.reports.columns import Column, columns_of
from backend.store.board.board import BoardSeriesRow
from frontend.board.headers import ColumnHeaders, headers_of
from frontend.board.layout import CellMode, ColumnGroup, Layout, Lens


def column(number: int, benchmark: str, variant: str) -> BoardSeriesRow:
    """A series of one variant, given as JSON."""
    suite = benchmark.partition(".")[0]
    return BoardSeriesRow(number, suite, benchmark, variant, variant, "full", "step_ms", "ms")


def columns(*named: tuple[str, str]) -> tuple[Column, ...]:
    series = tuple(column(number, *each) for number, each in enumerate(named, 1))
    return columns_of(series, (), (), among=series)


def headers(found: Sequence[Column], *, more: int = 20) -> ColumnHeaders:
    """The headers of one suite on a board of many columns."""
    groups = (ColumnGroup(found[0].suite, tuple(range(len(found)))), ColumnGroup("other", (), folded=False))
    layout = Layout(Lens.ALL, CellMode.VERDICT, groups[:1], frozenset(), False, {}, {})
    filler = tuple(ColumnGroup(f"z{n}", (len(found),), folded=True) for n in range(more))
    padding = Column(key="z", suite="z", benchmark="z.z", variant={}, label="z", preset="", series=())
    whole = Layout(layout.lens, layout.mode, (*groups[:1], *filler), frozenset(), False, {}, {})
    return headers_of([*found, padding], whole, {})


SWEEP = columns(*(
    ("attn.train", f'{{"seq": {seq}, "dtype": "{dtype}", "mode": "{mode}", "head": 64}}')
    for seq in (1024, 4096) for dtype in ("bf16", "fp8") for mode in ("compile", "eager", "max-autotune")
))  # fmt: skip


def test_a_key_that_all_siblings_share_is_not_said() -> None:
    assert all("head" not in name and "64" not in each.label for each in SWEEP for name in each.parts)


def test_the_key_with_the_fewest_values_stands_above_the_others() -> None:
    made = headers(SWEEP)
    assert [[span.name for span in level if span.told] for level in made.levels] == [
        ["bf16", "fp8"],
        ["seq=1024", "seq=4096", "seq=1024", "seq=4096"],
    ]
    assert [made.names[index] for index in range(3)] == ["compile", "eager", "max-autotune"]


def test_levels_and_upright_name_together_are_the_whole_name() -> None:
    made = headers(SWEEP)
    for index, each in enumerate(SWEEP):
        above = [span.name for level in made.levels for span in level if index in span.columns]
        assert " ".join([*above, made.names[index]]) == each.label


def test_a_value_without_room_above_its_columns_stays_in_their_own_names() -> None:
    found = columns(
        ("moe.layer", '{"impl": "grouped_mm", "load": "even"}'), ("moe.layer", '{"impl": "loop", "load": "zipf"}')
    )
    made = headers(found)
    assert made.levels == ()
    assert [made.names[0], made.names[1]] == ["grouped_mm even", "loop zipf"]


def test_a_benchmark_without_room_goes_into_the_names_of_its_columns() -> None:
    found = columns(("coll.reduce_scatter", '{"mb": 1}'), ("coll.a2a", '{"mb": 1}'), ("coll.a2a", '{"mb": 64}'))
    made = headers(found)
    assert [span.told for span in made.benchmarks["coll"]] == [True, False]
    assert made.names[2] == "reduce_scatter"


def test_a_long_name_has_two_lines_and_not_one_of_any_length() -> None:
    short = headers(columns(("a.b", '{"x": "one"}'), ("a.b", '{"x": "two"}'))).height
    long = headers(columns(("a.b", f'{{"x": "{"one" * 12}"}}'), ("a.b", '{"x": "two"}'))).height
    assert short < long < 36 * 6.8


def test_a_suite_that_measured_nothing_yet_has_a_column_with_a_name() -> None:
    made = headers([Column(key="coll///", suite="coll", benchmark="", variant={}, label="coll", preset="", series=())])
    assert made.names[0].endswith("not measured yet")
