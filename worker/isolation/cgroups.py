"""A group of the kernel's (cgroup) for the processes of a run, with a limit of memory and of processes: what is beyond
it fails in the run, and the database beside it does not notice. For root; both versions of the interface."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
OURS = "tidemark"


@dataclass(frozen=True, slots=True, kw_only=True)
class CGroup:
    """Directories of one group, by controller (version 1), or one for all (version 2). It exists while `limits` is
    entered."""

    places: tuple[Path, ...]
    back: tuple[Path, ...]
    """Where the worker's own processes are, in the same order."""
    files: tuple[tuple[int, str], tuple[int, str]]
    """Which place, and which file in it, holds the limit of memory, and that of processes."""
    swap: tuple[str, int]
    """Which file beside that of memory keeps it from going on in swap, and what belongs into it."""
    memory_bytes: int
    processes: int

    def as_order(self) -> list[list[str]]:
        return [[str(place), str(back)] for place, back in zip(self.places, self.back, strict=True)]

    @contextmanager
    def limits(self) -> Iterator[None]:
        """The group, with its limits; raises OSError if this machine does not allow one."""
        for place in self.places:
            place.mkdir(exist_ok=True)
        try:
            for (number, file), limit in zip(self.files, (self.memory_bytes, self.processes), strict=True):
                (self.places[number] / file).write_text(str(limit))
            file, limit = self.swap
            # A kernel without swap, or that does not count it, has no such file.
            with suppress(FileNotFoundError):
                (self.places[0] / file).write_text(str(limit))
            yield
        finally:
            for place in self.places:
                with suppress(OSError):
                    place.rmdir()


def group(name: str, *, memory_bytes: int, processes: int, mounted: Path = MOUNTED) -> CGroup:
    """The group of this name with these limits; OSError where this machine has none."""
    own = _own_groups()
    if (mounted / "cgroup.controllers").exists():
        parent = mounted / OURS
        parent.mkdir(exist_ok=True)
        for above in (mounted, parent):
            # A group that has processes of its own cannot pass limits on; the topmost may.
            with suppress(OSError):
                (above / "cgroup.subtree_control").write_text("+memory +pids")
        places: tuple[Path, ...] = (parent / name,)
        back: tuple[Path, ...] = (mounted / own.get("", "/").lstrip("/"),)
        files = ((0, "memory.max"), (0, "pids.max"))
        swap = ("memory.swap.max", 0)
    else:
        back = tuple(mounted / each / own.get(each, "/").lstrip("/") for each in ("memory", "pids"))
        places = tuple(here / f"{OURS}-{name}" for here in back)
        files = ((0, "memory.limit_in_bytes"), (1, "pids.max"))
        swap = ("memory.memsw.limit_in_bytes", memory_bytes)  # of both together
    return CGroup(places=places, back=back, files=files, swap=swap, memory_bytes=memory_bytes, processes=processes)


def _own_groups() -> dict[str, str]:
    """{controller: group of this process}; the unified one under no name."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        match = re.match(r"\d+:([^:]*):(.*)", line)
        if match:
            found |= dict.fromkeys(match[1].split(","), match[2])
    return found
