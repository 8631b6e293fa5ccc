"""Foreign names as names of ours. Different names stay different: what cannot be written leaves a digest behind."""

import hashlib
import re
from functools import lru_cache

MOST_NAME = 200
MOST_SHORT_NAME = 100
MOST_UNIT = 50
DIGEST = 8
cache_names = lru_cache(4096)  # a history says the same few again and again
_FIRST = re.compile(r"^[^0-9A-Za-z_]+")
_ODD = re.compile(r"[^0-9A-Za-z._+:/-]")
_ODD_SHORT = re.compile(r"[^0-9A-Za-z._+-]")


@cache_names
def name_of(text: str, fallback: str = "benchmark") -> str:
    """The name of a metric: what the contract does not allow becomes `_`, and a digest says what it was."""
    return _named(text.strip(), _ODD, MOST_NAME, fallback)


@cache_names
def short_name_of(text: str, fallback: str) -> str:
    """The name of a suite or testbed."""
    return _named(text.strip(), _ODD_SHORT, MOST_SHORT_NAME, fallback, first=r"[0-9A-Za-z]")


@cache_names
def plain_name_of(text: str) -> tuple[str, bool]:
    """A benchmark's name without a digest, and whether it still says all that the text did."""
    stripped = text.strip()
    plain = _FIRST.sub("", _ODD.sub("_", stripped))[:MOST_NAME] or "benchmark"
    return plain, plain == stripped


def _named(text: str, odd: re.Pattern[str], most: int, fallback: str, first: str = r"[0-9A-Za-z_]") -> str:
    written = text.replace(" ", "_")  # a space and `_` count the same; whatever else is lost is told apart
    plain = odd.sub("_", written)
    begun = re.search(first, plain)
    plain = plain[begun.start() :] if begun else ""
    if plain == written and len(plain) <= most:
        return plain or fallback
    return f"{plain[: most - DIGEST - 1] or fallback}-{digest(text)}"


def within(text: str, most: int) -> str:
    """`text`, or its beginning and a digest of the whole where it is longer."""
    return text if len(text) <= most else f"{text[: most - DIGEST - 1]}~{digest(text)}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
