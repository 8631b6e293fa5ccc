"""`best` keeps its backend from run to run, says when another has become quicker, and changes only when it is told."""

import json

import pytest

from benchmarks import pins
from benchmarks.cli import main
from benchmarks.registry import choose
from benchmarks.running.interleave import _pin
from benchmarks.running.launch import Launcher
from benchmarks.running.session import Request, SuiteSession
from benchmarks.spec import Preset

CASE, GPU = "attn.train/best-causal-512-64", "NVIDIA H200"
VARIANT = {"backend": "best", "mask": "causal", "length": 512, "head_dim": 64}


def run_that_chose(backend, *, accelerator=GPU, **milliseconds):
    notes = {"chosen_backend": backend, "candidates_ms": milliseconds or {backend: 1.0}}
    results = [{"benchmark": "attn.train", "variant": VARIANT, "preset": "full", "notes": notes}]
    where = {"accelerator": accelerator} if accelerator else {}
    return {"schema": "tidemark.run/1", "environment": where, "results": results}


def test_the_first_choice_is_pinned_and_said():
    found, said = pins.learn({}, [run_that_chose("sdpa_flash")])
    assert found == {GPU: {CASE: "sdpa_flash"}}
    assert said == [f"{CASE} on {GPU}: sdpa_flash"]


@pytest.mark.parametrize(
    ("milliseconds", "after"),
    [
        ({"sdpa_flash": 1.0, "sdpa_cudnn": 0.98}, "sdpa_flash"),
        ({"sdpa_flash": 1.0, "sdpa_cudnn": 0.97}, "sdpa_cudnn"),
        ({"sdpa_flash": None, "sdpa_cudnn": 5.0}, "sdpa_cudnn"),
    ],
)
def test_a_pin_changes_only_for_what_is_clearly_quicker_or_where_it_does_not_run(milliseconds, after):
    before = {GPU: {CASE: "sdpa_flash"}}
    found, said = pins.learn(before, [run_that_chose("sdpa_flash", **milliseconds)])
    assert found == {GPU: {CASE: after}}
    assert said == ([] if after == "sdpa_flash" else [f"{CASE} on {GPU}: sdpa_flash → {after}"])


def test_pins_are_of_their_machine_and_cpus_have_none():
    runs = [run_that_chose("flex", accelerator="NVIDIA A100"), run_that_chose("sdpa_math", accelerator=None)]
    found, _ = pins.learn({GPU: {CASE: "sdpa_flash"}}, runs)
    assert found == {GPU: {CASE: "sdpa_flash"}, "NVIDIA A100": {CASE: "flex"}}
    assert pins.of_case(found, CASE) == {GPU: "sdpa_flash", "NVIDIA A100": "flex"}


def test_learn_writes_the_pins_and_prints_what_changed(tmp_path, capsys):
    run, times, into = tmp_path / "run.json", tmp_path / "times.json", tmp_path / "pins.json"
    run.write_text(json.dumps(run_that_chose("sdpa_flash")))
    assert main(["learn", str(run), f"--into={times}", f"--pins={into}"]) == 0
    assert f"pinned {CASE} on {GPU}: sdpa_flash" in capsys.readouterr().out
    assert pins.load(into) == {GPU: {CASE: "sdpa_flash"}}
    assert main(["learn", str(run), f"--into={times}", f"--pins={into}"]) == 0
    assert "pinned" not in capsys.readouterr().out


def test_both_arms_of_a_session_take_what_the_first_turn_chose(tmp_path):
    out, into = tmp_path / "run.json", tmp_path / "pins.json"
    for chosen in ("sdpa_flash", "sdpa_cudnn"):
        out.write_text(json.dumps(run_that_chose(chosen, sdpa_flash=1.0, sdpa_cudnn=0.5)))
        _pin(out, into)
    assert pins.load(into) == {GPU: {CASE: "sdpa_flash"}}


def test_every_process_of_a_run_takes_what_the_first_one_chose():
    (one,), _ = choose([CASE], Preset.CPU, {})
    pinned = {GPU: {CASE: "flex"}}
    request = Request(selection=(one,), preset=Preset.CPU, implementation=None, processes=2, seed=1, pins=pinned)
    session = SuiteSession(request, Launcher())
    first, second = session.plan
    assert session._job(first, first=True, last=False)["extra"] == {"pins": {GPU: "flex"}}
    (state,) = session.states.values()
    state.reports.append({"notes": {"chosen_backend": "sdpa_math"}})
    assert session._job(second, first=False, last=True)["extra"]["chosen_backend"] == "sdpa_math"
