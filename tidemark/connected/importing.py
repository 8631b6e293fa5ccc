"""`tidemark import`: result files of other tools, read here, put in order of time, delivered run by run.

Reading happens on this machine, so a dry run needs no service. Delivering the same run again is no harm: an import that
was interrupted is simply started again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.contract import Run
from backend.importers import (
    FORMATS,
    RUN_FORMAT,
    SUFFIXES,
    Context,
    Imported,
    SkipReason,
    Unreadable,
    delivered_bytes,
    read_file,
    reasons,
)
from backend.importers import Problem as LeftOut
from backend.importers.general.asv import BENCHMARKS, read_benchmarks
from tidemark.connected.remote import Service
from tidemark.refusal import Refusal

# What lies in a results directory of asv besides results.
ASV_NO_RESULTS = frozenset({BENCHMARKS, "machine.json"})
PACKED = (".gz", ".zst")
# Beside criterion's estimates lie their raw material and earlier runs of them.
CRITERION_NO_RESULTS = frozenset({"benchmark.json", "sample.json", "tukey.json", "raw.csv"})
MAX_FILE_BYTES = 200_000_000
SHOWN_PROBLEMS = 20
SHOWN_RUNS = 50
# What is stored in one go: one flush to the disk for many results, but few enough that an answer comes within seconds
# and that a series is not changed too often in one transaction, which would have to step over every change.
# A dry run is asked at once, where it can be: what would be refused may depend on a run before it.
MOST_AT_ONCE = 500
MOST_AT_ONCE_DRY = 100_000
MOST_RUNS = 2_000
MOST_BYTES = 20_000_000
NEW = ("stored", "new")
NEVER = datetime.max.replace(tzinfo=UTC)
Say = Callable[[str], None]


@dataclass(slots=True)
class FoundRuns:
    """Everything the files hold. `unreadable` are files as a whole, `problems` records within files."""

    files: int = 0
    runs: dict[str, Delivery] = field(default_factory=dict)
    measurements: int = 0
    read: int = 0
    doubled: int = 0
    problems: list[LeftOut] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, imported: Imported, data: bytes) -> None:
        """Add the runs of one file; a run that another file held already counts as a duplicate."""
        self.read += imported.read
        for run in imported.runs:
            records = sum(imported.records[run.id])
            if run.id in self.runs:
                self.doubled += records
                continue
            own = imported.format == RUN_FORMAT
            self.runs[run.id] = Delivery(run, delivered_bytes(imported, run, data), records, own=own)
            self.measurements += sum(len(result.measurements) for result in run.results)
        self.notes += [note for note in imported.notes if note not in self.notes]

    def in_order(self) -> list[Delivery]:
        """Those of the oldest commits first, so that a history is judged once and not again and again."""
        return sorted(self.runs.values(), key=lambda item: item.when)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A run and how it is delivered. `own`: its file was a run already, and goes as it is."""

    run: Run
    body: bytes
    records: int
    own: bool

    @property
    def when(self) -> datetime:
        """When its commit was made, or else when it was measured; those without a time come last."""
        info = self.run.commit_info
        return datetime.fromisoformat(info.at) if info is not None and info.at else self.run.started or NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of an import, as counts and as sentences. Every one of the records read is in one other count."""

    files: int
    runs: int
    measurements: int
    stored: int
    duplicates: int
    refused: tuple[str, ...]
    records: Mapping[str, int]
    reasons: tuple[SkipReason, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    verdicts: dict[str, int]

    @property
    def ok(self) -> bool:
        """Nothing was refused whole, and of the records that were read at least one is there."""
        return not self.refused and self.records["left_out"] < max(self.records["read"], 1)


def pairs(option: str, given: Sequence[str], *, cut_first: bool = False) -> dict[str, str]:
    """`NAME=VALUE` options as a dictionary; of several `=` the last counts, or the first."""
    found = {}
    for text in given:
        name, sign, value = text.partition("=") if cut_first else text.rpartition("=")
        if not sign or not name or not value:
            raise Refusal(f"{option} {text!r} is not accepted; accepted: NAME=VALUE")
        found[name] = value
    return found


def directions(given: Sequence[str]) -> dict[str, str]:
    found = pairs("--direction", given)
    for metric, way in found.items():
        if way not in ("lower", "higher"):
            raise Refusal(f"--direction {metric}={way} is not accepted; accepted: {metric}=lower, {metric}=higher")
    return found


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: those named (- is standard input), and those in directories that are named."""
    found = [file for path in paths for file in _files_of(path)]
    if not found:
        raise Refusal(f"no result files in {', '.join(map(str, paths))} (looked for {', '.join(sorted(SUFFIXES))})")
    return found


def _files_of(path: Path) -> Iterator[Path]:
    if not path.exists() and str(path) != "-":
        raise Refusal(f"cannot read {path}: no such file or directory")
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden and _may_hold_results(file):
            yield file


def _may_hold_results(file: Path) -> bool:
    plain = file.with_suffix("") if file.suffix in PACKED else file
    if (file.parent / "estimates.json").exists() and (file.parent.name != "new" or file.name in CRITERION_NO_RESULTS):
        return False
    named = plain.suffix.lower() in SUFFIXES or "tfevents" in file.name
    return named and file.name not in ASV_NO_RESULTS


def read_files(files: Sequence[Path], context: Context, format_name: str | None, say: Say) -> FoundRuns:
    """Read every file; one that cannot be read does not keep the others from being read."""
    if format_name is not None and format_name not in (*FORMATS, RUN_FORMAT):
        raise Refusal(f"unknown --format {format_name!r}; known: {', '.join((*FORMATS, RUN_FORMAT))}")
    found = FoundRuns(files=len(files))
    beside: dict[Path, Context] = {}
    for number, file in enumerate(files, start=1):
        try:
            data = _bytes_of(file)
            place = file.parent
            if place not in beside:
                beside[place] = _with_asv_benchmarks(place, context)
            imported = read_file(str(file), data, beside[place], format_name)
        except (OSError, Unreadable) as error:
            found.unreadable.append(_placed(file, str(error)))
            continue
        found.take(imported, data)
        found.problems += [LeftOut(_placed(file, problem.where), problem.reason) for problem in imported.problems]
        if number % 100 == 0:
            say(f"read {number} of {len(files)} files: {len(found.runs)} runs")
    return found


def _with_asv_benchmarks(place: Path, context: Context) -> Context:
    """asv keeps what it knows of its benchmarks, such as their units, in `results/benchmarks.json`."""
    for directory in (place, place.parent):
        file = directory / BENCHMARKS
        if file.is_file() and file.stat().st_size <= MAX_FILE_BYTES:
            return replace(context, benchmarks=read_benchmarks(file.read_bytes()))
    return context


def _placed(file: Path, problem: str) -> str:
    return problem if str(file) in problem else f"{file}: {problem}"


def _bytes_of(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        raise Unreadable(f"{file}: has {size} bytes; at most {MAX_FILE_BYTES} are read")
    return file.read_bytes()


def deliver(found: FoundRuns, service: Service, say: Say, *, dry_run: bool = False) -> Report:
    """Deliver the runs, oldest first, many at once. What the service refuses is reported; the rest continues. With
    `dry_run` the service does all that and rolls it back."""
    told = _Tally(list(found.unreadable))
    runs = found.in_order()
    done = 0
    for part in _parts(runs, MOST_AT_ONCE_DRY if dry_run else MOST_AT_ONCE):
        try:
            _deliver_part(part, service, told, dry_run=dry_run)
        except Refusal as refusal:
            raise Refusal(
                f"{refusal} (after {done} of {len(runs)} runs; start the same command again to go on)"
            ) from None
        done += len(part)
        did = "tried" if dry_run else "delivered"
        refused = len(told.refused) - len(found.unreadable)
        more = f", {refused} refused" if refused else ""
        say(f"{did} {done} of {len(runs)} runs: {told.stored} new, {told.duplicates} there already{more}")
    return _report(found, told)


@dataclass(slots=True)
class _Tally:
    """The service's answers so far."""

    refused: list[str]
    stored: int = 0
    duplicates: int = 0
    records_there: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def take(self, outcome: str, said: Mapping[str, Any]) -> None:
        self.stored += outcome in NEW
        self.duplicates += outcome == "duplicate"
        self.warnings += said.get("warnings", ())
        for word, count in said.get("summary", {}).items() if outcome in NEW else ():
            self.verdicts[word] = self.verdicts.get(word, 0) + count

    def refuse(self, run: Run, why: str) -> None:
        self.refused.append(f"run {run.id} ({run.suite} at {run.commit[:10]}): {why}")


def _parts(runs: Sequence[Delivery], most: int) -> Iterator[list[Delivery]]:
    """The runs, as many together as are stored in one go; a run of our own goes alone, by the door of its sender."""
    part: list[Delivery] = []
    results = size = 0
    for item in runs:
        results, size = results + len(item.run.results), size + len(item.body)
        if part and (item.own or part[0].own or results > most or size > MOST_BYTES or len(part) == MOST_RUNS):
            yield part
            part, results, size = [], len(item.run.results), len(item.body)
        part.append(item)
    if part:
        yield part


def _deliver_part(part: Sequence[Delivery], service: Service, told: _Tally, *, dry_run: bool) -> None:
    if part[0].own and not dry_run:
        (item,) = part
        try:
            answer, is_new = service.deliver(item.run.id, item.body)
        except Refusal as refusal:
            if not refusal_concerns_this_run(refusal):
                raise
            told.refuse(item.run, str(refusal))
            told.left_out += [LeftOut(item.run.id, str(refusal))] * item.records
            return
        told.take("stored" if is_new else "duplicate", answer)
        told.records_there += 0 if is_new else item.records
        return
    answer = service.import_runs(part[0].run.project, [item.body for item in part], dry_run=dry_run)
    items = {item.run.id: item for item in part}
    for said in answer["runs"]:
        item = items[said["run_id"]]
        told.take(said["outcome"], said)
        if said["outcome"] == "refused":
            told.refuse(item.run, said["error"])
    told.records_there += answer["records"]["duplicate"]
    told.left_out += [LeftOut(problem["where"], problem["reason"]) for problem in answer["problems"]]


def refusal_concerns_this_run(refusal: Refusal) -> bool:
    """Whether the next run may fare better: the service is there and knows us, it only does not take this one."""
    return str(refusal).startswith(("400:", "409:", "413:", "422:"))


def preview(found: FoundRuns) -> Report:
    """Preview of an import, from the files alone."""
    found.notes.append(
        "no service was asked, so this does not say what is stored already and which units do not fit (see --url)"
    )
    return _report(found, _Tally(list(found.unreadable), stored=len(found.runs)))


def _report(found: FoundRuns, told: _Tally) -> Report:
    problems = [*found.problems, *told.left_out]
    there = told.records_there + found.doubled
    return Report(
        files=found.files,
        runs=len(found.runs),
        measurements=found.measurements,
        stored=told.stored,
        duplicates=told.duplicates,
        refused=tuple(told.refused),
        records={
            "read": found.read,
            "stored": found.read - there - len(problems),
            "duplicate": there,
            "left_out": len(problems),
        },
        reasons=reasons(problems),
        problems=tuple(map(str, problems)),
        notes=tuple(found.notes),
        warnings=tuple(dict.fromkeys(told.warnings)),
        verdicts=told.verdicts,
    )


def describe(report: Report, found: FoundRuns, *, dry_run: bool) -> str:
    """The report for a person; it ends with the table of what became of the records."""
    counts = ((report.files, "file"), (report.runs, "run"), (report.measurements, "measurement"))
    files, runs, measurements = (f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
    lines = [f"{files}: {runs} with {measurements}"]
    if dry_run:
        for item in found.in_order()[:SHOWN_RUNS]:
            names = f"{item.run.suite} at {item.run.commit[:10]} on {item.run.testbed}"
            when = item.run.started_at or "no time stated"
            lines.append(f"  would deliver {item.run.id}  {names}, {when}, {len(item.run.results)} results")
        if len(found.runs) > SHOWN_RUNS:
            lines.append(f"  … and {len(found.runs) - SHOWN_RUNS} more runs")
    stored = "would be stored" if dry_run else "stored"
    lines.append(f"  {report.stored} {stored}, {report.duplicates} there already, {len(report.refused)} refused")
    if report.verdicts:
        counted = sorted(report.verdicts.items(), key=lambda item: (-item[1], item[0]))
        lines.append("  verdicts: " + ", ".join(f"{count} {word}" for word, count in counted))
    lines += [f"  assumed: {note}" for note in report.notes]
    lines += _warnings(report.warnings)
    lines += _refusals(report.refused)
    return "\n".join([*lines, *_table(report, stored)])


def _warnings(warnings: Sequence[str]) -> list[str]:
    shown = [f"  warning: {warning}" for warning in warnings[:SHOWN_PROBLEMS]]
    more = len(warnings) - SHOWN_PROBLEMS
    return [*shown, f"  … and {more} more (--json lists all)"] if more > 0 else shown


def _table(report: Report, stored: str) -> list[str]:
    names = ("read", stored, "there already", "left out")
    counts = [f"{count:,}" for count in report.records.values()]
    widths = [max(len(name), len(count)) + 3 for name, count in zip(names, counts, strict=True)]
    lines = [
        "  records" + "".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        if row is names
        else "         " + "".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True))
        for row in (names, counts)
    ]
    for reason in report.reasons[:SHOWN_PROBLEMS]:
        lines += [f"  left out {reason.count:,}: {reason.reason}", f"           first: {reason.first}"]
    more = len(report.reasons) - SHOWN_PROBLEMS
    return [*lines, f"  … and {more} more reasons (--json lists all)"] if more > 0 else lines


def _refusals(sentences: Sequence[str]) -> list[str]:
    """Files and runs that were refused, by the reason: a directory may hold hundreds of files that are no results."""
    kinds = reasons([LeftOut(where, why) for where, _, why in (sentence.partition(": ") for sentence in sentences)])
    lines = []
    for kind in kinds[:SHOWN_PROBLEMS]:
        if kind.count == 1:
            lines.append(f"  refused: {kind.first}")
        else:
            lines += [f"  refused {kind.count:,}: {kind.reason}", f"           first: {kind.first.partition(': ')[0]}"]
    more = len(kinds) - SHOWN_PROBLEMS
    return [*lines, f"  … and {more} more reasons (--json lists all)"] if more > 0 else lines
