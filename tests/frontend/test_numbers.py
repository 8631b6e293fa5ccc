"""Numbers as people read them."""

from datetime import UTC, datetime, timedelta

import pytest

from frontend import numbers
from frontend.numbers import MINUS, THIN

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (25.9812, "ms", f"26.0{THIN}ms"),
        (5.46, "ms", f"5.46{THIN}ms"),
        (1150.0, "ms", f"1150{THIN}ms"),
        (2400.0, "ms", f"2.40{THIN}s"),
        (0.0612, "ms", f"61.2{THIN}µs"),
        (24159191040, "B", f"24.2{THIN}GB"),
        (3000733.0, "1/s", f"3.00{THIN}M/s"),
        (0.432, "ratio", "0.432"),
        (0, "1", "0"),
        (12345, "1", f"12{THIN}345"),
        (None, "ms", "–"),
        (float("nan"), "ms", f"–{THIN}ms"),
    ],
)
def test_a_value_has_three_significant_figures_and_a_unit(value: float | None, unit: str, text: str) -> None:
    assert numbers.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9.996, "10.0"),
        (99.96, "100"),
        (999.96, "1000"),
        (9998.4, "9998"),
        (9999.6, f"10{THIN}000"),
        (-12.3456, f"{MINUS}12.3"),
        (0.00999, "0.00999"),
        (123456, f"123{THIN}456"),
        (3.45e-7, "3.45 × 10⁻⁷"),
    ],
)
def test_rounding_up_does_not_add_a_figure(value: float, text: str) -> None:
    assert numbers.significant(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0741, f"+7.4{THIN}%"),
        (-0.0008, f"{MINUS}0.1{THIN}%"),
        (0.0001, f"0.0{THIN}%"),
        (0.182, f"+18{THIN}%"),
        (0.0996, f"+10{THIN}%"),
    ],
)
def test_a_change_has_a_real_minus_and_loses_its_decimal_from_ten_percent_on(fraction: float, text: str) -> None:
    assert numbers.signed_percent(fraction) == text


def test_before_and_after_share_one_unit() -> None:
    assert numbers.before_and_after(980.0, 1150.0, "ms") == f"980 → 1150{THIN}ms"
    assert numbers.before_and_after(0.9, 1.1, "ms") == f"0.900 → 1.10{THIN}ms"


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(seconds=14), "14 s"),
        (timedelta(minutes=4), "4 m"),
        (timedelta(hours=9), "9 h"),
        (timedelta(days=2), "2 d"),
        (timedelta(days=8), "12 Nov"),
    ],
)
def test_an_age_becomes_a_date_after_a_week(passed: timedelta, text: str) -> None:
    assert numbers.age(NOW - passed, NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.2, "4.2 s"), (200, "3 min 20 s"), (840, "14 min"), (7500, "2 h 5 min"), (90_000, "1 d 1 h")],
)
def test_a_duration_names_its_two_largest_parts(seconds: float, text: str) -> None:
    assert numbers.duration(seconds) == text


def test_time_left_is_written_like_the_guess_it_is() -> None:
    assert numbers.rough_duration(13.7 * 60) == "~14 min"
    assert numbers.rough_duration(12) == "~10 s"


def test_a_narrow_interval_of_a_large_change_keeps_its_width() -> None:
    assert numbers.interval(0.176, 0.184) == "17.6 … 18.4\u202f%"
    assert numbers.interval(0.068, 0.081) == "6.8 … 8.1\u202f%"


def test_a_change_of_cost_has_the_sign_that_says_where_performance_went() -> None:
    assert [numbers.cost_change(each) for each in (0.074, -0.06, 0.0001, None)] == [
        "▼ 7.4\u202f%",
        "▲ 6.0\u202f%",
        "0.0\u202f%",
        "–",
    ]
