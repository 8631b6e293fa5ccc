"""The acceptance of a GPU on loan: its plan, its archive, its sessions, every target from both sides, and the page."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.acceptance import plan, sessions, targets
from benchmarks.acceptance.archive import Call, Ended, UnitRecord, UnreadableArchive, code_digest, opened
from benchmarks.acceptance.command import UnitOutcome, Watch, measure_units
from benchmarks.acceptance.page import NO_CLAIM, PageContent, page
from benchmarks.acceptance.plan import AcceptancePart, Sessions, Unit
from benchmarks.acceptance.sessions import MeasuredArms, Verdicts
from benchmarks.registry import BY_ID
from benchmarks.spec import Preset

# the plan


@pytest.mark.parametrize("preset", [Preset.FULL, Preset.CPU])
def test_a_unit_is_one_process_of_one_registered_case_and_no_two_share_a_name(preset):
    units = plan.units(preset)
    assert len({unit.name for unit in units}) == len(units)
    for unit in (unit for unit in units if unit.is_run):
        _, case, _, sized, *rest = unit.arguments
        assert len(registry.choose([case], Preset(sized), {})[0]) == 1
        assert rest[:2] == ["--processes", "1"]


def test_the_first_call_begins_with_the_ends_and_last_rungs_of_the_ladder_then_one_case_of_every_family():
    first = [unit.arguments[1] for unit in plan.of_part(plan.units(Preset.FULL), AcceptancePart.FIRST)]
    assert [case.removeprefix("gpt.ladder/")[:3] for case in first[:5]] == ["r00", "r10", "r09", "r08", "r07"]
    families = [case.partition(".")[0] for case in first[5:]]
    assert sorted(families) == sorted({b.family for b in BY_ID.values()})
    assert sum(unit.expected_s for unit in plan.of_part(plan.units(Preset.FULL), AcceptancePart.FIRST)) < 540 - 15


def test_every_benchmark_is_measured_at_some_time_and_of_the_collectives_one():
    seen = {unit.arguments[1].partition("/")[0] for unit in plan.units(Preset.FULL) if unit.is_run}
    assert {b.id for b in BY_ID.values() if b.mode != "collective"} == seen - {"coll.all_reduce"}


def test_every_rung_is_measured_at_some_time():
    rungs = {unit.arguments[1] for unit in plan.units(Preset.FULL) if "gpt.ladder/" in unit.arguments[1]}
    assert len(rungs) == 11


def test_the_estimates_of_the_whole_plan_fit_four_calls_of_nine_minutes():
    sessions_s = 4 * 10 * plan.sessions(Preset.FULL).count
    assert sum(unit.expected_s for unit in plan.units(Preset.FULL)) + sessions_s < 4 * (540 - 15)


def test_forty_processes_of_a_small_batch_are_asked_for_half_of_them_slowed_by_two_percent():
    wanted = plan.sessions(Preset.FULL)
    (chosen,), _ = registry.choose([wanted.case], wanted.preset, {})
    assert (4 * wanted.count, wanted.injected) == (40, 0.02)
    assert chosen.case.config["batch_size"] < 16


# what is measured, call by call

UNITS = [
    Unit(part=AcceptancePart.FIRST, name=name, arguments=("run", name), expected_s=30.0) for name in ("a", "b", "c")
]
LATER = [replace(unit, part=AcceptancePart.SHAPES) for unit in UNITS]


class Script:
    """Ends units as it was told to, and remembers which were begun."""

    def __init__(self, **ended):
        self.ended, self.begun = ended, []

    def __call__(self, unit, left_s):
        self.begun.append(unit.name)
        return self.ended.get(unit.name, UnitOutcome(Ended.DONE))


FAILS = UnitOutcome(Ended.FAILED, "failed: no such kernel", "line\n" * 99 + "no such kernel")


def call(path, units, script, *, code="c0", seconds=540.0, spent=0.0):
    with opened(path) as archive:
        archive.begin(Call(date="2026-11-22", command="acceptance", seconds=0, ended="killed"))
        stopped = measure_units(units, archive, Watch(time.monotonic() - spent, seconds), code, script)
        archive.end(1.0, stopped or "done")
    return stopped


def test_a_failure_of_the_first_part_ends_the_call_with_its_log(tmp_path, capsys):
    script = Script(b=FAILS)
    assert call(tmp_path / "a.tar.gz", UNITS, script) == "stopped at b, which failed"
    assert script.begun == ["a", "b"]
    log = capsys.readouterr().err
    assert log.endswith("no such kernel\n") and log.count("line\n") < 99, "the end of the log"


def test_the_next_call_goes_on_after_what_failed_and_other_code_tries_it_again(tmp_path):
    kept = tmp_path / "a.tar.gz"
    call(kept, UNITS, Script(b=FAILS))
    same, other = Script(), Script()
    assert call(kept, UNITS, same) is None
    assert same.begun == ["c"]
    call(kept, UNITS, other, code="c1")
    assert other.begun == ["b"]


def test_a_failure_of_a_later_part_ends_nothing(tmp_path):
    script = Script(a=FAILS)
    assert call(tmp_path / "a.tar.gz", LATER, script) is None
    assert script.begun == ["a", "b", "c"]


def test_what_does_not_fit_the_rest_of_a_call_is_left_for_the_next_and_what_fits_is_measured(tmp_path):
    kept, few, rest = tmp_path / "a.tar.gz", Script(), Script()
    mixed = [replace(LATER[0], expected_s=300.0), LATER[1]]
    call(kept, mixed, few, spent=400.0)
    assert few.begun == ["b"]
    call(kept, mixed, rest)
    assert rest.begun == ["a"]


def test_a_unit_that_was_cut_short_is_begun_again_until_it_had_a_whole_call(tmp_path):
    kept, cut = tmp_path / "a.tar.gz", {"a": UnitOutcome(Ended.CUT_SHORT)}
    begun = []
    for spent in (300.0, 0.0, 0.0):
        script = Script(**cut)
        call(kept, LATER[:1], script, spent=spent)
        begun.append(script.begun)
    assert begun == [["a"], ["a"], []]


def test_a_case_longer_than_its_estimate_allows_is_still_begun_with_a_whole_call_before_it(tmp_path):
    script = Script()
    call(tmp_path / "a.tar.gz", [replace(LATER[0], expected_s=9999.0)], script)
    assert script.begun == ["a"]


def test_a_further_process_of_a_case_is_expected_to_take_what_the_others_took(tmp_path):
    """A unit that does not fit is not begun in vain; the estimate of 30 s is for a case that nothing is known of."""
    kept, rest = tmp_path / "a.tar.gz", Script()
    with opened(kept) as archive:
        archive.record("case.full.0", UnitRecord(ended=Ended.DONE, seconds=200.0, call=1, code="c0"))
    of_case = [replace(LATER[0], name=f"case.full.{number}") for number in (0, 1)]
    call(kept, [*of_case, replace(LATER[1], name="other.full.0")], rest, spent=400.0)
    assert rest.begun == ["other.full.0"]


def test_a_unit_that_was_cut_short_is_expected_to_take_longer_than_it_had(tmp_path):
    kept, rest = tmp_path / "a.tar.gz", Script()
    with opened(kept) as archive:
        archive.record("a", UnitRecord(ended=Ended.CUT_SHORT, seconds=150.0, call=1, code="c0", share=0.3))
    call(kept, LATER[:2], rest, spent=400.0)
    assert rest.begun == ["b"]


def test_a_call_that_is_killed_leaves_every_unit_that_had_ended(tmp_path):
    kept = tmp_path / "a.tar.gz"

    def dies_at_b(unit, left_s):
        if unit.name == "b":
            raise KeyboardInterrupt
        return UnitOutcome(Ended.DONE)

    with pytest.raises(KeyboardInterrupt):
        call(kept, UNITS, dies_at_b)
    with opened(kept) as archive:
        assert list(archive.records) == ["a"]
        assert archive.calls[-1].ended == "killed"


# the archive


def test_the_archive_is_one_file_with_every_run_and_what_became_of_each_unit(tmp_path):
    kept = tmp_path / "gpu.tar.gz"
    with opened(kept) as archive:
        archive.of("a").mkdir()
        (archive.of("a") / "run.json").write_text('{"results": []}')
        archive.record("a", UnitRecord(ended=Ended.DONE, seconds=12.5, call=1, code="c0"))
        unpacked = archive.folder
    assert not unpacked.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.tar.gz"]
    with tarfile.open(kept) as packed:
        assert "gpu/a/run.json" in packed.getnames()
    with opened(kept) as archive:
        assert archive.runs(["a", "b"]) == {"a": {"results": []}}
        assert archive.records["a"] == UnitRecord(ended=Ended.DONE, seconds=12.5, call=1, code="c0")


def test_a_file_that_is_no_archive_is_told_and_left_alone(tmp_path):
    kept = tmp_path / "gpu.tar.gz"
    kept.write_text("a page by mistake")
    with pytest.raises(UnreadableArchive, match="remove it to start over"), opened(kept):
        pass
    assert kept.read_text() == "a page by mistake"


def test_an_archive_writes_nothing_outside_of_its_folder(tmp_path):
    kept, outside = tmp_path / "gpu.tar.gz", tmp_path / "outside"
    outside.write_text("x")
    with tarfile.open(kept, "w:gz") as archive:
        archive.add(outside, "gpu/../../../outside-of-it")
    with opened(kept) as archive:
        assert list(archive.folder.rglob("*")) == []
        assert not (archive.folder.parent.parent / "outside-of-it").exists()


def test_the_code_that_measures_is_told_by_its_sources():
    assert code_digest() == code_digest()
    assert len(code_digest()) == 12


# sessions


@pytest.mark.parametrize("degrees", [5, 19, 40, 100])
def test_the_quantile_is_students(degrees):
    from scipy.stats import t

    assert sessions.student(degrees, 0.001) == pytest.approx(t.ppf(1 - 0.0005, degrees), rel=0.03)


def session(change, noise=(0.0, 0.0), call=1):
    """Two processes of each arm, the head's slower by `change`; the noise falls on the second of either."""
    base = (1.0, 1.0 + noise[0])
    head = ((1 + change), (1 + change) * (1 + noise[1]))
    return MeasuredArms(slow_down=0.02, base=base, head=head, metric="step_ms", call=call)


NOISE = [(0.002, -0.002), (-0.001, 0.001), (0.001, 0.002), (-0.002, -0.001), (0.0, 0.001)] * 2


def test_slowed_sessions_are_found_and_permuted_ones_raise_nothing():
    found = sessions.judged([session(0.02, noise) for noise in NOISE])
    assert (found.honest, found.raised, found.slowed, found.found, found.processes) == (30, 0, 10, 10, 40)
    assert 0.0005 < found.spread < 0.002


def test_a_change_within_the_spread_of_permuted_sessions_is_not_found_nor_one_that_looks_faster():
    assert sessions.judged([session(0.003, noise) for noise in NOISE]).found == 0
    assert sessions.judged([session(-0.02, noise) for noise in NOISE]).found == 0


def test_a_process_that_is_far_off_the_others_of_its_arm_raises_an_alarm():
    held = [session(0.02, noise) for noise in NOISE]
    held[3] = replace(held[3], base=(1.0, 1.05))
    assert sessions.judged(held).raised > 0


def test_four_processes_of_one_arm_are_divided_in_three_ways_that_are_independent():
    groups = sessions.permuted([session(0.0), session(0.0, (0.04, 0.0))])
    assert len(groups) == 2
    assert [round(change, 4) for change in groups[0]] == [0.02, 0.02, -0.0196]
    assert groups[1] == (0.0, 0.0, 0.0), "the heads ran alike"
    signs = [[1 if n in first else -1 for n in range(4)] for first, _ in sessions.WAYS]
    assert all(sum(a * b for a, b in zip(x, y, strict=True)) == 0 for x in signs for y in signs if x is not y)


def test_processes_of_two_calls_are_never_permuted_with_each_other():
    assert sessions.permuted([session(0.0, call=1), session(0.0, call=2)]) == []
    assert sessions.judged([session(0.5, call=1), session(0.5, call=2)]).found == 0, "nothing to judge by"


def test_the_spread_is_that_of_a_session_by_the_mean_square_of_its_permutations():
    import random

    rng = random.Random(7)
    held = [session(0.0, (rng.gauss(0, 0.01), rng.gauss(0, 0.01))) for _ in range(400)]
    of_a_session = sessions_spread = 0.01 * math.sqrt(0.5)
    assert sessions.judged(held).spread == pytest.approx(sessions_spread, rel=0.1)
    assert math.sqrt(sum(s.change**2 for s in held) / len(held)) == pytest.approx(of_a_session, rel=0.1)


def test_fewer_than_twenty_sessions_are_said_to_show_less_than_twenty_of_twenty():
    few = sessions.judged([session(0.02, noise) for noise in NOISE])
    assert few.in_words.startswith("10 of 10 slowed sessions were found; of 30 sessions in which nothing changed")
    assert "20 of 20 is not shown: 10 sessions were slowed" in few.in_words
    assert "not shown" not in replace(few, slowed=20, found=20).in_words


def nothing():
    """What is kept beside the sessions' own file, where a test asks for no more."""


def test_sessions_of_calls_of_their_own_are_not_judged_and_said_so():
    """Found 0 of 2 is what a broken harness would say; here nothing tells what chance does."""
    alone = [session(0.5, call=1), session(0.5, call=2)]
    found = sessions.judged(alone)
    assert found.honest == 0
    assert "2 slowed sessions were measured and none is judged" in found.in_words
    of = {t.name: t.value for t in targets.targets({}, alone, found, None, 0)}
    assert of["slowed sessions found"] is None


def test_sessions_are_kept_one_by_one_and_the_next_call_goes_on(tmp_path):
    kept, asked = tmp_path / "sessions.json", []

    def one(number):
        asked.append(number)
        return session(0.02, call=number)

    wanted, left = (
        Sessions(case="gpt.train/x", preset=Preset.CPU, count=3, injected=0.02),
        iter([100.0] * 3 + [1.0] * 9),
    )
    assert sessions.measure(wanted, partial(one, 1), kept, lambda: next(left), print, nothing) is None
    assert 0 < len(sessions.load(kept)) < 3
    assert sessions.measure(wanted, partial(one, 2), kept, lambda: 100.0, print, nothing) is None
    assert [s.call for s in sessions.load(kept)] == asked == [1] * asked.count(1) + [2] * asked.count(2)
    assert len(asked) == 3
    assert sessions.measure(wanted, partial(one, 3), kept, lambda: 100.0, print, nothing) is None
    assert len(asked) == 3


def test_a_call_that_is_killed_leaves_every_session_that_had_ended(tmp_path):
    """They were kept in the unpacked folder alone, and ten minutes of a GPU went with it."""
    path = tmp_path / "a.tar.gz"
    wanted = Sessions(case="gpt.train/x", preset=Preset.CPU, count=3, injected=0.02)
    found = iter([session(0.02, call=1), session(0.02, call=1)])

    def dies_at_the_third():
        if (one := next(found, None)) is None:
            raise KeyboardInterrupt
        return one

    with pytest.raises(KeyboardInterrupt), opened(path) as archive:
        kept = archive.folder / "sessions.json"
        sessions.measure(wanted, dies_at_the_third, kept, lambda: 100.0, print, archive.keep)
    with opened(path) as archive:
        assert len(sessions.load(archive.folder / "sessions.json")) == 2


@pytest.mark.torch
def test_a_process_of_a_session_that_outlasts_the_call_is_ended_with_it():
    """By the case's own limit it had a quarter of an hour, and the call ten minutes."""
    answer = sessions.of_case(plan.sessions(Preset.CPU), 1, lambda: 0.5)()
    assert isinstance(answer, str) and answer.startswith("timeout: no result within 1 s")


def test_a_first_session_is_expected_to_take_what_its_processes_take(tmp_path):
    short, long = (replace(plan.sessions(Preset.CPU), expected_s=seconds) for seconds in (15.0, 60.0))
    for wanted, begun in ((long, 0), (short, 2)):
        sessions.measure(wanted, lambda: session(0.5, call=1), tmp_path / "s.json", lambda: 40.0, print, nothing)
        assert len(sessions.load(tmp_path / "s.json")) == begun
    assert plan.sessions(Preset.FULL).expected_s == pytest.approx(60.0), "five times the estimate of a smoke process"


def test_a_session_whose_process_failed_ends_the_measuring_with_its_sentence(tmp_path):
    wanted = Sessions(case="gpt.train/x", preset=Preset.CPU, count=2, injected=0.02)
    kept = tmp_path / "s.json"
    assert sessions.measure(wanted, lambda: "failed: no GPU", kept, lambda: 100.0, print, nothing) == "failed: no GPU"
    assert sessions.load(kept) == []


# targets and the page


def run_of(benchmark, variant, ceilings=None, roofline=None, notes=None, status="ok", preset="full", **metrics):
    result = {"benchmark": benchmark, "variant": variant, "status": status, "error": "out of luck", "preset": preset}
    result |= {"measurements": [{"metric": n, "value": v, "role": "watch"} for n, v in metrics.items()]}
    result |= {"roofline": roofline} if roofline else {}
    result |= {"notes": notes} if notes else {}
    head = {"status": "ok", "started_at": "a", "finished_at": "b", "commit": "c" * 40, "suite_version": "1.0.0"}
    where = {"accelerator": "NVIDIA H200", "torch": "2.13.0", "driver": "580.1"}
    return head | {"results": [result], "ceilings": ceilings or {}, "environment": where}


def moe(grouped, loop, achieved, intensity=600.0):
    shape = {"shape": "olmoe", "load": "uniform"}
    roofline = {"flop_per_byte": intensity, "achieved_tflops": achieved}
    ceiling = {"gemm_bf16_tflops": 700.0}
    return {
        **{
            f"moe-{n}": run_of(
                "moe.layer", {**shape, "impl": "grouped_mm"}, ceiling, roofline, tokens_per_s=grouped, step_ms=ms
            )
            for n, ms in enumerate((9.99, 10.01, 10.0))
        },
        "moe-loop": run_of("moe.layer", {**shape, "impl": "loop"}, tokens_per_s=loop),
    }


def attention(**rates):
    found = {}
    for backend, (forward, backward) in rates.items():
        variant = {"backend": backend, "length": 8192, "head_dim": 128}
        notes = {"chosen_backend": "sdpa_cudnn"} if backend == "best" else None
        found[f"attention-{backend}"] = run_of(
            "attn.train", variant, notes=notes, forward_tflops=forward, backward_tflops=backward
        )
    return found


def steady(*values):
    variant = {"backend": "sdpa_flash", "length": 4096, "head_dim": 128}
    return {f"steady-{n}": run_of("attn.train", variant, step_ms=value) for n, value in enumerate(values)}


GOOD = {
    "r00": run_of("gpt.ladder", {"rung": "r00"}, tokens_per_s=40_000),
    "r10": run_of("gpt.ladder", {"rung": "r10"}, tokens_per_s=510_000),
    **steady(10.0, 10.01, 9.99),
    **attention(sdpa_flash=(350.0, 300.0), sdpa_cudnn=(530.0, 500.0), best=(529.0, 501.0)),
    **moe(2_100_000, 1_000_000, 500.0),
    "smoke": run_of("gpt.ladder", {"rung": "r10"}, preset="smoke", tokens_per_s=1.0),
}
BAD = {
    **GOOD,
    "r10": run_of("gpt.ladder", {"rung": "r10"}, tokens_per_s=450_000),
    **steady(10.0, 10.1, 9.9),
    **attention(sdpa_flash=(350.0, 300.0), sdpa_cudnn=(530.0, 500.0), best=(350.0, 300.0)),
    **moe(1_900_000, 1_000_000, 480.0),
    "moe-0": run_of("moe.layer", {"shape": "olmoe", "load": "uniform", "impl": "grouped_mm"}, step_ms=11.0),
    "decode": run_of("attn.decode", {}, status="failed"),
}
BAD["moe-0"]["results"][0] |= {"roofline": {"flop_per_byte": 600.0, "achieved_tflops": 480.0}}
BAD["moe-0"]["ceilings"] = {"gemm_bf16_tflops": 700.0}
HELD = [session(0.02, noise) for noise in NOISE]


def verdicts(raised, found, slowed=20):
    return Verdicts(honest=30, raised=raised, slowed=slowed, found=found, processes=80, spread=0.002)


def by_name(runs, held, seen, overhead, failed):
    return {target.name: target for target in targets.targets(runs, held, seen, overhead, failed)}


ALARMS = "sessions in which nothing changed that raise something"


def test_every_target_is_met_on_one_side_of_its_limit_and_missed_on_the_other():
    good = by_name(GOOD, HELD, verdicts(0, 20), 0.004, 0)
    noisy = [replace(one, base=(1.0, 1.02)) for one in HELD]
    bad = by_name(BAD, noisy, verdicts(1, 19), 0.006, 1)
    assert set(good) == set(bad)
    assert [name for name, target in good.items() if target.met is not True] == [ALARMS]
    assert [name for name, target in bad.items() if target.met is not False] == []


def test_permutations_and_few_sessions_are_never_taken_for_twenty():
    found = by_name(GOOD, HELD, verdicts(0, 10, slowed=10), 0.004, 0)
    assert found[ALARMS].met is None and "permutations" in found[ALARMS].not_shown
    assert found["slowed sessions found"].met is None
    assert found["slowed sessions found"].not_shown == "10 of 10"
    assert by_name(GOOD, HELD, verdicts(0, 9, slowed=10), 0.004, 0)["slowed sessions found"].met is False


def test_what_was_not_measured_is_neither_met_nor_missed():
    nothing = targets.targets({}, [], None, None, 0)
    assert len(nothing) >= 9
    assert {target.met for target in nothing} == {None}


def test_processes_of_one_case_are_one_row_by_their_median():
    (layer, loop) = targets.measured(GOOD, "moe.layer")
    assert (layer["step_ms"], loop["step_ms"]) == (10.0, None)
    assert len(targets.measured(GOOD, "gpt.ladder")) == 2, "the smoke run is no case"


def test_a_memory_bound_shape_is_not_held_against_the_product_ceiling():
    names = by_name(moe(2_100_000, 1_000_000, 100.0, intensity=121.0), [], None, None, 0)
    assert [name for name in names if name.startswith("moe ")] == ["moe olmoe, grouped over the loop"]


def measured(runs, seen, *, cpu=False):
    calls = [Call(date="2026-11-20 10:00 UTC", command="python -m benchmarks acceptance", seconds=531.2, ended="whole")]
    return PageContent(
        calls=calls,
        cpu=cpu,
        runs=runs,
        records={"r00": UnitRecord(ended=Ended.DONE, seconds=41.5, call=1, code="c0")},
        targets=targets.targets(runs, HELD, seen, 0.004, 0),
        attention=targets.attention(runs),
        ceilings=targets.ceilings(runs),
        sessions=HELD,
        verdicts=seen,
        archive="gpu-nvidia-h200.tar.gz",
        missing=["`attn.decode.8-8192.full.0`: not begun"],
    )


def test_the_page_says_what_was_missed_by_how_much_and_what_bounds_it():
    text = page(measured(BAD, verdicts(0, 10, slowed=10)))
    assert text.startswith("# Acceptance on NVIDIA H200, 2026-11-20\n")
    row = next(line for line in text.splitlines() if line.startswith("| ladder, r10 tokens/s"))
    assert "**missed by 10.0%**" in row and "bound: at 100 % of 989.5 TFLOP/s" in row
    assert f"| {ALARMS} | none of 20 | 0 | not shown: permutations of" in text
    for part in ("driver 580.1", "c" * 12, "best → sdpa_cudnn", "602 forward, 559 backward", "gpu-nvidia-h200.tar.gz"):
        assert part in text
    assert "gemm_bf16_tflops | 700" in text
    assert "20 of 20 is not shown: 10 sessions were slowed" in text
    assert "`attn.decode.8-8192.full.0`: not begun" in text
    assert "| 1 | 2026-11-20 10:00 UTC | `python -m benchmarks acceptance` | 531.2 | whole |" in text
    assert "| r00 | 1 | 41.5 | done |" in text


def test_the_page_of_a_cpu_claims_nothing():
    text = page(measured(GOOD, verdicts(0, 20), cpu=True))
    assert NO_CLAIM in text
    assert "| met" not in text and "missed" not in text and "not shown:" not in text.split("## Ladder")[0]


# the command


@pytest.mark.torch
def test_on_a_cpu_the_same_command_goes_through_every_part_and_does_not_measure_again(tmp_path, run_command):
    out = tmp_path / "results" / "cpu.md"
    asked = ("acceptance", f"--out={out}", "--preset=cpu", "--minutes=4")
    done = run_command(*asked)
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert NO_CLAIM in text
    overhead = next(line for line in text.splitlines() if line.startswith("| harness overhead"))
    assert float(overhead.split("|")[3]) < 0.005
    assert "20 of 20 is not shown: 2 sessions were slowed" in text
    assert "## Not measured" not in text
    assert sorted(path.name for path in out.parent.iterdir()) == ["cpu.md", "cpu.tar.gz"]
    with opened(out.with_suffix(".tar.gz")) as archive:
        assert {record.ended for record in archive.records.values()} == {Ended.DONE}
        assert len(archive.runs(list(archive.records))) == len(archive.records) - 1, "the experiment is no run"
    again = run_command(*asked)
    assert again.returncode == 0
    assert "benchmarks run" not in again.stderr and "all is measured" in again.stderr
    assert len([line for line in out.read_text().splitlines() if "| all is measured |" in line]) == 2


@pytest.mark.torch
def test_a_call_that_is_ended_leaves_no_process_behind(tmp_path):
    out = tmp_path / "cpu.md"
    command = [sys.executable, "-P", "-m", "benchmarks", "acceptance", f"--out={out}", "--preset=cpu"]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    started = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    assert "gpt.ladder.r00" in started.stderr.readline()
    until = time.monotonic() + 20
    while len(below := _below(started.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=30)
    assert len(below) == 2, "the run, and its measuring process"
    assert started.returncode != 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in below)


def _below(pid):
    """The processes of our own command below this one."""
    try:
        children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        ours = [child for child in children if b"benchmarks" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:
        return []
    return ours + [one for child in ours for one in _below(child)]


@pytest.mark.torch
def test_where_there_is_no_gpu_the_page_has_no_name_and_the_first_unit_ends_the_call(tmp_path, run_command):
    nameless = run_command("acceptance", "--minutes=1")
    assert nameless.returncode == 2
    assert "no GPU answers here" in nameless.stderr
    out = tmp_path / "none.md"
    done = run_command("acceptance", f"--out={out}", "--minutes=1")
    assert done.returncode == 1
    text = out.read_text()
    assert "stopped at gpt.ladder.r00_fp32_from_scratch.full.0, which failed" in text
    assert "not_applicable: preset full needs a GPU and torch sees none" in text
    assert "| met" not in text


def test_no_minutes_at_all_are_a_wrong_call(tmp_path, capsys):
    from benchmarks.cli import main

    assert main(["acceptance", f"--out={tmp_path / 'a.md'}", "--minutes", "0"]) == 2
    assert "--minutes is 0" in capsys.readouterr().err
