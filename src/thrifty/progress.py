"""How long work tells whoever waits what is done."""

from collections.abc import Callable

__all__ = ["Progress", "silent"]

Progress = Callable[[str, int, int], object]
"""Called as ``progress(what, done, total)``."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""
