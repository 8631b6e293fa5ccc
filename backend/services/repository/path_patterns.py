"""Patterns of paths and branches in a tidemark.toml, matched without a regular expression. Pure."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from backend.services.repository.manifest_problems import FILE_NAME, ManifestInvalid
from backend.services.repository.mirror import MORE_PATHS

MAX_STEPS = 5_000_000


class Effort:
    """How much comparing of paths with patterns one commit may cost, in steps of some 100 ns."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ManifestInvalid(
                [f"{FILE_NAME}: comparing its patterns with what the commit changed takes too long; use fewer"]
            )


def any_counts(paths: Iterable[str], patterns: Sequence[str], effort: Effort | None = None) -> bool:
    """Whether one of these changed paths is meant by the patterns; raises ManifestInvalid when finding out costs more
    than it may."""
    effort = effort or Effort()
    return any(path == MORE_PATHS or _counts(path, patterns, effort) for path in paths)


def matches_any(name: str, patterns: Sequence[str], effort: Effort | None = None) -> bool:
    effort = effort or Effort()
    return any(_pattern(pattern).fullmatch(name, effort) for pattern in patterns)


def _counts(path: str, patterns: Sequence[str], effort: Effort) -> bool:
    """As in CI systems: the last pattern that matches decides; one that begins with `!` takes out. What means all below
    a directory also means the name of that: of a submodule, nothing else changes."""
    counts = False
    for pattern in patterns:
        takes_out = pattern.startswith("!")
        is_of_directory = not takes_out and pattern.endswith(("/", "**"))
        compared = f"{path}/" if is_of_directory else path
        if counts == takes_out and _pattern(pattern.removeprefix("!")).fullmatch(compared, effort):
            counts = not takes_out
    return counts


class _Pattern:
    """A path pattern, read once. Matched piece by piece over the set of places that can be reached: a pattern comes
    from a commit, and a regular expression would take for ever over some of them."""

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("./").lstrip("/")
        self._pieces = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", f"{pattern}**" if pattern.endswith("/") else pattern)

    def fullmatch(self, path: str, effort: Effort) -> bool:
        places = {0}
        for piece in self._pieces:
            before = len(places)
            places = _after(piece, path, places)
            effort.spend(1 + before + len(places))
            if not places:
                return False
        return len(path) in places


def _after(piece: str, path: str, places: set[int]) -> set[int]:
    """Where in the path a match can stand after this piece, if it can stand at `places` before it."""
    match piece:
        case "**":
            return set(range(min(places), len(path) + 1))
        case "**/" | "*":  # whole directories, or characters of one name
            reached: set[int] = set()
            for start in places:
                at = start
                while at not in reached:
                    reached.add(at)
                    end = path.find("/", at) if piece == "**/" else at
                    if at <= end < len(path) and path[at] != "/":
                        at = end + 1
            return reached
        case "?":
            return {at + 1 for at in places if at < len(path) and path[at] != "/"}
        case _:
            return {at + len(piece) for at in places if path.startswith(piece, at)}


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> _Pattern:
    """`*` and `?` stay within one directory, `**` crosses them; `dir/` means everything below."""
    return _Pattern(pattern)
