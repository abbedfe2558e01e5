"""The SQL dialect: a text as a syntax tree (sqlglot, in DuckDB's dialect, or in one that the text names in front).

`read` limits length and nesting before parsing, moves BigQuery's privacy options out of the text, and returns the tree.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, final

from deniable.errors import MissingExtra, QuestionRefused
from deniable.queries.plan.refusals import MOST_BYTES, MOST_NESTED, RULES, refuse
from deniable.queries.sql.dialect_meanings import translated
from deniable.queries.sql.function_names import called, note_names, written
from deniable.queries.sql.named_dialects import DIALECTS, named_dialect
from deniable.queries.sql.syntax_tree import BOUNDED, exp

try:
    import sqlglot
    from sqlglot.errors import SqlglotError
    from sqlglot.tokenizer_core import Token, TokenType
except ImportError:
    raise MissingExtra("sqlglot", "sql") from None

_DIALECT: Final = sqlglot.Dialect.get_or_raise("duckdb")


@final
@dataclass(frozen=True, slots=True)
class Text:
    """The syntax tree of a question, and BigQuery's options."""

    tree: exp.Expression
    options: dict[str, str]


def read(text: str) -> Text:
    """The syntax tree of a question in DuckDB's words, whatever its dialect. Raises `QuestionRefused` only."""
    found = parsed(text)
    try:
        return Text(translated(found.tree, named_dialect(text) or DIALECTS[0]), found.options)
    except RecursionError:
        refuse("depth")


def parsed(text: str) -> Text:
    """The syntax tree of a question as it was written. Length and nesting are limited before parsing."""
    if not isinstance(text, str):
        refuse("syntax")
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        refuse("length")
    dialect = _dialect(text)
    tokens = _tokens(text, dialect)
    if not tokens or tokens[0].token_type not in {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM}:
        refuse("statement")
    _check_nesting(tokens)
    plain, options = _without_options(text, tokens)
    try:
        tokens = tokens if plain == text else list(dialect.tokenize(plain))
        trees = dialect.parser().parse(tokens, plain)
    except SqlglotError as error:
        _refuse_unfinished(str(error), tokens, dialect)
        _refuse_unreadable(error)
    except RecursionError:
        refuse("depth")
    except Exception:  # a bug of the parser must not surface
        refuse("syntax")
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1 or isinstance(found[0], exp.Block):
        refuse("one")
    if not isinstance(found[0], exp.Expression):
        refuse("statement")
    if not all(any(each.args.values()) for each in found[0].find_all(exp.Group)):
        raise QuestionRefused("syntax", RULES["syntax"].rule, "name the keys after GROUP BY, or leave GROUP BY out")
    note_names(found[0], tokens, dialect)
    _note_today(found[0])
    return Text(found[0], options)


def reads_clock(text: str) -> bool:
    """Whether a text is another question on another day, in any spelling of CURRENT_DATE."""
    return read(text).tree.find(exp.CurrentDate) is not None


def _dialect(text: str) -> sqlglot.Dialect:
    name = named_dialect(text)
    if name is None or name == DIALECTS[0]:
        return _DIALECT
    if name not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise QuestionRefused("syntax", f"the dialect must be one of {known}", "write -- dialect: bigquery in front")
    return sqlglot.Dialect.get_or_raise(name)


def _note_today(tree: exp.Expression) -> None:
    """Store one day for every CURRENT_DATE of a text: around midnight, two readings of the clock may differ."""
    today = dt.datetime.now(dt.UTC).date()
    for node in tree.find_all(exp.CurrentDate):
        node.meta["today"] = today


_UNFINISHED: Final = re.compile(r"missing for <class '[\w.]+\.(\w+)'>")


def _refuse_unfinished(message: str, tokens: list[Token], dialect: sqlglot.Dialect) -> None:
    """Refuse a function with too few arguments under its own name, if the parser reported that."""
    found = _UNFINISHED.search(message)
    kind = getattr(exp, found[1], None) if found else None
    if isinstance(kind, type) and issubclass(kind, exp.Func):
        name = written(kind, called(tokens), dialect) or kind.sql_name()
        words = [each.text.upper() for each in tokens]
        if any(words[at : at + 3] == [name.upper(), "(", "DISTINCT"] for at in range(len(words))):
            refuse("distinct aggregate")  # the parser reads all columns after DISTINCT as one argument
        raise QuestionRefused("kinds", f"{name} needs more arguments", f"write {name} with all of its arguments")


def _refuse_unreadable(error: SqlglotError) -> NoReturn:
    """Refuse a text that the parser cannot read, and say at which word it stopped."""
    [found, *_] = getattr(error, "errors", None) or [{}]
    word, before = str(found.get("highlight") or ""), str(found.get("start_context") or "").split()
    if not 0 < len(word) <= _SHOWN:
        refuse("syntax")
    after = f', after "{" ".join(before[-2:])[-_SHOWN:]}"' if before else ""
    raise QuestionRefused("syntax", RULES["syntax"].rule, f'it cannot be read at "{word}"{after}')


_SHOWN: Final = 60
"""The most characters of a text that a refusal repeats."""


def _tokens(text: str, dialect: sqlglot.Dialect) -> list[Token]:
    try:
        return list(dialect.tokenize(text))
    except Exception:  # the tokenizer raises its own error and, on some texts, others
        refuse("syntax")


_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_ENDING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})


def _check_nesting(tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
            if depth > MOST_NESTED:
                refuse("depth")
        elif kind in _ENDING:
            depth = max(0, depth - 1)


_PRIVATELY: Final = ["WITH", "DIFFERENTIAL_PRIVACY"]


def _without_options(text: str, tokens: list[Token]) -> tuple[str, dict[str, str]]:
    """(the text without BigQuery's privacy syntax, which the parser does not know; the options in it).

    SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (…) loses all but SELECT; SUM(x, contribution_bounds_per_row => (0, 1))
    becomes __bounded(SUM(x), 'contribution_bounds_per_row', 0, 1).
    """
    edits: list[tuple[int, int, str]] = []
    options: dict[str, str] = {}
    opened: list[int] = []
    i = 0
    while i < len(tokens):
        kind = tokens[i].token_type
        if kind is TokenType.SELECT and [token.text.upper() for token in tokens[i + 1 : i + 3]] == _PRIVATELY:
            end = i + 2
            if i + 3 < len(tokens) and tokens[i + 3].text.upper() == "OPTIONS":
                end = _closing(tokens, i + 4)
                for name, value in _settings(tokens[i + 5 : end]):
                    if name in options:
                        refuse("options")
                    options[name] = value
            edits.append((tokens[i + 1].start, tokens[end].end + 1, ""))
            i = end + 1
            continue
        if kind is TokenType.L_PAREN:
            opened.append(i)
        elif kind is TokenType.R_PAREN and opened:
            opened.pop()
        elif kind is TokenType.FARROW:
            i = _bounds(tokens, i, opened, edits)
        i += 1
    for start, stop, put in sorted(edits, reverse=True):
        text = text[:start] + put + text[stop:]
    return text, options


def _closing(tokens: list[Token], i: int) -> int:
    """The position of the bracket that closes the one at i."""
    if i >= len(tokens) or tokens[i].token_type is not TokenType.L_PAREN:
        refuse("options")
    depth = 0
    for j in range(i, len(tokens)):
        kind = tokens[j].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            return j
    refuse("syntax")


def _settings(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """name = value, name = value."""
    i = 0
    while i < len(tokens):
        if i + 2 >= len(tokens) or tokens[i + 1].token_type is not TokenType.EQ:
            refuse("options")
        yield tokens[i].text.lower(), tokens[i + 2].text
        i += 3
        if i < len(tokens):
            if tokens[i].token_type is not TokenType.COMMA or i + 1 == len(tokens):
                refuse("options")
            i += 1


def _bounds(tokens: list[Token], i: int, opened: list[int], edits: list[tuple[int, int, str]]) -> int:
    """Note the edits for `, name => (low, high)` with the arrow at i; returns the position of the inner bracket."""
    what = "COUNT, SUM, AVG, VARIANCE, STDDEV and quantiles"
    if not opened or opened[-1] < 1 or i < 2 or tokens[i - 2].token_type is not TokenType.COMMA:
        refuse("bounds option", what=what)
    end = _closing(tokens, i + 1)
    outer = _closing(tokens, opened[-1])
    if outer != end + 1:
        refuse("bounds option", what=what)
    inside = "".join(token.text for token in tokens[i + 2 : end])
    low, comma, high = inside.partition(",")
    try:
        ends = float(low), float(high)
    except ValueError:
        refuse("bounds option", what=what)
    if not comma or not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] <= ends[1]):
        refuse("bounds option", what=what)
    name = tokens[i - 1].text.lower()
    if name not in {"contribution_bounds_per_row", "contribution_bounds_per_group"}:
        refuse("bounds option", what=what)
    start = tokens[opened[-1] - 1].start
    edits.append((start, start, f"{BOUNDED}("))
    edits.append((tokens[i - 2].start, tokens[end].end + 1, ""))
    edits.append((tokens[outer].end + 1, tokens[outer].end + 1, f", '{name}', {ends[0]!r}, {ends[1]!r})"))
    return end
