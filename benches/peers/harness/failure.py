"""The one way the comparison says that it cannot go on."""


class Failure(Exception):
    """What went wrong and what to do about it, in one sentence for the person at the terminal."""
