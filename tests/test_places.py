"""Tests mirror the paths of what they test: fewer and fewer modules stand without one at their place."""

from tests.places import without_test_at_its_place

MOST_WITHOUT = 306
"""Lower it when `python -m tests.places` counts fewer. It never rises: a new module brings its test along."""


def test_no_module_more_than_before_is_without_a_test_at_its_place() -> None:
    missing = without_test_at_its_place()
    assert len(missing) <= MOST_WITHOUT, f"{len(missing)} modules have no test at their place: {missing}"
