"""Ports: taken ones are refused with who has them, private ones stay away from outgoing connections."""

from __future__ import annotations

import socket

import pytest

from tidemark.machine import ports
from tidemark.refusal import Refusal


def test_a_taken_port_is_refused_with_its_holder_and_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(Refusal) as refusal:
            ports.listen("127.0.0.1", port)
    text = str(refusal.value)
    assert text.startswith(f"port {port} on 127.0.0.1 is taken by ")
    offered = int(text.rsplit("--port ", 1)[1])
    assert ports.is_free(offered)


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(Refusal, match=r"cannot listen on 192\.0\.2\.1:8000"):
        ports.listen("192.0.2.1", 8000)


def test_a_private_port_is_kept_while_it_is_free() -> None:
    port = ports.private_port()
    assert port in ports.PRIVATE_PORTS
    assert ports.private_port(port) == port
    with socket.create_server(("127.0.0.1", port)):
        assert ports.private_port(port) != port
