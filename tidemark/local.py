"""Comparison of two run files, without a service."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.contract import Invalid, Result, ResultStatus, Run, parse_run, variant_key
from backend.regression.compare import ComparedMetric, Comparison, Failure, MetricComparison, compare
from backend.regression.policy import Override, Policy, PolicyBook, PolicyError, parse_overrides
from backend.regression.terms import Role, Verdict
from backend.services.base.metric_words import change_word
from frontend.numbers import THIN, quantity
from tidemark.refusal import Refusal

# Phases and derived figures repeat what the judged metrics say; a table for people shows what is judged.
SHOWN = {Role.GATE, Role.WATCH}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileComparison:
    """Two files compared, ready to be printed."""

    base: Run
    head: Run
    result: Comparison

    @property
    def slower(self) -> bool:
        return bool(self.result.regressions)

    def as_dict(self) -> dict[str, Any]:
        return {
            "base": {"run_id": self.base.id, "commit": self.base.commit},
            "head": {"run_id": self.head.id, "commit": self.head.commit},
            "regressions": [row.key for row in self.result.regressions],
            "geometric_mean": self.result.geometric_mean,
            "covered": self.result.covered,
            "gates": self.result.gates,
            "rows": [
                {
                    "key": row.key,
                    "metric": row.metric,
                    "unit": row.unit,
                    "role": row.role.value,
                    "base": row.base,
                    "head": row.head,
                    "change": row.change,
                    "change_low": row.low,
                    "change_high": row.high,
                    "verdict": row.verdict.value,
                    "reason": row.reason.value,
                    "needed_runs": row.needed_runs,
                    "traded_for": list(row.traded_for),
                }
                for row in self.result.rows
            ],
            "only_base": list(self.result.only_base),
            "only_head": list(self.result.only_head),
            "failed": [
                {"key": failure.key, "base_status": failure.base_status, "head_status": failure.head_status}
                for failure in (*self.result.failed, *self.unmeasured)
            ],
        }

    @property
    def unmeasured(self) -> list[Failure]:
        """Results that did not end well on one side and have no values there: benchmark and variant, not a metric."""
        sides = [{_name(result): result for result in run.results} for run in (self.base, self.head)]
        names = dict.fromkeys(name for side in sides for name, it in side.items() if _is_empty(it))
        return [
            Failure(name, *(side[name].status.value if name in side else "never ran" for side in sides))
            for name in names
        ]

    def report(self) -> str:
        rows = [row for row in self.result.rows if row.role in SHOWN]
        width = max((len(row.key) for row in rows), default=0)
        lines = [f"base {self.base.commit[:10]}  head {self.head.commit[:10]}  (change of cost: + is worse)"]
        directions = {each.key: each.direction.value for each in measured(self.base)}
        lines += [_line(row, directions[row.key], width) for row in rows]
        failed = (*self.result.failed, *self.unmeasured)
        lines += [f"{failure.key}: {failure.base_status} / {failure.head_status}" for failure in failed]
        for side, keys in (("base", self.result.only_base), ("head", self.result.only_head)):
            if keys:
                lines.append(f"only in {side}: {', '.join(keys)}")
        if not self.result.rows:
            lines.append("the two runs have no measurement in common")
        if self.result.geometric_mean is not None:
            lines.append(
                f"geometric mean {self.result.geometric_mean:+.1%} over what both ran "
                f"({self.result.covered} of {self.result.gates} gate metrics)"
            )
        count, undecided = len(self.result.regressions), self.result.undecided
        lines.append(f"{count} regression{'' if count == 1 else 's'}" if count else "nothing got worse beyond doubt")
        if undecided:
            lines.append(f"undecided: {', '.join(row.key for row in undecided)}")
        return "\n".join(lines)


def compare_files(base: Path, head: Path, manifest: Path | None = None) -> FileComparison:
    """Compares two run.json files by the policy of a tidemark.toml, or by the built-in one where none is given."""
    left, right = read_file(base), read_file(head)
    overrides = () if manifest is None else _overrides(manifest)
    return FileComparison(
        base=left, head=right, result=compare(measured(left), measured(right), _policies(overrides, left, right))
    )


def _overrides(manifest: Path) -> tuple[Override, ...]:
    try:
        return parse_overrides(tomllib.loads(manifest.read_text()).get("policy", {}))
    except OSError as error:
        raise Refusal(f"cannot read {manifest}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, PolicyError) as error:
        raise Refusal(f"{manifest}: {error}") from None


def _policies(overrides: tuple[Override, ...], *runs: Run) -> dict[str, Policy]:
    """The policy of every measurement, by its key."""
    found = {}
    for run in runs:
        book = PolicyBook(run.project, overrides)
        for result in run.results:
            for measurement in result.measurements:
                found[_key(result, measurement.metric)] = book.of(
                    suite=run.suite, benchmark=result.benchmark, metric=measurement.metric, testbed=run.testbed
                )
    return found


def read_file(path: Path) -> Run:
    """A run from a file; refuses what the contract does, with the path of the field."""
    try:
        return parse_run(path.read_bytes())
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from None
    except Invalid as error:
        raise Refusal(f"{path} is no tidemark.run/1: {'; '.join(str(error).splitlines()[:3])}") from None


def measured(run: Run) -> list[ComparedMetric]:
    """Every measurement of a run, named so that the other run's counterpart has the same name."""
    found = []
    for result in run.results:
        found += [
            ComparedMetric(
                key=_key(result, measurement.metric),
                metric=measurement.metric,
                unit=measurement.unit,
                direction=measurement.direction,
                role=measurement.role,
                exact=measurement.exact,
                values=measurement.processes or (measurement.value,),
                status=result.status.value,
                benchmark=result.benchmark,
            )
            for measurement in result.measurements
        ]
    return found


def _key(result: Result, metric: str) -> str:
    return f"{_name(result)} {metric}"


def _name(result: Result) -> str:
    variant = variant_key(result.variant)
    return f"{result.benchmark}[{variant}]" if variant else result.benchmark


def _is_empty(result: Result) -> bool:
    return result.status is not ResultStatus.OK and not result.measurements


def _line(row: MetricComparison, direction: str, width: int) -> str:
    verdict = row.verdict.value
    if row.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
        verdict += f": {change_word(row.unit, direction, row.change)}"
    if row.role is not Role.GATE:
        verdict += " (watched only)"
    if row.verdict is Verdict.INSUFFICIENT and row.needed_runs:
        more = "1 more process" if row.needed_runs == 1 else f"{row.needed_runs} more processes"
        verdict = f"undecided: needs {more} per side"
    if row.traded_for:
        verdict += f", but worse: {', '.join(row.traded_for)}"
    interval = "" if row.low == row.high else f" ({row.low:+.1%} to {row.high:+.1%})"
    values = plain(f"{quantity(row.base, row.unit)} -> {quantity(row.head, row.unit)}")
    return f"{row.key:<{width}}  {values:<24} {row.change:+7.1%}{interval}  {verdict}"


def plain(text: str) -> str:
    """Without the narrow spaces of a page: a terminal shows them in any width, and a script splits at none of them."""
    return text.replace(THIN, " ")
