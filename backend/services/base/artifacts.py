"""Files that belong to a run: MLLOG, traces, kernel tables. Bytes under the data directory, a row for each."""

import contextlib
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection

from backend.services.base.access import hashed
from backend.services.base.config import ServiceConfig
from backend.services.base.confine import require_deliverer
from backend.services.base.errors import BadRequest, Conflict, NotFound, TooLarge
from backend.services.base.principal import Principal, require_no_workflow
from backend.store.base import artifacts as store
from backend.store.base.artifacts import StoredArtifact

NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._=,+@-]{0,199}\Z")
MAX_ARTIFACTS = 500
PRUNED_AT_ONCE = 10_000
# Only types that a browser shows without running them; everything else is bytes to download.
TYPES = {
    ".json": "application/json",
    ".mllog": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".gz": "application/gzip",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Result of storing an artifact. `created` is false when the same bytes were there already."""

    run_id: str
    name: str
    size: int
    sha256: str
    created: bool


def store_artifact(
    c: Connection,
    run_id: str,
    name: str,
    body: bytes,
    *,
    lease: str | None = None,
    config: ServiceConfig,
    principal: Principal,
    now: datetime,
) -> Stored:
    """Store the bytes on disk, then the row. The content of a name never changes."""
    check_name(name)
    require_no_workflow(principal)
    found = store.lock_run(c, run_id)
    if found is None:
        raise NotFound.of("run", run_id)
    require_deliverer(c, principal, found.project_id)
    if found.lease_hash is not None and (lease is None or hashed(lease) != found.lease_hash):
        raise Conflict(f"a worker holds run {run_id}: only that worker may store its artifacts")
    digest = hashlib.sha256(body).digest()
    there = store.find(c, run_id, name)
    if there is not None and there.sha256 != digest:
        raise Conflict(f"artifact {name!r} of run {run_id} is stored already, with different content")
    path = file_path(config, run_id, name)
    if there is None:
        count, size = store.count_and_size(c, run_id)
        if count >= MAX_ARTIFACTS:
            raise BadRequest(f"run {run_id} has {MAX_ARTIFACTS} artifacts already, which is the limit")
        if size + len(body) > config.max_run_artifact_bytes:
            raise TooLarge(
                f"{name!r} has {len(body):,} bytes and the artifacts of run {run_id} have {size:,} already; "
                f"accepted: {config.max_run_artifact_bytes:,} together"
            )
        row = StoredArtifact(
            run_id=run_id, name=name, content_type=_type(name), size=len(body), sha256=digest, received_at=now
        )
        store.store(c, row)
    if there is None or not path.is_file():
        _write(path, body)
    return Stored(run_id=run_id, name=name, size=len(body), sha256=digest.hex(), created=there is None)


def find_artifact(c: Connection, run_id: str, name: str, config: ServiceConfig) -> tuple[StoredArtifact, Path]:
    check_name(name)
    row = store.find(c, run_id, name)
    path = file_path(config, run_id, name)
    if row is None or not path.is_file():
        raise NotFound.of("artifact", name, [known.name for known in store.of_run(c, run_id)][:20])
    return row, path


def prune(c: Connection, config: ServiceConfig, now: datetime) -> int:
    """Remove artifacts that are older than the operator keeps them; how many."""
    if config.artifact_days is None:
        return 0
    gone = store.forget_before(c, now - timedelta(days=config.artifact_days), PRUNED_AT_ONCE)
    for run_id, name in gone:
        file_path(config, run_id, name).unlink(missing_ok=True)
    return len(gone)


def check_name(name: str) -> None:
    if not NAME.match(name) or ".." in name:
        raise BadRequest.field(
            "name", name, "1 to 200 letters, digits and . _ = , + @ -, beginning with a letter, digit or _, without .."
        )


def file_path(config: ServiceConfig, run_id: str, name: str) -> Path:
    return directory_of(config, run_id) / name


def directory_of(config: ServiceConfig, run_id: str) -> Path:
    """Where the artifacts of a run are."""
    # Directories stay small, whatever ids are like. A prefix keeps ids such as "CON" or ".." out.
    return config.artifacts_dir / hashlib.sha256(run_id.encode()).hexdigest()[:2] / f"run-{run_id}"


def _type(name: str) -> str:
    return TYPES.get(Path(name).suffix.lower(), "application/octet-stream")


def _write(path: Path, body: bytes) -> None:
    """All or nothing: a crash half way leaves no file under this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".incoming-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
