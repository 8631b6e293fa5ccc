"""The one way in which the launcher says no: a single clear line for the person, never a traceback."""


class Refusal(Exception):
    """Something that the person can mend; its text is one line that says what was wrong and what to do."""

    exit_status = 1


def printable(text: str) -> str:
    """Text of others (a commit's, a run's, a git server's) without what could move a terminal's cursor; lines stay."""
    return "".join(char for char in text if char.isprintable() or char == "\n")
