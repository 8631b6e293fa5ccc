"""Tiers: what they cover, that they fit their minutes, and how the times of their cases are learnt."""

import json

import pytest

from benchmarks import expected, tiers
from benchmarks.acceptance.archive import Ended, UnitRecord, opened
from benchmarks.cli import main
from benchmarks.registry import BY_ID
from benchmarks.spec import Preset
from benchmarks.tiers import HEADLINES, MACHINE, TIERS, families, lacking, on_one_gpu, ways

CASES = {one.name: one for one in on_one_gpu()}


def picks(tier):
    return [one for one, _ in TIERS[tier].picks]


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_fits_its_minutes_and_has_no_case_twice(tier):
    assert TIERS[tier].seconds({}) <= 60 * TIERS[tier].minutes
    assert TIERS[tier].seconds(expected.load()) <= 60 * TIERS[tier].minutes
    assert len({one.name for one in picks(tier)}) == len(picks(tier))


def test_the_night_shows_every_way_of_every_benchmark_that_one_gpu_runs():
    assert lacking(picks("nightly"), {name: ways(one) for name, one in CASES.items()}) == set()
    assert {one.benchmark.id for one in picks("nightly")} == {b.id for b in BY_ID.values() if not b.distributed}
    backends = {one.case.variant["backend"] for one in picks("nightly") if one.benchmark.id == "attn.train"}
    assert backends == {case.variant["backend"] for case in BY_ID["attn.train"].cases(Preset.FULL)}


def test_a_commit_shows_every_family_and_the_night_goes_on_with_its_series():
    assert lacking(picks("commit"), {name: families(one) for name, one in CASES.items()}) == set()
    nightly = {one.name: n for one, n in TIERS["nightly"].picks}
    assert all(nightly[one.name] == n for one, n in TIERS["commit"].picks if one.name in HEADLINES)


def test_of_the_night_only_the_named_cases_and_a_few_early_choices_show_nothing_of_their_own():
    named, every = HEADLINES | tiers.OF_THE_NIGHT, picks("nightly")
    features = {name: ways(one) for name, one in CASES.items()}
    spare = [
        one.name
        for one in every
        if one.name not in named and not lacking([other for other in every if other is not one], features)
    ]
    assert len(spare) <= 4, spare


def test_what_one_gpu_cannot_run_is_in_no_tier():
    assert not any(one.benchmark.distributed for tier in TIERS for one in picks(tier))


def test_patterns_take_a_part_of_a_tier_with_the_processes_it_gives():
    (chosen,) = tiers.of_name("commit", ["gpt.train"])
    assert (chosen.name, chosen.case.processes) == ("gpt.train/gpt2-124m-bf16", 3)
    assert tiers.of_name("commit", ["gpt.ladder/r00*"]) == ()


def test_a_tier_takes_neither_preset_nor_variants(capsys):
    for option in ("--preset=cpu", "--variant=impl=loop"):
        assert main(["run", "--tier=commit", option]) == 2
        assert "is a choice of the full preset" in capsys.readouterr().err


def test_list_states_what_a_tier_covers_its_minutes_and_where_its_times_come_from(capsys):
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    for tier in TIERS.values():
        assert f"tier {tier.name}: {tier.covers}" in told
        assert f"of {tier.minutes:g} min on one {MACHINE}" in told
    assert "times learnt from runs, the others estimated" in told
    assert main(["list", "--tier", "commit"]) == 0
    told = capsys.readouterr().out
    assert all(one.name in told for one in picks("commit"))
    assert main(["list", "--json"]) == 0
    assert [t["name"] for t in json.loads(capsys.readouterr().out)["tiers"]] == list(TIERS)


def run_of(name, *seconds, preset="full", accelerator=MACHINE):
    one = CASES[name]
    result = {"benchmark": one.benchmark.id, "variant": dict(one.case.variant), "preset": preset}
    where = {"accelerator": accelerator} if accelerator else {}
    run = {"schema": "tidemark.run/1", "environment": where}
    return run | {"results": [result | {"harness": {"process_seconds": list(seconds)}}]}


NAME = "gpt.train/gpt2-124m-bf16"


def test_the_median_process_of_earlier_runs_takes_the_place_of_the_estimate():
    one = CASES[NAME]
    before = expected.expected(one, Preset.FULL, {}, MACHINE)
    times = expected.learn({}, [run_of(NAME, 20.0, 24.0), run_of(NAME, 50.0)])
    after = expected.expected(one, Preset.FULL, times, MACHINE)
    assert (before.learnt, after.learnt, after.seconds) == (False, True, 24.0)
    assert TIERS["commit"].seconds(times) == pytest.approx(TIERS["commit"].seconds({}) + 3 * (24.0 - before.seconds))
    assert TIERS["commit"].learnt(times) == 1


def test_times_are_those_of_their_machine_and_preset_and_the_others_stay():
    times = expected.learn({}, [run_of(NAME, 20.0), run_of(NAME, 9.0, preset="smoke")])
    times = expected.learn(times, [run_of(NAME, 70.0, accelerator="NVIDIA A100"), run_of(NAME)])
    assert times == {MACHINE: {"full": {NAME: 20.0}, "smoke": {NAME: 9.0}}, "NVIDIA A100": {"full": {NAME: 70.0}}}


def test_times_are_learnt_from_runs_and_from_the_archive_of_an_acceptance(tmp_path, capsys):
    run, kept, into = tmp_path / "run.json", tmp_path / "gpu.tar.gz", tmp_path / "times.json"
    run.write_text(json.dumps(run_of("gpt.ladder/r10_largest_batch", 61.0)))
    with opened(kept) as archive:
        archive.of("one").mkdir()
        (archive.of("one") / "run.json").write_text(json.dumps(run_of(NAME, 21.0)))
        archive.record("one", UnitRecord(ended=Ended.DONE, seconds=30.0, call=1, code="c0"))
    assert main(["learn", str(run), str(kept), f"--into={into}"]) == 0
    assert "2 results of 2 runs read" in capsys.readouterr().out
    assert expected.load(into) == {MACHINE: {"full": {"gpt.ladder/r10_largest_batch": 61.0, NAME: 21.0}}}


def test_list_names_the_cases_of_a_pattern_with_the_seconds_that_were_learnt(tmp_path, capsys):
    times = tmp_path / "times.json"
    times.write_text(
        json.dumps({MACHINE: {"full": {NAME: 21.5}}, expected.CPU: {"cpu": {"llama.block/eager-fp32": 2.5}}})
    )
    assert main(["list", "gpt.train", "llama.block/eager*", f"--times={times}"]) == 0
    learnt, estimated = capsys.readouterr().out.splitlines()
    assert learnt.split() == [NAME, "21.5", "s", "learnt"]
    assert estimated.split() == ["llama.block/eager-bf16", "30.0", "s", "estimated"]
    assert main(["list", "llama.block", "--preset=cpu", f"--times={times}"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.split() == ["llama.block/eager-fp32", "2.5", "s", "learnt"]
    assert all(line.endswith("not applicable") for line in others)
    assert main(["list", f"--times={times}"]) == 0
    assert "1 of 1 learnt" in capsys.readouterr().out
    assert main(["list", "gpt.trian"]) == 2


def test_a_file_that_is_neither_is_a_wrong_call(tmp_path, capsys):
    other = tmp_path / "page.md"
    other.write_text("# a page")
    assert main(["learn", str(other)]) == 2
    assert "is not an acceptance archive" in capsys.readouterr().err


@pytest.mark.torch
def test_a_run_says_how_long_each_of_its_processes_took(command):
    done = command("run", "ceiling.launch", "--preset", "cpu", "--processes", "2")
    assert done.code == 0, done.stderr
    assert len(done.result["harness"]["process_seconds"]) == 2
    assert all(0.5 < seconds < 60 for seconds in done.result["harness"]["process_seconds"])
