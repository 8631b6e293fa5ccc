"""The `tidemark` command."""


def main() -> None:
    raise SystemExit("tidemark: no command yet")
