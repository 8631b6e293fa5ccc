"""`tidemark.toml` of a repository under test: what to run for a commit, where, and which paths matter. Pure.

Every problem is found and reported at once, with the key, the value and what is accepted.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictInt,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from backend.regression.policy import PolicyError, parse_overrides
from backend.services.base.errors import shown
from backend.services.repository.manifest_fields import (
    BenchmarkPattern,
    EnvironmentText,
    ManifestTable,
    Name,
    PathPattern,
    Text,
    Unique,
)
from backend.services.repository.manifest_problems import (
    FILE_NAME,
    OF_POLICY,
    ManifestInvalid,
    accepts,
    refused,
    sentences,
)
from backend.services.repository.manifest_text import MAX_BYTES, document_of
from backend.services.repository.path_patterns import Effort, any_counts, matches_any
from backend.services.repository.schedule_manifest import Against, Schedule

__all__ = ["FILE_NAME", "MAX_BYTES", "Effort", "Manifest", "ManifestInvalid", "Suite", "parse"]

log = logging.getLogger(__name__)

MAX_SUITES = 100
MAX_SCHEDULES = 50
DEFAULT_TIMEOUT_S = 1800
MAX_TIMEOUT_S = 24 * 3600
# Without `paths`, every commit counts that touches more than what only people read.
DEFAULT_PATHS = ("**", "!**/*.md", "!**/*.rst", "!docs/**", "!LICENSE*", "!.github/**/*.md")
OWNERS = accepts('names of owners by pattern of benchmark, like "moe.*" = ["@northsea/moe"]')


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    try:
        parse_overrides(table, "policy")
    except PolicyError as error:
        raise PydanticCustomError(OF_POLICY, "is not accepted", {"told": str(error)}) from None
    return table


def _not_ours(name: str) -> str:
    if name.upper().startswith("TIDEMARK_"):
        raise refused(f"is {shown(name)}", "a name that does not begin with TIDEMARK_: those are reserved")
    return name


EnvironmentName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"),
    accepts("a variable name of letters, digits and _"),
    AfterValidator(_not_ours),
]
Command = Annotated[Text | None, accepts("a command line")]
PolicyTable = Annotated[dict[str, Any], accepts("a table of thresholds"), AfterValidator(_checked)]


class DeclaredSuite(ManifestTable):
    """One `[suite.NAME]` table."""

    command: Command = None
    benchmarks: Annotated[Unique[BenchmarkPattern], accepts("a list of benchmark ids or patterns, like gpt.*")] = ()
    preset: Annotated[Literal["cpu", "smoke", "full"], accepts("cpu, smoke, full")] = "full"
    implementation: Annotated[
        Annotated[Text, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
        | None,
        accepts("module:attribute, like loom.moe:layer"),
    ] = None
    variants: Annotated[
        Unique[Annotated[Text, StringConstraints(pattern=r"^[0-9A-Za-z_.-]+=[^=,\x00-\x1f][^\x00-\x1f]*$")]],
        accepts("a list of parameter=value"),
    ] = ()
    setup: Command = None
    timeout_s: Annotated[
        StrictInt, Field(ge=1, le=MAX_TIMEOUT_S), accepts(f"a whole number from 1 to {MAX_TIMEOUT_S}")
    ] = DEFAULT_TIMEOUT_S
    testbeds: Annotated[
        Annotated[Unique[Name], Field(min_length=1)], accepts("a list of at least one testbed's name")
    ] = ("cpu",)
    paths: Annotated[
        Annotated[Unique[PathPattern], Field(min_length=1)],
        accepts("a list of at least one pattern, like src/** or !src/docs/**"),
    ] = DEFAULT_PATHS
    processes: Annotated[Annotated[StrictInt, Field(ge=1, le=100)] | None, accepts("a whole number from 1 to 100")] = (
        None
    )
    ranks: Annotated[Annotated[StrictInt, Field(ge=1, le=1024)] | None, accepts("a whole number from 1 to 1024")] = None
    network: Annotated[Literal["none", "setup", "always"], accepts("none, setup, always")] = "none"
    """When its commands need the network; the operator of a worker decides finally."""
    env: Annotated[
        dict[EnvironmentName, Annotated[EnvironmentText, accepts("text (numbers in quotes)")]],
        accepts('a table of variables, like [suite.gpt.env] OMP_NUM_THREADS = "2"'),
    ] = Field(default_factory=dict)
    policy: PolicyTable = Field(default_factory=dict)

    @field_validator("implementation", "variants", "processes", "preset")
    @classmethod
    def _is_of_benchmarks(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("command"):
            raise refused(f"is {shown(value)}", "nothing: it belongs to `benchmarks`, and this suite has `command`")
        return value

    @model_validator(mode="after")
    def _has_one_way_to_run(self) -> Self:
        if bool(self.benchmarks) == bool(self.command):
            both = "both" if self.benchmarks else "neither"
            raise refused(f"has {both}", "either `benchmarks` (registered ones) or `command` (your own)")
        return self


class Suite(DeclaredSuite):
    """A suite as declared, with its name."""

    name: str

    def spec(self) -> dict[str, Any]:
        """The spec for the worker: everything except place and time."""
        left_out = {"name", "testbeds", "paths"} | ({"network"} if self.network == "none" else set())
        return {"suite": self.name, **self.model_dump(mode="json", exclude=left_out)}

    def matters(self, changed_paths: Iterable[str], effort: Effort | None = None) -> bool:
        """Whether a commit that changed these paths can have changed what this suite measures; raises ManifestInvalid
        if checking costs more than it may."""
        return any_counts(changed_paths, self.paths, effort)


class Manifest(ManifestTable):
    """A whole tidemark.toml. `branches`: patterns of further branches whose commits are benchmarked."""

    suite: Annotated[
        dict[Name, DeclaredSuite],
        Field(max_length=MAX_SUITES),
        accepts(f"tables such as [suite.gpt], at most {MAX_SUITES}"),
    ] = Field(default_factory=dict)
    policy: PolicyTable = Field(default_factory=dict)
    branches: Annotated[Unique[PathPattern], accepts("a list of branch names or patterns, like release/*")] = ()
    schedule: Annotated[
        tuple[Schedule, ...],
        Field(max_length=MAX_SCHEDULES),
        accepts(f"tables such as [[schedule]], at most {MAX_SCHEDULES}"),
    ] = ()
    owners: Annotated[dict[BenchmarkPattern, Annotated[Unique[Text], OWNERS]], OWNERS] = Field(default_factory=dict)
    """Who owns a benchmark, by pattern."""

    @model_validator(mode="after")
    def _schedules_fit(self) -> Self:
        names = [each.name for each in self.schedule]
        for number, each in enumerate(self.schedule):
            place = f"schedule[{number}]"
            unknown = [suite for suite in each.suites if suite not in self.suite]
            if unknown:
                accepted = ", ".join(self.suite) or "nothing: no suite is declared"
                raise refused(f"{place}.suites is {shown(unknown[0])}", accepted)
            if each.name in names[:number]:
                raise refused(f"{place}.name is {shown(each.name)}", "a name that no other schedule has")
        return self

    @cached_property
    def suites(self) -> tuple[Suite, ...]:
        return tuple(Suite.model_construct(name=name, **dict(declared)) for name, declared in self.suite.items())

    def wants_branch(self, name: str, effort: Effort | None = None) -> bool:
        return matches_any(name, self.branches, effort)

    def policy_table(self) -> dict[str, Any]:
        """The policy of the whole project, with each suite's own as overrides for that suite."""
        table = {name: value for name, value in self.policy.items() if name != "override"}
        overrides = [dict(entry) for entry in self.policy.get("override", [])]
        for suite in self.suites:
            own = {name: value for name, value in suite.policy.items() if name != "override"}
            scoped = [dict(entry) for entry in suite.policy.get("override", [])]
            overrides += [{**entry, "suite": suite.name} for entry in ([own] if own else []) + scoped]
        return {**table, **({"override": overrides} if overrides else {})}


def parse(text: str | bytes) -> Manifest:
    """The manifest in this untrusted text; raises `ManifestInvalid` with every problem, and nothing else."""
    try:
        return Manifest.model_validate(document_of(text))
    except ManifestInvalid:
        raise
    except ValidationError as error:
        raise ManifestInvalid(sentences(error, _known_below)) from None
    except Exception as failure:
        log.exception("an unexpected error in reading a tidemark.toml")
        raise ManifestInvalid([f"{FILE_NAME}: cannot be followed ({type(failure).__name__})"]) from None


def _known_below(place: Sequence[str | int]) -> Sequence[str]:
    match place:
        case ():
            return list(Manifest.model_fields)
        case ("suite", _):
            return list(DeclaredSuite.model_fields)
        case ("schedule", _):
            return list(Schedule.model_fields)
        case _:
            return list(Against.__annotations__)
