"""Parsing a curve from text, as typed at a command line: `gaussian(sigma=50)**1000 * laplace(scale=4)`.

The text is never evaluated as Python. It passes three stages:

    scan      accepts only numbers, names, brackets and the operators of the grammar; bounds length, nesting and digits
    ast       Python's own grammar, for the usual precedence; it builds a tree and runs nothing
    _Reader   walks the tree; refuses every node that is not listed here

    curve   :=  name(parameter=value, ...)  |  curve * curve  |  curve ** whole number  |  curve.method(parameter=value)
    value   :=  number  |  True  |  False  |  curve  |  [value, ...]  |  (value, ...)
    number  :=  literal, or + - * / ** between numbers

Every failure raises `InvalidExpression` with the text, the column, and what is allowed there.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NoReturn

from deniable.curves.curve import Curve
from deniable.errors import NOTHING, DeniableError, InvalidExpression, InvalidParameter

CONSTRUCTORS = (
    "approximate",
    "best_of_poisson_repeats",
    "best_of_repeats",
    "binomial",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "from_pmf",
    "gaussian",
    "generalized_gaussian",
    "hidden_mixture",
    "identity",
    "laplace",
    "merton",
    "mixture",
    "normal_inverse_gaussian",
    "poisson",
    "pure",
    "quantized",
    "randomized_response",
    "renyi",
    "rounded_gaussian",
    "skellam",
    "staircase",
    "worst_of",
    "zcdp",
)
"""Names that an expression may call; each is looked up in `deniable.curves` when it is used."""

METHODS = ("allocated", "group", "reversed", "sampled", "sampled_without_replacement", "shuffled", "symmetrized")

LONGEST = 10_000
DEEPEST = 60
MOST_DIGITS = 40
LARGEST = 1e150
"""As in `curve_arguments.py`: the largest parameter, so the largest number that arithmetic between
literals may give.
"""

_GRAMMAR = "an expression looks like gaussian(sigma=50)**1000 * laplace(scale=4).sampled(rate=0.01)"
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<open>[(\[])
      | (?P<close>[)\]])
      | (?P<other>\*\*|[-+*/=,.])""",
    re.VERBOSE,
)

Number = int | float
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def parse(text: str) -> Curve:
    """The curve of an expression such as `curve.expression()` or a command line gives. Raises InvalidExpression.

    >>> parse("gaussian(sigma=50)**1000 * laplace(scale=4)")
    <Curve gaussian(sigma=50)**1000 * laplace(scale=4)>
    >>> parse("gausian(sigma=50)")
    Traceback (most recent call last):
    deniable.errors.InvalidExpression: expression='gausian(sigma=50)': column 1: the curve 'gausian' is not known; ...
    """
    if not isinstance(text, str):
        raise InvalidExpression("expression", text, "must be a string", _GRAMMAR)
    if len(text) > LONGEST:
        rule = f"has {len(text):,} characters; at most {LONGEST:,} can be read"
        raise InvalidExpression("expression", text, rule, "build long products in Python, with curves.product")
    reader = _Reader(re.sub(r"\s", " ", text).strip())
    reader.scan()
    return reader.curve(reader.tree(), 0)


class _Reader:
    """Parses one text into a curve."""

    def __init__(self, text: str) -> None:
        self.text = text

    def refuse(
        self, place: ast.AST | tuple[int, int], rule: str, remedy: str = _GRAMMAR, cause: Exception | None = None
    ) -> NoReturn:
        """Raise InvalidExpression with the column, and a caret below the text (cut to a readable width around the
        place).
        """
        start, end = place if isinstance(place, tuple) else (_start(place), _end(place))
        left = max(0, start - 50)
        window = self.text[left : left + 100]
        caret = " " * (start - left) + "^" + "~" * (min(end, left + len(window)) - start - 1)
        picture = f"\n    {window}\n    {caret}"
        placed = f"column {start + 1}: {rule}"
        if remedy:
            raise InvalidExpression("expression", self.text, placed, remedy + picture) from cause
        raise InvalidExpression("expression", self.text, placed + picture) from cause

    # -- scanning and Python's grammar -------------------------------------------------------------------------------

    def scan(self) -> None:
        """Accept known tokens only, with bounded bracket depth and number length: the rest cannot harm
        Python's parser.
        """
        place, depth = 0, 0
        if not self.text.strip():
            self.refuse((0, 1), "the expression is empty")
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if match is None:
                self.refuse((place, place + 1), f"the character {self.text[place]!r} is not allowed in an expression")
            here = match.span()
            if match["number"]:
                after = self.text[match.end() : match.end() + 1]
                if after.isidentifier() or after == ".":
                    self.refuse(here, f"the number {_short(match['number'])} is followed by {after!r}")
                if len(match["number"]) > MOST_DIGITS:
                    self.refuse(here, f"a number may have at most {MOST_DIGITS} characters", "round it, or write 1e-6")
            depth += bool(match["open"]) - bool(match["close"])
            if depth > DEEPEST:
                self.refuse(here, f"brackets are nested more than {DEEPEST} deep", "write it flatter")
            place = match.end()

    def tree(self) -> ast.expr:
        """The text as a syntax tree, by Python's own parser."""
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            column = min(max((error.offset or 1) - 1, 0), len(self.text))
            self.refuse((column, column + 1), f"cannot be read: {error.msg}", cause=error)
        except (RecursionError, MemoryError) as error:
            self.refuse((0, 1), "is nested too deeply", "write it flatter", cause=error)

    # -- walking the tree --------------------------------------------------------------------------------------------

    def curve(self, node: ast.expr, depth: int) -> Curve:
        """The curve of a node."""
        found = self.value(node, depth)
        if not isinstance(found, Curve):
            self.refuse(node, f"{self.source(node)} is not a curve")
        return found

    def value(self, node: ast.expr, depth: int) -> Any:
        """The value of a node: a number, a truth value, a curve, or a list of these."""
        if depth > DEEPEST:
            self.refuse(node, f"is nested more than {DEEPEST} deep", "write it flatter")
        match node:
            case ast.Constant(value=bool() | int() | float() as literal):
                return literal if isinstance(literal, bool) else self.bounded(node, literal)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                number = self.number(operand, depth + 1)
                return -number if isinstance(sign, ast.USub) else number
            case ast.BinOp(op=ast.Mult() | ast.Add() | ast.Sub() | ast.Div()):
                return self.chain(node, depth)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.power(node, self.value(left, depth + 1), self.number(right, depth + 1))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self.value(item, depth + 1) for item in items]
            case ast.Call(func=ast.Name(id=name) as place):
                return self.call(node, self.constructor(place, name), f"{name}()", depth)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                return self.call(node, self.method(node, owner, name, depth), f".{name}()", depth)
            case ast.Name(id=name):
                made = available().get(name)
                hint = f"write {name}({_parameters(inspect.signature(made))})" if made else self.known(name)
                self.refuse(node, f"{name!r} has no arguments in brackets", hint)
        self.refuse(node, f"{self.source(node)} is not a curve, a number, True, False or a list of these")

    def chain(self, node: ast.BinOp, depth: int) -> Any:
        """a * b * c ... or a + b - c ...: a loop, because such a chain may be as long as the text."""
        steps: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and type(first.op) in _ARITHMETIC:
            steps.append(first)
            first = first.left
        total = self.value(first, depth + 1)
        for step in reversed(steps):
            other = self.value(step.right, depth + 1)
            curves = isinstance(total, Curve), isinstance(other, Curve)
            if all(curves) and isinstance(step.op, ast.Mult):
                total = self.built(step, operator.mul, total, other)
            elif any(curves):
                rule = "a curve can be multiplied by a curve (*), and raised to a whole number (**)"
                self.refuse(step, rule, "write curve ** 3 for three runs")
            else:
                total = self.arithmetic(step, total, other)
        return total

    def arithmetic(self, node: ast.BinOp, left: Any, right: Any) -> Number:
        if not (_is_number(left) and _is_number(right)):
            self.refuse(node, f"{self.source(node)} is not arithmetic between numbers")
        try:
            return self.bounded(node, _ARITHMETIC[type(node.op)](left, right))
        except ZeroDivisionError as error:
            self.refuse(node, f"{self.source(node)} divides by zero", "write the number itself", error)

    def power(self, node: ast.BinOp, base: Any, exponent: Number) -> Curve | Number:
        if isinstance(base, Curve):
            return self.built(node.right, operator.pow, base, exponent)
        if not _is_number(base):
            self.refuse(node, f"{self.source(node)} is not a power of a curve or of a number")
        if base == 0 and exponent < 0:
            self.refuse(node, f"{self.source(node)} divides by zero", "write the number itself")
        # Checked by the logarithm: a huge power is refused before it is computed.
        size = exponent * math.log(abs(base)) if base else 0.0
        if size > math.log(LARGEST) or (base < 0 and exponent != int(exponent)):
            self.refuse(node, f"{self.source(node)} is too large or not a real number", "write the number itself")
        return self.bounded(node, base**exponent)

    def number(self, node: ast.expr, depth: int) -> Number:
        found = self.value(node, depth)
        if not _is_number(found):
            self.refuse(node, f"{self.source(node)} is not a number")
        return found  # type: ignore[no-any-return]  # _is_number has just checked it

    def bounded(self, node: ast.expr, number: Number) -> Number:
        if not abs(number) <= LARGEST:
            self.refuse(node, f"a number must be at most {LARGEST:g} in size", "no mechanism needs a larger one")
        return number

    # -- calls -------------------------------------------------------------------------------------------------------

    def constructor(self, node: ast.expr, name: str) -> Callable[..., Any]:
        found = available().get(name)
        if found is None:
            self.refuse(node, f"the curve {name!r} is not known", self.known(name))
        return found

    def method(self, node: ast.expr, owner: ast.expr, name: str, depth: int) -> Callable[..., Any]:
        if isinstance(owner, ast.Name):
            remedy = f"leave out '{owner.id}.'" if name in available() else self.known(owner.id)
            self.refuse(owner, f"{owner.id!r} is not a curve", remedy)
        curve = self.curve(owner, depth + 1)
        if name not in METHODS:
            start = _end(owner) + self.text[_end(owner) :].index(name)
            guess = difflib.get_close_matches(name, METHODS, 1)
            hint = f"did you mean .{guess[0]}()?" if guess else f"there are {', '.join(f'.{m}()' for m in METHODS)}"
            self.refuse((start, start + len(name)), f"the method .{name}() is not known", hint)
        return getattr(curve, name)  # type: ignore[no-any-return]  # one of METHODS

    def call(self, node: ast.Call, function: Callable[..., Any], shown: str, depth: int) -> Curve:
        """The curve of a call, with each argument checked against the signature first."""
        signature = inspect.signature(function)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self.refuse(argument, "arguments cannot be unpacked here")
        places = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.refuse(keyword, "arguments cannot be unpacked here")
            if keyword.arg not in signature.parameters:
                guess = difflib.get_close_matches(keyword.arg, signature.parameters, 1)
                hint = f"did you mean {guess[0]}=?" if guess else f"it takes {_parameters(signature)}"
                self.refuse(keyword, f"{shown} has no parameter {keyword.arg!r}", hint)
            if keyword.arg in places:
                self.refuse(keyword, f"{keyword.arg}= is given twice", "give it once")
            places[keyword.arg] = keyword
        given = [self.value(argument, depth + 1) for argument in node.args]
        named = {name: self.value(keyword.value, depth + 1) for name, keyword in places.items()}
        try:
            signature.bind(*given, **named)
        except TypeError as error:
            self.refuse(node, f"{shown} takes {_parameters(signature)}", "give each by its name", error)
        try:
            made = function(*given, **named)
        except DeniableError as error:
            wrong = error.parameter if isinstance(error, InvalidParameter) else ""
            self.pass_on(places.get(wrong, node), error)
        if not isinstance(made, Curve):
            self.refuse(node, f"{shown} is not a curve")
        return made

    def built(self, node: ast.AST, combine: Callable[[Any, Any], Curve], left: Any, right: Any) -> Curve:
        try:
            return combine(left, right)
        except DeniableError as error:
            self.pass_on(node, error)

    def pass_on(self, node: ast.AST, error: DeniableError) -> NoReturn:
        """Raise the error of a constructor or method again, with its place in the text."""
        if isinstance(error, InvalidParameter):
            given = "" if error.asked is NOTHING else f"={_short(error.asked)}"
            self.refuse(node, f"{error.parameter}{given}: {error.rule}", error.remedy, error)
        self.refuse(node, str(error), "", error)

    def source(self, node: ast.AST) -> str:
        """The text of a node, shortened."""
        return _short(self.text[_start(node) : _end(node)])

    def known(self, name: str) -> str:
        """A hint with the most similar name, or with all names."""
        guess = difflib.get_close_matches(name, available(), 1, cutoff=0.6)
        return f"did you mean {guess[0]}?" if guess else f"there are {', '.join(available())}"


def available() -> dict[str, Callable[..., Any]]:
    """The constructors that an expression may call, by name."""
    from deniable import curves

    return {name: getattr(curves, name) for name in CONSTRUCTORS if callable(getattr(curves, name, None))}


def _parameters(signature: inspect.Signature) -> str:
    shown = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            shown.append("one or more curves")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            shown.append(f"{name}=")
        else:
            shown.append(name)
    return ", ".join(shown) or "no arguments"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _start(node: ast.AST) -> int:
    return int(getattr(node, "col_offset", 0))


def _end(node: ast.AST) -> int:
    return int(getattr(node, "end_col_offset", None) or _start(node) + 1)
