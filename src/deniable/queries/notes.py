"""What stands below an answer besides its numbers: from the question, the public schema and the cost alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deniable.queries.planner import Plan

WIDTH: Final = 80
"""As wide as a terminal is, at the least."""


def threshold_note(plan: Plan, threshold: int | None) -> str:
    """Which keys are shown, where keys are not public; nothing where they are."""
    if plan.people is None:
        return ""
    few = "those that many people share" if threshold is None else f"those with about {threshold:,} people or more"
    return f"keys are not public: only {few} are shown; declare keys, name them with IN, or spend more"


def wrapped(lines: Iterable[str], indent: str = "") -> list[str]:
    """Lines that fit into a terminal; what is left out by `textwrap` is spaces."""
    return [
        part
        for line in lines
        if line
        for part in textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    ]
