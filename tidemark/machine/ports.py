"""Ports on this machine: whether one is free, who has it, and a free one for a private server."""

from __future__ import annotations

import errno
import random
import socket

import psutil

from tidemark.refusal import Refusal

# Below the range from which the kernel takes ports for outgoing connections, so that a private server that is
# restarted finds its port free again.
PRIVATE_PORTS = range(15_000, 32_000)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the address people use; refuses in one line that says who has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(512)
    except (OSError, OverflowError) as error:
        made.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise Refusal(
                f"port {port} on {host} is taken{_holder(port)}; choose another with --port {_free_near(host, port)}"
            ) from error
        raise Refusal(f"cannot listen on {host}:{port}: {error}; choose another with --host and --port") from error
    return made


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def private_port(preferred: int | None = None) -> int:
    """A free loopback port for a private server, the preferred one if it is still free."""
    if preferred is not None and is_free(preferred):
        return preferred
    for port in random.sample(PRIVATE_PORTS, 200):
        if is_free(port):
            return port
    raise Refusal("no free port on 127.0.0.1 between 15000 and 32000 for the private servers")


def _free_near(host: str, port: int) -> int:
    return next((near for near in range(port + 1, min(port + 50, 65_536)) if is_free(near, host)), 0)


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError, FileNotFoundError, AttributeError):
        return ""
    return " by another program"
