"""Further commands: `diagnose`, `experiment`, `interleave` and `export`. They read run files, or start runs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import expected, pins, registry
from benchmarks.acceptance.archive import opened
from benchmarks.analysis import diagnose
from benchmarks.output import v3
from benchmarks.running import interleave
from benchmarks.running.experiments import EXPERIMENTS, ArmOutcome, run_experiment
from benchmarks.spec import Preset


class UnreadableRun(ValueError):
    """A run file that cannot be used."""


def add_to(commands: Any) -> None:
    """Adds these commands to the parser."""
    diagnosing = commands.add_parser(
        "diagnose", help="what limits a run's results, or what explains the difference of two"
    )
    diagnosing.add_argument("runs", nargs="+", type=Path, metavar="RUN.json", help="one run, or base and head")
    diagnosing.add_argument("--benchmark", help="only this one")
    diagnosing.add_argument("--json", action="store_true")
    diagnosing.set_defaults(action=_diagnose)

    trying = commands.add_parser("experiment", help="diagnostic experiments on one benchmark")
    trying.add_argument(
        "experiment", choices=sorted(EXPERIMENTS), help="; ".join(f"{k}: {v}" for k, v in EXPERIMENTS.items())
    )
    trying.add_argument("id", help="a benchmark, e.g. gpt.train")
    trying.add_argument("--preset", choices=[str(p) for p in Preset], default="cpu")
    trying.add_argument("--implementation", metavar="MODULE:ATTR")
    trying.add_argument("--variant", action="append", default=[], metavar="KEY=VALUE")
    trying.add_argument("--json", action="store_true")
    trying.set_defaults(action=_experiment)

    pairing = commands.add_parser("interleave", help="two checkouts, ABBA in fresh processes on this machine")
    pairing.add_argument("patterns", nargs="+", metavar="ID|GLOB")
    pairing.add_argument("--base", type=Path, required=True, metavar="DIR", help="checkout of the base")
    pairing.add_argument("--head", type=Path, required=True, metavar="DIR", help="checkout of the head")
    pairing.add_argument("--rounds", type=int, default=2, help="of ABBA: two processes a side each (default: 2)")
    pairing.add_argument("--preset", choices=[str(p) for p in Preset], default="cpu")
    pairing.add_argument("--implementation", metavar="MODULE:ATTR")
    pairing.add_argument("--variant", action="append", default=[], metavar="KEY=VALUE")
    pairing.add_argument("--keep", type=Path, metavar="DIR", help="keep every turn's run.json here")
    pairing.add_argument("--json", action="store_true")
    pairing.set_defaults(action=_interleave)

    learning = commands.add_parser(
        "learn",
        help="take over from runs how long their cases take, for list and tiers, and which backend `best` found",
    )
    learning.add_argument("runs", nargs="+", type=Path, metavar="RUN.json|PAGE.tar.gz")
    learning.add_argument(
        "--into", type=Path, default=expected.FILE, metavar="FILE", help="times (default: the suite's own)"
    )
    learning.add_argument(
        "--pins", type=Path, default=pins.FILE, metavar="FILE", help="backends (default: the suite's own)"
    )
    learning.set_defaults(action=_learn)

    exporting = commands.add_parser("export", help="a run as PyTorch benchmark database v3 records, one per line")
    exporting.add_argument("run", type=Path, metavar="RUN.json")
    exporting.add_argument("--format", choices=["v3"], default="v3")
    exporting.set_defaults(action=_export)


def read_run(path: Path) -> dict[str, Any]:
    """A run file; what is wrong with it is said with its name."""
    try:
        run: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise UnreadableRun(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UnreadableRun(f"{path} is no JSON: {error}") from error
    if not isinstance(run, dict) or run.get("schema") != "tidemark.run/1":
        raise UnreadableRun(f"{path} is no run: its schema is not tidemark.run/1")
    return run


def _export(options: argparse.Namespace) -> int:
    sys.stdout.write(v3.as_lines(read_run(options.run)))
    return 0


def _learn(options: argparse.Namespace) -> int:
    runs = [run for path in options.runs for run in _runs_in(path)]
    times = expected.learn(expected.load(options.into) if options.into.exists() else {}, runs)
    options.into.write_text(json.dumps(times, indent=1, sort_keys=True) + "\n")
    print(f"{sum(len(run['results']) for run in runs)} results of {len(runs)} runs read; written: {options.into}")
    pinned, said = pins.learn(pins.load(options.pins), runs)
    if said:
        options.pins.write_text(json.dumps(pinned, indent=1, sort_keys=True) + "\n")
        print("\n".join(f"pinned {one}" for one in said))
    return 0


def _runs_in(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".json":
        return [read_run(path)]
    with opened(path) as archive:
        return list(archive.runs(list(archive.records)).values())


def _diagnose(options: argparse.Namespace) -> int:
    runs = [read_run(path) for path in options.runs]
    if len(runs) > 2:
        raise UnreadableRun(f"diagnose takes one run, or base and head; {len(runs)} were given")
    if len(runs) == 1:
        return _classes(runs[0], options)
    return _differences(runs, options)


def _classes(run: Mapping[str, Any], options: argparse.Namespace) -> int:
    memory = run.get("environment", {}).get("accelerator_memory_bytes")
    found = []
    for result in _chosen(run, options.benchmark):
        if result["status"] == "ok":
            found.append({**_name(result), **diagnose.classify(result, total_memory_bytes=memory)})
    if options.json:
        print(json.dumps(found, indent=2))
    for one in [] if options.json else found:
        print(f"{one['benchmark']} {_words(one['variant'])}: {one['class']}  [{'; '.join(one['tree'])}]")
    return 0


def _differences(runs: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> int:
    base_by = {_key(result): result for result in _chosen(runs[0], options.benchmark) if result["status"] == "ok"}
    kernels = [path.parent for path in options.runs]
    shown = 0
    for head in _chosen(runs[1], options.benchmark):
        base = base_by.get(_key(head))
        if base is None or head["status"] != "ok":
            continue
        try:
            found = diagnose.explain(
                base,
                head,
                base_kernels=_kernels(base, kernels[0]),
                head_kernels=_kernels(head, kernels[1]),
                base_run=runs[0],
                head_run=runs[1],
            )
        except ValueError:
            continue
        shown += 1
        if options.json:
            print(json.dumps({**_name(head), **asdict(found), "change": found.change}))
        else:
            print(f"{head['benchmark']} {_words(head['variant'])}\n{diagnose.as_text(found)}\n")
    if not shown:
        raise UnreadableRun("the two runs have no variant in common that was timed in both")
    return 0


def _kernels(result: Mapping[str, Any], folder: Path) -> dict[str, Any] | None:
    name = result.get("artifacts", {}).get("kernels")
    if not name or not (folder / name).is_file():
        return None
    columns: dict[str, Any] = json.loads((folder / name).read_text())
    return columns


def _chosen(run: Mapping[str, Any], benchmark: str | None) -> list[Mapping[str, Any]]:
    found = [r for r in run["results"] if benchmark in (None, r["benchmark"])]
    if not found:
        known = ", ".join(dict.fromkeys(r["benchmark"] for r in run["results"]))
        raise UnreadableRun(f"the run has no result of '{benchmark}'; it has: {known}")
    return found


def _name(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"benchmark": result["benchmark"], "variant": result["variant"]}


def _key(result: Mapping[str, Any]) -> tuple[str, str]:
    return result["benchmark"], json.dumps(result["variant"], sort_keys=True)


def _words(variant: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in variant.items())


def _experiment(options: argparse.Namespace) -> int:
    benchmarks = registry.find(options.id)
    chosen = registry.select(benchmarks, Preset(options.preset), registry.parse_filters(options.variant))
    usable = [s for s in chosen if s.case.not_applicable is None]
    if not usable:
        raise registry.UnknownVariant(f"no variant of {options.id} can run with preset {options.preset}")
    outcomes = run_experiment(options.experiment, usable[0], options.implementation)
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        _print_outcomes(outcomes)
    return 0 if all(outcome.error is None for outcome in outcomes) else 1


def _print_outcomes(outcomes: Sequence[ArmOutcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            print(f"{outcome.name:32} {outcome.error}")
            continue
        figures = "  ".join(f"{name} {value:.4g}" for name, value in outcome.figures.items())
        print(f"{outcome.name:32} {figures}")


def _interleave(options: argparse.Namespace) -> int:
    for side in (options.base, options.head):
        if not side.is_dir():
            raise UnreadableRun(f"{side} is no directory; --base and --head take checkouts")
    passed = ["--preset", options.preset, *(f"--variant={v}" for v in options.variant)]
    if options.implementation:
        passed += ["--implementation", options.implementation]
    request = interleave.Interleaved(
        base=options.base.resolve(),
        head=options.head.resolve(),
        rounds=options.rounds,
        options=[*passed, *options.patterns],
    )
    with tempfile.TemporaryDirectory(prefix="tidemark-interleave-") as temporary:
        folder = options.keep or Path(temporary)
        runs = [(turn, read_run(out)) for turn, out in interleave.measure(request, folder.resolve()) if out.exists()]
    found = interleave.compare(runs)
    if options.json:
        print(json.dumps(found, indent=2))
    for one in [] if options.json else found:
        span = f"[{one['low']:+.1%}, {one['high']:+.1%}]"
        counts = f"{one['processes']['base']}+{one['processes']['head']} processes"
        print(f"{one['benchmark']} {_words(one['variant'])} {one['metric']}: {one['change']:+.1%} {span}  {counts}")
    failed = [r for _, run in runs for r in run["results"] if r["status"] not in ("ok", "not_applicable")]
    for result in failed:
        print(
            f"{result['benchmark']} {_words(result['variant'])}: {result['status']}: {result['error']}", file=sys.stderr
        )
    return 1 if failed or not found else 0
