"""The one place where text becomes markup outside of templates: a literal with places, whose values are escaped.

A test sees to it that nothing else makes markup, and that what is given to `html` is a literal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import LiteralString

from markupsafe import Markup


def html(literal: LiteralString, /, *values: object) -> Markup:
    """The literal with the values in its places (`{}`, `{:.1f}`), each escaped unless it is markup already."""
    return Markup(literal).format(*values)


def joined(parts: Iterable[str], between: LiteralString = "") -> Markup:
    """Pieces of markup behind one another; a piece that is none is escaped."""
    return Markup(between).join(parts)


def made_by_template(text: str) -> Markup:
    """Markup that Jinja or a writer that escapes by itself (`frontend.grid`) has made."""
    return Markup(text)


EMPTY = Markup("")
