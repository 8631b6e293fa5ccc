"""One enumeration of what a metric says of itself, whoever reads it."""

import pytest

from backend import contract, metric
from backend.regression import terms
from benchmarks import spec


@pytest.mark.parametrize("name", ["Direction", "Role"])
def test_the_contract_and_the_judge_mean_the_same(name: str) -> None:
    assert getattr(contract, name) is getattr(metric, name) is getattr(terms, name)


@pytest.mark.parametrize("name", ["Direction", "Role"])
def test_the_suite_that_stands_alone_knows_the_same_words(name: str) -> None:
    assert [each.value for each in getattr(spec, name)] == [each.value for each in getattr(metric, name)]
