"""The textbook's bounds against mpmath at 50 digits, against sums in exact rationals and against each other; then
whatever hypothesis can think of; then the tables of the page. Facts and errata: test_decimal_arithmetic.py."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deniable.curves import textbook as tb
from deniable.errors import DeniableError, InvalidParameter, NotCertifiable, OutsideTheorem

LN3 = math.log(3)


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


# --- against mpmath: on the safe side, and by no more than the last bits --------------------------------------------

small = st.floats(1e-6, 30)
chance = st.floats(1e-12, 0.999)
orders = st.floats(1.001, 200)
counts = st.integers(1, 10_000)


def m(value: float) -> mp.mpf:
    return mp.mpf(value)


def gauss(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    with mp.workdps(120):
        tail = mp.erfc((epsilon / mu - mu / 2) / mp.sqrt(2)) / 2
        return tail - mp.exp(epsilon) * mp.erfc((epsilon / mu + mu / 2) / mp.sqrt(2)) / 2


def spread(epsilon: mp.mpf, count: mp.mpf, delta: mp.mpf) -> mp.mpf:
    return epsilon * mp.sqrt(2 * count * mp.log(1 / delta))


UP: dict[str, tuple[dict[str, st.SearchStrategy], Callable[..., mp.mpf]]] = {
    "advanced_composition": (
        {"epsilon": small, "count": counts, "delta": chance},
        lambda epsilon, count, delta: count * epsilon**2 / 2 + spread(epsilon, count, delta),
    ),
    "advanced_composition_drv": (
        {"epsilon": small, "count": counts, "delta": chance},
        lambda epsilon, count, delta: count * epsilon * mp.expm1(epsilon) + spread(epsilon, count, delta),
    ),
    "advanced_composition_sharp": (
        {"epsilon": small, "count": counts, "delta": chance},
        lambda epsilon, count, delta: count * epsilon * mp.tanh(epsilon / 2) + spread(epsilon, count, delta),
    ),
    "crossover": ({"delta": chance}, lambda delta: -8 * mp.log(delta)),
    "risk_bound": (
        {"epsilon": small, "delta": chance, "risk": chance},
        lambda epsilon, delta, risk: min(1, mp.exp(epsilon) * risk + delta),
    ),
    "posterior_bound": (
        {"epsilon": small, "prior": chance},
        lambda epsilon, prior: 1 / (1 + (1 / prior - 1) * mp.exp(-epsilon)),
    ),
    "nu_response_epsilon": ({"nu": chance}, lambda nu: mp.log1p(2 * nu / (1 - nu))),
    "nu_response_bound": ({"nu": chance}, lambda nu: 2 * nu / (1 - nu)),
    "kl_bound": ({"epsilon": small}, lambda epsilon: epsilon * mp.tanh(epsilon / 2)),
    "azuma_tail": ({"deviation": small}, lambda deviation: mp.exp(-(deviation**2) / 2)),
    "pure_distance": (
        {"epsilon": small, "delta": chance},
        lambda epsilon, delta: delta / (1 + mp.exp(epsilon)),
    ),
    "laplace_scale": (
        {"sensitivity": small, "epsilon": small, "delta": chance},
        lambda sensitivity, epsilon, delta: sensitivity / (epsilon - 2 * mp.log1p(-delta)),
    ),
    "classical_gaussian_sigma": (
        {"sensitivity": small, "epsilon": st.floats(1e-6, 0.999), "delta": chance},
        lambda sensitivity, epsilon, delta: sensitivity * mp.sqrt(2 * mp.log(1.25 / delta)) / epsilon,
    ),
    "gdp_to_delta": ({"mu": small, "epsilon": small}, lambda mu, epsilon: gauss(mu, epsilon)),
    "zcdp_to_epsilon": (
        {"rho": small, "delta": chance},
        lambda rho, delta: rho + 2 * mp.sqrt(-rho * mp.log(delta)),
    ),
    "laplace_renyi": (
        {"order": orders, "loss": small},
        lambda order, loss: (
            mp.log((order * mp.exp((order - 1) * loss) + (order - 1) * mp.exp(-order * loss)) / (2 * order - 1))
            / (order - 1)
        ),
    ),
    "randomized_response_renyi": (
        {"order": orders, "epsilon": small},
        lambda order, epsilon: mp.log(mp.cosh((order - 0.5) * epsilon) / mp.cosh(epsilon / 2)) / (order - 1),
    ),
    "renyi_to_epsilon_mironov": (
        {"order": orders, "renyi": small, "delta": chance},
        lambda order, renyi, delta: renyi - mp.log(delta) / (order - 1),
    ),
    "renyi_to_epsilon": (
        {"order": orders, "renyi": small, "delta": chance},
        lambda order, renyi, delta: max(
            mp.mpf(0),
            renyi + mp.log((order - 1) / order) - (mp.log(delta) + mp.log(order)) / (order - 1),
        ),
    ),
    "renyi_to_delta": (
        {"order": orders, "renyi": small, "epsilon": small},
        lambda order, renyi, epsilon: min(
            1, mp.exp((order - 1) * (renyi - epsilon)) * (1 - 1 / order) ** (order - 1) / order
        ),
    ),
    "probability_preservation": (
        {"order": orders, "renyi": small, "chance": chance},
        lambda order, renyi, chance: min(1, (mp.exp(renyi) * chance) ** ((order - 1) / order)),
    ),
}
DOWN = {
    "equal_error_rate_bound": (
        {"epsilon": small, "delta": chance},
        lambda epsilon, delta: (1 - delta) / (1 + mp.exp(epsilon)),
    ),
    "gaussian_equal_error_rate": ({"mu": small}, lambda mu: mp.erfc(mu / mp.sqrt(8)) / 2),
    "advanced_composition_step": (
        {"total_epsilon": small, "count": counts, "delta": chance},
        lambda total_epsilon, count, delta: (
            mp.sqrt(2 / count) * (mp.sqrt(total_epsilon - mp.log(delta)) - mp.sqrt(-mp.log(delta)))
        ),
    ),
}


def check_side(name: str, data: st.DataObject, sign: int) -> None:
    strategies, reference = (UP if sign > 0 else DOWN)[name]
    asked = data.draw(st.fixed_dictionaries(strategies))
    value = getattr(tb, name)(**asked)
    truth = reference(**{key: mp.mpf(number) for key, number in asked.items()})  # nothing rounds in binary64
    assert sign * (value - truth) >= -(mp.mpf(10) ** -40) * truth
    assert abs(value - truth) <= max(2 * mp.mpf(2) ** -53 * truth, math.ulp(0.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", UP)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_upper_bounds_are_above_the_truth_by_the_last_bit(name: str, data: st.DataObject) -> None:
    with mp.workdps(120):
        check_side(name, data, +1)


@pytest.mark.parametrize("name", DOWN)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_lower_bounds_are_below_the_truth_by_the_last_bit(name: str, data: st.DataObject) -> None:
    with mp.workdps(60):
        check_side(name, data, -1)


def kov(epsilon: float, count: int, total: float) -> mp.mpf:
    """The theorem's sum as printed, at 120 digits."""
    with mp.workdps(120):
        e, t = m(epsilon), m(total)
        terms = (
            mp.binomial(count, j) * (mp.exp((count - j) * e) - mp.exp(t + j * e))
            for j in range(count + 1)
            if (count - 2 * j) * e > t
        )
        return mp.fsum(terms) / (1 + mp.exp(e)) ** count


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-5, 20), st.integers(1, 60), st.floats(0, 1), st.sampled_from([0.0, 1e-9, 1e-3, 0.3]))
def test_optimal_delta_is_the_printed_sum(epsilon: float, count: int, part: float, each: float) -> None:
    total = part * count * epsilon
    value = tb.optimal_composition_delta(epsilon=epsilon, delta=each, count=count, total_epsilon=total)
    with mp.workdps(120):
        truth = 1 - (1 - m(each)) ** count * (1 - kov(epsilon, count, total))
        assert value >= truth * (1 - mp.mpf(10) ** -60)
        assert value - truth <= max(2 * mp.mpf(2) ** -53 * truth, math.ulp(0.0))


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-5, 20), st.integers(1, 60), st.floats(1e-15, 0.99))
def test_optimal_epsilon_is_the_smallest(epsilon: float, count: int, delta: float) -> None:
    value = tb.optimal_composition_epsilon(epsilon=epsilon, delta=0, count=count, total_delta=delta)
    assert kov(epsilon, count, value) <= delta
    assert value == 0 or kov(epsilon, count, value * (1 - 4 * 2**-52)) > delta


def test_optimal_composition_equals_exact_enumeration_in_rationals() -> None:
    """12 randomised responses with odds 3:1; δ at e^ε' = 3^c/2 by summing all 2^12 answers as Fractions (e^ε = 3)."""
    count, p, q = 12, Fraction(3, 4), Fraction(1, 4)
    for power in range(1, 12):
        bar = Fraction(3**power, 2)
        exact = sum(
            (
                math.comb(count, j) * max(Fraction(0), p ** (count - j) * q**j - bar * q ** (count - j) * p**j)
                for j in range(count + 1)
            ),
            Fraction(0),
        )
        value = tb.optimal_composition_delta(epsilon=LN3, delta=0, count=count, total_epsilon=math.log(bar))
        assert value == pytest.approx(float(exact), rel=1e-13)


def test_optimal_composition_of_a_million() -> None:
    """Against the central limit theorem: 10⁶ releases of ε = 0.001 are close to μ = 1."""
    epsilon = tb.optimal_composition_epsilon(epsilon=0.001, delta=0, count=10**6, total_delta=1e-6)
    assert epsilon == pytest.approx(tb.gdp_to_epsilon(mu=1, delta=1e-6), rel=1e-3)
    with pytest.raises(NotCertifiable):
        tb.optimal_composition_delta(epsilon=0.001, delta=0, count=10**8, total_epsilon=1)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.floats(0.01, 5), st.floats(1e-9, 0.5))
def test_optimal_step_is_the_largest(count: int, total: float, delta: float) -> None:
    step = tb.optimal_composition_step(delta=0, count=count, total_epsilon=total, total_delta=delta)
    assert kov(step, count, total) <= delta < kov(step * (1 + 1e-14), count, total)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.9))
def test_gdp_to_epsilon_is_the_smallest(mu: float, delta: float) -> None:
    epsilon = tb.gdp_to_epsilon(mu=mu, delta=delta)
    assert gauss(m(mu), m(epsilon)) <= delta
    assert epsilon == 0 or gauss(m(mu), m(epsilon * (1 - 2**-51))) > delta


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 20), st.floats(1e-12, 0.9), st.floats(0.01, 100))
def test_gaussian_sigma_is_never_too_small_and_hardly_too_large(epsilon: float, delta: float, l2: float) -> None:
    sigma = tb.gaussian_sigma(sensitivity=l2, epsilon=epsilon, delta=delta)
    assert gauss(m(l2) / m(sigma), m(epsilon)) <= delta
    assert gauss(m(l2) / m(sigma * (1 - 2**-50)), m(epsilon)) > delta


def test_gaussian_delta_survives_cancellation() -> None:
    """Tiny μ: δ(0) = 2Φ(μ/2) - 1 = μφ(0) loses three hundred digits if subtracted naively."""
    for mu in (1e-30, 1e-150, 1e-300):
        assert tb.gdp_to_delta(mu=mu, epsilon=0) == pytest.approx(mu / math.sqrt(2 * math.pi), rel=1e-14)


# --- one bound against another --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 3), st.integers(1, 300), st.floats(1e-12, 0.5))
def test_no_advanced_form_beats_the_optimum(epsilon: float, count: int, delta: float) -> None:
    best = tb.optimal_composition_epsilon(epsilon=epsilon, delta=0, count=count, total_delta=delta)
    asked = {"epsilon": epsilon, "count": count, "delta": delta}
    forms = [tb.advanced_composition, tb.advanced_composition_drv, tb.advanced_composition_sharp]
    limited = [tb.advanced_composition_doubled, tb.advanced_composition_mironov]
    values = [form(**asked) for form in forms]
    for form, limit in zip(limited, (8, 1), strict=True):
        if count * epsilon**2 <= 0.999999 * limit * math.log(1 / delta):
            values.append(form(**asked))
        elif count * epsilon**2 > 1.000001 * limit * math.log(1 / delta):
            with pytest.raises(OutsideTheorem):
                form(**asked)
    assert best <= min(*values, tb.basic_composition(epsilon=epsilon, delta=0, count=count).epsilon)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-4, 0.9999), st.floats(1e-12, 0.9999))
def test_classical_calibration_holds_in_its_range(epsilon: float, delta: float) -> None:
    sigma = tb.classical_gaussian_sigma(sensitivity=1, epsilon=epsilon, delta=delta)
    assert tb.gdp_to_delta(mu=1 / Fraction(sigma), epsilon=epsilon) < delta
    assert tb.gaussian_sigma(sensitivity=1, epsilon=epsilon, delta=delta) < sigma


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.5))
def test_order_of_the_gaussian_conversions(mu: float, delta: float) -> None:
    exact = tb.gdp_to_epsilon(mu=mu, delta=delta)
    rho = mu * mu / 2
    tight, simple = tb.zcdp_to_epsilon_optimised(rho=rho, delta=delta).bound, tb.zcdp_to_epsilon(rho=rho, delta=delta)
    assert exact <= tight * (1 + 1e-15) <= simple * (1 + 1e-15)
    assert tb.gdp_to_delta(mu=mu, epsilon=simple) <= tb.zcdp_to_delta(rho=rho, epsilon=simple).bound <= delta * 1.000001


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 30), st.floats(1.0001, 1e4))
def test_sharp_zcdp_of_pure_dp_holds_at_every_order(epsilon: float, order: float) -> None:
    rho = tb.pure_to_zcdp_sharp(epsilon=epsilon)
    assert tb.randomized_response_renyi(order=order, epsilon=epsilon) <= order * rho * (1 + 1e-12)
    assert rho <= tb.pure_to_zcdp(epsilon=epsilon)
    near_one = tb.randomized_response_renyi(order=1 + 1e-9, epsilon=epsilon)
    assert near_one == pytest.approx(rho, rel=1e-6)  # so no smaller ρ would do


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 3), st.floats(0, 1e-3), st.integers(1, 20))
def test_group_bounds_agree_at_one_and_are_ordered(epsilon: float, delta: float, size: int) -> None:
    sharp = tb.group_privacy_approximate(epsilon=epsilon, delta=delta, size=size)
    stated = tb.group_privacy_stated(epsilon=epsilon, delta=delta, size=size)
    assert sharp.epsilon == stated.epsilon == tb.group_privacy(epsilon=epsilon, size=size)
    assert sharp.delta <= stated.delta * (1 + 1e-15)
    if size == 1:
        assert sharp.delta == pytest.approx(delta, rel=1e-15)


# --- bad numbers ----------------------------------------------------------------------------------------------------

FUNCTIONS = {name: getattr(tb, name) for name in tb.__all__ if inspect.isfunction(getattr(tb, name))}
SPECIAL = {
    "costs": st.lists(st.tuples(st.floats(), st.floats()), max_size=3),
    "epsilons": st.lists(st.floats(), max_size=3),
    "renyi_curve": st.sampled_from(
        [lambda a: a, lambda a: math.inf, lambda a: math.nan, lambda a: -1.0, lambda a: "x"]
    ),
}
anything = st.one_of(
    st.floats(),
    st.floats(0, 1),
    st.floats(0, 100),
    st.integers(-3, 300),
    st.fractions(0, 2),
    st.sampled_from(
        [math.nan, math.inf, -1, 0, 1, 1.5, True, None, "1", 10**400, 5e-324, 1e308, 10**9, Fraction(1, 10**400)]
    ),
)


def arguments(name: str) -> st.SearchStrategy[dict[str, object]]:
    signature = inspect.signature(FUNCTIONS[name])
    return st.fixed_dictionaries(
        {
            parameter: SPECIAL["renyi_curve"]
            if "Callable" in str(signature.parameters[parameter].annotation)
            else SPECIAL.get(parameter, anything)
            for parameter in signature.parameters
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_fuzz_only_our_errors_and_no_nan(name: str, data: st.DataObject) -> None:
    asked = data.draw(arguments(name))
    assume(not (name == "optimal_composition_step" and asked["count"] == 10**9))
    try:
        result = FUNCTIONS[name](**asked)
    except DeniableError:
        return
    values = result if isinstance(result, tuple) else (result,)
    assert all(isinstance(value, float) and not math.isnan(value) and value >= 0 for value in values)
    assert not any(isinstance(value, bool) for value in asked.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_keyword_only_and_have_no_defaults(name: str) -> None:
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is parameter.empty


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, True, None, "0.1", 1j])
def test_epsilon_that_cannot_mean_anything(bad: object) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        tb.basic_composition(epsilon=bad, delta=0, count=1)


@pytest.mark.parametrize("bad", [2.5, 2.0, 0, -1, True, None, "3", math.nan])
def test_count_that_cannot_mean_anything(bad: object) -> None:
    with pytest.raises(InvalidParameter, match="whole number"):
        tb.basic_composition(epsilon=1, delta=0, count=bad)


@pytest.mark.parametrize("bad", [1.0000000000000002, -1e-300, math.nan])
def test_delta_that_cannot_mean_anything(bad: float) -> None:
    with pytest.raises(InvalidParameter, match=r"delta.*(\[0, 1\]|finite)"):
        tb.zcdp_to_epsilon(rho=1, delta=bad)


def test_numpy_scalars_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    asked = {"epsilon": numpy.float32(0.5), "delta": numpy.float64(0), "count": numpy.int64(4)}
    assert tb.basic_composition(**asked) == (2.0, 0.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: tb.advanced_composition(epsilon=1, count=2, delta=0),
        lambda: tb.gaussian_sigma(sensitivity=1, epsilon=1, delta=0),
        lambda: tb.gdp_to_epsilon(mu=1, delta=0),
        lambda: tb.zcdp_to_epsilon(rho=1, delta=0),
        lambda: tb.renyi_to_epsilon(order=2, renyi=1, delta=0),
        lambda: tb.laplace_scale(sensitivity=1, epsilon=0, delta=0),
        lambda: tb.optimal_composition_epsilon(epsilon=1, delta=1e-3, count=10, total_delta=9e-3),
        lambda: tb.optimal_composition_step(delta=1e-3, count=10, total_epsilon=1, total_delta=9e-3),
        lambda: tb.best_renyi_to_epsilon(renyi=lambda a: math.inf, delta=1e-5),
        lambda: tb.classical_gaussian_sigma(sensitivity=1, epsilon=0, delta=1e-5),
    ],
)
def test_outside_its_range_a_formula_is_refused(ask: Callable[[], object]) -> None:
    with pytest.raises(OutsideTheorem) as refused:
        ask()
    assert refused.value.condition
    assert refused.value.asked


def test_importing_the_textbook_loads_neither_numpy_nor_scipy() -> None:
    import subprocess
    import sys

    # The room's own door may load numpy; the textbook must not need it.
    folder = Path(tb.__file__).parents[1]
    code = (
        "import sys, types; room = types.ModuleType('deniable.curves'); room.__path__ = [sys.argv[1]];"
        "sys.modules['deniable.curves'] = room; import deniable.curves.textbook, deniable.curves.filters;"
        "print([name for name in ('numpy', 'scipy') if name in sys.modules])"
    )
    source = str(folder.parent.parent)
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": source},
    )  # fmt: skip
    assert ran.stdout.strip() == "[]"


# --- the page ---------------------------------------------------------------------------------------------------------


def rows_of_the_page() -> list[tuple[str, str]]:
    """The last two columns, example and value, of the tables of docs/textbook.md."""
    page = Path(__file__).parents[3] / "docs" / "textbook.md"
    return re.findall(r"\| `([a-z_]+\(.+?)` \| ([-+.e\d]+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("example", "value"), rows_of_the_page())
def test_every_row_of_the_page_is_what_it_says(example: str, value: str) -> None:
    assert repr(eval(example, {name: getattr(tb, name) for name in tb.__all__})) == value


def test_the_page_has_every_function() -> None:
    shown = {example.split("(")[0] for example, _ in rows_of_the_page()}
    assert set(FUNCTIONS) - shown == {"best_renyi_to_epsilon", "best_renyi_to_epsilon_mironov"}  # shown in a block
