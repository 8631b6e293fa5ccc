"""Posts one message with Apprise, in a separate process that can reach only public addresses.

Apprise opens its own connections. Here the interpreter asks us about each, with the address it is about to connect to:
a name that resolves to this machine or the network behind it, or a redirect there, is refused. Such a hook applies to
the whole process permanently, which is why this one posts and exits. It reads a `Letter` as JSON and writes a `Posted`.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from backend.outgoing import may_reach

SCHEMES = (
    "mailto", "mailtos", "slack", "msteams", "workflow", "workflows", "discord", "gchat", "mmost", "mmosts", "rocket",
    "rockets", "matrix", "matrixs", "zulip", "wxteams", "tgram", "ntfy", "ntfys", "pagerduty", "json", "jsons",
)  # fmt: skip
HIDDEN_WHOLE = frozenset({"json", "jsons", "ntfy", "ntfys"})
"""Services whose path may be the secret."""
NAMES_A_FILE = frozenset({"template", "pgp", "pgppub", "pgpprv", "wkd"})
"""Parameters that make Apprise read files of this machine, or post their contents."""
CONNECT_S, ANSWER_S, PATIENCE_S = 10.0, 30.0, 60.0
SECRET = re.compile(r"[^/:@?&=,\s]{6,}")


class AddressNotAccepted(ValueError):
    """An address that cannot be used; the message says what is accepted, and contains no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message, in each form that a service may need."""

    address: str = field(repr=False)
    title: str
    markdown: str
    html: str
    private_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """Whether a message was accepted, and the answer if not."""

    ok: bool
    error: str = ""
    is_refused: bool = False
    """It can never be delivered there."""
    is_unknown: bool = False
    """It may have arrived: the other side accepted it and did not answer."""


def shown_address(address: str) -> str:
    """The address without its secrets. Raises `AddressNotAccepted`."""
    found = _service(address)
    scheme = address.partition("://")[0].lower()
    if scheme in HIDDEN_WHOLE:
        host = address.partition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]
        return f"{scheme}://{host}/…" if scheme.startswith("json") else f"{scheme}://…"
    return str(found.url(privacy=True)).partition("?")[0]


def post(letter: Letter) -> Posted:
    """Post it from a separate process, which has a minute."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "backend.services.notify.post"],
            input=json.dumps(asdict(letter)),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        return Posted(**json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return Posted(ok=False, is_unknown=True, error=f"no answer within {PATIENCE_S:.0f} s")
    except (ValueError, TypeError):
        return Posted(ok=False, is_unknown=True, error=f"the process that posts ended with {done.returncode}")


def _service(address: str) -> Any:
    """Apprise's plugin for the address."""
    from apprise import Apprise, URLBase

    scheme = address.partition("://")[0].lower()
    if scheme not in SCHEMES or "://" not in address:
        raise AddressNotAccepted(f"{scheme[:20]}:// is not accepted; accepted: {', '.join(SCHEMES)}")
    logging.getLogger("apprise").propagate = False  # it would log the address
    parameters = (URLBase.parse_url(address, verify_host=False) or {}).get("qsd", {})  # type: ignore[no-untyped-call]
    if unfit := sorted(NAMES_A_FILE.intersection(parameters)):
        raise AddressNotAccepted(
            f"{unfit[0]}= is not accepted: an address may not read files or send anything but the message"
        )
    found = Apprise.instantiate(address, suppress_exceptions=True)
    if found is None:
        raise AddressNotAccepted(f"this is not a valid {scheme}:// address for Apprise")
    return found


def _post_here(letter: Letter) -> Posted:
    import apprise
    from apprise import NotifyFormat
    from apprise.logger import LogCapture

    refused: list[str] = []
    _guard(letter.private_hosts, refused)
    try:
        service = _service(letter.address)
    except AddressNotAccepted as wrong:
        return Posted(ok=False, is_refused=True, error=str(wrong))
    service.socket_connect_timeout, service.socket_read_timeout = CONNECT_S, ANSWER_S
    is_mail = letter.address.lower().startswith("mailto")
    body = letter.html if is_mail else letter.markdown
    written = NotifyFormat.HTML if is_mail else NotifyFormat.MARKDOWN
    courier = apprise.Apprise()
    courier.add(service)
    with LogCapture(level=logging.DEBUG) as log:  # type: ignore[no-untyped-call]
        ok = bool(courier.notify(title=letter.title, body=body, body_format=written))
        said = log.getvalue()
    if refused:
        wanted = f"{refused[0]} is an address that is not public; an operator may allow it with TIDEMARK_PRIVATE_HOSTS"
        return Posted(ok=False, is_refused=True, error=wanted)
    timed_out = "timed out" in said and "connect timeout" not in said.lower()
    return Posted(ok=ok, is_unknown=not ok and timed_out, error="" if ok else _reason(said, letter.address))


def _guard(private_hosts: Sequence[str], refused: list[str]) -> None:
    """Let this process connect to nothing that is not public or allowed, for as long as it lives."""
    allowed = [*private_hosts]
    for name in private_hosts:
        try:
            allowed += [str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)]
        except OSError:
            continue  # a network, or a name that has no address now

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            return
        place = arguments[1]
        if not isinstance(place, tuple):
            raise PermissionError("only network addresses are allowed")
        try:
            may = may_reach(ipaddress.ip_address(str(place[0]).partition("%")[0]), allowed)
        except ValueError:
            may = False  # a name would be resolved again
        if not may:
            refused.append(str(place[0]))
            raise PermissionError(f"{place[0]} is not public")

    sys.addaudithook(look)


def _reason(said: str, address: str) -> str:
    """The last thing that Apprise warned of, without any part of the address that may be secret."""
    lines = [line for line in said.splitlines() if " - WARNING - " in line or " - ERROR - " in line]
    text = lines[-1].rpartition(" - ")[2] if lines else "it was not taken"
    for part in SECRET.findall(address):
        text = text.replace(part, "…")
    return text[:300]


if __name__ == "__main__":
    given = json.load(sys.stdin)
    json.dump(asdict(_post_here(Letter(**{**given, "private_hosts": tuple(given["private_hosts"])}))), sys.stdout)
