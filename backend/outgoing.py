"""Where git may connect: a repository's address comes from a request, and must lead to a repository on the internet,
not to this machine, the network behind it, or the address of a cloud's credentials. Standard library only.

Names are resolved here, every address of a name must be public (or allowed), and git may use only those: a name
that resolves differently a moment later gains nothing, and neither does a redirect.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_SHORT_SSH = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>[^@:/]+):(?!//)(?P<path>.+)\Z")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\.?\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_PORTS = {"https": 443, "http": 80, "ssh": 22}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_AZURE = ipaddress.ip_address("168.63.129.16")  # public by its number; there that cloud tells machines secrets
_PROXIES = ("https_proxy", "http_proxy", "all_proxy")


class AddressRefused(ValueError):
    """git is not sent there; the message says why."""


@dataclass(frozen=True, slots=True)
class RepositoryTarget:
    """The host and path of a repository's address. `host` is None for a directory of this machine."""

    scheme: str
    host: str | None
    port: int


def target_of(url: str) -> RepositoryTarget:
    """Reads an address as git would; raises Refused where a part of it could become an option or a command."""
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url) or url.startswith("-"):
        raise AddressRefused("the address has a blank or a control character, or begins with '-'")
    try:
        split = urlsplit(url)
        host, user, port = split.hostname, split.username, split.port
    except ValueError:
        raise AddressRefused("the address cannot be read") from None
    if split.scheme == "file" and not split.netloc:
        return RepositoryTarget("file", None, 0)
    if "://" not in url:
        short = _SHORT_SSH.match(url)
        if short is None or "::" in url:
            raise AddressRefused("the address is not that of a repository")
        return _checked("ssh", short["host"], short["user"], 22)
    if split.scheme not in _PORTS or not host:
        raise AddressRefused("the address is not that of a repository")
    return _checked(split.scheme, host, user, port or _PORTS[split.scheme])


def _checked(scheme: str, host: str, user: str | None, port: int) -> RepositoryTarget:
    if not _HOST.match(host) and not _is_address(host):
        raise AddressRefused(f"{host[:100]!r} is not a host name")
    if user is not None and scheme == "ssh" and not _USER.match(user):
        raise AddressRefused(f"{user[:100]!r} is not an account name")
    return RepositoryTarget(scheme, host, port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Way:
    """Options and environment that let git, and ssh below it, reach one repository and nothing else."""

    settings: Mapping[str, str] = field(default_factory=dict)
    ssh_options: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """The settings as git's command line takes them."""
        return [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]

    def ssh_command(self, usual: str) -> str:
        """The usual command for ssh (GIT_SSH_COMMAND), held to this way."""
        return " ".join([usual, *(shlex.quote(option) for option in self.ssh_options)])


def way_to(url: str, allowed: Sequence[str] = ()) -> Way:
    """The way to this repository; raises Refused where it may not be reached.

    `allowed` names hosts and networks (git.example.org, 10.2.0.0/16) that may be reached although they are not public.
    """
    target = target_of(url)
    if target.host is None:
        return Way()
    if target.host.rstrip(".").lower() in {name.lower() for name in allowed}:
        return Way({"http.followRedirects": "false"})
    found = _resolved(target)
    for address in found:
        if not may_reach(address, allowed):
            raise AddressRefused(
                f"{target.host} is {address}, an address that is not public; an operator may allow it with "
                "TIDEMARK_PRIVATE_HOSTS"
            )
    if target.scheme == "ssh":
        return Way(ssh_options=_pinned_ssh(target, found))
    pinned = ",".join(f"[{address}]" if address.version == 6 else str(address) for address in found)
    pin = {"http.curloptResolve": f"{target.host}:{target.port}:{pinned}"} if pinned else {}
    return Way({"http.followRedirects": "false", **pin})


def _pinned_ssh(target: RepositoryTarget, found: Sequence[Address]) -> tuple[str, ...]:
    """ssh goes to the address that was looked at, and knows the host's key by its name as before."""
    known_as = target.host if target.port == _PORTS["ssh"] else f"[{target.host}]:{target.port}"
    return (f"-oHostName={found[0]}", f"-oHostKeyAlias={known_as}")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _resolved(target: RepositoryTarget) -> list[Address]:
    """Every address of the host; none where a proxy resolves it, which then is what guards it."""
    host = target.host or ""
    try:
        told = socket.getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        if target.scheme.startswith("http") and _has_proxy(os.environ):
            return []
        raise AddressRefused(f"{host} has no address: {failure}") from None
    found = dict.fromkeys(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in told)
    return [_plain(address) for address in found]


def may_reach(address: Address, allowed: Sequence[str] = ()) -> bool:
    """Whether this address is public, or in a network that is allowed."""
    plain = _plain(address)
    networks = [ipaddress.ip_network(text, strict=False) for text in allowed if _is_network(text)]
    return _is_public(plain) or any(plain in network for network in networks)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:  # a gateway makes an IPv4 address of it
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address == _AZURE)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, as ::ffff:127.0.0.1 does."""
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _has_proxy(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
