"""The fixtures of these tests: a project that is judged as it goes, and one whose history is written already."""

from tests.backend.services.loom import committing_loom, loom, shared_loom
from tests.backend.services.written_history import history, written

__all__ = ["committing_loom", "history", "loom", "shared_loom", "written"]
