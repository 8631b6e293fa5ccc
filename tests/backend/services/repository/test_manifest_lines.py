"""Problems of a tidemark.toml lead to the line that they are about."""

from __future__ import annotations

import pytest

from backend.services.repository.manifest import ManifestInvalid, parse
from backend.services.repository.manifest_lines import line_of

TEXT = """branches = ["release/*"]

[suite.gpt]
benchmarks = ["gpt.train"]
testbed = ["cpu"]

[suite."own"]
command = 7
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [(TEXT, {5, 8}), ("[suite.gpt\n", {1}), ('a = 1\n[suite.x]\ntestbeds = ["cpu"]\n', {1, 2}), ("[suite]\n", None)],
)
def test_each_problem_names_the_line_of_its_key_or_of_the_table_around_it(text: str, lines: set[int] | None) -> None:
    try:
        parse(text)
        problems: tuple[str, ...] = ()
    except ManifestInvalid as invalid:
        problems = invalid.problems
    assert lines is None or {line_of(text, each) for each in problems} == lines, problems


def test_a_problem_of_nothing_that_is_written_has_no_line() -> None:
    assert line_of("", "tidemark.toml: has 70000 bytes; at most 65536 are accepted") is None
