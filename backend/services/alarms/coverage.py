"""What the fleet judge said, as the telling of regressions needs it: which word a change point falls under, and why."""

from __future__ import annotations

from collections.abc import Sequence

from backend.regression.cause.attribution import Cause, CauseName
from backend.regression.grouping import NEAR
from backend.store.joint.incidents import Word

ROLLS_OUT = 12
"""Commits over which an upgrade reaches the workers of a testbed."""
LOOKS_BACK = 60
"""Commits before the oldest change point in question: words about older ones say nothing of it."""


def covering(words: Sequence[Word], series_id: int, onset: int) -> Word | None:
    """The word that a change for the worse which began here falls under: the nearest, and of two the code's."""
    near = [word for word in words if series_id in word.series and _reaches(word, onset)]
    return min(near, key=lambda word: (_far(word, onset), word.cause != CauseName.CODE, word.id), default=None)


def _reaches(word: Word, onset: int) -> bool:
    first, last = word.range_start - NEAR, max(word.range_end, word.first_bad_position) + NEAR
    if word.cause == CauseName.HARDWARE:
        return first <= onset and (word.closed_position is None or onset <= word.closed_position)
    if word.cause == CauseName.ENVIRONMENT:
        last += ROLLS_OUT
    return word.magnitude > 0 and first <= onset <= last


def _far(word: Word, onset: int) -> int:
    return max(0, abs(onset - word.first_bad_position) - NEAR)


def cause_of(word: Word) -> Cause:
    """The cause, with the sentence that says what it was found from."""
    beds = " and ".join(word.testbeds)
    sentence = {
        CauseName.CODE: (
            f"All series of the suite side by side show one {'drift' if word.drift else 'change'} on {beds}, "
            "and an interleaved session, in which only the code differs, shows it too."
        ),
        CauseName.ENVIRONMENT: (
            f"It came with the new software of {beds}, and an interleaved session of the commits does not show it."
        ),
        CauseName.HARDWARE: f"All series side by side: {word.worker or 'this worker'} of {beds} is slower than it was.",
    }[CauseName(word.cause)]
    return Cause(CauseName(word.cause), (sentence,), suppress=word.cause != CauseName.CODE)
