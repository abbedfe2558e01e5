"""What is wrong with a request, in plain words: where, which rule, and nothing of what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

NAME: Final = (
    "must begin with a letter or a digit, and have only letters, digits, spaces and . _ @ - in it, at most 100; "
    "letters are those from a to z, without accents"
)
_NAMES: Final = frozenset({"name", "analyst", "person", "dataset", "family"})
_PLAIN: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
}
_NUMBERS: Final = frozenset({"float_type", "float_parsing", "decimal_type"})
_WHOLE: Final = frozenset({"int_type", "int_parsing", "int_from_float"})
_ENDS: Final = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def question(text: str) -> str:
    """A question as it was noted, for people: bounds that were bought are noted as JSON.

    >>> question('{"bounds": "age", "table": "visits"}'), question("SELECT 1")
    ('bounds of visits.age', 'SELECT 1')
    """
    if not text.startswith('{"bounds"'):
        return text
    said = json.loads(text)
    return f"bounds of {said['table']}.{said['bounds']}"


def where(wrong: Mapping[str, Any]) -> str:
    """The part of the request: `body.name`."""
    return ".".join(str(each) for each in wrong["loc"])


def rule(wrong: Mapping[str, Any]) -> str:
    """Which rule it breaks.

    >>> rule({"type": "greater_than", "loc": ("body", "epsilon"), "ctx": {"gt": 0.0}})
    'must be more than 0'
    >>> rule({"type": "float_type", "loc": ("body", "epsilon")})
    'must be a number'
    """
    kind, context = str(wrong["type"]), wrong.get("ctx") or {}
    if kind == "string_pattern_mismatch":
        return NAME if wrong["loc"][-1] in _NAMES else "has signs in it that may not be there"
    if kind in _NUMBERS:
        return "must be a number"
    if kind in _WHOLE:
        return "must be a whole number"
    if kind in _ENDS:
        name, words = _ENDS[kind]
        return f"{words} {context[name]:g}"
    if kind in ("string_too_long", "too_long"):
        return f"must be no longer than {context['max_length']:,}"
    if kind == "too_short":
        return "must not be empty"
    if kind in ("enum", "literal_error"):
        return f"must be one of {context['expected']}"
    if kind == "value_error":
        return str(context.get("error", "cannot mean anything"))[:200]
    return _PLAIN.get(kind, "cannot be read as what is needed here")
