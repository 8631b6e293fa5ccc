"""A group of the kernel's (cgroup) for the processes of a run, with a limit of memory and of processes: what is beyond
it fails in the run, and the database beside it does not notice. For root; both versions of the interface."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
OURS = "tidemark"


@dataclass(frozen=True, slots=True, kw_only=True)
class CGroup:
    """Directories of one group, by controller (version 1), or one for all (version 2)."""

    places: tuple[Path, ...]
    back: tuple[Path, ...]
    """Where the worker's own processes are, in the same order."""
    memory_bytes: int
    processes: int

    def as_order(self) -> list[list[str]]:
        return [[str(place), str(back)] for place, back in zip(self.places, self.back, strict=True)]

    def remove(self) -> None:
        for place in self.places:
            with suppress(OSError):
                place.rmdir()


def make(name: str, *, memory_bytes: int, processes: int, mounted: Path = MOUNTED) -> CGroup:
    """The group of this name with these limits; OSError where this machine lets nobody make one."""
    own = _own_groups()
    if (mounted / "cgroup.controllers").exists():
        return _make_unified(name, own.get("", "/"), memory_bytes, processes, mounted)
    places, back = [], []
    for controller, file, limit in (
        ("memory", "memory.limit_in_bytes", memory_bytes),
        ("pids", "pids.max", processes),
    ):
        top = mounted / controller
        here = top / own.get(controller, "/").lstrip("/")
        place = here / f"{OURS}-{name}"
        place.mkdir(exist_ok=True)
        (place / file).write_text(str(limit))
        places.append(place)
        back.append(here)
    return CGroup(places=tuple(places), back=tuple(back), memory_bytes=memory_bytes, processes=processes)


def _make_unified(name: str, own: str, memory_bytes: int, processes: int, mounted: Path) -> CGroup:
    parent = mounted / OURS
    parent.mkdir(exist_ok=True)
    for above in (mounted, parent):
        # A group that has processes of its own cannot pass limits on; the topmost may.
        with suppress(OSError):
            (above / "cgroup.subtree_control").write_text("+memory +pids")
    place = parent / name
    place.mkdir(exist_ok=True)
    (place / "memory.max").write_text(str(memory_bytes))
    (place / "pids.max").write_text(str(processes))
    back = mounted / own.lstrip("/")
    return CGroup(places=(place,), back=(back,), memory_bytes=memory_bytes, processes=processes)


def _own_groups() -> dict[str, str]:
    """{controller: group of this process}; the unified one under no name."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        match = re.match(r"\d+:([^:]*):(.*)", line)
        if match:
            found |= dict.fromkeys(match[1].split(","), match[2])
    return found
