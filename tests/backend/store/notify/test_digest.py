"""What a digest reads."""

from sqlalchemy import Connection, text

from backend.services.base import projects
from backend.store.notify import digest
from tests.backend.store.notify.test_rules import NOW


def test_the_noisiest_series_that_are_still_measured_come_first(connection: Connection) -> None:
    project = projects.save_project(connection, "a/b", now=NOW).id
    connection.execute(text("INSERT INTO testbed (name) VALUES ('cpu-of-digest')"))
    for name, noise, age in (("calm", 0.01, 1), ("wild", 0.2, 1), ("gone", 0.9, 90)):
        connection.execute(
            text(
                """INSERT INTO series (project_id, testbed_id, suite, suite_version, benchmark, variant, variant_key,
                     metric, unit, direction, role, profile, last_measured_at)
                   SELECT :project, id, 's', '1', :name, '{}', '', 'step_ms', 'ms', 'lower', 'gate',
                     jsonb_build_object('noise', CAST(:noise AS float8)), now() - make_interval(days => :age)
                   FROM testbed WHERE name = 'cpu-of-digest'"""
            ),
            {"project": project, "name": name, "noise": noise, "age": age},
        )
    found = [row.name for row in digest.noisiest(connection, project)]
    assert found == ["wild step_ms on cpu-of-digest", "calm step_ms on cpu-of-digest"]
    assert digest.testbeds(connection, project) == {"cpu-of-digest"}
