"""Validation errors of pydantic in words: the part of the request and its rule. They never repeat what was sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

NAME: Final = (
    "must begin with a letter or a digit, contain only letters, digits, spaces and . _ @ -, and have at most 100 "
    "characters; letters are a to z, without accents"
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
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
}
_TAG: Final = re.compile(r"^(constrained-\w+|function-\w+.*|(dict|list|literal|tuple)\[.*\])$")
"""Names of union members that pydantic puts into the location of an error."""

_NUMBERS: Final = frozenset({"float_type", "float_parsing", "decimal_type"})
_WHOLE: Final = frozenset({"int_type", "int_parsing", "int_from_float"})
_ENDS: Final = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}


def wrongs(errors: Sequence[Mapping[str, Any]], model: Any = None) -> list[dict[str, str]]:
    """The parts of a request that are not valid, each once: `where` it is, and the `rule` that it breaks.

    For a union of types, pydantic reports an error for each member. This function keeps the errors of the member whose
    type the value has. If the value has the type of no member, it joins all errors by "or". A member that is a choice
    of words has the type of these words only. `model` is the class of the body, which knows the names of its fields.

    >>> wrongs(
    ...     [
    ...         {"type": "greater_than", "loc": ("body", "within", "constrained-float"), "ctx": {"gt": 0.0}},
    ...         {"type": "dict_type", "loc": ("body", "within", "dict[str,constrained-float]")},
    ...     ]
    ... )
    [{'where': 'body.within', 'rule': 'must be more than 0'}]
    >>> wrongs(
    ...     [
    ...         {"type": "float_type", "loc": ("body", "weights", "constrained-list", 0)},
    ...         {"type": "literal_error", "loc": ("body", "weights", "literal['fair']"), "ctx": {"expected": "'fair'"}},
    ...     ]
    ... )
    [{'where': 'body.weights.0', 'rule': 'must be a number'}]
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in errors:
        found.setdefault(where(each), []).append(each)
    deeper = {place for place, each in found.items() if not all(_is_kind(one) for one in each)}
    found_rules = []
    for place, wrong in found.items():
        if place not in deeper and any(other.startswith(f"{place}.") for other in found):
            continue  # the errors of the union member whose type fits are reported instead
        relevant = [each for each in wrong if place not in deeper or not _is_kind(each)]
        found_rules.append({"where": place, "rule": " or ".join(dict.fromkeys(rule(each, model) for each in relevant))})
    return found_rules


def _is_kind(wrong: Mapping[str, Any]) -> bool:
    kind, place = str(wrong["type"]), str(wrong["loc"][-1])
    return kind.endswith("_type") or (kind == "literal_error" and _TAG.search(place) is not None)


def where(wrong: Mapping[str, Any]) -> str:
    """The part of the request, such as `body.name`, without pydantic's names of union members."""
    return ".".join(str(each) for each in wrong["loc"] if _TAG.search(str(each)) is None)


def field(place: str, model: Any = None) -> str:
    """The name of the field at a place in the request: for an entry of a list or an object, that of the list or object.

    `model` is the class of the body, which distinguishes a field of an inner body from an entry.

    >>> field("body.budget.epsilon"), field("body.weights.0")
    ('epsilon', 'weights')
    """
    first, *path = (each for each in place.split(".") if not each.isdecimal())
    for depth in range(1, len(path)):
        if model is not None and not _names_at(model, path[:depth]):
            return path[depth - 1]
    return path[-1] if path else first


def rule(wrong: Mapping[str, Any], model: Any = None) -> str:
    """The rule that a part breaks. For an unknown field, also the names of the fields that `model` has there.

    >>> rule({"type": "greater_than", "loc": ("body", "epsilon"), "ctx": {"gt": 0.0}})
    'must be more than 0'
    >>> rule({"type": "float_type", "loc": ("body", "epsilon")})
    'must be a number'
    """
    kind, context = str(wrong["type"]), wrong.get("ctx") or {}
    if kind == "extra_forbidden" and (names := _names_at(model, [str(each) for each in wrong["loc"][1:-1]])):
        return f"{_PLAIN[kind]}; known fields are {', '.join(names)}"
    if kind == "string_pattern_mismatch":
        return NAME if wrong["loc"][-1] in _NAMES else "contains characters that are not allowed"
    if kind in _NUMBERS:
        return "must be a number"
    if kind in _WHOLE:
        return "must be a whole number"
    if kind in _ENDS:
        name, words = _ENDS[kind]
        return f"{words} {context[name]:g}"
    if kind in ("string_too_long", "too_long"):
        return f"must have a length of at most {context['max_length']:,}"
    if kind == "too_short":
        return "must not be empty"
    if kind in ("enum", "literal_error"):
        return f"must be one of {context['expected']}"
    if kind == "value_error":
        return str(context.get("error", "is not valid"))[:200]
    return _PLAIN.get(kind, "has the wrong type or form")


def _names_at(model: Any, path: Sequence[str]) -> list[str]:
    """The names of the fields of a model, or, along `path`, of a model inside it."""
    fields = getattr(model, "model_fields", {})
    if not path:
        return [field.alias or name for name, field in fields.items()]
    for name, field in fields.items():
        if (field.alias or name) == path[0]:
            kinds = (field.annotation, *get_args(field.annotation))
            return next((names for each in kinds if (names := _names_at(each, path[1:]))), [])
    return []
