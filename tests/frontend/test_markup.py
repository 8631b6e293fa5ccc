"""Markup is made by templates and by one module; a test of the code, as a linter would be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from markupsafe import Markup

import frontend
from frontend.markup import EMPTY, html, joined

SOURCE = Path(frontend.__file__).parent
MAKERS = {"markup.py"}
# Written as strings, for speed; what it holds goes through `cell_escape`.
BY_HAND = {"board/grid.py", "render.py"}
MODULES = sorted(SOURCE.rglob("*.py"))


def calls(module: Path, name: str) -> list[ast.Call]:
    tree = ast.parse(module.read_text())
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [node for node in every if isinstance(node.func, ast.Name) and node.func.id == name]


def place(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def test_markup_is_made_at_one_place() -> None:
    assert {place(module) for module in MODULES if calls(module, "Markup")} == MAKERS
    assert {place(module) for module in MODULES if calls(module, "made_by_template")} == BY_HAND


@pytest.mark.parametrize("name", ["html", "joined"])
def test_what_is_not_escaped_is_a_literal(name: str) -> None:
    for module in MODULES:
        for call in calls(module, name):
            given = call.args[:1] if name == "html" else call.args[1:]
            wrong = [ast.unparse(call) for each in given if not isinstance(each, ast.Constant)]
            assert wrong == [], place(module)


def test_no_template_takes_text_for_markup() -> None:
    for template in (SOURCE / "templates").rglob("*.html"):
        said = template.read_text()
        assert "|safe" not in said.replace(" ", "") and "autoescape" not in said, template.name


def test_values_are_escaped_and_markup_is_not_twice() -> None:
    assert html("<b>{}</b>{}", "<i>", html("<u>{}</u>", "&")) == "<b>&lt;i&gt;</b><u>&amp;</u>"
    assert html('<a x="{:.1f}" y="{}">', 1.26, '"') == '<a x="1.3" y="&#34;">'
    assert joined(["<i>", html("<b/>")], " and ") == "&lt;i&gt; and <b/>"
    assert isinstance(joined([]), Markup) and EMPTY == ""


@pytest.mark.parametrize(
    ("literal", "values"),
    [
        ("<b>{}</b>", ("<i>",)),
        ("{:.1f} % of {{all}} {}", (1.25, Markup("<i>"))),
        ("{1} {0} {1}", ("a&b", 7)),
        ("nothing", ()),
    ],
)
def test_a_literal_becomes_what_markup_itself_would_make_of_it(literal: str, values: tuple[object, ...]) -> None:
    assert html(literal, *values) == Markup(literal).format(*values)  # type: ignore[arg-type]


def test_a_place_that_asks_for_more_than_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="a place is"):
        html("{0.__class__}", 1)
