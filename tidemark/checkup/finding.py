"""One thing that `tidemark doctor` looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: its name, whether it passed, what was found, and how to mend it."""

    name: str
    good: bool
    found: str
    mend: str = ""

    def line(self) -> str:
        mark = "ok  " if self.good else "BAD "
        return f"{mark} {self.name:<16} {self.found}" + (f"\n     {'':<16} mend: {self.mend}" if not self.good else "")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
