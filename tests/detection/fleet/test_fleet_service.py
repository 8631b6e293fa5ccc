"""A small labelled fleet through ingest, queue and sessions of a real store: what the service ends up with is compared
with the truth, and with what `tidemark judge --stream` says of the same records."""

import fleet_service as player
import pytest
from sqlalchemy import create_engine, text

from backend.regression.fleet_stream import Stream
from backend.services.fleet import Fleets

SEED = 8
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
    stream, sessions, incidents = Stream(), 0, {}

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
                 EXISTS (SELECT FROM regression_event v WHERE v.regression_id = g.id AND v.kind = 'confirmed') AS told
               FROM regression g ORDER BY g.id"""
        )
    )
    return list(rows)


def labels(fleet, *kinds):
    return [label for label in fleet.labels if label["kind"] in kinds]


def near(fleet, found):
    """Of what was told: the planted change of the code that it is about."""
    return [label for label in labels(fleet, "regression") if abs(label["commit"] - found.first_bad) <= TOLERANCE]


def test_the_service_says_what_the_stream_says(service, streamed):
    told = service.c.execute(
        text(
            """SELECT kind, cause, worker, testbeds, first_bad_position, range_start, range_end, closed_position
               FROM fleet_incident ORDER BY id"""
        )
    )
    said = [
        (i["kind"], i["cause"], i["worker"], sorted(i["testbed"]), i["first_bad_commit"], *i["range"])
        for i in streamed
    ]
    assert [(*row[:3], sorted(row[3]), *row[4:7]) for row in told] == said
    assert len(said) >= 4


def test_every_change_of_the_code_for_the_worse_is_told_once(service, fleet):
    told = [found for found in regressions(service) if found.told]
    assert [len(near(fleet, found)) for found in told] == [1] * len(told)
    assert len(told) == len(labels(fleet, "regression"))


def test_a_regression_names_all_testbeds_that_show_it(service, fleet):
    told = [found for found in regressions(service) if found.told]
    assert [found.testbeds for found in told] == [near(fleet, found)[0]["testbeds"] for found in told]


def test_whatever_is_told_is_the_code_and_machines_raise_one_alarm_at_most(service, fleet):
    found = regressions(service)
    assert {regression.cause for regression in found if regression.told} == {"code"}
    assert all(regression.state != "confirmed" for regression in found if regression.cause != "code")
    alarms = [regression for regression in found if regression.cause in ("hardware", "environment")]
    assert len(alarms) <= len(labels(fleet, "slow", "throttle", "upgrade"))


def test_a_mended_regression_is_closed_and_names_the_commit(service, fleet):
    (fix,) = labels(fleet, "fix")
    mended = [found for found in regressions(service) if found.told and found.first_bad < fix["commit"]][-1]
    assert mended.state == "fixed"
    assert abs(mended.fixed - fix["commit"]) <= TOLERANCE


def test_a_judge_that_begins_anew_finds_what_the_one_before_it_had_told(service):
    before = service.c.execute(text("SELECT * FROM fleet_incident ORDER BY id")).all()
    sessions = service.c.scalar(text("SELECT count(*) FROM session"))
    fresh = Fleets()
    fresh.catch_up(service.c, service.project, service.now)
    assert fresh.incidents(service.project) == service.fleets.incidents(service.project)
    assert fresh.incidents(service.project)
    assert [row[:-1] for row in before] == [
        row[:-1] for row in service.c.execute(text("SELECT * FROM fleet_incident ORDER BY id")).all()
    ]
    assert service.c.scalar(text("SELECT count(*) FROM session")) == sessions
