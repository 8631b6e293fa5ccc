"""tidemark.toml: what it says, which paths matter, and how it is refused."""

from __future__ import annotations

import pytest

from backend.regression.policy import parse_overrides
from backend.services.repository import manifest
from backend.services.repository.manifest import DEFAULT_PATHS, ManifestInvalid, Suite

FULL = """
branches = ["release/*"]
[policy]
sustained_runs = 2
[suite.gpt]
benchmarks = ["gpt.train", "attn.*"]
preset = "cpu"
implementation = "tinygpt.model:build"
variants = ["rung=r03"]
setup = "pip install -e ."
timeout_s = 600
testbeds = ["cpu", "h200-sxm"]
paths = ["tinygpt/**", "tidemark.toml"]
processes = 3
ranks = 2
[suite.gpt.env]
OMP_NUM_THREADS = "2"
[suite.gpt.policy]
min_change = 0.1
[suite.own]
command = "make bench"
"""


def test_a_whole_file_is_read() -> None:
    found = manifest.parse(FULL)
    gpt, own = found.suites
    assert gpt.testbeds == ("cpu", "h200-sxm") and gpt.paths == ("tinygpt/**", "tidemark.toml")
    assert gpt.spec() == {
        "suite": "gpt",
        "benchmarks": ["gpt.train", "attn.*"],
        "command": None,
        "preset": "cpu",
        "implementation": "tinygpt.model:build",
        "variants": ["rung=r03"],
        "setup": "pip install -e .",
        "timeout_s": 600,
        "processes": 3,
        "ranks": 2,
        "env": {"OMP_NUM_THREADS": "2"},
        "policy": {"min_change": 0.1},
    }
    assert own.command == "make bench" and own.timeout_s == 1800 and own.paths == DEFAULT_PATHS


def test_a_suites_policy_becomes_an_override_for_that_suite_only() -> None:
    table = manifest.parse(FULL).policy_table()
    assert table == {"sustained_runs": 2, "override": [{"min_change": 0.1, "suite": "gpt"}]}
    general, of_gpt = parse_overrides(table)
    assert general.suite == "*" and of_gpt.suite == "gpt" and of_gpt.values == {"min_change": 0.1}


def test_branches_are_patterns() -> None:
    found = manifest.parse(FULL)
    assert found.wants_branch("release/1.2") and not found.wants_branch("release/1/2") and not found.wants_branch("dev")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("suites = 1", "unknown key suites (did you mean suite?); known: suite, policy, branches"),
        ("suite = 1", "suite is 1; accepted: tables such as [suite.gpt]"),
        ("[suite.'a b']\ncommand='x'", "suite is 'a b'; accepted: a name of letters"),
        ("[suite.x]", "suite.x has neither; accepted: either `benchmarks`"),
        ("[suite.x]\ncommand='a'\nbenchmarks=['b']", "suite.x has both"),
        ("[suite.x]\ncommand='a'\nprocesses=3", "suite.x.processes is 3; accepted: nothing"),
        ("[suite.x]\ncommand=3", "suite.x.command is 3; accepted: a command line"),
        ("[suite.x]\ncommand='a'\ntimeout='9'", "unknown key suite.x.timeout (did you mean timeout_s?)"),
        ("[suite.x]\ncommand='a'\ntimeout_s='9'", "suite.x.timeout_s is '9'; accepted: a whole number from 1 to 86400"),
        ("[suite.x]\ncommand='a'\ntimeout_s=true", "suite.x.timeout_s is True"),
        ("[suite.x]\nbenchmarks=['a']\npreset='big'", "suite.x.preset is 'big'; accepted: cpu, smoke, full"),
        ("[suite.x]\nbenchmarks=['a;rm']", "suite.x.benchmarks is 'a;rm'"),
        ("[suite.x]\nbenchmarks=['a']\nimplementation='x'", "accepted: module:attribute, like loom.moe:layer"),
        (f"[suite.x]\nbenchmarks=['a']\nimplementation='{'x' * 10_000}:y'", "suite.x.implementation is 'xxx"),
        ("[suite.x]\nbenchmarks=['a']\nvariants=['x']", "suite.x.variants is 'x'; accepted: a list of parameter=value"),
        ("[suite.x]\ncommand='a'\ntestbeds=[]", "suite.x.testbeds is []; accepted: a list of at least one"),
        ("[suite.x]\ncommand='a'\npaths='src/**'", "suite.x.paths is 'src/**'; accepted: a list"),
        ("[suite.x]\ncommand='a'\nenv={A=1}", "suite.x.env.A is 1; accepted: text (numbers in quotes)"),
        ("[suite.x]\ncommand='a'\nenv={TIDEMARK_API_TOKEN='1'}", "those are reserved"),
        ("[policy]\nmin_chang=0.1", "policy.min_chang is not a threshold; known: min_change"),
        ("[suite.x]\ncommand='a'\n[suite.x.policy]\nmin_change='5%'", "suite.x.policy.min_change is '5%'"),
    ],
)
def test_what_is_wrong_is_told_with_key_value_and_what_is_accepted(text: str | bytes, told: str) -> None:
    with pytest.raises(ManifestInvalid) as refused:
        manifest.parse(text)
    assert told in str(refused.value) and str(refused.value).startswith("tidemark.toml: ")


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ManifestInvalid) as refused:
        manifest.parse("a = 1\n[suite.x]\ncommand = 1\ntimeout_s = 0\n[suite.y]\n")
    assert len(refused.value.problems) == 4


def test_one_path_that_matters_is_enough_and_none_is_not() -> None:
    suite = Suite(name="x", command="x")
    assert suite.matters(["README.md", "src/a.py"]) and not suite.matters([])
