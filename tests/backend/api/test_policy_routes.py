"""The policy over HTTP: read by anybody who may read, tried by them, chosen by administrators."""

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
        assert "min_chang is no threshold" in refused.json()["detail"]
        assert admin.patch(PATH, json={"policy": {"override": [1]}}).status_code == 400
        assert admin.post(f"{PATH}/preview", json={"policy": {"min_change": 11}}).status_code == 400


def test_the_policy_of_a_project_that_is_none_is_not_found(seeded):
    with seeded.client("read") as reader:
        assert reader.get("/api/v1/projects/no/such/policy").status_code == 404
