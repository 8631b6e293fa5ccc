"""Documents say only what is there: places in the code, links, glossary terms."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PLACE = re.compile(r"`((?:backend|frontend|worker|benchmarks|tidemark|tests|migrations)/[\w./-]*?)(?::([\w.]+))?`")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
PACKAGES = ("backend", "frontend", "worker", "benchmarks", "tidemark")


def names_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def is_defined(statements: list[ast.stmt], name: str) -> bool:
    """Whether a class, function or method (`Class.method`) of this name is defined there, not only imported."""
    outer, _, inner = name.partition(".")
    found = [
        statement
        for statement in statements
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == outer
    ]
    return bool(found) and (not inner or is_defined(found[0].body, inner))


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of)
def test_every_place_in_the_code_that_a_document_names_exists(document: Path) -> None:
    for path, name in PLACE.findall(document.read_text()):
        place = ROOT / path
        assert place.exists(), f"{names_of(document)} names {path}"
        if name:
            assert is_defined(ast.parse(place.read_text()).body, name), f"{names_of(document)} names {path}:{name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=names_of)
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), f"{names_of(document)} links to {target}"


def test_every_term_of_the_glossary_is_a_word_of_the_code() -> None:
    code = "\n".join(
        file.read_text().lower() for package in PACKAGES for file in (ROOT / package).rglob("*.py")
    )  # fmt: skip
    for term in re.findall(r"^\| \*\*([\w ]+)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE):
        assert term.replace(" ", "_") in code or term in code, f"the glossary defines {term!r}, which no code uses"


def test_no_document_or_source_names_a_path_of_somebodys_machine() -> None:
    homes = re.compile(r"(?<![\w./-])/(?:home/\w+|Users/\w+|root)/(?!\.)")
    for file in [*DOCUMENTS, *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))]:
        found = homes.search(file.read_text())
        assert found is None, f"{names_of(file)}: {found and found.group()}"


def test_decisions_are_numbered_one_by_one_as_their_headings_say() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04d}" for number in range(1, len(decisions) + 1)]
    assert [path.read_text().split(" ")[1] for path in decisions] == [f"{int(path.name[:4])}." for path in decisions]
