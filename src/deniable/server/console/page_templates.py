"""The templates and their filters. All values are escaped, and an undefined value is an error."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined

from deniable.queries.answer.answer_display import key_text
from deniable.server.noted_questions import words_of

_GREEK: Final = {"epsilon": "ε", "delta": "δ", "mu": "μ", "rho": "ρ"}
_WORD: Final = re.compile(r"\b(epsilon|delta|mu|rho) (?=[0-9])")
_POWER: Final = re.compile(r"\b([0-9.]+)E(-?[0-9]+)\b")
_SPANS: Final = {3600: "hour", 86_400: "day", 7 * 86_400: "week", 30 * 86_400: "30 days"}
_IN_WINDOW: Final = re.compile(r"in this window of ([0-9,]+) s$")
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@final
class Pages:
    """All templates of the console."""

    def __init__(self) -> None:
        self._all = Environment(
            loader=PackageLoader("deniable.server.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._all.filters |= {"greek": greek, "number": number, "percent": percent, "facts": facts}
        self._all.filters |= {"minute": minute}
        self._all.filters |= {"span": span, "spanned": spanned, "key_text": key_text, "question": words_of}

    def render(self, template: str, **values: Any) -> str:
        """Render a template."""
        return self._all.get_template(template).render(values)


def greek(words: str) -> str:
    """The words of a cost, with Greek letters and powers of ten.

    >>> greek("epsilon 0.1 at delta 9E-7 (mu 0.02737)")
    'ε 0.1 at δ 9·10⁻⁷ (μ 0.02737)'
    """
    text = _WORD.sub(lambda found: f"{_GREEK[found[1]]} ", words)
    return _POWER.sub(lambda found: f"{'' if found[1] == '1' else found[1] + '·'}10{found[2].translate(_RAISED)}", text)


def number(value: float | str) -> str:
    """A number for display, with three digits unless it is whole. Dates and timestamps are returned as they are.

    >>> number(0.12345), number(1200), number("2024-01-31"), number("2024-01-31T12:00:00")
    ('0.123', '1,200', '2024-01-31', '2024-01-31 12:00:00')
    """
    if isinstance(value, str):
        return value.replace("T", " ")
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def percent(share: float) -> str:
    """A share from 0 to 1, in percent."""
    return f"{100 * share:.3g} %"


def minute(time: float) -> str:
    """A time in seconds since 1970, in UTC, to the minute.

    >>> minute(1_790_000_000)
    '2026-09-21 14:13'
    """
    return dt.datetime.fromtimestamp(time, dt.UTC).strftime("%Y-%m-%d %H:%M")


def span(seconds: int) -> str:
    """The length of a window, in words.

    >>> span(86_400), span(90)
    ('day', '90 s')
    """
    return _SPANS.get(seconds, f"{seconds:,} s")


def spanned(account: str) -> str:
    """The ledger's title of an account, with the window in words.

    >>> spanned("the share of 'ben' in this window of 86,400 s")
    "the share of 'ben' for this day (in UTC)"
    """
    return _IN_WINDOW.sub(lambda found: f"for this {span(int(found[1].replace(',', '')))} (in UTC)", account)


def facts(column: dict[str, Any]) -> str:
    """The public facts of a column, in words."""
    parts = []
    if "low" in column:
        parts.append(f"{number(column['low'])} to {number(column['high'])}")
    if "keys" in column:
        parts.append(", ".join(key_text(key) for key in column["keys"]))
    if column.get("nullable", True):
        parts.append("may be missing")
    return "; ".join(parts)


def as_python(url: str, dataset: str, sql: str, cost: dict[str, float]) -> str:
    """Python code that asks the same question."""
    spent = ", ".join(f"{name}={value!r}" for name, value in cost.items())
    return (
        "import os\nimport deniable as dn\n\n"
        f's = dn.connect({url!r}, token=os.environ["DENIABLE_TOKEN"], dataset={dataset!r})\n'
        f"print(s.sql({sql!r}, {spent}))"
    )


def as_curl(url: str, dataset: str, sql: str, cost: dict[str, float]) -> str:
    """A shell command that asks the same question."""
    body = shlex.quote(json.dumps({"dataset": dataset, "sql": sql, **cost}))
    return (
        f"curl {shlex.quote(url + '/v1/questions')} \\\n"
        '  -H "Authorization: Bearer $DENIABLE_TOKEN" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {body}"
    )
