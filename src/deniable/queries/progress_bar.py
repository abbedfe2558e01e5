"""A progress bar for the owner's terminal, while a table is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(words: str) -> Iterator[Callable[[float], None] | None]:
    """A bar on stderr, as a callback for the share of the work done; None without `rich` or without a terminal."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(transient=True, console=console) as shown:
        task = shown.add_task(words, total=1.0)
        yield lambda share: shown.update(task, completed=share)
