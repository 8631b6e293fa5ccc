"""Results on disk before they are delivered: measurements survive an absent API, a killed worker and a reboot.

One directory per parcel, either complete or absent: it is written aside, flushed to disk, and renamed into place.
A parcel that cannot be read, or that the API refuses permanently, is set aside with the reason, never deleted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger("tidemark.worker")

RUN_FILE = "run.json"
LABEL_FILE = "parcel.json"
REASON_FILE = "reason.txt"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """One run to deliver. `body` is the run; the artifacts are separate files."""

    run_id: str
    attempt: int
    lease: str
    body: bytes
    artifacts: tuple[Path, ...]
    place: Path | None
    """Its place in the spool; None if it could not be written to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSize:
    waiting: int
    waiting_bytes: int
    set_aside: int


class Spool:
    """The parcels of one worker. Not shared between workers; used from several threads of one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.aside = directory / "aside"
        for needed in (directory, self.aside):
            needed.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)  # leases lie in here
        for unfinished in directory.glob("new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def put(self, run_id: str, attempt: int, lease: str, body: bytes, artifacts: Sequence[Path]) -> Parcel:
        """Writes a parcel so that it survives a power failure; raises OSError if it cannot be written."""
        name = f"{_UNSAFE.sub('_', run_id)[:100]}-{attempt}"
        growing = self.directory / f"new-{name}-{uuid.uuid4().hex[:8]}"
        try:
            growing.mkdir(mode=0o700)
            files = [_copy(artifact, growing / f"artifact-{artifact.name}") for artifact in artifacts]
            _write(growing / RUN_FILE, body)
            label = {
                "run_id": run_id,
                "attempt": attempt,
                "lease": lease,
                "sha256": hashlib.sha256(body).hexdigest(),
                "artifacts": {file.name.removeprefix("artifact-"): file.stat().st_size for file in files},
            }
            _write(growing / LABEL_FILE, json.dumps(label).encode())
            _flush_directory(growing)
            place = self.directory / name
            if place.exists():
                # The same attempt once more: the newer result wins, the older one stays for whoever wonders.
                self.set_aside(place, "another result of the same attempt came later")
            growing.rename(place)
            _flush_directory(self.directory)
        except OSError:
            shutil.rmtree(growing, ignore_errors=True)
            raise
        return self._read(place)

    def waiting(self) -> list[Parcel]:
        """Every readable parcel, the oldest first; unreadable ones are set aside and reported."""
        parcels = []
        for place in self._places():
            try:
                parcels.append(self._read(place))
            except FileNotFoundError as missing:
                if place.exists():  # else it was delivered just now
                    self.set_aside(place, f"the parcel is not whole: {missing}")
            except (OSError, ValueError, KeyError, TypeError) as flaw:
                self.set_aside(place, f"the parcel cannot be read: {flaw!r}")
        return parcels

    def remove(self, parcel: Parcel) -> None:
        if parcel.place is None:
            return
        # Renamed first, so that a parcel half removed is never taken for one to deliver.
        gone = self.directory / f"new-done-{uuid.uuid4().hex[:8]}"
        try:
            parcel.place.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def set_aside(self, place: Path, reason: str) -> Path:
        target = self.aside / f"{place.name}-{uuid.uuid4().hex[:8]}"
        place.rename(target)
        log.error("spool: %s was set aside in %s: %s", place.name, target, reason)
        try:
            if target.is_dir():
                _write(target / REASON_FILE, f"{reason}\n".encode())
            _flush_directory(self.aside)
        except OSError as failure:
            log.error("spool: the reason could not be written beside it: %s", failure)
        return target

    def size(self) -> SpoolSize:
        places = self._places()
        return SpoolSize(
            waiting=len(places),
            waiting_bytes=sum(_bytes_of(place) for place in places),
            set_aside=sum(1 for _ in self.aside.iterdir()),
        )

    def _places(self) -> list[Path]:
        found = []
        for entry in self.directory.iterdir():
            if entry.name != self.aside.name and not entry.name.startswith("new-"):
                try:
                    found.append((entry.stat().st_mtime, entry))
                except FileNotFoundError:
                    continue
        return [entry for _, entry in sorted(found)]

    def _read(self, place: Path) -> Parcel:
        label: dict[str, Any] = json.loads((place / LABEL_FILE).read_bytes())
        body = (place / RUN_FILE).read_bytes()
        if hashlib.sha256(body).hexdigest() != label["sha256"]:
            raise ValueError(f"{RUN_FILE} is not what was written: its checksum differs")
        artifacts = []
        for name, size in label["artifacts"].items():
            file = place / f"artifact-{name}"
            if file.stat().st_size != size:
                raise ValueError(f"artifact {name} has {file.stat().st_size} bytes instead of {size}")
            artifacts.append(file)
        return Parcel(
            run_id=str(label["run_id"]),
            attempt=int(label["attempt"]),
            lease=str(label["lease"]),
            body=body,
            artifacts=tuple(artifacts),
            place=place,
        )


def artifact_name(file: Path) -> str:
    return file.name.removeprefix("artifact-")


def _bytes_of(place: Path) -> int:
    total = 0
    for file in _files(place):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _files(place: Path) -> Iterable[Path]:
    return place.iterdir() if place.is_dir() else [place]


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _copy(source: Path, target: Path) -> Path:
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    return target


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
