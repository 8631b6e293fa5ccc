"""What a run sees of the file system: what of it the run needs, and which directories are closed or empty for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from worker.isolation import namespaces
from worker.isolation.processes import RunUser


def interpreter_paths() -> Iterable[Path]:
    """Where this Python, its packages and the editable projects on its path are."""
    candidates = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent}
    candidates.add(Path(sys.executable).resolve().parent)
    for name in ("benchmarks", "torch", "tidemark", "backend"):
        spec = find_spec(name)
        for location in (spec.submodule_search_locations or []) if spec is not None else []:
            candidates.add(Path(location).resolve())
    return sorted(path for path in candidates if path.is_dir())


def scratch_places() -> tuple[str, ...]:
    """Directories that every account may write to, so that a run could leave something there for the next."""
    return tuple(place for place in namespaces.SCRATCH if os.path.isdir(place) and not os.path.islink(place))


def view_for(user: RunUser, needed: Mapping[Path, bool], scratch: Iterable[str] = ()) -> dict[str, dict[str, bool]]:
    """Which directories block the user from what it needs, and those that it gets empty for itself, with
    what is needed in them."""
    view: dict[str, dict[str, bool]] = {place: {} for place in scratch}
    for path, writable in needed.items():
        for spelling in dict.fromkeys((path.absolute(), path.resolve())):
            within = next((place for place in scratch if spelling.is_relative_to(place)), None)
            closed = first_closed(spelling, user) if within is None else Path(within)
            if closed is not None:
                view.setdefault(str(closed), {})[str(spelling)] = writable
    return view


def hide_neighbours(view: dict[str, dict[str, bool]], own: Iterable[Path]) -> None:
    """Also hide whatever is next to a run's own directory: the other side of a session has the same user."""
    shown = {path for needed in view.values() for path in needed}
    for directory in own:
        for spelling in dict.fromkeys((directory.absolute(), directory.resolve())):
            if str(spelling) not in shown:
                view.setdefault(str(spelling.parent), {})[str(spelling)] = True


def first_closed(path: Path, user: RunUser) -> Path | None:
    """The topmost directory above `path` that the user may not enter; None if there is none."""
    for parent in reversed(path.parents):
        if not may_pass(parent, user):
            return parent
    return None


def may_pass(directory: Path, user: RunUser) -> bool:
    """Whether the user may enter a directory, by its mode. The probe decides finally what this misses."""
    status = directory.stat()
    if status.st_uid == user.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == user.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)
