"""The one way in which the launcher says no: a single clear line for the person, never a traceback."""


class Refusal(Exception):
    """Something that the person can mend; its text is one line that says what was wrong and what to do."""
