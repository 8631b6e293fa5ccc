"""The rule: when a change counts as a regression. Every threshold that a project may set is here."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any


class PolicyError(ValueError):
    """An invalid policy: names the field, the value and what is accepted."""


def _threshold(default: float, low: float, high: float, title: str, text: str, unit: str = "fraction") -> Any:
    return field(default=default, metadata={"low": low, "high": high, "title": title, "text": text, "unit": unit})


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One row of the table on the rule's page."""

    name: str
    title: str
    value: float
    unit: str
    low: float
    high: float
    text: str
    overridden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Thresholds for one series. Fractions are of the baseline: 0.05 is 5 %."""

    min_change: float = _threshold(
        0.05,
        0.0003,
        1.0,
        "Smallest regression",
        "A cost change smaller than this is never red, however clear it is; 0.05 is 5 %, 1 is twice the cost.",
    )
    sustained_runs: int = _threshold(
        3,
        1,
        20,
        "Sustained over",
        "This many bad runs turn a suspect into a regression, unless a confirming session already did.",
        "runs",
    )
    min_baseline_runs: int = _threshold(
        4,
        2,
        100,
        "Shortest baseline",
        "With fewer runs at one level nothing is judged; the verdict is insufficient.",
        "runs",
    )
    fixed_runs: int = _threshold(
        2, 1, 20, "Fixed after", "This many runs back at the old level close a regression.", "runs"
    )
    alpha: float = _threshold(
        0.001, 1e-9, 0.2, "Risk of a single run", "Chance that a harmless run lies outside the band.", "probability"
    )
    evidence_regression: float = _threshold(
        10.0,
        2.0,
        100.0,
        "Evidence for a regression",
        "Log-likelihood ratio at which a worsening is accepted; less of a few runs, more of many or in much noise.",
        "nats",
    )
    evidence_improvement: float = _threshold(
        16.0,
        2.0,
        100.0,
        "Evidence for an improvement",
        "Log-likelihood ratio at which a gain moves the baseline.",
        "nats",
    )
    evidence_without_best: float = _threshold(
        5.0,
        0.0,
        100.0,
        "Evidence without its two best runs",
        "What must remain when the two clearest runs are ignored.",
        "nats",
    )
    drift_z: float = _threshold(
        8.0,
        3.0,
        50.0,
        "Drift",
        "Standard errors between the newest runs and the first after the anchor.",
        "standard errors",
    )
    drift_recent_runs: int = _threshold(25, 3, 100, "Drift: newest runs", "How many newest runs are compared.", "runs")
    drift_reference_runs: int = _threshold(
        30, 5, 200, "Drift: first runs", "How many runs after the anchor they are compared with.", "runs"
    )
    exact_min_change: float = _threshold(
        0.05,
        0.0,
        10.0,
        "Smallest regression of an exact counter",
        "An increase of more than this is a regression; 0: any.",
    )
    exact_baseline_runs: int = _threshold(
        2,
        1,
        20,
        "Baseline of an exact counter",
        "A counter must have held its value for this many runs before an increase is judged.",
        "runs",
    )
    prior_noise: float = _threshold(
        0.015,
        0.0001,
        0.5,
        "Noise assumed at first",
        "Relative standard deviation between runs, used until the series has its own.",
    )
    calibration_runs: int = _threshold(
        3,
        1,
        20,
        "Calibration of a new worker",
        "Runs used to learn a worker's constant offset before it is judged.",
        "runs",
    )
    memory_runs: int = _threshold(
        400, 60, 2000, "Memory", "How many runs since the last accepted change are kept.", "runs"
    )
    session_alpha: float = _threshold(
        0.001,
        1e-9,
        0.2,
        "Risk of a confirming session",
        "Chance that a session confirms a change that does not exist.",
        "probability",
    )
    session_power: float = _threshold(
        0.95,
        0.5,
        0.9999,
        "Power of a confirming session",
        "Chance that it confirms a change of the smallest size.",
        "probability",
    )
    session_max_processes: int = _threshold(
        12,
        2,
        100,
        "Processes of a confirming session",
        "The most fresh processes per side, two in each round.",
        "processes",
    )
    false_alarms_per_week: float = _threshold(
        1.0, 0.001, 1000.0, "False-alarm budget", "False confirmed regressions a project accepts in a week.", "alarms"
    )
    sessions_per_day: int = _threshold(
        60,
        0,
        10_000,
        "Confirming sessions of a day",
        "How many a project requests automatically in 24 hours; after that the following commits decide.",
        "sessions",
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name), "policy")

    @property
    def version(self) -> str:
        """A name for these thresholds: equal policies have equal versions."""
        return _version(self)

    @classmethod
    def resolve(
        cls,
        overrides: Iterable[Override] = (),
        *,
        project: str = "",
        suite: str = "",
        benchmark: str = "",
        metric: str = "",
        testbed: str = "",
    ) -> Policy:
        """The policy of one series: built-in rules, then every override that matches it; later ones win."""
        names = {"project": project, "suite": suite, "benchmark": benchmark, "metric": metric, "testbed": testbed}
        values: dict[str, Any] = {}
        for override in (*BUILT_IN, *overrides):
            if override.matches(names):
                values.update(override.values)
        return _interned(tuple(sorted(values.items())))

    def with_values(self, **values: Any) -> Policy:
        """A copy with some thresholds changed, checked."""
        for name, value in values.items():
            _check(name, value, "policy")
        return replace(self, **values)

    def for_load(self, points_per_week: float) -> Policy:
        """The policy for a project that judges this many points a week: more points, more evidence, the same budget.

        The detector raises about `FALSE_ALARMS_PER_POINT` false alarms per quiet point at the default evidence;
        every `NATS_PER_E_FOLD` more nats divide that by e. The load is rounded up to a power of two, so that the
        policy does not change with every run.
        """
        return self if points_per_week <= 0 else _for_load(self, math.ceil(math.log2(points_per_week)))

    def after_false_alarms(self, count: int) -> Policy:
        """The policy for a series that raised this many false alarms: it requires more runs and evidence."""
        return self if count == 0 else _stricter(self, min(count, 5))

    def describe(self) -> list[PolicyRow]:
        """Every threshold as a row for people, most important first."""
        rows = []
        for item in fields(self):
            meta, value = item.metadata, getattr(self, item.name)
            rows.append(
                PolicyRow(
                    item.name,
                    meta["title"],
                    value,
                    meta["unit"],
                    meta["low"],
                    meta["high"],
                    meta["text"],
                    value != item.default,
                )
            )
        return rows


# What the detector raises on labelled histories at 10 nats, rounded up, and how fast that falls with more evidence:
# 0.034 per 1,000 points at 10 nats, 0.015 at 13, 0.006 at 17 (docs/detection.md).
FALSE_ALARMS_PER_POINT = 5e-5
NATS_PER_E_FOLD = 3.5

_META: dict[str, Mapping[str, Any]] = {item.name: item.metadata for item in fields(Policy)}
_WHOLE = {item.name for item in fields(Policy) if item.type in ("int", int)}
SCOPES = ("project", "suite", "benchmark", "metric", "testbed")


@dataclass(frozen=True, slots=True)
class Override:
    """Thresholds for some series: a shell pattern per scope (`metric = "peak_*"`); an omitted scope matches all."""

    values: Mapping[str, Any]
    project: str = "*"
    suite: str = "*"
    benchmark: str = "*"
    metric: str = "*"
    testbed: str = "*"

    def matches(self, names: Mapping[str, str]) -> bool:
        """True when every scope matches."""
        return all(fnmatch.fnmatchcase(names[scope], getattr(self, scope)) for scope in SCOPES)


@dataclass(frozen=True, slots=True)
class PolicyBook:
    """The policies of all series of one project.

    `overrides`: in the order of declaration; later ones win. `points_per_week`: how many points the project
    judges in a week; its false-alarm budget is spread over them.
    """

    project: str
    overrides: tuple[Override, ...] = ()
    points_per_week: float = 0.0
    _found: dict[tuple[str, ...], Policy] = field(default_factory=dict, compare=False, repr=False)

    def of(self, *, suite: str = "", benchmark: str = "", metric: str = "", testbed: str = "") -> Policy:
        """The policy of the series with these names. An omitted name matches only the pattern `*`."""
        names = suite, benchmark, metric, testbed
        policy = self._found.get(names)
        if policy is None:
            policy = self._found[names] = self.before_load(*names).for_load(self.points_per_week)
        return policy

    def before_load(self, suite: str = "", benchmark: str = "", metric: str = "", testbed: str = "") -> Policy:
        """The same as it was written, before the project's load raises the required evidence."""
        return Policy.resolve(
            self.overrides, project=self.project, suite=suite, benchmark=benchmark, metric=metric, testbed=testbed
        )

    @property
    def general(self) -> Policy:
        """The policy of a series without a matching scoped override."""
        return self.of()


# Any increase of these counters is a regression: each is a stall or a lost fusion, however many there were before.
BUILT_IN = (
    Override({"exact_min_change": 0.0}, metric="*graph_breaks"),
    Override({"exact_min_change": 0.0}, metric="*host_syncs"),
)


def parse_overrides(table: Mapping[str, Any], where: str = "policy") -> tuple[Override, ...]:
    """Overrides from a `[policy]` table: its own thresholds, and `[[policy.override]]` tables with scopes."""
    own = {name: value for name, value in table.items() if name != "override"}
    listed = table.get("override", [])
    if not isinstance(listed, list):
        raise PolicyError(f"{where}.override is {listed!r}; a list of tables is accepted")
    found = [_override(own, where)] if own else []
    for number, entry in enumerate(listed):
        place = f"{where}.override[{number}]"
        if not isinstance(entry, Mapping):
            raise PolicyError(f"{place} is {entry!r}; a table is accepted")
        found.append(_override(entry, place))
    return tuple(found)


def _override(entry: Mapping[str, Any], where: str) -> Override:
    scopes = {name: value for name, value in entry.items() if name in SCOPES}
    values = {name: value for name, value in entry.items() if name not in SCOPES}
    for name, value in scopes.items():
        if not isinstance(value, str):
            raise PolicyError(f"{where}.{name} is {value!r}; a name or a pattern such as 'moe.*' is accepted")
    if not values:
        raise PolicyError(f"{where} changes nothing; thresholds: {', '.join(_META)}")
    for name, value in values.items():
        _check(name, value, where)
    return Override(values, **scopes)


def require_threshold(name: str, where: str = "policy") -> None:
    """Raise PolicyError if there is no threshold of this name."""
    if name not in _META:
        raise PolicyError(f"{where}.{name} is not a threshold; known: {', '.join(_META)}")


def _check(name: str, value: Any, where: str) -> None:
    require_threshold(name, where)
    meta = _META[name]
    whole = name in _WHOLE
    kind = "a whole number" if whole else "a number"
    number = isinstance(value, int) if whole else isinstance(value, int | float)
    if not number or isinstance(value, bool) or not meta["low"] <= value <= meta["high"]:
        raise PolicyError(f"{where}.{name} is {value!r}; {kind} from {meta['low']:g} to {meta['high']:g} is accepted")


_CACHE: dict[tuple[tuple[str, Any], ...], Policy] = {}
_VERSIONS: dict[Policy, str] = {}


def _interned(key: tuple[tuple[str, Any], ...]) -> Policy:
    """One object per set of values, so that resolving thousands of series costs little."""
    if key not in _CACHE:
        _CACHE[key] = Policy(**dict(key))
    return _CACHE[key]


@lru_cache(maxsize=256)
def _stricter(policy: Policy, count: int) -> Policy:
    """One more run and two more nats for every false alarm; named by the version it is derived from."""
    return replace(
        policy,
        sustained_runs=min(20, policy.sustained_runs + count),
        evidence_regression=min(100.0, policy.evidence_regression + 2 * count),
    )


@lru_cache(maxsize=256)
def _for_load(policy: Policy, doublings: int) -> Policy:
    expected = 2**doublings * FALSE_ALARMS_PER_POINT
    extra = NATS_PER_E_FOLD * math.log(max(1.0, expected / policy.false_alarms_per_week))
    if extra <= 0:
        return policy
    return replace(
        policy,
        evidence_regression=min(100.0, round(policy.evidence_regression + extra, 2)),
        drift_z=min(50.0, round(math.sqrt(policy.drift_z**2 + 2 * extra), 2)),
    )


def _version(policy: Policy) -> str:
    global _last_version
    asked, version = _last_version
    if asked is policy:  # as of every series of a run: hashing all thresholds each time would be most of the work
        return version
    if policy not in _VERSIONS:
        text = json.dumps(asdict(policy), sort_keys=True)
        _VERSIONS[policy] = hashlib.sha256(text.encode()).hexdigest()[:12]
    _last_version = policy, _VERSIONS[policy]
    return _last_version[1]


_last_version: tuple[Policy | None, str] = None, ""
