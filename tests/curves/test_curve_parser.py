"""Curves read from text: what is allowed is read right, and nothing else ever runs."""

from __future__ import annotations

import builtins
import contextlib
import string
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable import curves
from deniable.curves.curve_parser import CONSTRUCTORS, DEEPEST, LONGEST, METHODS, available, parse
from deniable.errors import InvalidExpression
from tests.table import every_row
from tests.wording import worded

READ = {
    "gaussian(sigma=50)**1000 * laplace(scale=4)": curves.gaussian(sigma=50) ** 1000 * curves.laplace(scale=4),
    "gaussian(mu=1/50)": curves.gaussian(mu=1 / 50),
    "gaussian(sigma=2, sensitivity=3)": curves.gaussian(sigma=2, sensitivity=3),
    "laplace(scale=2**3)": curves.laplace(scale=8),
    "pure(epsilon=1e-6)": curves.pure(epsilon=1e-6),
    "pure(epsilon=.5)": curves.pure(epsilon=0.5),
    "pure(epsilon=--1)": curves.pure(epsilon=1),
    "pure(epsilon=(1 + 2 - 0.5) * 2 / 5)": curves.pure(epsilon=1),
    "gaussian(sigma=1).sampled(rate=0.01) ** 10_000": curves.gaussian(sigma=1).sampled(rate=0.01) ** 10_000,
    "(gaussian(sigma=1) * pure(epsilon=1)).group(size=3)": (curves.gaussian(sigma=1) * curves.pure(epsilon=1)).group(
        size=3
    ),
    "gaussian(sigma=1)**2**3": curves.gaussian(sigma=1) ** 8,
    "gaussian(sigma=1)**0": curves.identity(),
    "identity()": curves.identity(),
    "worst_of(pure(epsilon=1), gaussian(sigma=1))": curves.worst_of(curves.pure(epsilon=1), curves.gaussian(sigma=1)),
    "mixture([0.25, 0.75], [pure(epsilon=1), gaussian(sigma=1)])": curves.mixture(
        [0.25, 0.75], [curves.pure(epsilon=1), curves.gaussian(sigma=1)]
    ),
    "mixture(weights=(1/4, 3/4), curves=(pure(epsilon=1), pure(epsilon=2)))": curves.mixture(
        [0.25, 0.75], [curves.pure(epsilon=1), curves.pure(epsilon=2)]
    ),
    "poisson(low=1, high=2, tied=True)": curves.poisson(low=1, high=2, tied=True),
    "from_pmf([0.75, 0.25], [0.25, 0.75])": curves.from_pmf([0.75, 0.25], [0.25, 0.75]),
    "\n  pure(epsilon=1)\n  * pure(epsilon=2)\t": curves.pure(epsilon=1) * curves.pure(epsilon=2),
}


@pytest.mark.parametrize(("text", "curve"), READ.items(), ids=READ)
def test_an_expression_is_the_curve_that_python_would_make_of_it(text: str, curve: curves.Curve) -> None:
    assert parse(text) == curve


ATOMS = [
    curves.gaussian(mu=0.75),
    curves.laplace(scale=4),
    curves.discrete_laplace(scale=3, sensitivity=2),
    curves.discrete_gaussian(sigma=2.5),
    curves.rounded_gaussian(sigma=2, sensitivity=3),
    curves.skellam(variance=4, sensitivity=3),
    curves.randomized_response(epsilon=1.5),
    curves.randomized_response(epsilon=1.5, categories=4),
    curves.exponential(epsilon=0.1),
    curves.pure(epsilon=0.25),
    curves.approximate(epsilon=1, delta=1e-5),
    curves.zcdp(rho=0.1),
    curves.renyi(order=8, epsilon=0.5),
    curves.poisson(low=10, high=12),
    curves.poisson(low=10, high=12, tied=True),
    curves.merton(variance=0.1, rate=1.0, mean=0.5, spread=0.25),
    curves.normal_inverse_gaussian(alpha=3, beta=1, size=0.5),
    curves.quantized(curves.gaussian(sigma=1), width=0.5),
    curves.worst_of(curves.gaussian(sigma=1), curves.pure(epsilon=1)),
    curves.mixture([0.5, 0.5], [curves.gaussian(sigma=1), curves.pure(epsilon=1)]),
    curves.hidden_mixture([0.5, 0.5], [curves.gaussian(sigma=1), curves.gaussian(sigma=2)]),
    curves.gaussian(sigma=1).sampled(rate=0.25),
    curves.gaussian(sigma=1).sampled_without_replacement(size=5, population=20),
    curves.poisson(low=10, high=12).symmetrized(),
    curves.identity(),
]


@pytest.mark.parametrize("curve", ATOMS, ids=lambda curve: curve.expression())
def test_the_expression_of_an_atom_reads_back(curve: curves.Curve) -> None:
    assert parse(curve.expression()) == curve
    assert parse((curve**7).expression()) == curve**7


@given(
    sigma=st.floats(1e-3, 1e6),
    scale=st.floats(1e-3, 1e6),
    epsilon=st.floats(0, 50),
    delta=st.floats(1e-12, 1),
    rate=st.floats(0.001, 0.999),
    count=st.integers(1, 10**9),
)
def test_writing_and_reading_settle_at_once(
    sigma: float, scale: float, epsilon: float, delta: float, rate: float, count: int
) -> None:
    """Read back from its own expression, a curve writes itself the same way and promises the same."""
    curve = (
        curves.gaussian(sigma=sigma) ** count
        * curves.laplace(scale=scale)
        * curves.approximate(epsilon=epsilon, delta=delta)
        * curves.pure(epsilon=epsilon).sampled(rate=rate)
    )
    again = parse(curve.expression())
    assert again.expression() == curve.expression()
    assert len(again.factors) == len(curve.factors)


REFUSED = {
    # what is written: words that the error must contain
    "": "the expression is empty",
    "gausian(sigma=1)": "did you mean gaussian?",
    "gaussian(sigm=1)": "did you mean sigma=?",
    "gaussian(sigma=-1)": "must be positive",
    "gaussian(sigma=0)": "must be positive",
    "gaussian(sigma=1, mu=1)": "exactly one",
    "gaussian(sigma=1, sigma=2)": "given twice",
    "gaussian(1)": "takes sigma=",
    "gaussian()": "exactly one",
    "gaussian": "has no arguments in brackets",
    "gaussian(sigma=True)": "must be a real number",
    "gaussian(sigma=[1])": "must be a real number",
    "gaussian(sigma=gaussian(sigma=1))": "must be a real number",
    "gaussian(sigma=1).sampld(rate=0.1)": "did you mean .sampled()?",
    "gaussian(sigma=1).sampled(rate=2)": "must lie in [0, 1]",
    "gaussian(sigma=1).sampled(0.1)": "takes rate=",
    "gaussian(sigma=1).epsilon(delta=1e-6)": "the method .epsilon() is not known",
    "curves.gaussian(sigma=1)": "leave out 'curves.'",
    "3 * gaussian(sigma=1)": "curve ** 3",
    "gaussian(sigma=1) * 3": "curve ** 3",
    "gaussian(sigma=1) + gaussian(sigma=1)": "can be multiplied by a curve",
    "gaussian(sigma=1) ** 2.5": "whole number",
    "gaussian(sigma=1) ** -1": "at least 0",
    "gaussian(sigma=1) ** 10**16": "1,000,000,000,000,000",
    "2 ** gaussian(sigma=1)": "not a number",
    "gaussian(sigma=9**9**9)": "too large",
    "gaussian(sigma=1e999)": "at most 1e+150",
    "gaussian(sigma=1e100*1e100)": "at most 1e+150",
    "gaussian(sigma=1/0)": "divides by zero",
    "gaussian(sigma=0**-1)": "divides by zero",
    "gaussian(sigma=(-8)**(1/3))": "not a real number",
    "gaussian(sigma=True + True)": "not arithmetic",
    "gaussian(sigma=1j)": "is followed by 'j'",
    "gaussian(sigma=0x10)": "is followed by 'x'",
    "gaussian(sigma=" + "9" * 5000 + ")": "at most 40 characters",
    "[gaussian(sigma=1)]": "is not a curve",
    "1": "is not a curve",
    "gaussian(sigma=1": "never closed",
    "gaussian(sigma=1))": "cannot be read",
    "gaussian(sigma=1) gaussian(sigma=1)": "cannot be read",
    "gaussian(*[1])": "cannot be unpacked",
    "gaussian(**1)": "cannot be unpacked",
    "worst_of()": "",
    "worst_of(1)": "must be a curve",
    "gaussian(sigma=1)[0]": "is not a curve, a number",
    "gaussian(sigma=1).factors": "is not a curve, a number",
    "gaussian(sigma=σ)": "is not allowed in an expression",
}


@every_row(REFUSED.items())
def test_what_cannot_be_read_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)
    assert words in str(caught.value)
    assert caught.value.parameter == "expression"
    assert "column" in caught.value.rule


def test_the_caret_stands_below_what_is_wrong() -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse("pure(epsilon=1) * gausian(sigma=1)")
    *_, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :][: len("gausian")] == "gausian"
    assert caret.strip() == "^~~~~~~"
    assert "column 19" in str(caught.value)


def test_the_caret_is_right_in_a_long_expression() -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse("pure(epsilon=1) * " * 40 + "gausian(sigma=1)" + " * pure(epsilon=1)" * 40)
    *_, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :].startswith("gausian")
    assert len(line) <= 110


@pytest.mark.parametrize("value", [None, 3, b"pure(epsilon=1)", ["pure(epsilon=1)"], curves.pure(epsilon=1)])
def test_only_text_is_read(value: object) -> None:
    with worded(InvalidExpression, parameter="expression"):
        parse(value)  # type: ignore[arg-type]


INJECTIONS = [
    "__import__('os').system('true')",
    "eval('1')",
    "open('/etc/passwd')",
    "().__class__.__bases__[0].__subclasses__()",
    "gaussian.__globals__",
    "gaussian(sigma=1).__class__()",
    "gaussian(sigma=1).__reduce__()",
    "gaussian(sigma=1)._repr_html_()",
    "gaussian(sigma=1).to_dict()",
    "gaussian.__call__(sigma=1)",
    "parse(1)",
    "from_density(1, 2)",
    "tradeoff(print)",
    "filters()",
    "Curve(1)",
    "lambda: 1",
    "(lambda x: x)(gaussian(sigma=1))",
    "[x for x in (1, 2)]",
    "gaussian(sigma=1) if True else 1",
    "gaussian(sigma=1) or 1",
    "not gaussian(sigma=1)",
    "(x := 1)",
    "f'{1}'",
    "'a' * 10",
    "gaussian(sigma=1) # comment",
    "gaussian(sigma=1); 1",
    "print(1)",
    "exit()",
    "await x",
    "yield 1",
    "...",
    "None",
    "gaussian(sigma=None)",
    "gaussian(sigma=1)\\\n",
    "gaussian(sigma=1)\x00",
    "breakpoint()",
    "@",
    "~1",
    "1 if 1 else 1",
    "gaussian(sigma=5//2)",
    "gaussian(sigma=5%2)",
    "{1: 2}",
    "1or 2",
    "gaussian(sigma=1)" + "\u2028",
]


@pytest.mark.parametrize("text", INJECTIONS, ids=range(len(INJECTIONS)))
def test_nothing_but_curves_can_be_written(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(*_: object, **__: object) -> None:
        raise AssertionError("the expression ran something")

    for name in ("eval", "exec", "open", "breakpoint"):
        monkeypatch.setattr(builtins, name, caught)
    if text.strip() != text and text.strip() == "gaussian(sigma=1)":
        assert parse(text) == curves.gaussian(sigma=1)
        return
    with pytest.raises(InvalidExpression):
        parse(text)


BOMBS = {
    "too long": "pure(epsilon=1)*" * 1000 + "pure(epsilon=1)",
    "brackets": "(" * 4000 + "1" + ")" * 4000,
    "lists": "[" * 4000 + "]" * 4000,
    "signs": "-" * 9000 + "1",
    "powers": "2**" * 3000 + "2",
    "power tower": "gaussian(sigma=9**9**9**9**9)",
    "sums": "1+" * 4500 + "1",
    "methods": "pure(epsilon=1)" + ".sampled(rate=.5)" * 550,
    "nested": "worst_of(" * (DEEPEST + 1) + "pure(epsilon=1)" + ")" * (DEEPEST + 1),
    "products of huge numbers": "gaussian(sigma=" + "*".join(["1e149"] * 1000) + ")",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidExpression):
        parse(text)
    assert time.process_time() - start < 1.0


def test_a_long_product_is_read() -> None:
    count = LONGEST // len("pure(epsilon=1)*") - 1
    assert parse("*".join(["pure(epsilon=1)"] * count)) == curves.pure(epsilon=1) ** count


@given(st.text(max_size=200))
@example("1is 1")
@example("0_0")
@example("1__0")
@example("\ud800")
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidExpression):
        assert isinstance(parse(text), curves.Curve)


WORDS = [
    *CONSTRUCTORS,
    *METHODS,
    *(
        "sigma",
        "mu",
        "scale",
        "epsilon",
        "delta",
        "rate",
        "size",
        "order",
        "rho",
        "p",
        "low",
        "high",
        "weights",
        "curves",
    ),
    *("True", "False", "None", "lambda", "if", "else", "for", "in", "not", "and", "__class__", "x"),
    *("(", ")", "[", "]", ",", "=", ".", "*", "**", "+", "-", "/", "//", " "),
    *("0", "1", "2", "0.5", "1e-6", "1e400", "10_000", "3.", ".5", "99999999999999999999"),
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_sequence_of_known_words_is_read_or_refused(words: list[str]) -> None:
    with contextlib.suppress(InvalidExpression):
        assert isinstance(parse("".join(words)), curves.Curve)


NUMBERS = st.sampled_from(["0", "1", "-1", "0.5", "2**3", "1e-9", "1e149", "0/1", "True", "[1, 2]", "10**15", "1/3"])


@st.composite
def nearly_right(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions that Python would accept, with parameters that may make no sense."""
    name = draw(st.sampled_from(sorted(available())))
    parameters = draw(
        st.lists(
            st.sampled_from(["sigma", "mu", "scale", "epsilon", "delta", "p", "rho", "order", "low", "high"]),
            max_size=3,
        )
    )
    arguments = [f"{parameter}={draw(NUMBERS)}" for parameter in parameters]
    if depth and draw(st.booleans()):
        arguments.insert(0, draw(nearly_right(depth=depth - 1)))
    text = f"{name}({', '.join(arguments)})"
    if draw(st.booleans()):
        text += f".{draw(st.sampled_from(METHODS))}({draw(st.sampled_from(['', 'rate=0.1', 'size=2', 'size=10**9']))})"
    if draw(st.booleans()):
        text += f"**{draw(NUMBERS)}"
    if depth and draw(st.booleans()):
        text += f" * {draw(nearly_right(depth=depth - 1))}"
    return text


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(nearly_right())
def test_well_formed_nonsense_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidExpression):
        assert isinstance(parse(text), curves.Curve)


def test_every_name_of_the_table_that_exists_is_a_constructor() -> None:
    assert set(available()) >= {"gaussian", "laplace", "pure", "worst_of", "identity"}
    assert all(set(name) <= set(string.ascii_lowercase + "_") for name in available())
