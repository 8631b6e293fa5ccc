"""`tidemark import`: result files of other tools, read here, put in order of time, delivered run by run.

Reading happens on this machine, so a dry run needs no service. Delivering the same run again is no harm: an import that
was interrupted is simply started again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from backend.contract import Run
from backend.importers import FORMATS, RUN_FORMAT, SUFFIXES, Context, Unreadable, delivered_bytes, read_file
from backend.importers.asv import BENCHMARKS, read_benchmarks
from tidemark.refusal import Refusal
from tidemark.remote import Service

# What lies in a results directory of asv besides results.
ASV_NO_RESULTS = frozenset({BENCHMARKS, "machine.json"})
PACKED = (".gz", ".zst")
# Beside criterion's estimates lie their raw material and earlier runs of them.
CRITERION_NO_RESULTS = frozenset({"benchmark.json", "sample.json", "tukey.json", "raw.csv"})
MAX_FILE_BYTES = 200_000_000
SHOWN_PROBLEMS = 20
NEVER = datetime.max.replace(tzinfo=UTC)
Say = Callable[[str], None]


@dataclass(slots=True)
class Found:
    """Everything the files hold. `unreadable` are files as a whole, `problems` records within files."""

    files: int = 0
    runs: dict[str, tuple[Run, bytes]] = field(default_factory=dict)
    measurements: int = 0
    problems: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def in_order(self) -> list[tuple[Run, bytes]]:
        """Oldest first, so that a history is judged once and not again and again; those without a time come last."""
        return sorted(self.runs.values(), key=lambda item: item[0].started or NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of an import, as counts and as sentences."""

    files: int
    runs: int
    measurements: int
    stored: int
    duplicates: int
    refused: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    verdicts: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.refused


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


def read_files(files: Sequence[Path], context: Context, format_name: str | None, say: Say) -> Found:
    """Read every file; one that cannot be read does not keep the others from being read."""
    if format_name is not None and format_name not in (*FORMATS, RUN_FORMAT):
        raise Refusal(f"unknown --format {format_name!r}; known: {', '.join((*FORMATS, RUN_FORMAT))}")
    found = Found(files=len(files))
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
        found.runs |= {run.id: (run, delivered_bytes(imported, run, data)) for run in imported.runs}
        found.measurements += imported.measurements
        found.problems += [_placed(file, str(problem)) for problem in imported.problems]
        found.notes += [note for note in imported.notes if note not in found.notes]
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


def deliver(found: Found, service: Service, say: Say) -> Report:
    """Deliver the runs, oldest first. What the service refuses is reported; the rest goes on."""
    stored = duplicates = 0
    refused = list(found.unreadable)
    verdicts: dict[str, int] = {}
    runs = found.in_order()
    for number, (run, body) in enumerate(runs, start=1):
        try:
            answer, is_new = service.deliver(run.id, body)
        except Refusal as refusal:
            if not refusal_concerns_this_run(refusal):
                raise Refusal(
                    f"{refusal} (after {number - 1} of {len(runs)} runs; start the same command again to go on)"
                ) from None
            refused.append(f"run {run.id} ({run.suite} at {run.commit[:10]}): {refusal}")
            continue
        stored += is_new
        duplicates += not is_new
        for word, count in answer.get("summary", {}).items():
            verdicts[word] = verdicts.get(word, 0) + (count if is_new else 0)
        if number % 25 == 0 or number == len(runs):
            say(f"delivered {number} of {len(runs)} runs: {stored} new, {duplicates} there already")
    return _report(found, stored=stored, duplicates=duplicates, refused=refused, verdicts=verdicts)


def refusal_concerns_this_run(refusal: Refusal) -> bool:
    """Whether the next run may fare better: the service is there and knows us, it only does not take this one."""
    return str(refusal).startswith(("400:", "409:", "413:", "422:"))


def preview(found: Found) -> Report:
    """What would be delivered."""
    return _report(found, stored=0, duplicates=0, refused=found.unreadable, verdicts={})


def _report(found: Found, *, stored: int, duplicates: int, refused: Sequence[str], verdicts: dict[str, int]) -> Report:
    return Report(
        files=found.files,
        runs=len(found.runs),
        measurements=found.measurements,
        stored=stored,
        duplicates=duplicates,
        refused=tuple(refused),
        problems=tuple(found.problems),
        notes=tuple(found.notes),
        verdicts=verdicts,
    )


def describe(report: Report, found: Found, *, dry_run: bool) -> str:
    """The report for a person."""
    counts = ((report.files, "file"), (report.runs, "run"), (report.measurements, "measurement"))
    files, runs, measurements = (f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)
    lines = [f"{files}: {runs} with {measurements}"]
    if dry_run:
        for run, _ in found.in_order():
            names = f"{run.suite} at {run.commit[:10]} on {run.testbed}"
            when = run.started_at or "no time stated"
            lines.append(f"  would deliver {run.id}  {names}, {when}, {len(run.results)} results")
    else:
        lines.append(f"  {report.stored} stored, {report.duplicates} there already, {len(report.refused)} refused")
    if report.verdicts:
        counted = sorted(report.verdicts.items(), key=lambda item: (-item[1], item[0]))
        lines.append("  verdicts: " + ", ".join(f"{count} {word}" for word, count in counted))
    lines += [f"  assumed: {note}" for note in report.notes]
    lines += _listed("refused", report.refused)
    lines += _listed("left out", report.problems)
    return "\n".join(lines)


def _listed(what: str, sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - SHOWN_PROBLEMS
    return [f"  {what}: {sentence}" for sentence in sentences[:SHOWN_PROBLEMS]] + (
        [f"  {what}: … and {more} more (--json lists all)"] if more > 0 else []
    )
