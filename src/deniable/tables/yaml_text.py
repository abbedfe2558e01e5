"""YAML for schemas: names are always text, and a repeated name is an error.

Plain YAML reads `no` and `off` as false and `1_000` as a number, and keeps the last of two entries of the same name.
"""

from __future__ import annotations

from typing import Any, Final

from deniable.errors import MissingExtra, UnreadableRecord

try:
    import yaml
except ImportError:
    raise MissingExtra("pyyaml", "sql") from None


class _RepeatedEntry(Exception):  # never leaves this module
    def __init__(self, key: str, line: int) -> None:
        self.key, self.line = key, line


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found: set[str] = set()
        if isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    key.tag = "tag:yaml.org,2002:str"
                    if key.value in found:
                        raise _RepeatedEntry(key.value, key.start_mark.line + 1)
                    found.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_timestamp(self, node: Any) -> Any:
        """An impossible date (2024-13-01) stays text; it is refused later as a bound, with the name of its column."""
        try:
            return super().construct_yaml_timestamp(node)
        except (ValueError, OverflowError):
            return self.construct_scalar(node)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


_DEEPEST: Final = 100
"""The deepest nesting of brackets. A schema needs five; the time to parse YAML grows with the square of the depth."""


def _is_deep(text: str) -> bool:
    depth = 0
    for sign in text:
        if sign in "[{":
            depth += 1
            if depth > _DEEPEST:
                return True
        elif sign in "]}" and depth:
            depth -= 1
    return False


def parsed(where: str, text: str) -> object:
    """The parsed text; `UnreadableRecord` with the line if it is not YAML."""
    if _is_deep(text):
        raise UnreadableRecord(f"{where}: is nested too deeply; a schema needs five levels")
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except _RepeatedEntry as repeated:
        fault = f"{repeated.key!r} is given twice (the second time in line {repeated.line}); keep one of them"
        raise UnreadableRecord(f"{where}: {fault}") from None
    except yaml.YAMLError as wrong:
        mark = getattr(wrong, "problem_mark", None)
        place = "" if mark is None else f": {getattr(wrong, 'problem', None)} (line {mark.line + 1})"
        raise UnreadableRecord(f"{where}: is not valid YAML{place}") from None
    except (ValueError, OverflowError, KeyError, AttributeError):  # a value is not what its tag or its form says
        raise UnreadableRecord(f"{where}: is not valid YAML: a value in it cannot be read") from None
