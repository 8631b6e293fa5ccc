"""The fixtures of these tests: a project whose suspects are confirmed by sessions."""

from tests.backend.services.ingest.sessions_of_loom import watched

__all__ = ["watched"]
