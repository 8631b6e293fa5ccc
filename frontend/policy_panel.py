"""The policy on the settings page: what is in force and why, one threshold to change, and what that would report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.regression.policy import SCOPES, Override, Policy, PolicyError, PolicyRow, parse_overrides
from backend.services.base.errors import BadRequest
from backend.services.judging.policy_change import Progress, ProjectPolicy
from backend.services.judging.what_if import Preview
from backend.services.policy.versions import PolicyVersion
from frontend.thresholds import Threshold, threshold

PLACES = tuple(scope for scope in SCOPES if scope != "project")
VERSIONS_SHOWN = 10
ROWS: dict[str, PolicyRow] = {row.name: row for row in Policy().describe()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedThreshold:
    """One threshold as the form has it: a fraction is written in percent, nothing takes it back."""

    name: str
    value: str
    place: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Thresholds of one scope. `place` and `pattern` are what the form needs to take one back."""

    scope: str
    rows: tuple[Threshold, ...]
    place: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPanel:
    declared: tuple[Section, ...]
    chosen: tuple[Section, ...]
    thresholds: tuple[Threshold, ...]
    """Every one that can be changed, with its value in force."""
    points_per_week: int
    evidence: str
    """The evidence that the load requires, in words; empty if it requires none."""
    budget: str
    rejudging: Progress | None
    rejudging_late: int
    versions: tuple[PolicyVersion, ...]
    wanted: WantedThreshold | None = None
    preview: Preview | None = None


def panel_of(
    known: ProjectPolicy, wanted: WantedThreshold | None = None, preview: Preview | None = None
) -> PolicyPanel:
    unloaded = Policy.resolve((*_overrides(known.declared), *_overrides(known.chosen)), project=known.project)
    loaded = {row.name: row for row in known.effective}["evidence_regression"]
    return PolicyPanel(
        declared=_sections(known.declared),
        chosen=_sections(known.chosen),
        thresholds=tuple(threshold(row) for row in known.effective),
        points_per_week=known.points_per_week,
        evidence=threshold(loaded).value if loaded.value > unloaded.evidence_regression else "",
        budget=f"{unloaded.false_alarms_per_week:g}",
        rejudging=known.rejudging,
        rejudging_late=known.rejudging_late,
        versions=known.versions[:VERSIONS_SHOWN],
        wanted=wanted,
        preview=preview,
    )


def change_of(chosen: Mapping[str, Any], wanted: WantedThreshold) -> dict[str, Any]:
    """The change that the form requests."""
    value = _number(wanted)
    if wanted.place == "":
        return {wanted.name: value}
    if wanted.place not in PLACES:
        raise BadRequest.field("place", wanted.place, PLACES)
    if not wanted.pattern.strip():
        raise BadRequest.field("pattern", wanted.pattern, f"the {wanted.place} it is for, or a pattern such as 'moe.*'")
    scope = {wanted.place: wanted.pattern.strip()}
    entries = [dict(entry) for entry in chosen.get("override", [])]
    same = next((entry for entry in entries if _scope(entry) == scope), None)
    if same is None:
        entries.append(same := dict(scope))
    if value is None:
        same.pop(wanted.name, None)
    else:
        same[wanted.name] = value
    return {"override": [entry for entry in entries if len(entry) > len(_scope(entry))]}


def _number(wanted: WantedThreshold) -> float | int | None:
    if wanted.name not in ROWS:
        raise BadRequest.field("name", wanted.name, tuple(ROWS))
    row, text = ROWS[wanted.name], wanted.value.strip().removesuffix("%").strip().replace(",", ".")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        accepted = "a number of percent" if row.unit == "fraction" else f"a number of {row.unit}"
        raise BadRequest.field("value", wanted.value, f"{accepted}; this cannot be undone") from None
    if row.unit == "fraction":
        return round(number / 100, 9)
    return int(number) if isinstance(row.value, int) and number.is_integer() else number


def _scope(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in SCOPES if name in entry}


def _overrides(table: Mapping[str, Any]) -> tuple[Override, ...]:
    try:
        return parse_overrides(table)
    except PolicyError:
        return ()


def _sections(table: Mapping[str, Any]) -> tuple[Section, ...]:
    sections = []
    for override in _overrides(table):
        scope = {name: getattr(override, name) for name in PLACES if getattr(override, name) != "*"}
        changed = Policy().with_values(**override.values)
        rows = tuple(threshold(row) for row in changed.describe() if row.name in override.values)
        words = ", ".join(f"{name} {pattern}" for name, pattern in scope.items())
        place, pattern = next(iter(scope.items())) if len(scope) == 1 else ("", "")
        sections.append(Section(scope=words or "everything", rows=rows, place=place, pattern=pattern))
    return tuple(sections)
