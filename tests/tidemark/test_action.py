"""The GitHub Action: its step as the runner starts it, its description, and the workflows of its documentation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers_tidemark import ROOT
from sqlalchemy import text

from backend.store.github import pull_requests
from tests.backend.api.conftest import run_document, sha
from tidemark import action

WORKFLOWS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "github.md").read_text(), re.DOTALL)


Step = tuple[subprocess.CompletedProcess[str], dict[str, str], str]


def step(directory: Path, live: Any, data: str, **inputs: str) -> Step:
    """The step with these inputs, in an interpreter that has nothing but the standard library."""
    (directory / "results.json").write_text(data)
    variables = {
        "PYTHONPATH": str(ROOT), "TIDEMARK_URL": live.url, "TIDEMARK_TOKEN": live.token("write"),
        "INPUT_FILE": str(directory / "results.json"), "INPUT_PROJECT": "demo/tinygpt",
        "GITHUB_OUTPUT": str(directory / "output"), "GITHUB_STEP_SUMMARY": str(directory / "summary.md"), **inputs,
    }  # fmt: skip
    python, *arguments = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]["run"].split()
    assert python == "python3"
    command = [sys.executable, "-S", *arguments]
    done = subprocess.run(
        command, env=variables, cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    files = (directory / "output", directory / "summary.md")
    output, summary = (file.read_text() if file.exists() else "" for file in files)
    return done, dict(line.split("=", 1) for line in output.splitlines()), summary


@pytest.fixture
def history(live_server: Any) -> Any:
    with live_server.client("write") as client:
        for position in range(13):
            client.put(f"/api/v1/runs/{run_document(position)['id']}", json=run_document(position)).raise_for_status()
    return live_server


@pytest.mark.parametrize(("fail_on", "status"), [("regression", 1), ("suspect", 1), ("never", 0)])
def test_a_regression_fails_the_job_by_policy_and_is_in_its_summary(
    history: Any, tmp_path: Path, fail_on: str, status: int
) -> None:
    done, outputs, summary = step(tmp_path, history, json.dumps(run_document(13)), INPUT_FAIL_ON=fail_on)
    assert done.returncode == status, done.stdout + done.stderr
    assert outputs["verdict"] == "regression" and outputs["stored"] == "1"
    assert "| gpt.train rung=r03 | step_ms | +" in summary


def test_nothing_of_the_working_directory_is_run(live_server: Any, tmp_path: Path) -> None:
    """Where the results of a fork are unpacked, there may be modules beside them."""
    (tmp_path / "tidemark").mkdir()
    for name in ("tidemark/__init__.py", "tidemark/action.py", "json.py", "sitecustomize.py"):
        (tmp_path / name).write_text("print('a stranger was here')\n")
    done, outputs, _ = step(tmp_path, live_server, json.dumps(run_document(0)))
    assert done.returncode == 0 and outputs["stored"] == "1", done.stdout + done.stderr
    assert "a stranger was here" not in done.stdout


def test_artifacts_of_strangers_are_unpacked_beside_the_workspace() -> None:
    unpacking = [
        step
        for workflow in WORKFLOWS
        for job in yaml.safe_load(workflow)["jobs"].values()
        for step in job["steps"]
        if "download-artifact" in step.get("uses", "")
    ]
    assert unpacking and all(step["with"]["path"].startswith("${{ runner.temp }}/") for step in unpacking)


def test_a_strangers_text_is_no_command_to_the_runner_and_no_markup_in_the_summary() -> None:
    item = {
        "benchmark": "a|b [x](https://evil.example) @eve <img> www.evil.example", "variant": "", "metric": "step_ms",
        "change": 0.1, "verdict": "regression", "explanation": "##[add-mask]x\n::add-mask::y",
    }  # fmt: skip
    run = {"suite": "s", "commit": "a" * 40, "testbed": "t", "summary": {}, "error": None, "changed": [item]}
    answer = {
        "file": "f", "format": "run", "runs": [run], "problems": [],
        "counts": {"stored": 1, "duplicate": 0, "refused": 0, "measurements": 1, "problems": 0},
    }  # fmt: skip
    assert "##[" not in action.report(answer) and "::" not in action.report(answer)
    row = next(line for line in action.summary(answer, "regression", "https://t").splitlines() if "step_ms" in line)
    assert row.count("|") == 5 and not re.search(r"[][()@<]|//|www\.", row)


def test_a_project_that_is_new_is_named_in_the_log_and_in_the_summary(live_server: Any, tmp_path: Path) -> None:
    document = run_document(0) | {"project": "demo/tinygtp"}
    done, _, summary = step(tmp_path, live_server, json.dumps(document), INPUT_PROJECT="demo/tinygtp")
    assert "  warning: the project demo/tinygtp is new: is its name right?" in done.stdout.splitlines()
    assert "Warning: the project demo&#47;tinygtp is new" in summary


def test_running_the_job_again_stores_nothing_twice_and_says_the_same(history: Any, tmp_path: Path) -> None:
    data = json.dumps(run_document(13))
    assert step(tmp_path, history, data)[0].returncode == 1
    (tmp_path / "output").unlink()
    again, outputs, _ = step(tmp_path, history, data)
    assert again.returncode == 1 and outputs["stored"] == "0" and outputs["verdict"] == "regression"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"INPUT_FAIL_ON": "always"}, "accepted: regression, suspect, never"),
        ({"INPUT_FILE": "/nowhere.json"}, "cannot read the results file '/nowhere.json'"),
        ({"TIDEMARK_TOKEN": ""}, "id-token: write"),
        ({"TIDEMARK_TOKEN": "tm_wrong"}, "401: unknown token"),
        ({"TIDEMARK_URL": "http://127.0.0.1:9"}, "no answer from"),
        ({"INPUT_STATED_WINS": "true", "INPUT_COMMIT": ""}, "the file's own commit is not to be believed"),
    ],
)
def test_what_is_wrong_is_one_annotation(
    live_server: Any, tmp_path: Path, inputs: Mapping[str, str], said: str
) -> None:
    done, _, _ = step(tmp_path, live_server, json.dumps(run_document(0)), **inputs)
    assert done.returncode == 2 and done.stdout.splitlines()[-1].startswith("::error") and said in done.stdout
    assert "Traceback" not in done.stderr


def test_the_commit_of_a_strangers_file_is_not_believed(live_server: Any, tmp_path: Path) -> None:
    data = json.dumps({"commit_info": {"id": "a" * 40, "branch": "main"}, "machine_info": {}, "benchmarks": [
        {"fullname": "t.py::test", "params": None, "stats": {"median": 0.1, "data": [0.1]}}]})  # fmt: skip
    stated = {"INPUT_STATED_WINS": "true", "INPUT_COMMIT": "e" * 40, "INPUT_BRANCH": "fork/eve", "INPUT_TESTBED": "ci"}
    done, _, _ = step(tmp_path, live_server, data, **stated)
    assert done.returncode == 0 and "at eeeeeeeeee" in done.stdout and "aaaaaaaaaa" not in done.stdout


def test_results_of_a_fork_belong_to_its_pull_request_whatever_the_file_says_of_itself(
    history: Any, tmp_path: Path
) -> None:
    """As the workflow of the base repository submits them: commit and fork are the event's, never the file's."""
    head = "e" * 40
    with history.engine.begin() as c:
        project_id = c.scalar(text("SELECT id FROM project"))
        values = {
            "project_id": project_id, "number": 7, "title": "faster", "author": "eve", "state": "open",
            "is_fork": True, "head_sha": head, "base_ref": "main", "updated_at": datetime.now(UTC),
        }  # fmt: skip
        pull_requests.save(c, values)
        c.execute(text("UPDATE branch SET head_sha = :sha WHERE name = 'main'"), {"sha": sha(8)})
    liar = run_document(8, id="01LIAR0000000000000000000X", commit=sha(3), branch="main", pull_request=None)
    stated = {"INPUT_STATED_WINS": "true", "INPUT_COMMIT": head, "INPUT_BRANCH": "fork/eve", "INPUT_FAIL_ON": "never"}
    for stored in ("1", "0"):
        done, outputs, _ = step(tmp_path, history, json.dumps(liar), **stated)
        assert done.returncode == 0, done.stdout
        assert outputs["stored"] == stored, "delivering it again stores nothing twice"
        (tmp_path / "output").unlink()
    with history.engine.connect() as c:
        row = c.execute(
            text(
                """SELECT k.sha, r.branch_name, r.pull_request, k.parents FROM run r JOIN commit k ON k.id = r.commit_id
                   WHERE r.id LIKE 'import-%'"""
            )
        ).one()
        assert tuple(row) == (head, "pull/7", 7, [sha(8)])
        judged = c.scalar(text("SELECT count(*) FROM judgement WHERE branch_id IS NOT NULL AND verdict = 'unchanged'"))
        assert judged, "it is judged against the branch that it wants to join"


@pytest.mark.parametrize("number", range(len(WORKFLOWS)))
def test_the_workflows_of_the_documentation_are_valid(number: int, tmp_path: Path) -> None:
    file = tmp_path / "workflow.yml"
    file.write_text(WORKFLOWS[number])
    check("vendor.github-workflows", file)
    uses = re.findall(r"uses: OWNER/tidemark@main\n\s+with:\n((?:\s{10}\S.*\n)+)", WORKFLOWS[number])
    known = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert uses or "OWNER/tidemark" not in WORKFLOWS[number]
    for block in uses:
        assert {line.split(":")[0].strip() for line in block.splitlines()} <= set(known)


def test_the_branch_of_a_fork_that_is_gone_does_not_join_our_history() -> None:
    default = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]["branch"]["default"]
    first = default.partition("||")[0]
    assert re.match(r"\$\{\{ github\.event\.workflow_run\s+&& \S*full_name != github\.repository", first), default


def test_the_description_of_the_action_is_valid() -> None:
    check("vendor.github-actions", ROOT / "action.yml")


def check(schema: str, file: Path) -> None:
    command = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
