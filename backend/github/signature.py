"""The signature of a GitHub webhook: HMAC SHA-256 over the raw body, compared in constant time."""

import hashlib
import hmac

HEADER = "X-Hub-Signature-256"
PREFIX = "sha256="


def sign(secret: str, body: bytes) -> str:
    """The header value that GitHub would send with this body."""
    return PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_signed(secret: str, body: bytes, header: str | None) -> bool:
    """Whether `header` signs exactly these bytes. An empty secret signs nothing."""
    if not secret or not header or not header.startswith(PREFIX):
        return False
    # As bytes: `compare_digest` refuses text with non-ASCII characters, which a stranger may send.
    return hmac.compare_digest(sign(secret, body).encode(), header.encode("utf-8", "surrogateescape"))
