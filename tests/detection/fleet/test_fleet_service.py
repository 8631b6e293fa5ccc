"""A small labelled fleet through ingest, queue and sessions of a real store: what the service ends up with is compared
with the truth, and with what `tidemark judge --stream` says of the same records."""

import fleet_service as player
import pytest
from sqlalchemy import create_engine, text

from backend.regression.joint.stream import JudgeStream
from backend.services.joint.detector import JointDetectors

SEED = 49
TOLERANCE = 3  # commits


@pytest.fixture(scope="module")
def fleet():
    return player.SmallFleet(SEED)


@pytest.fixture(scope="module")
def service(fleet, shared_database):
    engine = create_engine(shared_database)
    with engine.connect() as connection:
        played = player.Service(connection, fleet)
        played.play()
        yield played
    engine.dispose()


@pytest.fixture(scope="module")
def streamed(fleet):
    """The incidents of the stream, as they stand at the end."""
    stream, sessions, incidents = JudgeStream(), 0, {}

    def say(record):
        answer = stream(record)
        for line in answer["incidents"]:
            incidents[line["id"]] = {**incidents.get(line["id"], {}), **line}
        return answer.get("request")

    say(fleet.header())
    for record in fleet.stream():
        request = say(record)
        while request is not None:
            answer = player.serve(fleet, sessions, request, record["timestamp"] + 1800)
            sessions += 1
            request = say(answer)
    return list(incidents.values())


def regressions(service):
    rows = service.c.execute(
        text(
            """SELECT g.id, g.state, g.cause, g.first_bad_position AS first_bad,
                 (SELECT position FROM branch_commit WHERE commit_id = g.fixed_commit_id) AS fixed,
                 ARRAY(SELECT DISTINCT t.name FROM change_point p JOIN series s ON s.id = p.series_id
                       JOIN testbed t ON t.id = s.testbed_id WHERE p.regression_id = g.id ORDER BY 1) AS testbeds,
                 EXISTS (SELECT FROM incident f WHERE f.regression_id = g.id AND f.drift) AS drift,
                 EXISTS (SELECT FROM regression_event v WHERE v.regression_id = g.id AND v.kind = 'confirmed') AS told
               FROM regression g ORDER BY g.id"""
        )
    )
    return list(rows)


def labels(fleet, *kinds):
    return [label for label in fleet.labels if label["kind"] in kinds]


WORSE = "regression", "drift"


def near(fleet, found):
    """Of what was told: the planted change of the code that it is about; a drift begins anywhere on its way."""
    return [
        label
        for label in labels(fleet, *WORSE)
        if (label["kind"] == "drift") == found.drift
        and label["commit"] - TOLERANCE
        <= found.first_bad
        <= (label["end"] if label["kind"] == "drift" else label["commit"]) + TOLERANCE
    ]


def test_the_service_says_what_the_stream_says(service, streamed):
    told = service.c.execute(
        text(
            """SELECT kind, cause, worker, testbeds, first_bad_position, range_start, range_end, closed_position
               FROM incident ORDER BY id"""
        )
    )
    said = [
        (i["kind"], i["cause"], i["worker"], sorted(i["testbed"]), i["first_bad_commit"], *i["range"]) for i in streamed
    ]
    assert [(*row[:3], sorted(row[3]), *row[4:7]) for row in told] == said
    assert len(said) >= 8


def test_every_change_of_the_code_for_the_worse_is_told_once(service, fleet):
    told = [found for found in regressions(service) if found.told]
    assert [len(near(fleet, found)) for found in told] == [1] * len(told)
    assert len(told) == len(labels(fleet, *WORSE)) == 3


def test_a_regression_names_all_testbeds_that_show_it(service, fleet):
    told = [found for found in regressions(service) if found.told]
    truth = [near(fleet, found)[0]["testbeds"] for found in told]
    for found, testbeds in zip(told, truth, strict=True):
        if found.drift:  # on a testbed with a sick worker the series themselves may not show it yet
            assert found.testbeds and set(found.testbeds) <= set(testbeds)
        else:
            assert found.testbeds == testbeds


def test_whatever_is_told_is_the_code_and_machines_raise_two_alarms_at_most(service, fleet):
    found = regressions(service)
    assert {regression.cause for regression in found if regression.told} == {"code"}
    assert all(regression.state != "confirmed" for regression in found if regression.cause != "code")
    alarms = [it for it in found if it.cause in ("hardware", "environment") and it.state != "withdrawn"]
    assert len(alarms) <= 2 * len(labels(fleet, "slow", "throttle", "blind", "upgrade"))


def test_a_mended_regression_is_closed_and_names_the_commit(service, fleet):
    (fix,) = labels(fleet, "fix")
    before = [found for found in regressions(service) if found.told and found.first_bad < fix["commit"]]
    mended = max(before, key=lambda found: found.first_bad)
    assert mended.state == "fixed"
    assert {found.state for found in before if found.id != mended.id} == {"confirmed"}
    assert abs(mended.fixed - fix["commit"]) <= TOLERANCE


def test_a_judge_that_begins_anew_finds_what_the_one_before_it_had_told(service):
    before = service.c.execute(text("SELECT * FROM incident ORDER BY id")).all()
    sessions = service.c.scalar(text("SELECT count(*) FROM session"))
    fresh = JointDetectors()
    fresh.catch_up(service.c, service.project, service.now)
    assert fresh.incidents(service.project) == service.fleets.incidents(service.project)
    assert fresh.incidents(service.project)
    assert [row[:-1] for row in before] == [
        row[:-1] for row in service.c.execute(text("SELECT * FROM incident ORDER BY id")).all()
    ]
    assert service.c.scalar(text("SELECT count(*) FROM session")) == sessions
