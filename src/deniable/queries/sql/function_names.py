"""Function names as written in a question. The parser has one class for BOOL_OR and LOGICAL_OR, but messages should
repeat the analyst's word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from typing import Final

from deniable.errors import MissingExtra

try:
    from sqlglot import Dialect, exp
    from sqlglot.tokenizer_core import Token, TokenType
except ImportError:
    raise MissingExtra("sqlglot", "sql") from None

_WRITTEN: Final = "written"
_WORD: Final = re.compile(r"[A-Za-z_]\w{0,59}", re.ASCII)

USUAL: Final = (
    "ABS", "AVG", "CEIL", "COALESCE", "CONCAT", "CORR", "COUNT", "COUNT_IF", "COVAR_POP", "COVAR_SAMP", "DATE_DIFF",
    "DATE_TRUNC", "DAY", "EXP", "EXTRACT", "FLOOR", "GREATEST", "HOUR", "LEAST", "LENGTH", "LN", "LOWER", "MAX",
    "MEDIAN", "MIN", "MINUTE", "MONTH", "NULLIF", "POWER", "QUANTILE", "QUARTER", "REPLACE", "ROUND", "SQRT", "STDDEV",
    "STDDEV_POP", "STDDEV_SAMP", "STRFTIME", "SUBSTRING", "SUM", "TRIM", "UPPER", "VARIANCE", "VAR_POP", "VAR_SAMP",
    "YEAR",
)  # fmt: skip
"""Functions that a question may call, as suggestions for a name that is not known."""
_OTHER_WORDS: Final = {"AVERAGE": "AVG", "MEAN": "AVG", "STD": "STDDEV", "STDEV": "STDDEV"}


def nearest_function(name: str) -> str | None:
    """The function that a name most likely stands for: its usual word in SQL, or one that is spelt almost the same.

    >>> nearest_function("COUTN"), nearest_function("MEAN"), nearest_function("FOO")
    ('COUNT', 'AVG', None)
    """
    return _OTHER_WORDS.get(name) or next(iter(get_close_matches(name, USUAL, n=1, cutoff=0.78)), None)


def sql_name(node: exp.Expression) -> str:
    """The name of a node in a message: a function as it was written, otherwise its name in SQL."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()
    if isinstance(node, exp.Func):
        return str(node.meta.get(_WRITTEN) or node.sql_name())
    return type(node).__name__.upper()


def note_names(tree: exp.Expression, tokens: Sequence[Token], dialect: Dialect) -> None:
    """Store at each function of a tree the name that it has in the text."""
    words = called(tokens)
    starts = {token.start: token.text for token in tokens}
    others: dict[type[object], str] = {}
    for node in tree.find_all(exp.Func):
        word = starts.get(node.meta.get("start", -1), "").upper()
        if word not in words:  # the parser does not note the place of every function
            kind = type(node)
            word = others[kind] if kind in others else others.setdefault(kind, written(kind, words, dialect))
        if word:
            node.meta[_WRITTEN] = word


def written(kind: type[object], words: Iterable[str], dialect: Dialect) -> str:
    """The first of these names that the parser reads as this kind of function; "" if it reads no name so."""
    return next((each for each in words if _read(each, dialect) is kind), "")


def called(tokens: Sequence[Token]) -> list[str]:
    """The words before an opening bracket, in their order."""
    found = (token.text.upper() for token, after in pairwise(tokens) if after.token_type is TokenType.L_PAREN)
    return list(dict.fromkeys(each for each in found if _WORD.fullmatch(each)))


@lru_cache(maxsize=1024)
def _read(name: str, dialect: Dialect) -> type[object] | None:
    try:
        found = dialect.parse(f"SELECT {name}(a, b)")[0]
    except Exception:  # any error of the parser means that there is no function of this name
        return None
    function = None if found is None else found.find(exp.Func)
    return None if function is None else type(function)
