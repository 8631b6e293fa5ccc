"""Two causes near each other are two things, one cause is one: a few fleets of pairs with fixed seeds."""

import fleet_pairs as pairs
import pytest


@pytest.mark.parametrize("tell", [pairs.told_jointly, pairs.told_by_series])
def test_two_causes_are_seldom_joined_and_one_is_seldom_split(tell):
    found = pairs.evaluate(tell, [6, 13])
    assert found["pairs"] >= 8 and found["found"] >= 0.9
    assert found["joined"] <= pairs.JOINED_AT_MOST
    assert found["split"] <= pairs.SPLIT_AT_MOST + 0.5 / found["changes"]  # of so few, half a change more or less


def test_who_tells_everything_as_one_joins_all_pairs_and_who_tells_each_series_splits():
    def at_once(fleet):
        events = [e for e in fleet.labels if e["kind"] == "regression"]
        for e in events:
            near = [o for o in events if abs(o["commit"] - e["commit"]) <= 5]
            yield set(fleet.testbeds), {s for o in near for s in o["series"]}, e["commit"]

    def each_series(fleet):
        for e in fleet.labels:
            if e["kind"] == "regression":
                yield from ((set(e["testbeds"]), {s}, e["commit"]) for s in e["series"])

    assert pairs.evaluate(at_once, [6])["joined"] == 1
    found = pairs.evaluate(each_series, [6])
    assert found["joined"] == 0 and found["split"] > 0.9
