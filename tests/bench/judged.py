"""A project that was really judged: runs delivered through ingest, one after the other, with changes planted in them.

Where `dataset.py` writes rows for their number, here every verdict, regression and roll-up is the service's own.
`python -m tests.bench.judged URL` writes one into a database that has the schema: 200 series × 1,000 commits and some
forty open regressions, for a look at the pages at that size.
"""

# ruff: noqa: E501 (a line of data stays one line)

import argparse
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, create_engine, text

from backend.contract import parse_run
from backend.services.base.projects import save_project
from backend.services.ingest.record import record_run
from backend.services.triage.triage import TriageDecision, triage
from backend.store.base.schema import ensure_partitions
from tests.bench.dataset import settle

# Of each suite its benchmarks, the values of the keys of their variants, and milliseconds of the first variant's step.
SUITES: Mapping[str, tuple[tuple[str, Mapping[str, tuple[Any, ...]], float], ...]] = {
    "attn": (
        ("attn.train", {"seq": (4096, 16384), "mask": ("causal", "window"), "dtype": ("bf16", "fp8"),
                        "mode": ("compile", "eager"), "head": (64,)}, 3.1),
        ("attn.decode", {"seq": (4096, 16384), "batch": (1, 8, 64), "dtype": ("bf16", "fp8"), "impl": ("flex", "sdpa")}, 0.4),
    ),
    "coll": (
        ("coll.all_reduce", {"size_mb": (1, 16, 64, 256), "dtype": ("bf16", "fp16", "fp8"), "backend": ("nccl", "symm")}, 0.06),
        ("coll.all_to_all", {"size_mb": (1, 16, 64, 256), "dtype": ("bf16", "fp8"), "backend": ("nccl", "symm")}, 0.08),
    ),
    "gpt": (
        ("gpt.train", {"seq": (4096,), "dtype": ("bf16", "fp8", "tf32"), "mode": ("compile", "eager"), "batch": (8, 32)}, 118.0),
        ("gpt.ladder", {"rung": ("r00_scratch", "r01_flash", "r02_compile", "r03_fused_optimizer")}, 240.0),
        ("gpt.ddp", {"n": (2, 4, 8), "dtype": ("bf16", "fp8"), "impl": ("ddp", "fsdp2"), "mode": ("compile", "eager")}, 61.0),
    ),
    "llama": (
        ("llama.block", {"seq": (4096, 16384), "dtype": ("bf16", "fp8"), "mode": ("compile", "eager", "max-autotune")}, 12.0),
        ("llama.train", {"n": (1, 2, 4, 8), "dtype": ("bf16", "fp8"), "mode": ("compile", "eager")}, 84.0),
        ("llama.generate", {"batch": (1, 4, 16, 64), "dtype": ("bf16", "fp8", "int8")}, 9.0),
    ),
    "moe": (
        ("moe.layer", {"experts": (8, 64), "impl": ("grouped_mm", "loop"), "load": ("even", "zipf"), "dtype": ("bf16", "fp8"),
                       "top_k": (2,)}, 5.5),
        ("moe.model", {"ep": (1, 2, 4, 8), "mode": ("compile", "eager"), "dtype": ("bf16", "fp8"), "capacity": (1.0, 1.25)}, 24.0),
    ),
}  # fmt: skip
SUBJECTS = (
    "router: skip empty experts in dispatch", "attn: enable document masks in flex", "fp8: per-row scales for w2",
    "inductor: cache key includes device props", "data: prefetch two batches ahead", "tests: gradcheck for grouped_mm",
    "coll: bind communicators eagerly", "optim: drop an unused foreach path", "fsdp2: reshard after forward again",
    "cli: print the resolved config", "moe: log expert load every 50 steps", "rope: precompute cos and sin once",
    "attn: fuse the bias of query, key and value into one kernel", "ckpt: save while the next step runs",
)  # fmt: skip
AUTHORS = ("m.okafor", "p.sharma", "l.hansen", "j.tsai", "a.rossi", "s.novak", "Author with a long name")
NOISE, PROCESSES = 0.004, 5
SPACING = timedelta(minutes=43)


@dataclass(frozen=True, slots=True)
class Planted:
    """From one position on, and up to another, a variant takes so many times as long."""

    suite: str
    variants: frozenset[int]
    first: int
    factor: float
    until: int | None = None

    def at(self, position: int) -> float:
        return self.factor if self.first <= position and (self.until is None or position < self.until) else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How much: `commits` × the first `variants` of each suite; `changes` that stay, and a few that do not."""

    project: str = "bench/judged"
    testbed: str = "h200-sxm"
    commits: int = 1_000
    variants: int = 40
    changes: int = 40
    last_at: datetime | None = None


def variants_of(suite: str, number: int) -> list[tuple[str, dict[str, Any], float]]:
    """The first so many variants of a suite, taken from its benchmarks in turn."""
    each = []
    for benchmark, keys, base in SUITES[suite]:
        values = itertools.product(*keys.values())
        each.append([
            (benchmark, dict(zip(keys, chosen, strict=True)), base * (1 + 0.17 * index))
            for index, chosen in enumerate(values)
        ])  # fmt: skip
    mixed = [variant for row in itertools.zip_longest(*each) for variant in row if variant is not None]
    return mixed[:number]


def planted(shape: Judged) -> list[Planted]:
    """Changes over the last third of the commits; an earlier one that was mended, and a gain, in each suite."""
    chance, suites = random.Random(shape.project), list(SUITES)
    found = []
    start, end = shape.commits * 2 // 3, shape.commits - 8
    for index in range(shape.changes):
        first = start + (end - start) * index // shape.changes
        chosen = frozenset(chance.sample(range(shape.variants), min(shape.variants, chance.choice((1, 1, 2, 3)))))
        found.append(Planted(suites[index % len(suites)], chosen, first, 1 + chance.choice((0.07, 0.09, 0.12, 0.18))))
    for index, suite in enumerate(suites):
        at = shape.commits // 3 + 11 * index
        several = frozenset(range(index, shape.variants, 9))
        found += [Planted(suite, several, at, 1.11, at + 60), Planted(suite, several, at + 140, 0.92)]
    return found


def deliver(engine: Engine, shape: Judged, say: Callable[[str], None] = print) -> None:
    """Make the project and deliver its runs, oldest first; then people take every third case."""
    last = shape.last_at or datetime.now(UTC) - timedelta(minutes=20)
    moments = [last - SPACING * (shape.commits - 1 - index) for index in range(shape.commits)]
    with engine.begin() as c:
        ensure_partitions(c, *(moments[0] + timedelta(days=28 * n) for n in range((last - moments[0]).days // 28 + 2)))
        shas = _commits(c, shape, moments)
    for index, sha in enumerate(shas):
        for body in runs(shape, index, sha, moments[index]):
            with engine.begin() as c:
                record_run(c, parse_run(body), body, now=moments[index] + timedelta(minutes=15))
        if index % 100 == 99:
            say(f"{index + 1:,} of {shape.commits:,} commits judged")
    with engine.begin() as c:
        opened = c.scalars(text("SELECT id FROM regression WHERE state = 'confirmed' ORDER BY id")).all()
        for number in opened[::3]:
            triage(c, number, TriageDecision("acknowledge"), "p.sharma", now=last)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        settle(c)


def _commits(c: Connection, shape: Judged, moments: list[datetime]) -> list[str]:
    """The project with its commits on main."""
    project = save_project(c, shape.project, now=moments[0], default_branch="main", trusted=True).id
    shas = [f"{random.Random(f'{shape.project}{index}').getrandbits(160):040x}" for index in range(len(moments))]
    rows = [
        {
            "project": project, "sha": sha, "parents": [shas[index - 1]] if index else [], "at": moments[index],
            "message": SUBJECTS[index * 5 % len(SUBJECTS)], "author": AUTHORS[index * 3 % len(AUTHORS)],
            "pull": 1000 + index if index % 4 else None,
        }
        for index, sha in enumerate(shas)
    ]  # fmt: skip
    commit = (
        "INSERT INTO commit (project_id, sha, parents, message, author_name, author_email, authored_at, committed_at, "
        "changed_paths, pull_request) VALUES (:project, :sha, :parents, :message, :author, 'a@example.org', :at, :at, "
        "ARRAY['src/step.py'], :pull)"
    )
    c.execute(text(commit), rows)
    branch = c.scalar(text("SELECT id FROM branch WHERE project_id = :p AND name = 'main'"), {"p": project})
    if branch is None:
        made = text("INSERT INTO branch (project_id, name, head_sha) VALUES (:p, 'main', :head) RETURNING id")
        branch = c.scalar(made, {"p": project, "head": shas[-1]})
    c.execute(
        text(
            "INSERT INTO branch_commit (branch_id, project_id, position, commit_id) "
            "SELECT :branch, :p, row_number() OVER (ORDER BY committed_at) - 1, id FROM commit WHERE project_id = :p"
        ),
        {"branch": branch, "p": project},
    )
    return shas


def runs(shape: Judged, index: int, sha: str, at: datetime) -> Iterator[bytes]:
    """The run of each suite at one commit."""
    changes, environment = planted(shape), "2.13.0" if index < shape.commits // 2 else "2.13.1"
    for suite in SUITES:
        chance, results = random.Random(f"{suite}{index}"), []
        for number, (benchmark, variant, base) in enumerate(variants_of(suite, shape.variants)):
            value = base
            for change in changes:
                value *= change.at(index) if change.suite == suite and number in change.variants else 1.0
            processes = [round(value * (1 + chance.gauss(0, NOISE)), 6) for _ in range(PROCESSES)]
            middle = sorted(processes)[PROCESSES // 2]
            results.append(
                {
                    "benchmark": benchmark, "variant": variant, "preset": "full", "mode": "train_step", "status": "ok",
                    "measurements": [
                        {"metric": "step_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": middle,
                         "processes": processes},
                        {"metric": "tokens_per_s", "unit": "1/s", "direction": "higher", "role": "watch",
                         "value": 16_384_000 / middle, "processes": [16_384_000 / each for each in processes]},
                    ],
                }
            )  # fmt: skip
        started = at + timedelta(minutes=2)
        yield orjson.dumps(
            {
                "schema": "tidemark.run/1", "id": f"{shape.project.replace('/', '-')}-{suite}-{sha[:12]}",
                "project": shape.project, "commit": sha, "parents": [], "branch": "main", "suite": suite,
                "suite_version": "1.0.0", "testbed": shape.testbed, "worker": f"{shape.testbed}-01", "attempt": 1,
                "started_at": started, "finished_at": started + timedelta(minutes=9), "status": "ok",
                "environment": {"torch": environment, "accelerator": "NVIDIA H200", "hash": f"sha256:{environment}"},
                "results": results,
            }
        )  # fmt: skip


if __name__ == "__main__":
    asked = argparse.ArgumentParser(prog="python -m tests.bench.judged", description=__doc__)
    asked.add_argument("url", help="of a database with the schema")
    asked.add_argument("--commits", type=int, default=Judged().commits)
    given = asked.parse_args()
    deliver(create_engine(given.url), Judged(commits=given.commits))
