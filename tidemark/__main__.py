"""The `tidemark` command: checks what it needs before it loads anything, and turns refusals into one line."""

import sys

from tidemark.quick import spare_the_collector


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (pip would refuse; a checkout on PYTHONPATH would not)
        found = ".".join(str(part) for part in sys.version_info[:3])
        raise SystemExit("tidemark needs Python 3.11 or newer; this is Python " + found + " (" + sys.executable + ")")
    spare_the_collector()
    try:
        from tidemark.cli import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "tidemark":
            raise
        raise SystemExit(
            f"tidemark: the package {error.name} is missing; run make setup, or pip install 'tidemark[server]'"
        ) from None
    run()


if __name__ == "__main__":
    main()
