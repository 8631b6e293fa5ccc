"""Where in a tidemark.toml the thing is that a problem names."""

import re

from backend.services.repository.manifest import FILE_NAME

_AT_LINE = re.compile(r"\(at line (\d+),")
_NAMED = re.compile(rf"{re.escape(FILE_NAME)}: (?:unknown key )?([\w.\-+]+)")
_HEADER = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w.\-\"']+)\s*=")


def line_of(text: str, problem: str) -> int | None:
    """The line, counted from 1, that a problem of `parse` is about: of the key that it names, else of the nearest table
    around it; None where it names nothing that is written there."""
    if said := _AT_LINE.search(problem):
        return int(said[1])
    named = _NAMED.match(problem)
    if named is None:
        return None
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _bare(header[1])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            lines.setdefault(".".join(filter(None, (table, _bare(key[1])))), number)
    wanted = named[1]
    while wanted and wanted not in lines:
        wanted = wanted.rpartition(".")[0]
    return lines.get(wanted)


def _bare(name: str) -> str:
    return "".join(letter for letter in name if letter not in " \t\"'")
