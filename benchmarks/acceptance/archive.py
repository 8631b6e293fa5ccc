"""The one file that an acceptance keeps: every unit's run and log, the sessions, and what became of each call.

A machine on loan starts bare and gives back a few files, so the archive is all that goes from call to call.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

import benchmarks
from benchmarks.environment import version
from benchmarks.spec import WrongCall

LONGEST_SHARE = 0.8
"""Of a call's time: a unit that was cut short after so much does not fit any call."""


class Ended(StrEnum):
    """How a unit ended."""

    DONE = "done"
    FAILED = "failed"
    CUT_SHORT = "cut short"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRecord:
    """Outcome of a unit when it was last begun."""

    ended: Ended
    seconds: float
    call: int
    code: str
    said: str = ""
    """Why it failed, in a sentence."""
    share: float = 0.0
    """Of its call's time that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the command."""

    date: str
    command: str
    seconds: float
    ended: str


class UnreadableArchive(WrongCall):
    """A file in the archive's place that is none."""


class Archive:
    """The kept folder, unpacked for the duration of a call; `keep` rewrites the one file."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.records = {name: _record(raw) for name, raw in (self._read("units.json") or {}).items()}
        self.calls = [Call(**raw) for raw in (self._read("calls.json") or {"calls": []})["calls"]]

    def of(self, unit: str) -> Path:
        """The folder of a unit."""
        return self.folder / unit

    def record(self, unit: str, record: UnitRecord) -> None:
        """Notes how a unit ended, and keeps it."""
        self.records[unit] = record
        self.keep()

    def begin(self, call: Call) -> None:
        """Notes a call; its end is not known yet."""
        self.calls.append(call)

    def end(self, seconds: float, ended: str) -> None:
        """Notes how the last call ended, and keeps it."""
        self.calls[-1] = replace(self.calls[-1], seconds=round(seconds, 1), ended=ended)
        self.keep()

    def runs(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The runs of these units, as far as there are any."""
        found = {name: self._read(f"{name}/run.json") for name in names}
        return {name: run for name, run in found.items() if run is not None}

    def keep(self) -> None:
        """Writes the archive beside its place and renames it, so that a call that is killed leaves the last one."""
        units = {name: asdict(record) for name, record in self.records.items()}
        (self.folder / "units.json").write_text(json.dumps(units, indent=1))
        (self.folder / "calls.json").write_text(json.dumps({"calls": [asdict(call) for call in self.calls]}, indent=1))
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with tarfile.open(temporary, "w:gz", compresslevel=6) as archive:
            for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
                archive.add(file, f"{self.path.name.removesuffix('.tar.gz')}/{file.relative_to(self.folder)}")
        temporary.replace(self.path)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return None
        return found


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The archive at this path, unpacked into a folder that goes when the call ends; empty where there is none yet."""
    with tempfile.TemporaryDirectory(prefix="tidemark-acceptance-") as temporary:
        folder = Path(temporary)
        if path.exists():
            _unpack(path, folder)
        yield Archive(path, folder)


def _unpack(path: Path, folder: Path) -> None:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts[1:]
                content = archive.extractfile(member)
                if content is None or not parts or ".." in parts:
                    continue
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UnreadableArchive(f"{path} is not an acceptance archive: {error}; remove it to start over") from error


def _record(raw: Mapping[str, Any]) -> UnitRecord:
    return UnitRecord(**{**raw, "ended": Ended(raw["ended"])})


def code_digest() -> str:
    """Which code measures: a digest of the suite's own sources and torch's version; a bare copy knows no commit."""
    package = Path(benchmarks.__file__).parent
    digest = hashlib.sha256((version("torch") or "no torch").encode())
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
