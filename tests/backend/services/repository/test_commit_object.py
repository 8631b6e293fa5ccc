"""A commit is read whatever its author wrote into it."""

from datetime import UTC, datetime

import pytest

from backend.services.repository.commit_object import MAX_MESSAGE_CHARACTERS, parse_commit

SHA, PARENT = "a" * 40, "b" * 40
WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)


def raw(
    message: bytes = b"Speed up\n", author: bytes = b"Ada L <ada@x.org> 1795176000 +0100", encoding: bytes = b""
) -> bytes:
    extra = b"encoding " + encoding + b"\n" if encoding else b""
    return (
        b"tree " + b"c" * 40 + b"\nparent " + PARENT.encode() + b"\nauthor " + author
        + b"\ncommitter " + author + b"\n" + extra + b"\n" + message
    )  # fmt: skip


def test_people_times_and_parents_are_read() -> None:
    read = parse_commit(SHA, raw())
    assert (read.parents, read.message) == ((PARENT,), "Speed up")
    assert (read.author_name, read.author_email) == ("Ada L", "ada@x.org")
    assert read.authored_at == read.committed_at == WHEN


@pytest.mark.parametrize(
    ("encoding", "message", "text"),
    [
        (b"latin-1", b"gr\xfcn", "grün"),
        (b"no-such-code", b"gr\xc3\xbcn", "grün"),
        (b"punycode", b"plain", "plain"),
        (b"", b"a\x00b", "a\ufffdb"),
    ],
)
def test_a_message_is_text_in_whatever_encoding(encoding: bytes, message: bytes, text: str) -> None:
    assert parse_commit(SHA, raw(message, encoding=encoding)).message == text


def test_a_long_message_is_cut_and_a_time_that_is_none_is_left_out() -> None:
    read = parse_commit(SHA, raw(b"x" * (MAX_MESSAGE_CHARACTERS + 1), author=b"Ada <a@x> 99999999999999999 +0000"))
    assert (len(read.message), read.committed_at) == (MAX_MESSAGE_CHARACTERS, None)
