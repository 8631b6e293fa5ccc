"""Patterns for text in requests: each pattern with the words that say so where it is refused."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator

from backend.services.base.projects import A_SLUG, SLUG
from backend.services.base.scope import in_zone

ZonedMoment = Annotated[datetime, AfterValidator(in_zone)]
"""One that names no zone is in UTC."""

# Postgres cannot keep NUL in text; nothing named here needs control characters.
PLAIN = r"^[^\x00-\x1f\x7f]*$"
NO_NUL = r"^[^\x00]*$"
NAME = r"^[0-9A-Za-z_][0-9A-Za-z._+-]*$"
BADGE_SLUG = r"^[0-9A-Za-z_][0-9A-Za-z._/-]*$"
SHA = r"^[0-9a-f]{7,64}$"
SHORT_SHA = r"^[0-9a-f]{4,64}$"
WHOLE_SHA = r"^[0-9a-f]{40,64}$"
RUN_ID = r"^[0-9A-Za-z][0-9A-Za-z._-]{7,63}$"
ULID = r"^[0-9A-Z]{26}$"
REPOSITORY_ID = r"^[0-9]{1,20}$"

SIGN_IN_ID = r"^[0-9a-f]{16}$"
LOGIN = r"^[^\s\x00-\x1f\x7f/\\]+$"

WORDS: Mapping[str, str] = {
    PLAIN: "text of one line, without control characters",
    NO_NUL: "text without the character NUL",
    NAME: "letters, digits, '.', '_', '+' and '-', beginning with a letter, a digit or '_', such as h200-sxm",
    SLUG: A_SLUG,
    BADGE_SLUG: A_SLUG,
    SHA: "a commit's id or its first 7 digits or more, in lower-case hexadecimal, such as 3f2a9c1",
    SHORT_SHA: "a commit's id or its first 4 digits or more, in lower-case hexadecimal, such as 3f2a9c1",
    WHOLE_SHA: "a commit's whole id: 40 digits (64 of SHA-256), in lower-case hexadecimal",
    LOGIN: "a GitHub login, or the address that the OpenID provider vouches for",
    SIGN_IN_ID: "the id of a sign-in, as the list of them gives it: 16 digits in lower-case hexadecimal",
    RUN_ID: "8 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit;"
    " best a ULID, such as 01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8",
    ULID: "a ULID: 26 digits and capital letters, such as 01JD2Q8Z6WJ4M6R8T0V2X4Y6Z8",
    REPOSITORY_ID: "the number that GitHub gave the repository, such as 1296269",
}
