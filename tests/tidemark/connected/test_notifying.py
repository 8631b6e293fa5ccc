"""Notifications as commands print them."""

from tidemark.connected.notifying import describe


def test_rules_are_a_table_and_none_is_said() -> None:
    assert describe({"rules": []}) == "no rules: nobody is notified"
    rule = {"id": 3, "name": "us", "address": "jsons://example.org/…", "causes": ["code"], "digest": None}
    assert describe({"rules": [rule]}).splitlines()[1].split() == [
        "3",
        "at",
        "once",
        "code",
        "jsons://example.org/…",
        "us",
    ]
