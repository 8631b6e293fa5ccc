"""Dashboard and alerts ask only for what /metrics has, in expressions that Prometheus can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from tests.conftest import LiveServer

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = yaml.safe_load((DEPLOY / "prometheus/tidemark-alerts.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana/tidemark.json").read_text())
PROMETHEUS_OWN = {"up"}
GRAFANA_VARIABLES = {"$__rate_interval": "5m", "$job": "tidemark"}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Rule(Strict):
    alert: str = Field(pattern=r"^Tidemark[A-Z]\w+$")
    expr: str
    for_: str = Field(alias="for", pattern=r"^\d+[smhd]$")
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(Strict):
    name: str
    rules: list[Rule]


class Rules(Strict):
    """What Prometheus accepts as a file of rules, as far as ours goes."""

    groups: list[Group]


def alerts() -> list[Rule]:
    return [rule for group in Rules.model_validate(ALERTS).groups for rule in group.rules]


def panel_expressions() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]


EXPRESSIONS = [*((rule.alert, rule.expr) for rule in alerts()), *panel_expressions()]


def selectors(expression: str) -> Iterator[Any]:
    """Every metric that an expression asks for, with its matchers."""
    for variable, value in GRAFANA_VARIABLES.items():
        expression = expression.replace(variable, value)
    waiting = [promql_parser.parse(expression)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, promql_parser.VectorSelector):
            yield node
        for part in ("lhs", "rhs", "expr", "args", "param", "vector_selector"):
            inner = getattr(node, part, None)
            waiting += inner if isinstance(inner, list | tuple) else [inner] if inner is not None else []


@pytest.fixture
def samples(live_server: LiveServer) -> dict[str, set[str]]:
    """By the name of each sample, the labels that it has; of a service where there is something of everything."""
    with live_server.engine.begin() as c:
        for statement in SOMETHING_OF_EVERYTHING:
            c.execute(text(statement))
    with live_server.client("read") as client:
        assert client.get("/api/v1/regressions").status_code == 200
        found: dict[str, set[str]] = {}
        for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", client.get("/metrics").text, re.MULTILINE):
            found.setdefault(name, set()).update(re.findall(r"(\w+)=\"", labels))
    return found


SOMETHING_OF_EVERYTHING = (
    "INSERT INTO project (slug) VALUES ('a/b')",
    "INSERT INTO testbed (name) VALUES ('cpu')",
    "INSERT INTO commit (project_id, sha) SELECT id, 'c0ffee' FROM project",
    "INSERT INTO worker (name, testbed_id, wanted_state) SELECT 'w1', id, 'quarantine' FROM testbed",
    """INSERT INTO run (id, project_id, commit_id, testbed_id, suite, state, kind)
       SELECT 'RUN', k.project_id, k.id, t.id, 'own', 'queued', 'main' FROM commit k, testbed t""",
    """INSERT INTO regression (project_id, testbed_id, state, first_bad_position)
       SELECT p.id, t.id, 'confirmed', 5 FROM project p, testbed t""",
    "INSERT INTO github_outbox (project_id, kind, key, state) SELECT id, 'check', 'x', 'waiting' FROM project",
    """INSERT INTO joint_pause (project_id, suite, since, until, why)
       SELECT id, 'own', now(), now() + interval '1 hour', 'too many series' FROM project""",
)


def test_every_metric_and_label_that_is_asked_for_is_there(samples: dict[str, set[str]]) -> None:
    for where, expression in EXPRESSIONS:
        for selector in selectors(expression):
            if selector.name in PROMETHEUS_OWN:
                continue
            assert selector.name in samples, f"{where} asks for {selector.name}, which /metrics does not have"
            labels = {matcher.name for matcher in selector.matchers.matchers} - {"job", "instance"}
            assert labels <= samples[selector.name], f"{where} asks {selector.name} for {labels}"


def test_every_metric_is_described_and_in_the_dashboard_or_the_alerts(samples: dict[str, set[str]]) -> None:
    asked = {selector.name for _, expression in EXPRESSIONS for selector in selectors(expression)}
    ours = {re.sub(r"_(bucket|count|sum|created|total)$", "", name) for name in samples}
    assert ours == {re.sub(r"_(bucket|count|sum|created|total)$", "", name) for name in asked - PROMETHEUS_OWN}


def test_an_alert_says_what_to_do_and_how_urgent_it_is() -> None:
    names = [rule.alert for rule in alerts()]
    assert len(set(names)) == len(names) > 5
    for rule in alerts():
        assert rule.labels.keys() == {"severity"} and rule.labels["severity"] in ("page", "ticket"), rule.alert
        assert rule.annotations.keys() == {"summary", "description"}, rule.alert
        # A label that the expression has dropped would be an empty word.
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.annotations.values())))
        grouped = re.findall(r"\bby \(([^)]*)\)", rule.expr)
        for labels in grouped:
            assert used <= {label.strip() for label in labels.split(",")}, rule.alert


def test_the_dashboard_is_whole() -> None:
    assert DASHBOARD["uid"] == "tidemark" and DASHBOARD["schemaVersion"] >= 39
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}", "it must load into any Grafana"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_prometheus_is_told_of_the_rules_and_of_the_token() -> None:
    told = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    assert [(DEPLOY / "prometheus" / name).exists() for name in told["rule_files"]] == [True]
    (job,) = told["scrape_configs"]
    assert job["job_name"] == "tidemark" and "credentials_file" in job["authorization"]
