"""A progress bar for the owner's terminal, while a table is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(words: str) -> Iterator[Callable[[float], None] | None]:
    """A bar that is told the share of the work that is done; nothing at all where rich is not installed."""
    try:
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    with Progress(transient=True) as shown:
        task = shown.add_task(words, total=1.0)
        yield lambda share: shown.update(task, completed=share)
