"""The acceptance of a leased GPU: its plan, its sessions, every target from both sides, the page, and the command."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import registry
from benchmarks.acceptance import plan, sessions, targets
from benchmarks.acceptance.page import NO_CLAIM, Measured, page
from benchmarks.acceptance.plan import Sessions, Stage
from benchmarks.acceptance.sessions import Session, Verdicts
from benchmarks.spec import Preset

# the plan


@pytest.mark.parametrize("preset", [Preset.FULL, Preset.CPU])
@pytest.mark.parametrize("quick", [True, False])
def test_stages_come_in_their_order_and_every_unit_selects_something(preset, quick):
    units = plan.units(preset, quick=quick)
    order = [list(Stage).index(unit.stage) for unit in units]
    assert order == sorted(order)
    assert len({unit.name for unit in units}) == len(units)
    for unit in (unit for unit in units if unit.arguments[0] == "run"):
        ids = [word for word in unit.arguments[1:] if "=" not in word][: unit.arguments.index("--preset") - 1]
        filters = [unit.arguments[n + 1] for n, word in enumerate(unit.arguments) if word == "--variant"]
        sized = Preset(unit.arguments[unit.arguments.index("--preset") + 1])
        found, unknown = registry.find_all(ids)
        assert found and not unknown
        assert registry.select(found, sized, registry.parse_filters(filters)), unit.name


def test_both_ends_of_the_ladder_are_measured_first_and_every_rung_at_some_time():
    names = [unit.name for unit in plan.units(Preset.FULL, quick=False) if unit.stage is Stage.LADDER]
    assert names[:2] == ["ladder-r00", "ladder-r10"]
    assert sorted(names) == [f"ladder-r{number:02}" for number in range(11)]


def test_a_gpu_is_asked_for_twenty_sessions_of_each_kind_at_two_percent():
    wanted = plan.sessions(Preset.FULL, quick=False)
    assert (wanted.count, wanted.injected) == (20, 0.02)


# sessions


@pytest.mark.parametrize("degrees", [5, 19, 40, 100])
def test_the_quantile_is_students(degrees):
    from scipy.stats import t

    assert sessions.student(degrees, 0.001) == pytest.approx(t.ppf(1 - 0.0005, degrees), rel=0.03)


def session(change, slow_down=0.0):
    return Session(slow_down=slow_down, base=(1.0, 1.0), head=(1.0 + change,) * 2, metric="step_ms")


HONEST = [0.002, -0.002, 0.001, -0.001] * 5


def test_honest_sessions_raise_nothing_and_slowed_ones_are_found():
    found = sessions.judged([session(c) for c in HONEST] + [session(0.02, 0.02)] * 20)
    assert (found.honest, found.raised, found.slowed, found.found) == (20, 0, 20, 20)
    assert found.spread == pytest.approx(math.sqrt(2.5) * 1e-3)


def test_a_session_that_is_far_off_the_other_honest_ones_is_raised_whichever_way_it_went():
    for change in (0.02, -0.02):
        assert sessions.judged([session(c) for c in [*HONEST[:-1], change]]).raised == 1


def test_a_slow_down_within_the_spread_of_honest_sessions_is_not_found_nor_one_that_looks_faster():
    found = sessions.judged([session(c) for c in HONEST] + [session(0.004, 0.02), session(-0.02, 0.02)])
    assert (found.slowed, found.found) == (2, 0)


def test_without_two_other_honest_sessions_nothing_is_raised():
    assert sessions.judged([session(0.5), session(0.5, 0.02)]).found == 0


def test_none_in_twenty_bounds_the_rate_below_fourteen_percent():
    assert sessions.rate_below(20) == pytest.approx(0.139, abs=0.001)


def test_sessions_are_kept_one_by_one_and_the_next_call_goes_on(tmp_path):
    kept, asked = tmp_path / "sessions.json", []

    def one(slow_down):
        asked.append(slow_down)
        return session(0.001 + slow_down, slow_down)

    wanted, left = Sessions(count=3, injected=0.02), iter([100.0] * 6 + [1.0] * 9)
    first = sessions.measure(wanted, one, kept, lambda: next(left), print)
    assert 0 < len(first) < 6
    assert asked == [0.0, 0.02, 0.0][: len(asked)], "honest and slowed in turn"
    second = sessions.measure(wanted, one, kept, lambda: 100.0, print)
    assert [s.slow_down for s in second].count(0.0) == [s.slow_down for s in second].count(0.02) == 3
    assert sessions.load(kept) == second
    assert sessions.measure(wanted, one, kept, lambda: 100.0, print) == second
    assert len(asked) == 6


def test_a_session_whose_process_failed_ends_the_measuring_with_its_sentence(tmp_path):
    said = []
    found = sessions.measure(
        Sessions(count=2), lambda _: "failed: no GPU", tmp_path / "s.json", lambda: 100.0, said.append
    )
    assert found == []
    assert said == ["session ended: failed: no GPU"]


# targets and the page


def run_of(benchmark, variant, ceilings=None, roofline=None, notes=None, status="ok", **metrics):
    result = {"benchmark": benchmark, "variant": variant, "status": status, "error": "out of luck"}
    result |= {"measurements": [{"metric": n, "value": v} for n, v in metrics.items()]}
    result |= {"roofline": roofline} if roofline else {}
    result |= {"notes": notes} if notes else {}
    head = {"status": "ok", "started_at": "a", "finished_at": "b", "commit": "c" * 40, "suite_version": "1.0.0"}
    where = {"accelerator": "NVIDIA H200", "torch": "2.13.0", "driver": "580.1"}
    return head | {"results": [result], "ceilings": ceilings or {}, "environment": where}


def steady(name, spread):
    made = run_of(name, {})
    made["results"][0]["measurements"] = [{"metric": "step_ms", "value": 1.0, "cv_between_processes": spread}]
    return made


def moe(grouped, loop, achieved):
    made = run_of(
        "moe.layer",
        {"impl": "grouped_mm"},
        {"gemm_bf16_tflops": 700.0},
        {"flop_per_byte": 600.0, "achieved_tflops": achieved},
        tokens_per_s=grouped,
    )
    made["results"] += run_of("moe.layer", {"impl": "loop"}, tokens_per_s=loop)["results"]
    return made


def attention(**rates):
    made = None
    for backend, (forward, backward) in rates.items():
        variant = {"backend": backend, "length": 8192, "head_dim": 128}
        notes = {"chosen_backend": "sdpa_cudnn"} if backend == "best" else None
        one = run_of("attn.train", variant, notes=notes, forward_tflops=forward, backward_tflops=backward)
        made = one if made is None else {**made, "results": made["results"] + one["results"]}
    return made


GOOD = {
    "ladder-r00": run_of("gpt.ladder", {"rung": "r00"}, tokens_per_s=40_000),
    "ladder-r10": run_of("gpt.ladder", {"rung": "r10"}, tokens_per_s=510_000),
    **{f"steady-{name}": steady(name, 0.002) for name in ("gpt.train", "moe.layer", "attn.train")},
    "attention-8192": attention(sdpa_flash=(350.0, 300.0), sdpa_cudnn=(530.0, 500.0), best=(529.0, 501.0)),
    "moe-olmoe": moe(2_100_000, 1_000_000, 500.0),
}
BAD = {
    "ladder-r10": run_of("gpt.ladder", {"rung": "r10"}, tokens_per_s=450_000),
    **{f"steady-{name}": steady(name, 0.004) for name in ("gpt.train", "moe.layer", "attn.train")},
    "attention-8192": attention(sdpa_flash=(350.0, 300.0), sdpa_cudnn=(530.0, 500.0), best=(350.0, 300.0)),
    "moe-olmoe": moe(1_900_000, 1_000_000, 480.0),
    "decode": run_of("attn.decode", {}, status="failed"),
}


def verdicts(raised, found):
    return Verdicts(honest=20, raised=raised, slowed=20, found=found, spread=0.002)


def by_name(runs, seen, overhead, smoke_s):
    return {target.name: target for target in targets.targets(runs, seen, overhead, smoke_s)}


def test_every_target_is_met_on_one_side_of_its_limit_and_missed_on_the_other():
    good = by_name(GOOD, verdicts(0, 20), 0.004, 110.0)
    bad = by_name(GOOD | BAD, verdicts(1, 19), 0.006, 130.0)
    assert set(good) == set(bad)
    assert [name for name, target in good.items() if target.met is not True] == []
    assert [name for name, target in bad.items() if target.met is not False] == []


def test_what_was_not_measured_is_neither_met_nor_missed():
    nothing = targets.targets({}, None, None, None)
    assert len(nothing) >= 10
    assert {target.met for target in nothing} == {None}


def test_a_memory_bound_shape_is_not_held_against_the_product_ceiling():
    few = moe(2_100_000, 1_000_000, 100.0)
    few["results"][0]["roofline"]["flop_per_byte"] = 121.0
    names = by_name({"moe-deepseek_v3": few}, None, None, None)
    assert [name for name in names if name.startswith("moe-")] == ["moe-deepseek_v3, grouped over the loop"]


def measured(runs, seen, *, cpu=False):
    return Measured(
        date="2026-11-20",
        command="python -m benchmarks acceptance --out h200.md",
        cpu=cpu,
        runs=runs,
        targets=targets.targets(runs, seen, 0.004, 110.0),
        attention=targets.attention(runs),
        ceilings=targets.ceilings(runs),
        sessions=[session(0.001), session(0.021, 0.02)],
        verdicts=seen,
        missing=["`full-0`: not begun"],
    )


def test_the_page_says_what_was_missed_by_how_much_and_what_bounds_it():
    text = page(measured(GOOD | BAD, verdicts(0, 20)))
    assert text.startswith("# Acceptance on NVIDIA H200, 2026-11-20\n")
    row = next(line for line in text.splitlines() if line.startswith("| ladder, r10 tokens/s"))
    assert "**missed by 10.0%**" in row and "bound: at 100 % of 989.5 TFLOP/s" in row
    assert "| A/A sessions that raise something | none of 20 (of 20: a rate below 14% at best) | 0 | met |" in text
    for part in ("driver 580.1", "c" * 12, "`decode/run.json`", "best → sdpa_cudnn", "602 forward, 559 backward"):
        assert part in text
    assert "gemm_bf16_tflops | 700" in text
    assert "`full-0`: not begun" in text


def test_the_page_of_a_cpu_claims_nothing():
    text = page(measured(GOOD, verdicts(0, 20), cpu=True))
    assert NO_CLAIM in text
    assert "| met" not in text and "missed" not in text


# the command


@pytest.mark.torch
def test_the_command_measures_writes_its_page_and_does_not_measure_again(tmp_path, run_command):
    out = tmp_path / "results" / "cpu.md"
    asked = ("acceptance", f"--out={out}", "--preset=cpu", "--quick", "--stage=smoke", "--stage=moe", "--minutes=3")
    done = run_command(*asked)
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert NO_CLAIM in text
    overhead = next(line for line in text.splitlines() if line.startswith("| harness overhead"))
    assert float(overhead.split("|")[3]) < 0.005
    assert "moe, grouped over the loop" in text
    assert "`ladder-r00`" in text.split("## Not measured")[1]
    run = json.loads((out.with_suffix("") / "smoke" / "run.json").read_text())
    assert run["results"][0]["benchmark"] == "ceiling.launch"
    again = run_command(*asked)
    assert again.returncode == 0
    assert "smoke: there already" in again.stderr


@pytest.mark.torch
def test_a_gpu_is_not_claimed_where_there_is_none(tmp_path, run_command):
    out = tmp_path / "none.md"
    done = run_command("acceptance", f"--out={out}", "--quick", "--stage=sessions", "--minutes=0.5")
    text = out.read_text()
    assert "session ended" in done.stderr or "no time left" in done.stderr
    assert "0 of " in text and "| met" not in text


def test_no_minutes_at_all_are_a_wrong_call(tmp_path, capsys):
    from benchmarks.cli import main

    assert main(["acceptance", f"--out={tmp_path / 'a.md'}", "--minutes", "0"]) == 2
    assert "--minutes is 0" in capsys.readouterr().err
