"""What a limit per minute lets through."""

from collections.abc import Sequence

from httpx import Response


def kept_to(limit: int, answers: Sequence[Response], answered: int = 200) -> Response:
    """The first that was told to come back, of requests made one after another.

    Fails unless the first `limit` of them were answered, and hardly any more: where a minute ends meanwhile, the
    sliding count of the limit is rounded down to one less than was asked, and less with every second.
    """
    statuses = [answer.status_code for answer in answers]
    first, later = statuses[:limit], statuses[limit:]
    assert first == [answered] * limit and set(later) <= {answered, 429}, statuses
    took_s = sum(answer.elapsed.total_seconds() for answer in answers)
    assert later.count(answered) <= 1 + limit * took_s / 60, (statuses, took_s)
    assert 429 in later, statuses
    return next(answer for answer in answers if answer.status_code == 429)
