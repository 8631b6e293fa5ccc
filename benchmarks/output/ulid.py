"""Run ids: ULIDs, sortable by the time they were made."""

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_ulid(milliseconds: int | None = None) -> str:
    """26 characters: 48 bits of time, 80 bits of chance."""
    stamp = int(time.time() * 1000) if milliseconds is None else milliseconds
    number = (stamp << 80) | secrets.randbits(80)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
