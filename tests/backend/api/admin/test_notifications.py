"""Rules over HTTP: made, shown without secrets, changed, tested, removed; by administrators of the project."""

from typing import Any

PATH = "/api/v1/projects/demo/tinygpt/notifications"
RULE = {"name": "us", "address": "jsons://ada:secret@example.org/hidden"}


def test_the_life_of_a_rule(seeded: Any) -> None:
    with seeded.client("admin") as admin:
        made = admin.post(PATH, json=RULE)
        assert made.status_code == 201, made.text
        assert "secret" not in made.text and "hidden" not in made.text
        rule = made.json()
        assert (rule["causes"], rule["digest"]) == (["code"], None)
        changed = admin.patch(f"{PATH}/{rule['id']}", json={"digest": "weekly"})
        assert (changed.json()["digest"], changed.json()["address"]) == ("weekly", "jsons://example.org/…")
        assert admin.post(f"{PATH}/{rule['id']}/test").json()["state"] == "waiting"
        found = admin.get(PATH).json()
        assert [each["kind"] for each in found["messages"]] == ["test"]
        trail = admin.get("/api/v1/audit?action=notification").text
        assert trail.count("notification.change") == 3 and "secret" not in trail
        assert admin.delete(f"{PATH}/{rule['id']}").status_code == 204
        assert admin.get(PATH).json() == {"rules": [], "messages": []}


def test_a_rule_that_could_never_be_met_is_refused_by_its_field(seeded: Any) -> None:
    with seeded.client("admin") as admin:
        for wrong, said in (
            ({"address": "dbus://x"}, "accepted: mailto"),
            ({"causes": ["weather"]}, "causes"),
            ({"states": []}, "states"),
            ({"time_zone": "Mars/Base"}, "time_zone"),
            ({"quiet_from": "25:00", "quiet_until": "07:00"}, "quiet_from"),
            ({"quiet_from": "22:00"}, "go together"),
            ({"digest": "hourly"}, "digest"),
        ):
            refused = admin.post(PATH, json={**RULE, **wrong})
            assert refused.status_code == 400 and said in refused.text, (wrong, refused.text)
        assert admin.patch(f"{PATH}/99999", json={"name": "x"}).status_code == 404


def test_rules_are_for_administrators(seeded: Any) -> None:
    with seeded.client("write") as writer:
        assert writer.get(PATH).status_code == 403
        assert writer.post(PATH, json=RULE).status_code == 403
