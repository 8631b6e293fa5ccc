"""Places for requests at work, and what a long answer takes of them."""

from __future__ import annotations

import asyncio

from backend.api.admission import AGAIN_S, Lane
from tests.loops import in_a_loop_of_its_own


def test_each_part_of_a_long_answer_is_made_in_a_place_and_none_is_held_while_it_is_read() -> None:
    async def read() -> None:
        lane = Lane("reading", 1, line=1, patience_s=60)
        parts = lane.in_turns(iter([b"one", b"two"]))
        assert await anext(parts) == b"one"
        async with asyncio.timeout(5), lane.place():
            following = asyncio.ensure_future(anext(parts))
            await asyncio.sleep(0.05)
            assert lane.waiting == 1 and not following.done()
        assert await following == b"two"
        assert [part async for part in parts] == []
        async with asyncio.timeout(5), lane.place():
            pass

    in_a_loop_of_its_own(read())


def test_a_long_answer_waits_where_no_more_requests_may_wait() -> None:
    async def read() -> None:
        lane = Lane("reading", 1, line=0, patience_s=60)
        parts = lane.in_turns(iter([b"one"]))
        async with lane.place():
            following = asyncio.ensure_future(anext(parts))
            await asyncio.sleep(0.05)
            assert lane.waiting == 0 and not following.done()
        async with asyncio.timeout(60 * AGAIN_S):
            assert await following == b"one"

    in_a_loop_of_its_own(read())
