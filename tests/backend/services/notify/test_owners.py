"""Whose a file is, by GitHub's rules of CODEOWNERS."""

import pytest

from backend.services.notify.owners import MOST_RULES, owners_by_path
from backend.services.repository.manifest import ManifestInvalid, parse

CODEOWNERS = """
# whoever owns the rest
*            @ada
*.cu         @northsea/kernels
/docs/       docs@example.org
apps/        @octo
/build/logs/ @grace
src/*        @direct
**/deep      @deep
/apps/github
[x]          @nobody
!*.md        @nobody
a*b*c*d*e*f  @nobody
{\\ [a(       @nobody
"""


@pytest.mark.parametrize(
    ("path", "owners"),
    [
        ("setup.py", ["@ada"]),
        ("csrc/moe.cu", ["@northsea/kernels"]),
        ("docs/a/b.md", ["docs@example.org"]),
        ("x/docs/b.md", ["@ada"]),
        ("x/apps/y.py", ["@octo"]),
        ("build/logs/a.log", ["@grace"]),
        ("src/a.py", ["@direct"]),
        ("src/a/b.py", ["@ada"]),
        ("a/b/deep/c", ["@deep"]),
        ("apps/github/a.py", []),
        ("readme.md", ["@ada"]),
    ],
)
def test_the_last_line_that_matches_says_whose_a_file_is(path: str, owners: list[str]) -> None:
    assert owners_by_path(CODEOWNERS, [path]) == owners


def test_a_file_of_many_lines_is_read_from_its_end() -> None:
    lines = ["* @first", *(f"{number} @somebody" for number in range(MOST_RULES - 2)), "a"]
    assert owners_by_path("\n".join(lines), ["a", "b"]) == ["@first"]
    assert owners_by_path("\n".join([*lines, "c @last"]), ["b", "c"]) == ["@last"]


def test_a_manifest_names_the_owners_of_benchmarks() -> None:
    assert parse('[owners]\n"moe.*" = ["@northsea/moe"]').owners == {"moe.*": ("@northsea/moe",)}
    with pytest.raises(ManifestInvalid, match="owners"):
        parse('[owners]\n"moe.*" = "@northsea/moe"')
