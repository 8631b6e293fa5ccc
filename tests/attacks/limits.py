"""What a limit per minute lets through."""

from collections.abc import Sequence

from httpx import Response


def kept_to(limit: int, answers: Sequence[Response], answered: int = 200) -> Response:
    """The first that was told to come back, of requests made one after another.

    Fails unless the first `limit` of them were answered, and at most one more: where a minute ends meanwhile, the
    sliding count of the limit is rounded down to one less than was asked.
    """
    statuses = [answer.status_code for answer in answers]
    first, later = statuses[:limit], statuses[limit:]
    assert first == [answered] * limit and set(later) <= {answered, 429}, statuses
    assert len(later) > 1 and later.count(answered) <= 1, statuses
    return next(answer for answer in answers if answer.status_code == 429)
