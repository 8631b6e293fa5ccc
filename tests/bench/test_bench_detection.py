"""The rows of the bench that judge labelled histories: what they load by path is still there."""

from typing import Any, cast

import pytest

from tests.bench import detection


def test_the_joint_detector_is_measured_beside_the_parsing_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "FLEETS", (11,))
    [figure] = detection.fleet(cast("Any", None))
    assert figure.value_ms > 0 and figure.yardstick_ms > 0 and "causes right 1.00" in figure.note


def test_the_detector_is_measured_beside_every_rule_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "SERIES", 3)
    figures = list(detection.detection(cast("Any", None)))
    assert len(figures) >= 5 and all(figure.value_ms > 0 for figure in figures)
