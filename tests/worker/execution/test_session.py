"""A round of a session: both commits checked out, their processes in turn, one delivery of all of them."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from backend.contract import new_run_id, parse_run

PROGRAM = """
    import json, os, pathlib, time
    cost = COST
    home = pathlib.Path.home() / "turns"
    turns = int(home.read_text()) if home.exists() else 0
    home.write_text(str(turns + 1))
    value = cost + turns
    pathlib.Path(os.environ["TIDEMARK_RUN_JSON"]).write_text(json.dumps({
        "schema": "tidemark.run/1", "id": os.environ["TIDEMARK_RUN_ID"], "status": os.environ.get("END", "ok"),
        "error": os.environ.get("END_WORDS"),
        "results": [{"benchmark": "own", "status": "ok", "measurements": [
            {"metric": "latency_ms", "unit": "ms", "direction": "lower", "role": "gate", "value": value}]}]}))
"""


def program(cost: str) -> str:
    return textwrap.dedent(PROGRAM.replace("COST", cost))


def session_of(base: str, head: str) -> dict[str, Any]:
    return {
        "id": new_run_id(),
        "purpose": "confirm",
        "round": 0,
        "order": "ABBA",
        "base": {"commit": base, "parents": [], "setup": {}},
        "head": {"commit": head, "parents": [base], "setup": {}},
    }


def carry_out(
    bench: Any,
    base_sha: str,
    head_sha: str,
    *,
    spec: dict[str, Any] | None = None,
    order: str = "ABBA",
    **setups: dict[str, Any],
) -> Any:
    wanted = {"command": "python bench.py", "timeout_s": 20} | (spec or {})
    if "benchmarks" in wanted:
        del wanted["command"]
    wanted["session"] = session_of(base_sha, head_sha) | {"order": order}
    for arm, setup in setups.items():
        wanted["session"][arm]["setup"] = setup
    run_id = bench.service.request(bench.repository, head_sha, wanted)
    bench.job.carry_out(run_id, bench.interrupt)
    return json.loads(bench.service.runs[run_id])


def test_turns_alternate_and_each_arm_keeps_to_its_own_commit_and_home(bench: Any) -> None:
    base = bench.repository.commit({"bench.py": program("100")})
    head = bench.repository.commit({"bench.py": program("200")})
    said = carry_out(bench, base, head)
    assert said["schema"] == "tidemark.session/1" and said["status"] == "ok"
    assert [turn["arm"] for turn in said["turns"]] == ["base", "head", "head", "base"]
    values = [turn["run"]["results"][0]["measurements"][0]["value"] for turn in said["turns"]]
    assert values == [100, 200, 201, 101]
    runs = [parse_run(turn["run"]) for turn in said["turns"]]
    assert [run.commit for run in runs] == [base, head, head, base]
    assert {run.session.base for run in runs if run.session} == {base}
    assert len({run.id for run in runs}) == 4


def test_nothing_of_a_session_is_left_on_the_machine(bench: Any) -> None:
    commit = bench.repository.commit({"bench.py": program("100")})
    carry_out(bench, commit, commit)
    assert list(bench.config.runs_dir.iterdir()) == []


def test_a_turn_on_a_machine_that_moved_ends_the_round(bench: Any) -> None:
    commit = bench.repository.commit({"bench.py": program("100")})
    said = carry_out(bench, commit, commit, spec={"env": {"END": "quarantined", "END_WORDS": "the canary moved"}})
    assert said["status"] == "quarantined" and said["error"] == "the canary moved"
    assert len(said["turns"]) == 1


def test_an_arm_that_does_not_run_is_named(bench: Any) -> None:
    base = bench.repository.commit({"bench.py": "raise SystemExit('no such device')"})
    head = bench.repository.commit({"bench.py": program("100")})
    said = carry_out(bench, base, head)
    assert said["status"] == "failed" and said["turns"] == []
    assert said["error"].startswith(f"the base, {base[:12]}: the suite ended with exit code 1: no such device")


def test_a_setup_override_reaches_one_arm_only(bench: Any) -> None:
    commit = bench.repository.commit({"bench.py": program("float(open('cost').read())")})
    said = carry_out(
        bench,
        commit,
        commit,
        base={"setup": "echo 10 > cost"},
        head={"setup": "echo $LEVEL > cost", "env": {"LEVEL": "30"}},
    )
    values = [turn["run"]["results"][0]["measurements"][0]["value"] for turn in said["turns"]]
    assert values == [10, 30, 31, 11]


def test_what_the_worker_itself_cannot_do_ends_the_round_with_the_reason(bench: Any) -> None:
    commit = bench.repository.commit({"bench.py": program("100")})
    said = carry_out(bench, commit, commit, head={"env": ["not a table"]})
    assert said["status"] == "failed"
    assert said["error"].startswith("the worker could not carry out the session: ")


@pytest.mark.torch
def test_the_built_in_suite_runs_one_fresh_process_a_turn_of_the_chosen_variant(bench: Any) -> None:
    base = bench.repository.commit({"README": "base"})
    head = bench.repository.commit({"README": "head"})
    spec = {"benchmarks": ["gpt.train"], "preset": "cpu", "variants": ["model=tiny", "dtype=fp32"], "timeout_s": 300}
    said = carry_out(bench, base, head, spec=spec, order="AB")
    assert said["status"] in ("ok", "quarantined"), said["error"]  # a busy machine may not be believed
    for turn, commit in zip(said["turns"], (base, head), strict=False):
        run = parse_run(turn["run"])
        assert run.commit == commit and run.session is not None and run.session.arm == turn["arm"]
        (result,) = run.results
        assert all(len(measurement.processes) <= 1 for measurement in result.measurements)
