"""An assertion that no interpreter flag turns off."""


def expect(holds, text):
    if not holds:
        raise AssertionError(f"not so: {text}")
