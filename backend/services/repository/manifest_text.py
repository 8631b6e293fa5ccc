"""The TOML of a stranger's tidemark.toml, read within bounds: of size, nesting, names and numbers. Pure."""

import re
import tomllib
from typing import Any

from backend.services.repository.manifest_problems import FILE_NAME, ManifestInvalid

MAX_BYTES = 64 * 1024
MAX_NESTING = 16
MAX_INTEGER = 2**63  # as TOML says


def document_of(text: str | bytes) -> dict[str, Any]:
    """The TOML in this text; raises ManifestInvalid."""
    if len(text) > MAX_BYTES:
        raise ManifestInvalid([f"{FILE_NAME}: has {len(text)} bytes; at most {MAX_BYTES} are accepted"])
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not UTF-8 (byte {error.start})"]) from None
    _refuse_long_names(decoded)
    try:
        document = tomllib.loads(decoded)
    except tomllib.TOMLDecodeError as error:
        raise ManifestInvalid([f"{FILE_NAME}: is not TOML: {error}"]) from None
    except RecursionError:
        raise ManifestInvalid(
            [f"{FILE_NAME}: is nested too deeply; at most {MAX_NESTING} levels are accepted"]
        ) from None
    except ValueError:
        raise ManifestInvalid([f"{FILE_NAME}: a number has too many digits; at most 64 bits are accepted"]) from None
    _refuse_extremes(document)
    return document


_TOKEN = re.compile(r"""(?P<part>[\w-]+|"[^"\n]*"|'[^'\n]*')|(?P<dot>\.)|(?P<space>[ \t]+)|.""", re.DOTALL)


def _refuse_long_names(text: str) -> None:
    """Reading `a.a.a…` takes time with the square of its length."""
    dots = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        dots = 0 if kind is None else dots + (kind == "dot")
        if dots > MAX_NESTING:
            raise ManifestInvalid(
                [f"{FILE_NAME}: a name with more than {MAX_NESTING} dots; at most {MAX_NESTING} levels are accepted"]
            )


def _refuse_extremes(document: dict[str, Any]) -> None:
    """Refuse values that TOML allows and neither a database nor a message can hold."""
    level: list[Any] = [document]
    for _ in range(MAX_NESTING):
        below: list[Any] = []
        for table in level:
            below += table.values() if isinstance(table, dict) else table
            if isinstance(table, dict) and any(len(key) > 200 or not key.isprintable() for key in table):
                raise ManifestInvalid([f"{FILE_NAME}: a name is longer than 200 characters or not printable"])
        if any(isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER for value in below):
            raise ManifestInvalid([f"{FILE_NAME}: a number has too many digits; at most 64 bits are accepted"])
        level = [value for value in below if isinstance(value, dict | list)]
        if not level:
            return
    raise ManifestInvalid([f"{FILE_NAME}: is nested too deeply; at most {MAX_NESTING} levels are accepted"])
