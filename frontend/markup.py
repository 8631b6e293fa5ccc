"""The one place where text becomes markup outside of templates: a literal with places, whose values are escaped.

A test sees to it that nothing else makes markup, and that what is given to `html` is a literal.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from string import Formatter
from typing import LiteralString

from markupsafe import Markup, escape


def html(literal: LiteralString, /, *values: object) -> Markup:
    """The literal with the values in its places (`{}`, `{:.1f}`), each escaped unless it is markup already.

    As `Markup.format` would, which takes the literal apart again at every call: a page makes hundreds.
    """
    before, places, last = _taken_apart(literal)
    pieces: list[str] = []
    for text, (place, form) in zip(before, places, strict=True):
        value = values[place]
        pieces += (text, escape(value if hasattr(value, "__html__") and not form else format(value, form)))
    pieces.append(last)
    return Markup("".join(pieces))


@cache
def _taken_apart(literal: str) -> tuple[list[str], list[tuple[int, str]], str]:
    """What stands before each place, the places as number of the value and its format, and what stands behind."""
    before: list[str] = []
    places: list[tuple[int, str]] = []
    text = ""
    for more, name, form, conversion in Formatter().parse(literal):
        text += more
        if name is None:
            continue
        if conversion or not (name == "" or name.isdigit()):
            raise ValueError(f"a place is {{}} or {{0}}, with a format or without one: {literal!r}")
        before.append(text)
        places.append((len(places) if name == "" else int(name), form or ""))
        text = ""
    return before, places, text


def joined(parts: Iterable[str], between: LiteralString = "") -> Markup:
    """Pieces of markup behind one another; a piece that is none is escaped."""
    return Markup(between).join(parts)


def made_by_template(text: str) -> Markup:
    """Markup that Jinja or a writer that escapes by itself (`frontend.grid`) has made."""
    return Markup(text)


EMPTY = Markup("")
