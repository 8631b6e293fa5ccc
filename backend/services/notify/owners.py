"""Whose a regression is: the owners of its benchmark (`[owners]` of tidemark.toml), and those of the files that its
suspect commits changed (CODEOWNERS), both as the default branch has them now."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from codeowners import CodeOwners

from backend.services.base.config import ServiceConfig
from backend.services.base.errors import ServiceError
from backend.services.repository.mirror import GitFailure, Mirror
from backend.services.repository.requests import manifest_at
from backend.services.repository.sync import mirror_of
from backend.services.triage.views import RegressionDetail
from backend.store.base.projects import ProjectRow

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")  # the first that is there counts, as on GitHub
MAX_BYTES = 256 * 1024
MAX_WILDCARDS = 4  # of a pattern: more of them could take very long to compare
MAX_PATH = 500
MOST = 20


def owners_of(config: ServiceConfig, project: ProjectRow, detail: RegressionDetail) -> tuple[str, ...]:
    """Names as they are written there (@user, @org/team, an e-mail address); none, where no repository is connected."""
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
    """Who owns these files by a CODEOWNERS. Lines that GitHub would not follow are left out, as it does."""
    rules = CodeOwners("\n".join(line for line in text.splitlines() if _is_rule(line)))
    return list(dict.fromkeys(name for path in paths if len(path) <= MAX_PATH for _, name in rules.of(path)))


def _is_rule(line: str) -> bool:
    pattern = line.split(maxsplit=1)[0] if line.split() else "#"
    has_syntax_of_its_own = pattern.startswith(("#", "!", "\\#")) or "[" in pattern
    return not has_syntax_of_its_own and pattern.count("*") <= MAX_WILDCARDS and len(line) <= MAX_PATH


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
