"""The canary on the page of a run, in the words that the pages of workers use."""

import pytest

from frontend.pages.run import canary_says


@pytest.mark.parametrize(
    ("change", "noise", "words", "moved"),
    [
        (0.001, 0.001, "steady, +0.1 %", False),
        (-0.13, 0.01, "moved, −13 %", True),
        (-0.13, 0.04, "steady, −13 %", False),
        (-0.13, None, "−13 %, its noise is not known", False),
        (None, 0.01, "read once", False),
    ],
)
def test_a_canary_moved_only_past_its_known_noise(
    change: float | None, noise: float | None, words: str, moved: bool
) -> None:
    said, has_moved = canary_says(change, noise)
    assert (said.replace("\u202f", " "), has_moved) == (words, moved)
