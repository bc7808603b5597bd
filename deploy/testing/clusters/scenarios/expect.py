"""An assertion that no interpreter flag turns off, and the word for what cannot be played."""


def expect(holds, text):
    if not holds:
        raise AssertionError(f"not so: {text}")


class Skipped(Exception):
    """A scenario that this machine cannot play, with the reason."""
