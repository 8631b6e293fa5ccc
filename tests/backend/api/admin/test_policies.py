"""The policy over HTTP: read by anybody who may read, tried by them with a token, chosen by administrators."""

import httpx
from sqlalchemy import text

PATH = "/api/v1/projects/demo/tinygpt/policy"


def test_another_policy_is_tried_before_it_is_chosen(seeded):
    with seeded.client("read") as reader, seeded.client("admin") as admin:
        assert reader.get(PATH).json()["chosen"] == {}
        tried = reader.post(f"{PATH}/preview", json={"policy": {"min_change": 0.5}, "days": 400})
        assert tried.status_code == 200, tried.text
        found = tried.json()
        assert (found["now"], found["then"], found["added"]) == (1, 0, [])
        assert [flag["metric"] for flag in found["removed"]] == ["step_ms"]
        assert reader.get(PATH).json()["chosen"] == {}
        assert reader.patch(PATH, json={"policy": {"min_change": 0.5}}).status_code == 403
        chosen = admin.patch(PATH, json={"policy": {"min_change": 0.5}})
        assert chosen.status_code == 200, chosen.text
        assert chosen.json()["chosen"] == {"min_change": 0.5}
        assert chosen.json()["rejudging"]["total"] > 0
        assert admin.patch(PATH, json={"policy": {"min_change": None}}).json()["chosen"] == {}


def test_a_policy_that_cannot_be_is_refused_by_its_field(seeded):
    with seeded.client("admin") as admin:
        refused = admin.patch(PATH, json={"policy": {"min_chang": 0.5}})
        assert refused.status_code == 400
        assert "min_chang is not a threshold" in refused.json()["detail"]
        taken_back = admin.patch(PATH, json={"policy": {"min_chang": None}})
        assert taken_back.status_code == 400 and "min_chang is not a threshold" in taken_back.json()["detail"]
        assert admin.patch(PATH, json={"policy": {"min_change": None, "override": None}}).status_code == 200
        assert admin.patch(PATH, json={"policy": {"override": [1]}}).status_code == 400
        assert admin.post(f"{PATH}/preview", json={"policy": {"min_change": 11}}).status_code == 400


def test_the_policy_of_a_project_that_is_none_is_not_found(seeded):
    with seeded.client("read") as reader:
        assert reader.get("/api/v1/projects/no/such/policy").status_code == 404


def test_a_preview_is_not_for_strangers_although_they_may_read(seeded):
    assert httpx.get(f"{seeded.url}{PATH}").status_code == 200
    refused = httpx.post(f"{seeded.url}{PATH}/preview", json={"policy": {"min_change": 0.5}})
    assert refused.status_code == 401 and "token" in refused.json()["detail"]


def test_one_preview_of_a_project_is_worked_on_at_a_time(seeded):
    body = {"policy": {"min_change": 0.5}, "days": 1}
    with seeded.client("read") as reader:
        with seeded.engine.begin() as c:
            project = c.scalar(text("SELECT id FROM project WHERE slug = 'demo/tinygpt'"))
            held = text("SELECT pg_advisory_xact_lock(hashtext('tidemark preview'), :project)")
            c.execute(held, {"project": project})
            refused = reader.post(f"{PATH}/preview", json=body)
            assert refused.status_code == 503 and "another preview" in refused.json()["detail"]
        assert reader.post(f"{PATH}/preview", json=body).status_code == 200
