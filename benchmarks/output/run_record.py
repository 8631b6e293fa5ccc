"""Writes run.json: the contract `tidemark.run/1`, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import SUITE_VERSION
from benchmarks.output.identity import Identity


class UnwritableOutput(OSError):
    """The output cannot be written; said before any work is done."""


def make_sure_writable(path: Path) -> None:
    """Creates the folder and tries the very thing that will be done at the end: a new file beside the target."""
    if path.is_dir():
        raise UnwritableOutput(f"cannot write {path}: it is a directory; --out takes a file, e.g. {path}/run.json")
    probe = path.with_name(f".{path.name}.probe")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UnwritableOutput(f"cannot write {path}: {error.strerror or error}") from error


def run_document(
    identity: Identity,
    *,
    started_at: str,
    finished_at: str,
    status: str,
    error: str | None,
    code_under_test: Mapping[str, Any],
    environment: Mapping[str, Any],
    telemetry: Mapping[str, Any],
    ceilings: Mapping[str, float],
    canary: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    protocol: Mapping[str, Any],
) -> dict[str, Any]:
    """The run as the contract's JSON.

    `protocol` says how it was measured (seed, order, what the preset scales down).
    """
    document: dict[str, Any] = {
        "schema": "tidemark.run/1",
        "id": identity.id,
        "project": identity.project,
        "commit": identity.commit,
        "parents": list(identity.parents),
        "branch": identity.branch,
        "pull_request": identity.pull_request,
        "suite": identity.suite,
        "suite_version": SUITE_VERSION,
        "testbed": identity.testbed,
        "worker": identity.worker,
        "attempt": identity.attempt,
        "started_at": started_at,
        "finished_at": finished_at,
        "status": status,
        "error": error,
        "code_under_test": dict(code_under_test),
        "environment": dict(environment),
        "telemetry": dict(telemetry),
        "ceilings": dict(ceilings),
        "canary": [dict(reading) for reading in canary],
        "results": [dict(result) for result in results],
        "protocol": dict(protocol),
    }
    if identity.session is not None:
        document["session"] = dict(identity.session)
    return document


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Writes beside the target and renames, so that no reader ever sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
