"""Storing a run: where it belongs, the run itself, its results, its measurements, and its document."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, chain
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, text

from backend.contract import ResultStatus, Run
from backend.store.base import wire
from backend.store.base.commits import IS_MIRRORED
from backend.store.ingest.packed import pack
from backend.store.ingest.samples import COLUMNS, by_process, stored_counts

RUN_LOCK = "tidemark run"
DOCUMENT_LEVEL = 1  # of compression: three quarters of what is to be gained, at a tenth of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where a run belongs, as far as the store knows it; None: not seen before."""

    project_id: int | None
    default_branch: str | None
    policy: Mapping[str, Any] | None
    chosen_policy: Mapping[str, Any] | None
    """The policy chosen on the server."""
    points_per_week: float | None
    connected: bool
    """GitHub gets reports about the project."""
    testbed_id: int | None
    worker_id: int | None
    worker_token_id: int | None
    """The valid token that owns the worker's name."""
    environment_id: int | None
    commit_id: int | None
    default_branch_id: int | None
    position: int | None
    """On the default branch; None: the commit is not on it."""
    is_mirrored: bool
    """The default branch was read from the repository, so results do not decide which commits are on it."""
    has_partitions: bool
    run_state: str | None
    run_project_id: int | None
    run_commit_id: int | None
    run_testbed_id: int | None
    run_suite: str | None
    run_spec: Mapping[str, Any] | None
    body_sha256: bytes | None
    received_at: datetime | None
    lease_hash: bytes | None
    holder: str | None
    """The worker that holds the run."""


# Results hold the positions together, a sync that moves commits alone: none is judged at a position that was just given
# away. Then the run, whose deliveries take turns.
_HOLD_AND_LOCK = """
SELECT pg_advisory_xact_lock_shared(hashtext(%(positions)s), hashtext(%(project)s)),
       pg_advisory_xact_lock(hashtext(%(lock)s), hashtext(%(run)s))
"""
_MOVE_POSITIONS = text("SELECT pg_advisory_xact_lock(hashtext(:positions), hashtext(:project))")
POSITIONS_LOCK = "tidemark positions"
_PLACE = f"""
SELECT p.id AS project_id, p.default_branch, p.policy, p.settings #> '{{policy,table}}' AS chosen_policy,
       (p.settings #>> '{{load,points_per_week}}')::float8 AS points_per_week,
       p.settings #> '{{github,repository}}' IS NOT NULL AS connected,
       t.id AS testbed_id, w.id AS worker_id, o.id AS worker_token_id, e.id AS environment_id, k.id AS commit_id,
       b.id AS default_branch_id, bc.position,
       {IS_MIRRORED} AS is_mirrored,
       to_regclass(%(measurement_partition)s) IS NOT NULL AND to_regclass(%(judgement_partition)s) IS NOT NULL
           AS has_partitions,
       r.state AS run_state, r.project_id AS run_project_id, r.commit_id AS run_commit_id,
       r.testbed_id AS run_testbed_id, r.suite AS run_suite, r.spec AS run_spec, r.body_sha256, r.received_at,
       r.lease_hash, h.name AS holder
FROM (SELECT) AS one
LEFT JOIN project p ON p.slug = %(project)s
LEFT JOIN testbed t ON t.name = %(testbed)s
LEFT JOIN worker w ON w.name = %(worker)s
LEFT JOIN api_token o ON o.id = w.token_id AND o.revoked_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())
LEFT JOIN environment e ON e.hash = %(environment)s
LEFT JOIN commit k ON k.project_id = p.id AND k.sha = %(commit)s
LEFT JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
LEFT JOIN LATERAL (
  SELECT y.branch_id, y.position FROM branch_commit y WHERE y.commit_id = k.id OFFSET 0) AS bc ON bc.branch_id = b.id
LEFT JOIN run r ON r.id = %(run)s
LEFT JOIN worker h ON h.id = r.worker_id
"""


def move_positions(c: Connection, project: str) -> None:
    """Wait for results in progress, and make others wait: the project's commits change position."""
    c.execute(_MOVE_POSITIONS, {"positions": POSITIONS_LOCK, "project": project})


def place_statements(run: Run, *, environment_hash: str | None, measured_at: datetime) -> list[wire.Statement]:
    """Statements that find and lock the place of an arriving run; deliveries of one run id take turns."""
    month = f"{measured_at:%Y_%m}"
    values = {
        "project": run.project,
        "testbed": run.testbed,
        "worker": run.worker,
        "environment": environment_hash,
        "commit": run.commit,
        "run": run.id,
        "measurement_partition": f"measurement_{month}",
        "judgement_partition": f"judgement_{month}",
    }
    locks = {"positions": POSITIONS_LOCK, "project": run.project, "lock": RUN_LOCK, "run": run.id}
    # The second is a statement of its own, so that its snapshot is taken when the locks are ours.
    return [(_HOLD_AND_LOCK, locks), (_PLACE, values)]


def place_in(answers: Sequence[wire.Rows]) -> RunPlace:
    """The place, from the results of `place_statements`."""
    return RunPlace(**answers[-1][0]._asdict())


class StoredPlace(NamedTuple):
    """Where a stored run belongs, and the policies of its project."""

    project_id: int
    project: str
    testbed_id: int
    testbed: str
    default_branch_id: int
    policy: Mapping[str, Any] | None
    suite_policy: Mapping[str, Any] | None
    """The policy that its suite declared at its commit."""
    chosen_policy: Mapping[str, Any] | None
    points_per_week: float | None


_PLACE_OF_STORED = text(
    """SELECT p.id, p.slug, t.id, t.name, b.id, p.policy, r.spec -> 'policy', p.settings #> '{policy,table}',
              CAST(p.settings #>> '{load,points_per_week}' AS float8)
       FROM run r JOIN project p ON p.id = r.project_id JOIN testbed t ON t.id = r.testbed_id
       JOIN branch b ON b.project_id = p.id AND b.name = p.default_branch
       WHERE r.id = :run"""
)


def place_of_stored(c: Connection, run_id: str) -> StoredPlace:
    return StoredPlace(*c.execute(_PLACE_OF_STORED, {"run": run_id}).one())


# --- names seen for the first time -----------------------------------------------------------------------------------

_PROJECT = text(
    """INSERT INTO project (slug, default_branch) VALUES (:slug, :branch)
       ON CONFLICT (slug) DO UPDATE SET slug = excluded.slug RETURNING id, default_branch, policy"""
)
_TESTBED = text(
    "INSERT INTO testbed (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"
)
_WORKER = text(
    """INSERT INTO worker (name, testbed_id, last_seen_at) VALUES (:name, :testbed, NULL)
       ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id"""
)
_ENVIRONMENT = text(
    """INSERT INTO environment (hash, fingerprint) VALUES (:hash, CAST(:fingerprint AS jsonb))
       ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash RETURNING id"""
)
_BRANCH = text(
    """INSERT INTO branch (project_id, name) VALUES (:project, :name)
       ON CONFLICT (project_id, name) DO UPDATE SET deleted_at = NULL, updated_at = now() RETURNING id"""
)
_COMMIT = """
INSERT INTO commit (project_id, sha, parents, pull_request)
VALUES (%(project)s, %(sha)s, %(parents)s::text[], %(pull_request)s)
ON CONFLICT (project_id, sha) DO UPDATE SET sha = excluded.sha RETURNING id
"""


def ensure_project(c: Connection, slug: str, default_branch: str) -> tuple[int, str, Mapping[str, Any]]:
    """(its id, its default branch, its policy)"""
    row = c.execute(_PROJECT, {"slug": slug, "branch": default_branch}).one()
    return row.id, row.default_branch, row.policy


def ensure_testbed(c: Connection, name: str) -> int:
    return int(c.execute(_TESTBED, {"name": name}).scalar_one())


def ensure_worker(c: Connection, name: str, testbed_id: int) -> int:
    """The worker that a result names. Only one that contacts us itself counts as seen and is on the Workers page."""
    return int(c.execute(_WORKER, {"name": name, "testbed": testbed_id}).scalar_one())


def ensure_environment(c: Connection, hash: str, fingerprint: Mapping[str, Any]) -> int:
    values = {"hash": hash, "fingerprint": orjson.dumps(fingerprint).decode()}
    return int(c.execute(_ENVIRONMENT, values).scalar_one())


def ensure_branch(c: Connection, project_id: int, name: str) -> int:
    return int(c.execute(_BRANCH, {"project": project_id, "name": name}).scalar_one())


def _commit_values(project_id: int, sha: str, parents: Sequence[str], pull_request: int | None) -> dict[str, Any]:
    return {"project": project_id, "sha": sha, "parents": list(parents), "pull_request": pull_request}


def ensure_commit(c: Connection, project_id: int, sha: str, parents: Sequence[str], pull_request: int | None) -> int:
    (rows,) = wire.send(c, (_COMMIT, _commit_values(project_id, sha, parents, pull_request)))
    return int(rows[0].id)


_HEAD = "UPDATE branch SET head_sha = %(sha)s, updated_at = %(now)s WHERE id = %(branch)s"
_APPEND = """
INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
SELECT %(branch)s, %(project)s,
       (SELECT coalesce(max(position), -1) + 1 FROM branch_commit WHERE branch_id = %(branch)s), id
FROM commit WHERE project_id = %(project)s AND sha = %(sha)s
ON CONFLICT (branch_id, commit_id, project_id) DO UPDATE SET position = branch_commit.position
RETURNING position, commit_id
"""


def append_statements(
    branch_id: int, project_id: int, sha: str, parents: Sequence[str], now: datetime
) -> list[wire.Statement]:
    """Give an unplaced commit the position after the branch's newest, and make it the head.

    If its parent is the newest commit, as usual, that is the parent's position + 1. The branch is locked by its new
    head before its positions are read, so that two unknown commits get two positions.
    """
    values = {"branch": branch_id, "now": now, **_commit_values(project_id, sha, parents, None)}
    return [(_COMMIT, values), (_HEAD, values), (_APPEND, values)]


def appended(answer: wire.Rows) -> tuple[int, int]:
    """(the commit's id, its position), from the result of the last of `append_statements`."""
    return int(answer[0].commit_id), int(answer[0].position)


_MERGE_BASE = text(
    """WITH RECURSIVE ancestor (sha, depth) AS (
         SELECT parents[1], 1 FROM commit WHERE id = :commit AND cardinality(parents) > 0
         UNION ALL
         SELECT k.parents[1], depth + 1 FROM ancestor a JOIN commit k ON k.project_id = :project AND k.sha = a.sha
         WHERE depth < 1000 AND cardinality(k.parents) > 0
           AND NOT EXISTS (SELECT FROM branch_commit x WHERE x.branch_id = :branch AND x.commit_id = k.id))
       SELECT bc.position, a.depth FROM ancestor a JOIN commit k ON k.project_id = :project AND k.sha = a.sha
       JOIN branch_commit bc ON bc.branch_id = :branch AND bc.commit_id = k.id ORDER BY a.depth LIMIT 1"""
)
# On a branch that results make, commits stand in the order in which their first results came: a pull request may be
# pushed anew, shorter than before. A branch of the repository is put in order when it is read.
_PLACE_ON_BRANCH = text(
    """WITH placed AS (
         INSERT INTO branch_commit (branch_id, project_id, position, commit_id)
         SELECT b.id, b.project_id, CASE WHEN b.head_sha IS NOT NULL THEN :position ELSE greatest(:position, (
             SELECT max(x.position) + 1 FROM branch_commit x WHERE x.branch_id = b.id)) END, :commit
         FROM branch b
         WHERE b.id = :branch
           AND NOT EXISTS (SELECT FROM branch_commit x WHERE x.branch_id = b.id AND x.commit_id = :commit)
         ON CONFLICT DO NOTHING RETURNING position)
       SELECT coalesce((SELECT position FROM placed),
                       (SELECT position FROM branch_commit WHERE branch_id = :branch AND commit_id = :commit),
                       :position)"""
)
_HAS_COMMIT = text(
    """SELECT EXISTS (
         SELECT FROM branch b JOIN branch_commit x ON x.branch_id = b.id
         WHERE b.project_id = :project AND b.name = :name AND b.head_sha IS NOT NULL AND x.commit_id = :commit)"""
)


def has_commit(c: Connection, project_id: int, branch: str, commit_id: int | None) -> bool:
    """Whether this branch of the repository has the commit, as far as it was read."""
    return bool(c.scalar(_HAS_COMMIT, {"project": project_id, "name": branch, "commit": commit_id}))


@dataclass(frozen=True, slots=True)
class MergeBase:
    """Where a commit's first-parent line leaves the default branch, and how many commits ago."""

    position: int
    depth: int


def merge_base(c: Connection, project_id: int, default_branch_id: int, commit_id: int) -> MergeBase | None:
    """None: the store does not know enough of the commit's ancestors."""
    values = {"project": project_id, "branch": default_branch_id, "commit": commit_id}
    row = c.execute(_MERGE_BASE, values).one_or_none()
    return None if row is None else MergeBase(row.position, row.depth)


def place_on_branch(c: Connection, branch_id: int, commit_id: int, position: int) -> int:
    """The commit's position on a branch other than the default one; `position` if it has none yet."""
    values = {"branch": branch_id, "commit": commit_id, "position": position}
    return int(c.execute(_PLACE_ON_BRANCH, values).scalar_one())


# --- the run, its results, its measurements --------------------------------------------------------------------------

_RUN = """
INSERT INTO run (id, project_id, commit_id, testbed_id, suite, suite_version, branch_name, pull_request, state, kind,
                 attempt, requested_by, requested_at, worker_id, status, error, applicable, passed, log_tail,
                 environment_id, started_at, finished_at, received_at, body_sha256, document)
VALUES (%(id)s, %(project_id)s, (SELECT id FROM commit WHERE project_id = %(project_id)s AND sha = %(commit)s),
        %(testbed_id)s, %(suite)s, %(suite_version)s, %(branch_name)s,
        %(pull_request)s, %(state)s, 'submitted', %(attempt)s, 'submitted', %(now)s, %(worker_id)s, %(status)s,
        %(error)s, %(applicable)s, %(passed)s, %(log_tail)s, %(environment_id)s, %(started_at)s, %(finished_at)s,
        %(now)s, %(body_sha256)s, %(document)s)
ON CONFLICT (id, project_id) DO UPDATE SET
  suite_version = excluded.suite_version, state = excluded.state, attempt = excluded.attempt,
  worker_id = coalesce(excluded.worker_id, run.worker_id), status = excluded.status, error = excluded.error,
  applicable = excluded.applicable, passed = excluded.passed,
  log_tail = excluded.log_tail, environment_id = excluded.environment_id, started_at = excluded.started_at,
  finished_at = excluded.finished_at, received_at = excluded.received_at, body_sha256 = excluded.body_sha256,
  document = excluded.document, lease_hash = NULL, lease_expires_at = NULL, progress = NULL
"""
_RESULTS = """
INSERT INTO result (run_id, project_id, index, benchmark, variant, variant_key, preset, status, error,
                    correctness_state)
SELECT %(run)s, %(project)s, r.n - 1, r.benchmark, r.variant::jsonb, r.variant_key, r.preset, r.status, r.error,
       r.correctness
FROM unnest(%(benchmark)s::text[], %(variant)s::text[], %(variant_key)s::text[], %(preset)s::text[],
            %(status)s::text[], %(error)s::text[], %(correctness)s::text[])
     WITH ORDINALITY AS r (benchmark, variant, variant_key, preset, status, error, correctness, n)
"""


def run_statement(
    run: Run, place: RunPlace, *, state: str, now: datetime, body_sha256: bytes, document: bytes
) -> wire.Statement:
    """Stores the run: as a new row, or by completing the row of its request."""
    return _RUN, {
        "id": run.id,
        "project_id": place.project_id,
        "commit": run.commit,
        "testbed_id": place.testbed_id,
        "suite": run.suite,
        "suite_version": run.suite_version,
        "branch_name": run.branch,
        "pull_request": run.pull_request,
        "state": state,
        "attempt": run.attempt,
        "now": now,
        "worker_id": place.worker_id,
        "status": run.status.value,
        "error": run.error,
        "applicable": sum(result.status is not ResultStatus.NOT_APPLICABLE for result in run.results),
        "passed": sum(result.status is ResultStatus.OK for result in run.results),
        "log_tail": run.log_tail,
        "environment_id": place.environment_id,
        "started_at": run.started,
        "finished_at": run.finished,
        "body_sha256": body_sha256,
        "document": document,
    }


def results_statement(run: Run, project_id: int, variant_keys: Sequence[str]) -> wire.Statement:
    results = run.results
    return _RESULTS, {
        "run": run.id,
        "project": project_id,
        "benchmark": [result.benchmark for result in results],
        "variant": [orjson.dumps(result.variant).decode() for result in results],
        "variant_key": list(variant_keys),
        "preset": [result.preset for result in results],
        "status": [result.status.value for result in results],
        "error": [result.error for result in results],
        "correctness": [None if result.correctness is None else result.correctness.state.value for result in results],
    }


# Numbers of all rows come as one array each, from which every row takes its part.
_MEASUREMENTS = """
INSERT INTO measurement (series_id, project_id, run_id, measured_at, commit_id, result_index, measurement_index, value,
                         processes, samples_packed, sample_counts)
SELECT u.series_id, %(project)s, %(run)s, %(measured_at)s, %(commit)s, u.result_index, u.measurement_index, u.value,
       (%(processes)s::float8[])[u.process : u.process + u.process_count - 1],
       u.samples_packed,
       (%(counts)s::int4[])[u.count : u.count + u.count_count - 1]
FROM unnest(%(series)s::int4[], %(result_index)s::int4[], %(measurement_index)s::int4[], %(values)s::float8[],
            %(process_at)s::int4[], %(process_count)s::int4[], %(samples)s::bytea[],
            %(count_at)s::int4[], %(count_count)s::int4[])
     AS u (series_id, result_index, measurement_index, value, process, process_count, samples_packed, count,
           count_count)
"""
Counted = tuple[int, int]
"""A measurement that counts: index of its result, index within it."""


def measurement_columns(run: Run, counted: Sequence[Counted]) -> dict[str, Any]:
    """Columns of a run's measurements, before their series are known."""
    measurements = [run.results[number].measurements[index] for number, index in counted]
    processes = [measurement.processes for measurement in measurements]
    samples = [measurement.samples for measurement in measurements]
    counts = [list(map(len, lists)) for lists in samples]
    process_at, process_count = _spans(map(len, processes))
    stored = [
        stored_counts(each, len(measurement.processes)) for each, measurement in zip(counts, measurements, strict=True)
    ]
    count_at, count_count = _spans(map(len, stored))
    return {
        "run": run.id,
        "result_index": wire.Ints([number for number, _ in counted]),
        "measurement_index": wire.Ints([index for _, index in counted]),
        "values": wire.Doubles([measurement.value for measurement in measurements]),
        "processes": wire.Doubles(chain.from_iterable(processes)),
        "process_at": process_at,
        "process_count": process_count,
        "samples": pack(list(chain.from_iterable(chain.from_iterable(samples))), list(map(sum, counts))),
        "counts": wire.Ints(chain.from_iterable(stored)),
        "count_at": count_at,
        "count_count": count_count,
    }


def measurements_statement(
    columns: Mapping[str, Any], series_ids: Sequence[int], *, project_id: int, measured_at: datetime, commit_id: int
) -> wire.Statement:
    """Stores the measurements of a run, each with its series."""
    return _MEASUREMENTS, {
        **columns,
        "series": wire.Ints(series_ids),
        "project": project_id,
        "measured_at": measured_at,
        "commit": commit_id,
    }


def _spans(lengths: Iterable[int]) -> tuple[wire.Ints, wire.Ints]:
    """Where each part of a list begins, counted from 1, and how long it is; None: there is none."""
    known = list(lengths)
    starts = list(accumulate(known, initial=1))[:-1]
    return wire.Ints(starts), wire.Ints(known if all(known) else [length or None for length in known])


# --- the document ----------------------------------------------------------------------------------------------------

_DOCUMENT = text("SELECT document FROM run WHERE id = :run")
_RECEIVED_AT = text("SELECT received_at FROM run WHERE id = :run")
_SAMPLES = text(
    f"""SELECT result_index, measurement_index, {COLUMNS} FROM measurement m
       WHERE run_id = :run AND (samples_packed IS NOT NULL OR samples IS NOT NULL)
         AND measured_at = (SELECT coalesce(started_at, received_at) FROM run WHERE id = :run)"""
)


def pack_document(document: Mapping[str, Any]) -> bytes:
    return zlib.compress(orjson.dumps(document), DOCUMENT_LEVEL)


def unpack_document(packed: bytes) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(zlib.decompress(packed))
    return document


def received_at(c: Connection, run_id: str) -> datetime:
    """When a delivered run arrived."""
    moment: datetime = c.execute(_RECEIVED_AT, {"run": run_id}).scalar_one()
    return moment


def read_packed(c: Connection, run_id: str) -> dict[str, Any]:
    """The run as delivered, without the samples of its measurements. LookupError: nothing was delivered."""
    packed = c.execute(_DOCUMENT, {"run": run_id}).scalar_one_or_none()
    if packed is None:
        raise LookupError(f"run {run_id} was not delivered")
    return unpack_document(packed)


def read_document(c: Connection, run_id: str) -> dict[str, Any] | None:
    """The run as delivered, with the samples restored; None: nothing was delivered."""
    packed = c.execute(_DOCUMENT, {"run": run_id}).scalar_one_or_none()
    if packed is None:
        return None
    document = unpack_document(packed)
    for result_index, measurement_index, *columns in c.execute(_SAMPLES, {"run": run_id}):
        document["results"][result_index]["measurements"][measurement_index]["samples"] = by_process(*columns)
    return document
