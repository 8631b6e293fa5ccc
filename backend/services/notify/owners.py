"""The owners of a regression: those of its benchmark (`[owners]` of tidemark.toml), and those of the files that its
suspect commits changed (CODEOWNERS), both as they are now on the default branch."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice

from codeowners import CodeOwners

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import ServiceError
from backend.services.repository.mirror import GitFailure, Mirror
from backend.services.repository.reading import mirror_of
from backend.services.repository.requests import manifest_at
from backend.services.triage.detail import RegressionDetail
from backend.store.base.projects import ProjectRow

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")  # the first that is there counts, as on GitHub
MAX_BYTES = 256 * 1024
MAX_WILDCARDS = 3  # of a pattern, as far as they stand apart: more of them could take very long to compare
MAX_PATH = 260
MOST_RULES = 3000
MOST_PATHS = 200
AT_ONCE = 50
PATIENCE_S = 3.0  # for the files of all suspects: those of who waits longer have no owners
MOST = 20
WILDCARDS = re.compile(r"\*+")


def owners_of(config: ServiceConfig, project: ProjectRow, detail: RegressionDetail) -> tuple[str, ...]:
    """Names as written there (@user, @org/team, an e-mail address); none if no repository is connected."""
    if project.repository_url is None:
        return ()
    mirror = mirror_of(config, project)
    try:
        head = mirror.heads().get(project.default_branch) if mirror.exists() else None
        if head is None:
            return ()
        by_path = owners_by_path(_codeowners(mirror, head), _changed(detail))
    except GitFailure:
        return ()
    by_benchmark = _of_benchmark(config, project, head, detail.regression.benchmark)
    return tuple(dict.fromkeys([*by_benchmark, *by_path]))[:MOST]


def owners_by_path(text: str, paths: Iterable[str]) -> list[str]:
    """The owners of these files in a CODEOWNERS. Lines that GitHub would ignore are ignored."""
    kept = [line for line in text.splitlines() if _is_rule(line)][-MOST_RULES:]
    parts = [CodeOwners("\n".join(kept[start : start + AT_ONCE])) for start in range(0, len(kept), AT_ONCE)][::-1]
    found: dict[str, None] = {}
    until = time.monotonic() + PATIENCE_S
    for path in islice((path for path in paths if len(path) <= MAX_PATH), MOST_PATHS):
        for part in parts:
            if time.monotonic() > until:
                return list(found)
            owners, line, _, _ = part.matching_line(path)
            if line is not None:  # the last one of the file that matches, be it without owners
                found |= dict.fromkeys(name for _, name in owners)
                break
    return list(found)


def _is_rule(line: str) -> bool:
    pattern = next(iter(line.replace("\\ ", "?").split()), "#")  # a blank may be part of it
    has_syntax_of_its_own = pattern.startswith(("#", "!", "\\#")) or "[" in pattern
    return not has_syntax_of_its_own and len(WILDCARDS.findall(pattern)) <= MAX_WILDCARDS and len(line) <= MAX_PATH


def _codeowners(mirror: Mirror, sha: str) -> str:
    for place in PLACES:
        blob = mirror.blobs_at([sha], place)[sha]
        if blob is not None:
            if blob.size > MAX_BYTES:
                return ""
            lines = mirror.read_blobs([blob.id])[blob.id].decode("utf-8", "replace").splitlines()
            return "\n".join(line.partition(" #")[0] for line in lines)
    return ""


def _changed(detail: RegressionDetail) -> list[str]:
    return [path for commit in detail.suspects for path in commit.changed_paths or ()]


def _of_benchmark(config: ServiceConfig, project: ProjectRow, head: str, benchmark: str | None) -> list[str]:
    try:
        declared = manifest_at(config, project, head).owners
    except ServiceError:
        return []
    return [name for pattern, names in declared.items() if fnmatchcase(benchmark or "", pattern) for name in names]
