"""The list of regressions with its filters, one in full, and what people say of it."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from backend.services.base.errors import BadRequest, Conflict, NotFound
from backend.services.judging import judging, replay
from backend.services.judging.policy_change import policy_of
from backend.services.judging.rejudging import rejudge_next_late
from backend.services.reports.history import load_series
from backend.services.triage.detail import get_regression
from backend.services.triage.triage import TriageDecision, triage
from backend.services.triage.views import Regression, RegressionFilter, list_regressions

PROJECT = "northsea/loom"


def listed(loom: Any, **wanted: Any) -> tuple[Regression, ...]:
    return list_regressions(loom.connection, RegressionFilter(**wanted)).items


@pytest.fixture(scope="module")
def three(shared_loom: Any) -> Any:
    """A suspect at 26, a confirmed regression at 18, a fixed one at 6; only read."""
    shared_loom.history([100.0] * 6 + [125.0] * 6 + [100.0] * 6 + [112.0] * 8 + [150.0])
    assert [(r.first_bad.position, r.state) for r in listed(shared_loom) if r.first_bad] == [
        (26, "suspect"),
        (18, "confirmed"),
        (6, "fixed"),
    ]
    return shared_loom


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        ({}, [26, 18, 6]),
        (
            {"project": PROJECT, "testbed": "cpu", "suite": "gpt", "benchmark": "gpt.train", "metric": "step_ms"},
            [26, 18, 6],
        ),
        ({"state": "open"}, [18]),
        ({"state": "closed"}, [6]),
        ({"state": "suspect,fixed"}, [26, 6]),
        ({"cause": "code", "state": "confirmed"}, [18]),
        ({"cause": "hardware"}, []),
        ({"suite": "moe"}, []),
        ({"benchmark": "gpt.infer"}, []),
        ({"metric": "host_syncs"}, []),
        ({"testbed": "h200-sxm"}, []),
        ({"still_bad": True}, [26, 18]),
        ({"still_bad": False}, [6]),
        ({"min_change": 0.2}, [26, 6]),
        ({"owner": "ada"}, []),
    ],
    ids=str,
)
def test_a_filter_keeps_what_it_names(three: Any, wanted: dict[str, Any], positions: list[int]) -> None:
    assert [r.first_bad.position for r in listed(three, **wanted) if r.first_bad] == positions


def test_a_range_of_commits_keeps_the_onsets_within_it(three: Any) -> None:
    def onsets(base: int | None, head: int | None) -> list[int]:
        ends = ["" if position is None else three.sha_of(position) for position in (base, head)]
        found = listed(three, project=PROJECT, commits="..".join(ends))
        return [r.first_bad.position for r in found if r.first_bad]

    assert onsets(5, 18) == [18, 6]
    assert onsets(6, 18) == [18]
    assert onsets(None, 17) == [6]
    assert onsets(18, None) == [26]


def test_a_stretch_of_time_keeps_what_was_opened_in_it(three: Any) -> None:
    assert listed(three, since=three.now, until=three.now + timedelta(seconds=1)) == listed(three)
    assert listed(three, since=three.now + timedelta(seconds=1)) == ()
    assert listed(three, until=three.now) == ()


def test_pages_follow_each_other_without_gap_or_repeat(three: Any) -> None:
    pages, cursor = [], None
    while True:
        page = list_regressions(three.connection, RegressionFilter(limit=1, cursor=cursor))
        pages.append(page.items)
        cursor = page.next
        if cursor is None:
            break
    assert [item.id for page in pages for item in page] == [item.id for item in listed(three)]
    assert [len(page) for page in pages] == [1, 1, 1]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"state": "red"}, "suspect, confirmed"),
        ({"cause": "gremlins"}, "code, environment, hardware, method, noise"),
        ({"limit": 0}, "1 to 500"),
        ({"limit": 501}, "1 to 500"),
        ({"cursor": "x"}, "the `next` of the page before"),
        ({"commits": "a..b"}, "together with `project`"),
        ({"commits": "abcdef", "project": PROJECT}, "base..head"),
    ],
    ids=str,
)
def test_a_wrong_filter_says_what_is_accepted(three: Any, wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said.replace("..", r"\.\.")):
        listed(three, **wanted)


def test_an_unknown_project_is_not_an_empty_list(three: Any) -> None:
    with pytest.raises(NotFound, match="northsea/loom"):
        listed(three, project="northsea/lime")


def test_one_regression_has_all_that_a_person_needs(three: Any) -> None:
    (number,) = (r.id for r in listed(three, state="open") if r.first_bad and r.first_bad.position == 18)
    found = get_regression(three.connection, number)
    assert found.regression.title == "gpt.train dtype=bf16: step_ms costs 11.9 % more"
    assert [(commit.sha, commit.first_bad) for commit in found.suspects] == [(three.sha_of(18), True)]
    assert [event.kind for event in found.events] == ["suspected", "confirmed"]
    assert found.evidence
    assert [(s.metric, s.state) for s in found.affected] == [("step_ms", "confirmed")]
    assert found.affected[0].latest_value == pytest.approx(150.0, rel=0.02)
    assert found.reproduce.splitlines() == [
        "# in a clone of northsea/loom",
        f"git checkout --quiet {three.sha_of(17)}  # now measure gpt as its sender does, and write ../base.json",
        f"git checkout --quiet {three.sha_of(18)}  # now measure gpt as its sender does, and write ../head.json",
        "tidemark compare ../base.json ../head.json",
    ]
    assert orjson.loads(orjson.dumps(found))["regression"]["id"] == number


def test_the_phases_show_where_the_time_went(loom: Any) -> None:
    for position in range(16):
        forward, backward = (40.0, 60.0) if position < 10 else (62.0, 63.0)
        metrics = [
            loom.measurement("step_ms", forward + backward, seed=position),
            loom.measurement("forward_ms", forward, role="phase"),
            loom.measurement("backward_ms", backward, role="phase"),
            loom.measurement("idle_ms", 0.0, role="phase"),
        ]
        loom.deliver(loom.run_of(position, metrics))
    (found,) = listed(loom, state="open")
    phases = get_regression(loom.connection, found.id).phases
    assert [(p.metric, p.before, p.after, p.difference) for p in phases] == [
        ("forward_ms", 40.0, 62.0, 22.0),
        ("backward_ms", 60.0, 63.0, 3.0),
        ("idle_ms", 0.0, 0.0, 0.0),
    ]
    assert [p.share for p in phases] == pytest.approx([0.88, 0.12, 0.0])


def test_the_commands_that_reproduce_it_are_those_of_the_suite(loom: Any) -> None:
    loom.history([100.0] * 10 + [125.0] * 4)
    loom.connection.execute(
        text("""UPDATE run SET spec = '{"command": "make bench", "setup": "make deps", "env": {"A": "b c"}}'""")
    )
    loom.connection.execute(text("UPDATE project SET repository_url = 'https://example.org/loom.git'"))
    (found,) = listed(loom)

    def told(name: str, position: int) -> str:
        return (
            f"TIDEMARK_RUN_ID={name}-{loom.sha_of(position)[:12]} "
            f"TIDEMARK_PROJECT={found.project} TIDEMARK_COMMIT={loom.sha_of(position)} "
            f"TIDEMARK_SUITE={found.suite} TIDEMARK_TESTBED={found.testbed} "
            f'TIDEMARK_RUN_JSON="$PWD/../{name}.json"'
        )

    assert get_regression(loom.connection, found.id).reproduce.splitlines() == [
        "git clone https://example.org/loom.git repro && cd repro",
        f"git checkout --quiet {loom.sha_of(9)} && make deps && A='b c' {told('base', 9)} make bench",
        f"git checkout --quiet {loom.sha_of(10)} && make deps && A='b c' {told('head', 10)} make bench",
        "tidemark compare ../base.json ../head.json",
    ]


def test_an_unknown_regression_is_not_found(loom: Any) -> None:
    with pytest.raises(NotFound, match="unknown regression 7"):
        get_regression(loom.connection, 7)
    with pytest.raises(NotFound):
        triage(loom.connection, 7, TriageDecision("note", note="?"), "ada", now=loom.now)


# --- triage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def slower(loom: Any) -> Any:
    loom.history([100.0] * 10 + [125.0] * 6)
    loom.id = listed(loom)[0].id
    return loom


def say(loom: Any, action: str, **words: Any) -> Regression:
    return triage(loom.connection, loom.id, TriageDecision(action, **words), "ada", now=loom.now).regression


def test_acknowledging_takes_it_and_releasing_gives_it_back(slower: Any) -> None:
    taken = say(slower, "acknowledge")
    assert (taken.state, taken.owner, taken.still_bad) == ("acknowledged", "ada", True)
    assert [r.id for r in listed(slower, owner="ada")] == [slower.id]
    released = say(slower, "release")
    assert (released.state, released.owner) == ("confirmed", None)
    assert slower.events()[2:] == ["acknowledged", "released"]


def test_an_acknowledged_regression_is_still_closed_by_its_fix(slower: Any) -> None:
    say(slower, "acknowledge")
    slower.history([100.0] * 4, start=16)
    assert [(r.state, r.owner) for r in listed(slower)] == [("fixed", "ada")]


def test_an_expected_change_is_the_baseline_from_then_on(slower: Any) -> None:
    accepted = say(slower, "expected", reason="the new tokenizer does more")
    assert (accepted.state, accepted.reason) == ("expected", "the new tokenizer does more")
    assert accepted.closed_at == slower.now
    *_, last = slower.history([125.0] * 4, start=16)
    assert last.verdicts[0].verdict == "unchanged"
    assert last.verdicts[0].baseline == pytest.approx(125.0, rel=0.02)
    assert slower.red() == list(range(10, 16))


def test_what_is_not_real_counts_against_the_detector_and_is_red_no_more(slower: Any) -> None:
    assert say(slower, "invalid", reason="the box was being moved").state == "invalid"
    assert slower.red() == []
    assert slower.rows("SELECT alarms_confirmed, alarms_withdrawn FROM series") == [(1, 1)]


@pytest.mark.parametrize("decision", ["expected", "invalid"])
@pytest.mark.parametrize("way_back", ["undo", "reopen"])
def test_a_decision_can_be_taken_back_wholly(slower: Any, decision: str, way_back: str) -> None:
    say(slower, decision, reason="so it seems")
    slower.history([125.0] * 4, start=16)
    back = say(slower, way_back)
    assert (back.state, back.reason, back.closed_at) == ("confirmed", None, None)
    assert slower.red() == list(range(10, 20))
    assert slower.events()[2:] == [decision, {"undo": "undone", "reopen": "reopened"}[way_back]]
    slower.history([100.0] * 4, start=20)
    assert [r.state for r in listed(slower)] == ["fixed"]


@pytest.mark.parametrize(("most", "waiting"), [(9, 0), (8, 1)])
def test_what_would_keep_a_person_waiting_is_judged_again_in_the_background(
    slower: Any, monkeypatch: pytest.MonkeyPatch, most: int, waiting: int
) -> None:
    say(slower, "expected", reason="so it seems")
    slower.history([125.0] * 4, start=16)
    monkeypatch.setattr(judging, "MOST_LATER_POINTS", most)
    assert say(slower, "undo").state == "confirmed"
    assert slower.red() == list(range(10, 20 if waiting == 0 else 16))
    assert policy_of(slower.connection, PROJECT).rejudging_late == waiting
    assert (rejudge_next_late(slower.connection, slower.now) is not None) == bool(waiting)
    assert slower.red() == list(range(10, 20))
    assert policy_of(slower.connection, PROJECT).rejudging_late == 0


@pytest.mark.parametrize(("decision", "false_alarms", "asked"), [("invalid", 1, 4), ("expected", 0, 3)])
def test_a_false_alarm_long_ago_is_remembered_when_the_series_is_judged_again(
    slower: Any, monkeypatch: pytest.MonkeyPatch, decision: str, false_alarms: int, asked: int
) -> None:
    say(slower, decision, reason="so it seems")
    slower.history([125.0] * 24, start=16)
    monkeypatch.setattr(replay, "POINTS_BEFORE", 10)
    slower.run(38, 125.0, id="RUN-000038-again")
    told = load_series(slower.connection, slower.value("SELECT id FROM series")).profile
    assert told is not None and (told.disproved, told.sustained_runs) == (false_alarms, asked)


def test_a_decision_holds_when_a_late_point_makes_the_series_be_judged_again(slower: Any) -> None:
    say(slower, "expected", reason="on purpose")
    slower.history([125.0] * 2, start=16)
    slower.run(12, 125.0, id="RUN-000012-again")
    assert [verdict for position, verdict, _ in slower.verdicts() if position >= 16] == ["unchanged", "unchanged"]
    assert [r.state for r in listed(slower)] == ["expected"]


def test_undoing_goes_back_step_by_step(slower: Any) -> None:
    say(slower, "acknowledge")
    say(slower, "expected", reason="fine")
    assert (say(slower, "undo").state, say(slower, "undo").state) == ("acknowledged", "confirmed")
    with pytest.raises(Conflict, match="undo is not possible"):
        say(slower, "undo")


def test_a_note_is_an_event_and_changes_nothing(slower: Any) -> None:
    say(slower, "note", note="  asked upstream  ")
    event = get_regression(slower.connection, slower.id).events[-1]
    assert (event.kind, event.actor, event.note) == ("note", "ada", "asked upstream")


@pytest.mark.parametrize(
    ("action", "words", "said"),
    [
        ("expected", {}, "reason"),
        ("invalid", {"reason": "  "}, "reason"),
        ("note", {}, "note"),
        ("note", {"note": "x" * 2_001}, "at most 2000"),
        ("celebrate", {}, "acknowledge, release, expected, invalid, reopen, note, undo"),
    ],
)
def test_a_word_that_cannot_be_taken_says_why(slower: Any, action: str, words: dict[str, str], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        say(slower, action, **words)


def test_what_is_over_cannot_be_acknowledged(three: Any) -> None:
    three.id = listed(three, state="closed")[0].id
    with pytest.raises(Conflict, match="is fixed: acknowledge is not possible; possible: note"):
        say(three, "acknowledge")


def test_every_word_is_heard_by_live_pages(slower: Any) -> None:
    say(slower, "acknowledge")
    heard = slower.rows("SELECT payload ->> 'event' FROM live_event WHERE kind = 'regression' ORDER BY id")
    assert heard == [("suspected",), ("confirmed",), ("acknowledged",)]
