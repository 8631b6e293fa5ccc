"""Where the test of a module belongs, and which modules have none there: `python -m tests.places`.

`backend/services/queue/dispatch.py` is tested in `tests/backend/services/queue/test_dispatch.py`. Many modules are
tested from elsewhere, by stories that need several of them; a newcomer finds those by searching for the module's name.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("backend", "frontend", "worker", "benchmarks", "tidemark")


def modules() -> Iterator[Path]:
    """Every module of the packages, relative to the repository."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.startswith("__"):
                yield path.relative_to(ROOT)


def place_of(module: Path) -> Path:
    """Where the test of a module stands."""
    return Path("tests") / module.parent / f"test_{module.name}"


def without_test_at_its_place() -> list[Path]:
    return [module for module in modules() if not (ROOT / place_of(module)).exists()]


if __name__ == "__main__":
    missing = without_test_at_its_place()
    print(*missing, sep="\n")
    print(f"{len(missing)} of {len(list(modules()))} modules have no test at their place")
