"""The layout of --help, where it differs from typer's.

A flag takes no value, so --help shows none (typer writes <bool>). Options for numbers show <number>, also if they are
parsed as text to keep every digit (typer writes <str>). The usage line leaves hidden arguments out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deniable.errors import MissingExtra

try:
    import typer
    from typer.core import TyperCommand, TyperGroup
except ImportError as error:
    raise MissingExtra(error.name or "typer", "cli") from None


_AMOUNTS = (
    "budget",
    "confidence",
    "cover",
    "delta",
    "epsilon",
    "high",
    "low",
    "mu",
    "rho",
    "seconds",
    "share",
    "within",
)
_COUNTS = ("port", "rows", "trials", "unit_rows")
_METAVARS = dict.fromkeys(_AMOUNTS, "<number>") | dict.fromkeys(_COUNTS, "<whole number>") | {"grant": "<name>"}


def _with_plain_types(params: list[Any]) -> list[Any]:
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
        elif each.param_type_name == "option":
            each.metavar = _METAVARS.get(each.name, each.metavar)
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        hidden = [each for each in self.get_params(ctx) if getattr(each, "hidden", False)]
        pieces = {piece for each in hidden for piece in each.get_usage_pieces(ctx)}
        return [piece for piece in super().collect_usage_pieces(ctx) if piece not in pieces]


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_types(super().get_params(ctx))


class Commands(typer.Typer):
    """The commands of `deniable`."""

    def __init__(self) -> None:
        super().__init__(no_args_is_help=True, pretty_exceptions_enable=False, cls=_Group)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """The decorator that adds a command, with this layout."""
        return super().command(name, cls=_Command, **options)
