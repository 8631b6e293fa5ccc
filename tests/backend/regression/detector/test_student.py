"""Quantiles of Student's distribution, beside those of published tables; loaded where somebody asks."""

import subprocess
import sys

import pytest

from backend.regression.detector.student import quantile


@pytest.mark.parametrize(
    ("freedom", "share", "value"), [(1, 0.975, 12.706), (10, 0.95, 1.812), (30, 0.995, 2.750), (5, 0.5, 0.0)]
)
def test_quantiles_are_those_of_the_tables(freedom: float, share: float, value: float) -> None:
    assert quantile(freedom, share) == pytest.approx(value, abs=5e-4)


def test_the_judge_is_loaded_without_them() -> None:
    loaded = "import sys, backend.regression.series.judge, backend.regression.compare; print('scipy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "False\n"
    )
