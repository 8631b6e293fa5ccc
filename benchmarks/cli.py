"""The command: `python -m benchmarks list | describe | run`. Plans and collects; never imports torch."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import SUITE_VERSION, expected, pins, registry, tiers
from benchmarks import commands as further
from benchmarks.acceptance import command as acceptance
from benchmarks.environment import fingerprint, git_state
from benchmarks.listing import describe_one, list_all
from benchmarks.output import mllog
from benchmarks.output.identity import BadIdentity, Identity, identity
from benchmarks.output.run_record import UnwritableOutput, make_sure_writable, run_document, write_json
from benchmarks.registry import for_ranks
from benchmarks.running.launch import Launcher
from benchmarks.running.plan import PROCESSES, SCALED_DOWN
from benchmarks.running.session import Request, SuiteSession, now_text
from benchmarks.spec import Preset, Status, WrongCall, slug_of
from benchmarks.telemetry.sampler import Telemetry, of_the_measured_gpu
from benchmarks.tiers import TIERS
from benchmarks.torchrun import BadPlace, place_of

USAGE_ERROR = 2
SOME_FAILED = 1
INTERRUPTED = 130
FULL_PRECISION = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit status is 0 when all is well, 1 when some result failed, 2 for a wrong call, 130 when
    interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.action(options))
    except (
        registry.UnknownBenchmark,
        registry.UnknownVariant,
        UnwritableOutput,
        BadIdentity,
        BadPlace,
        WrongCall,
        further.UnreadableRun,
    ) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return USAGE_ERROR
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]
        return SOME_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Tidemark's registered benchmark suite.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_list(commands)
    _add_run(commands)
    further.add_to(commands)
    acceptance.add_to(commands)
    return parser


def _add_list(commands: Any) -> None:
    listing = commands.add_parser("list", help="registered benchmarks and their variants")
    listing.add_argument(
        "patterns", nargs="*", metavar="ID|GLOB", help="the cases of these, each with the seconds of a process"
    )
    listing.add_argument("--preset", choices=[str(p) for p in Preset], default="full", help="of these (default: full)")
    listing.add_argument(
        "--times", type=Path, default=expected.FILE, metavar="FILE", help="what `learn` wrote (default: the suite's)"
    )
    listing.add_argument("--tier", choices=list(TIERS), help="the cases of this tier, each with its processes and time")
    listing.add_argument("--json", action="store_true", help="as JSON, with every variant of every preset")
    listing.set_defaults(action=list_all)

    describing = commands.add_parser(
        "describe", help="what a benchmark means, its formula, its bound, published figures"
    )
    describing.add_argument("id", help="a benchmark, e.g. gpt.ladder")
    describing.set_defaults(action=describe_one)


def _add_run(commands: Any) -> None:
    running = commands.add_parser("run", help="measure, and write run.json")
    running.add_argument(
        "patterns", nargs="*", metavar="ID|GLOB", help="what to run: gpt.train 'attn.*', or one case: 'gpt.ladder/r07*'"
    )
    running.add_argument("--preset", choices=[str(p) for p in Preset], help="how large (default: cpu)")
    running.add_argument("--tier", choices=list(TIERS), help="the cases that fit so long on one GPU: see list")
    running.add_argument("--out", type=Path, help="where run.json goes (default: $TIDEMARK_RUN_JSON, else run.json)")
    running.add_argument(
        "--implementation", metavar="MODULE:ATTR", help="the project's own code, imported from the current directory"
    )
    running.add_argument(
        "--processes",
        type=int,
        help="fresh processes per variant (default: 3 or fewer for cpu, 1 for smoke, 5 for full)",
    )
    running.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only these variants; globs and a,b work; repeatable",
    )
    running.add_argument(
        "--seed", type=int, default=1234, help="of weights, inputs and the order of processes (default: 1234)"
    )
    running.add_argument("--timeout", type=float, metavar="SECONDS", help="per process (default: each benchmark's own)")
    running.add_argument(
        "--profile", action="store_true", help="one more process per variant, profiled: kernels and trace"
    )
    running.add_argument(
        "--precision",
        type=float,
        metavar="FRACTION",
        help="repeat until a change of this size would show, e.g. 0.01 (default for full), up to 12 processes",
    )
    running.add_argument(
        "--pins", type=Path, default=pins.FILE, metavar="FILE", help="backends that `best` runs (default: the suite's)"
    )
    running.set_defaults(action=_run)


def _run(options: argparse.Namespace) -> int:
    out = options.out or Path(os.environ.get("TIDEMARK_RUN_JSON") or "run.json")
    request = _request(options, out)
    place = place_of(os.environ)
    if place is not None:
        request = replace(request, selection=for_ranks(request.selection, place.ranks), precision=None)
        if place.rank > 0:
            return _follow(request)
    who = _identity(request)
    make_sure_writable(out)
    session = SuiteSession(request, Launcher())
    _interrupt_on_signals(session)
    started, began_ms = now_text(), int(time.time() * 1000)
    telemetry = Telemetry.started()
    session.run()
    watched = of_the_measured_gpu(telemetry.stop(), session.child_environment().get("gpu_uuid"))
    results = session.results()
    for result in results:
        if windows := session.measured_ms(result):
            result["telemetry"] = telemetry.during(windows)
    bad = [result for result in results if result["status"] not in (Status.OK, Status.NOT_APPLICABLE)]
    error = "; ".join(f"{r['benchmark']}: {r['error']}" for r in bad[:5])[:5000] or session.untrustworthy(watched)
    document = run_document(
        who,
        started_at=started,
        finished_at=now_text(),
        status=session.run_status(watched),
        error=error,
        code_under_test=_code_under_test(options.implementation),
        environment=fingerprint(session.child_environment()),
        telemetry=watched,
        ceilings=session.ceilings(),
        canary=session.canary(),
        results=results,
        protocol=_protocol(request, session.order),
    )
    _write_logs(out, document, session, began_ms)
    write_json(out, document)
    _say(document, out)
    if session.interrupted:
        return INTERRUPTED
    if not request.selection:
        return USAGE_ERROR
    return SOME_FAILED if bad else 0


def _identity(request: Request) -> Identity:
    """What the run is of: its suite is named after the families that it measures."""
    families = dict.fromkeys(s.benchmark.family for s in request.selection)
    testbed = "cpu" if request.preset is Preset.CPU else "gpu"
    return identity(os.environ, git_state(), suite="-".join(families) or "unknown", testbed=testbed)


def _protocol(request: Request, order: Sequence[str]) -> dict[str, Any]:
    return {
        "seed": request.seed,
        "processes": request.processes,
        "order": order,
        "garbage_collector": "collected before timing and off while timing",
        "compiler_caches": "kept between processes in the compiler's own folders; compile.cold begins with none",
        "scaled_down": SCALED_DOWN.get(request.preset),
    }


def _follow(request: Request) -> int:
    """A further rank under torchrun: the same plan in the same order, so that its processes meet those of rank 0.

    What is measured, rank 0 writes.
    """
    session = SuiteSession(replace(request, profile_into=None, following=True), Launcher())
    _interrupt_on_signals(session)
    session.run()
    if session.interrupted:
        return INTERRUPTED
    bad = [r for r in session.results() if r["status"] not in (Status.OK, Status.NOT_APPLICABLE)]
    return SOME_FAILED if bad else 0


def _precision(options: argparse.Namespace, preset: Preset) -> float | None:
    if options.precision is None:
        return FULL_PRECISION if preset is Preset.FULL and options.processes is None and not options.tier else None
    if not 0 < options.precision < 1:
        raise WrongCall(f"--precision is {options.precision}; it is a fraction, e.g. 0.01 for one percent")
    return float(options.precision)


def _request(options: argparse.Namespace, out: Path) -> Request:
    preset = Preset(options.preset or (Preset.FULL if options.tier else Preset.CPU))
    selection, unknown = _selection(options, preset)
    for error in unknown:
        print(f"benchmarks: {error}", file=sys.stderr)
    usual = max((one.case.processes or 1 for one in selection), default=1) if options.tier else PROCESSES[preset]
    processes = usual if options.processes is None else options.processes
    if processes < 1:
        raise WrongCall(f"--processes is {processes}; at least 1 is needed")
    if options.timeout is not None and options.timeout <= 0:
        raise WrongCall(f"--timeout is {options.timeout:g}; it is a number of seconds above 0")
    if options.implementation:
        closed = dict.fromkeys(one.benchmark.id for one in selection if not one.benchmark.signature)
        if closed:
            open_ones = ", ".join(b.id for b in registry.BY_ID.values() if b.signature)
            raise WrongCall(f"{', '.join(closed)} takes no --implementation; these do: {open_ones}")
    if options.processes is not None:
        selection = tuple(replace(one, case=replace(one.case, processes=None)) for one in selection)
    return Request(
        selection=selection,
        preset=preset,
        implementation=options.implementation,
        processes=processes,
        seed=options.seed,
        timeout_s=options.timeout,
        precision=_precision(options, preset),
        profile_into=out.parent if options.profile else None,
        pins=pins.load(options.pins),
        unknown=tuple(map(str, unknown)),
    )


def _selection(
    options: argparse.Namespace, preset: Preset
) -> tuple[tuple[registry.Selected, ...], tuple[registry.UnknownBenchmark, ...]]:
    """Cases that the patterns name, or the tier's part of them."""
    if options.tier:
        if preset is not Preset.FULL or options.variant:
            raise WrongCall(
                f"--tier {options.tier} is a choice of the full preset's cases; it takes an ID|GLOB besides"
            )
        return tiers.of_name(options.tier, options.patterns), ()
    if not options.patterns:
        raise WrongCall("nothing to run: name an ID|GLOB (see list), or a --tier")
    return registry.choose(
        options.patterns,
        preset,
        registry.parse_filters(options.variant),
        plugged_in=options.implementation is not None,
    )


def _interrupt_on_signals(session: SuiteSession) -> None:
    def end(number: int, frame: object) -> None:
        print("benchmarks: interrupted; writing what is finished", file=sys.stderr)
        session.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _code_under_test(implementation: str | None) -> dict[str, Any]:
    if implementation:
        return {"kind": "implementation", "entry": implementation}
    return {"kind": "builtin", "entry": f"benchmarks {SUITE_VERSION}"}


def _write_logs(out: Path, document: Mapping[str, Any], session: SuiteSession, began_ms: int) -> None:
    """One `.mllog` per result beside run.json, named in the result's artifacts; it ends where its measuring ended."""
    ended_ms = int(time.time() * 1000)
    for result in document["results"]:
        if result["status"] != Status.OK:
            continue
        name = f"{result['benchmark']}.{slug_of(result['variant'])}.mllog"
        windows = session.measured_ms(result) or [(began_ms, ended_ms)]
        times = mllog.Times(
            began_ms=began_ms,
            measured_from_ms=min(start for start, _ in windows),
            ended_ms=max(end for _, end in windows),
        )
        (out.parent / name).write_text("".join(line + "\n" for line in mllog.lines(document, result, times)))
        result.setdefault("artifacts", {})["mllog"] = name


def _say(document: Mapping[str, Any], out: Path) -> None:
    """Print the findings on standard error."""
    for result in document["results"]:
        variant = " ".join(f"{key}={value}" for key, value in result["variant"].items())
        head = f"{result['benchmark']:14} {variant:36} {result['status']:14}"
        gates = [m for m in result.get("measurements", ()) if m["role"] in ("gate", "watch")][:3]
        figures = "  ".join(
            f"{m['metric']} {m['value']:.5g}{'' if m['unit'] in ('1', 'ratio') else ' ' + m['unit']}" for m in gates
        )
        print(f"{head} {figures or result.get('error') or ''}", file=sys.stderr)
    print(f"{document['status']}: {out}", file=sys.stderr)
