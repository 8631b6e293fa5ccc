"""Where people are told in tests: a mailbox (SMTP) and a webhook (HTTP) on the loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller


class Webhook:
    """Keeps what it was sent; answers as the test says."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.before_answer: Callable[[], None] = lambda: None
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                webhook.before_answer()
                self.send_response(webhook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"json://127.0.0.1:{self.server.server_port}/a-secret-path"


@contextmanager
def webhook() -> Iterator[Webhook]:
    played = Webhook()
    thread = threading.Thread(target=played.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        played.server.shutdown()
        played.server.server_close()
        thread.join()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Mailbox:
    """Keeps every letter that it was handed."""

    def __init__(self) -> None:
        self.letters: list[Message] = []

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        self.letters.append(message_from_bytes(envelope.content))
        return "250 OK"


@contextmanager
def mailbox() -> Iterator[tuple[Mailbox, str]]:
    """A mail server, and the address by which it is written to."""
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=_free_port())
    controller.start()
    try:
        yield box, f"mailto://127.0.0.1:{controller.port}?from=tidemark@example.org&to=ada@example.org&mode=insecure"
    finally:
        controller.stop()
