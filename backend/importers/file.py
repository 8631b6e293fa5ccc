"""A result file as its reader meets it: unpacked, its byte order mark skipped, read as text or JSON at most once."""

import codecs
import json
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Any

from backend.importers.values import listed, mapping

MOST_BYTES = 400_000_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PACKED_SUFFIXES = (".gz", ".zst")


class Unreadable(ValueError):
    """The file as a whole is not of this format; the message says what was expected and what was found."""


class ResultFile:
    """A file that was named or sent. `name` has lost the suffix of what it was packed with."""

    def __init__(self, name: str, data: bytes) -> None:
        packed = data[:2] == GZIP or data[:4] == ZSTD
        self.data = _as_utf8(name, _unpacked(name, data) if packed else data).removeprefix(BYTE_ORDER_MARK)
        path = PurePath(name)
        self.name = str(path.with_suffix("")) if packed and path.suffix in PACKED_SUFFIXES else name

    @property
    def path(self) -> PurePath:
        return PurePath(self.name)

    @cached_property
    def text(self) -> str:
        """As UTF-8, whatever is none replaced: what matters in a log is ASCII."""
        return self.data.decode("utf-8", "replace")

    @property
    def is_json(self) -> bool:
        return self.data.lstrip()[:1] in (b"{", b"[")

    @cached_property
    def _json(self) -> Any:
        try:
            return json.loads(self.data)
        except UnicodeDecodeError as error:
            return Unreadable(f"{self.name}: not UTF-8 at byte {error.start}")
        except RecursionError:
            return Unreadable(f"{self.name}: nested too deeply")
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
            return Unreadable(f"{self.name}: no JSON at {where}: {error.msg}")
        except ValueError:  # the one that is left
            return Unreadable(f"{self.name}: a whole number in it has more digits than can be read")

    @property
    def document(self) -> Any:
        """The JSON value; raises `Unreadable` naming line and column."""
        if isinstance(self._json, Unreadable):
            raise self._json
        return self._json

    def object_with(self, expected: str, **kinds: type) -> dict[str, Any]:
        """The JSON object, if these fields of it are of these kinds; raises `Unreadable` with what was expected."""
        document = self.document
        fits = isinstance(document, dict) and all(isinstance(document.get(key), kind) for key, kind in kinds.items())
        if not isinstance(document, dict) or not fits:
            raise Unreadable(f"{self.name}: expected {expected}, found {_described(document)}")
        return document

    @cached_property
    def rows(self) -> list[tuple[str, Any]]:
        """The place and value of each JSON value: of a list, of a single value, or of lines with one value or a list
        of them each. A line that is not JSON becomes an `Unreadable` in its place."""
        whole = self._json
        if not isinstance(whole, Unreadable):
            return list(_each(self.name, whole))
        found: list[tuple[str, Any]] = []
        for number, line in enumerate(self.text.split("\n"), 1):  # a text in JSON may hold other ends of lines
            if line.strip():
                try:
                    found += _each(f"{self.name}:{number}", json.loads(line))
                except (ValueError, RecursionError) as error:
                    found.append((f"{self.name}:{number}", Unreadable(f"no JSON: {error}")))
        if all(isinstance(row, Unreadable) for _, row in found):
            raise whole
        return found

    @cached_property
    def first(self) -> Mapping[str, Any]:
        """The first JSON object of the file, be it alone, in a list or on a line; empty where there is none."""
        if not self.is_json:
            return {}
        whole = self._json
        if isinstance(whole, Unreadable):
            try:
                whole = json.loads(self.data.lstrip().split(b"\n", 1)[0])
            except (ValueError, RecursionError):
                return {}
        return mapping(whole) or mapping(next(iter(listed(whole)), None))


def _as_utf8(name: str, data: bytes) -> bytes:
    """Text that a mark at its beginning tells to be UTF-16, as redirected output is on Windows, as UTF-8."""
    if not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data
    try:
        return data.decode("utf-16").encode()
    except UnicodeError:
        raise Unreadable(f"{name}: starts like UTF-16, but is not valid UTF-16") from None


def _unpacked(name: str, data: bytes) -> bytes:
    if data[:2] == GZIP:
        reader = zlib.decompressobj(wbits=31)
        try:
            plain = reader.decompress(data, MOST_BYTES + 1)
        except zlib.error as error:
            raise Unreadable(f"{name}: broken gzip: {error}") from None
        if not reader.eof and len(plain) <= MOST_BYTES:
            raise Unreadable(f"{name}: broken gzip: it ends too early")
    else:
        try:
            import pyarrow  # a client has it only where it was installed to read exports

            with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
                plain = stream.read(MOST_BYTES + 1)
        except ImportError:
            raise Unreadable(f"{name}: reading zstd needs pyarrow; gzip needs nothing extra") from None
        except OSError as error:
            raise Unreadable(f"{name}: broken zstd: {error}") from None
    if len(plain) > MOST_BYTES:
        raise Unreadable(f"{name}: more than {MOST_BYTES} bytes when unpacked")
    return plain


def _each(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of a list, or the value alone."""
    if not isinstance(value, list):
        yield where, value
    else:
        yield from ((f"{where} [{index}]", row) for index, row in enumerate(value))


def _described(document: object) -> str:
    if isinstance(document, dict):
        keys = ", ".join(map(repr, list(document)[:6]))
        return f"an object with {keys}" if keys else "an empty object"
    if isinstance(document, list):
        return f"a list of {len(document)}"
    return type(document).__name__
