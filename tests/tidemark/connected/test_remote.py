"""What commands print of the service's answers."""

import pytest

from tidemark.commands.options import say
from tidemark.connected import remote, watching


@pytest.mark.parametrize(
    ("verdict", "needed", "line"),
    [
        ("insufficient", 3, "  insufficient            gpt.train step_ms  (series 7; 3 more runs needed)"),
        ("insufficient", 1, "  insufficient            gpt.train step_ms  (series 7; 1 more run needed)"),
        ("unchanged", 0, "  unchanged               gpt.train step_ms  (series 7)"),
    ],
)
def test_a_short_history_says_how_many_runs_it_needs(verdict, needed, line):
    said = {"verdict": verdict, "needed_runs": needed, "benchmark": "gpt.train", "metric": "step_ms", "series_id": 7}
    answer = {"run_id": "R", "status": "ok", "verdicts": [{**said, "change": None}]}
    assert remote.describe_verdicts(answer).splitlines() == ["run R: ok", line]


def test_variants_of_one_benchmark_are_told_apart():
    said = {"verdict": "unchanged", "benchmark": "words.split", "metric": "latency_ms", "change": 0.01, "series_id": 7}
    verdicts = [{**said, "variant": "words=1000"}, {**said, "variant": "words=20000"}]
    lines = remote.describe_verdicts({"run_id": "R", "status": "ok", "verdicts": verdicts}).splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["words.split[words=1000]", "words.split[words=20000]"]


def test_what_a_sender_may_not_have_meant_follows_the_verdicts():
    answer = {"run_id": "R", "status": "ok", "verdicts": [], "warnings": ["the project a/b is new: is its name right?"]}
    assert remote.describe_verdicts(answer).splitlines()[1:] == [
        "  nothing in it is judged",
        "  warning: the project a/b is new: is its name right?",
    ]


def test_regressions_of_several_projects_name_theirs():
    said = {"id": 1, "state": "confirmed", "cause": "code", "change": 0.1, "commit": "c0ffee", "title": "It is slower"}
    one, other = {**said, "project": "a/one"}, {**said, "project": "an/other"}
    both = remote.describe_regressions({"items": [one, other]}).splitlines()
    assert [line.rpartition("  ")[2] for line in both] == ["(a/one)", "(an/other)"]
    assert remote.describe_regressions({"items": [one]}).endswith("It is slower")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ([{"name": "min_change", "value": 0.03}], ["Policy f00: min_change = 0.03."]),
        ([], ["Policy f00: the built-in thresholds."]),
        (None, []),  # of a version that nobody kept
    ],
)
def test_an_explanation_says_which_thresholds_the_point_was_judged_by(policy, said):
    answer = {"text": "It is so.", "policy_version": "f00", "policy": policy, "series": {"profile": {"text": "Quiet."}}}
    assert remote.describe_explanation(answer).split("\n\n") == ["It is so.", *said, "The series: Quiet."]


def test_projects_are_listed_with_what_is_open_and_where_they_come_from():
    items = [
        {"slug": "a/b", "open_regressions": 2, "repository_url": "https://example.org/b.git"},
        {"slug": "ada/ci", "open_regressions": 0, "repository_url": None},
    ]
    assert remote.describe_projects(items).splitlines() == [
        "a/b        2 open  https://example.org/b.git",
        "ada/ci     0 open  no repository: its results are delivered",
    ]
    assert "project add" in remote.describe_projects([])


def test_a_threshold_that_is_a_fraction_is_shown_in_per_cent_as_well():
    row = {"title": "Smallest regression", "unit": "fraction", "overridden": True}
    answer = {
        "effective": [{**row, "name": "min_change", "value": 3}], "declared": {}, "chosen": {}, "points_per_week": 0,
        "rejudging": None, "rejudging_late": 0,
    }  # fmt: skip
    said = remote.describe_policy(answer)
    assert said.startswith("min_change = 3 (300 %)  Smallest regression") and "points" not in said
    assert "40 points of gate metrics" in remote.describe_policy(answer | {"points_per_week": 40})


def test_what_a_git_server_says_moves_no_cursor():
    said = remote.describe_project({"slug": "a/b", "sync_error": "remote: \x1b[2J\x1b[1;1Hall is \u202ewell\r"})
    assert said.splitlines()[-1] == "  not read             remote: [2J[1;1Hall is well"


def test_what_a_commits_own_code_says_moves_no_cursor_and_keeps_its_lines(capsys):
    say("failed: make\x1b[2J exited\r\n  with 2")
    assert capsys.readouterr().out == "failed: make[2J exited\n  with 2\n"


def test_only_the_newest_commit_says_why_nothing_is_queued():
    nothing = {"counts": dict.fromkeys(watching.OPEN, 0), "items": []}
    mended = {"commits_in_range": 2, "rows": [{"skipped_reason": None}, {"skipped_reason": "tidemark.toml: no TOML"}]}
    assert watching.queued(mended, nothing) == ["2 commits found, 0 runs queued"]
    broken = {"commits_in_range": 2, "rows": [{"skipped_reason": "tidemark.toml: no TOML"}, {"skipped_reason": None}]}
    assert watching.queued(broken, nothing) == ["2 commits found, 0 runs queued: tidemark.toml: no TOML"]
