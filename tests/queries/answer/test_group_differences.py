"""The difference of two groups: its intervals against simulation, closed forms, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import deniable as dn
from deniable.errors import InvalidOperation, InvalidParameter
from deniable.queries.answer.group_differences import FEWEST, LEAST_CONFIDENCE
from deniable.queries.session import Session
from tests.wording import worded

BUDGETS = {
    "gaussian": dn.Budget.gaussian(mu=1, delta=1e-6),
    "pure": dn.Budget.pure(epsilon=4),
}
TEST = "SELECT arm, COUNT(*) AS n, AVG(x) AS m, VAR_SAMP(x) AS v FROM t GROUP BY arm"


def opened(frame: pd.DataFrame, budget: dn.Budget, arms: int = 2, rows: int = 1) -> Session:
    schema = {"arm": dn.Domain.integer(0, arms - 1, nullable=False), "x": dn.Domain.real(0, 1, nullable=False)}
    return dn.session({"t": frame}, unit=dn.Unit.person("who", rows=rows), budget=budget, schema=schema)


def people(seed: int, arms: int, each: int) -> pd.DataFrame:
    """People whose x is 0, 1 or in between; in odd arms the average is 0.03 higher."""
    rng = np.random.default_rng(seed)
    arm = np.repeat(np.arange(arms), each)
    size = arm.size
    x = np.where(rng.random(size) < 0.3, rng.random(size) < 0.5 + 0.1 * (arm % 2), rng.beta(2, 2, size))
    return pd.DataFrame({"who": np.arange(size), "arm": arm, "x": x.astype(float)})


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(BUDGETS))
def test_intervals_contain_the_difference_of_the_populations(kind: str) -> None:
    """400 A/B tests of 2 × 400 people, where noise and sampling error are about as large.

    If each interval contains the truth with probability 95 % at least, the first assertion fails with probability 1e-9.
    Intervals for noise alone contain it far less often.
    """
    tests, each, truth = 400, 400, 0.03
    with opened(people(19, 2 * tests, each), BUDGETS[kind], arms=2 * tests) as s:
        answer = s.ask(TEST, share=1)
    found = [answer.difference("m", (2 * k + 1, 2 * k)) for k in range(tests)]
    joint = [both(one.joint_interval) for one in found]
    held = sum(low <= truth <= high for low, high in joint)
    alone = sum(low <= truth <= high for low, high in (both(one.noise_interval) for one in found))
    assert stats.binom.cdf(held, tests, 0.95) > 1e-9
    assert stats.binom.cdf(alone, tests, 0.95) < 1e-9
    errors = [one.value - truth for one in found]
    widths = [(high - low) / 2 for low, high in joint]
    assert np.mean(widths) < 1.35 * 1.96 * np.std(errors)  # and they are not far too wide


def both(around: Any) -> tuple[float, float]:
    """An interval that must exist."""
    assert around is not None
    low, high = around
    return low, high


def half_width(waves: Any, step: float, confidence: float) -> float:
    law = np.maximum(np.fft.ifft(waves).real, 0)
    law /= law.sum()
    within = law[0] + np.concatenate(([0.0], np.cumsum(law[1 : law.size // 2] * 2)))
    return float(np.interp(confidence, within, np.arange(within.size) * step))


@pytest.mark.parametrize("confidence", [LEAST_CONFIDENCE, 0.99, 0.999])
def test_squares_of_half_widths_add_up_for_laplace_noise_and_normal_errors(confidence: float) -> None:
    """Against the half-width of the sum itself, by characteristic functions; at 90 % it would not hold."""
    size, most = 1 << 15, 60.0
    step = 2 * most / size
    at = 2 * math.pi * np.fft.fftfreq(size, step)
    for parts in ([1.0], [1.0, 1.0], [1.0, 0.3], [1.0, 1.0, 1.0, 1.0], [1.0, 0.5, 0.1, 0.1]):
        noise = np.prod([1 / (1 + (part * at) ** 2) for part in parts], axis=0)
        alone = [half_width(1 / (1 + (part * at) ** 2), step, confidence) for part in parts]
        for sigma in (0.1, 0.3, 1.0, 3.0, 5.0):
            both = half_width(noise * np.exp(-((sigma * at) ** 2) / 2), step, confidence)
            assert both <= math.hypot(*alone, stats.norm.ppf((1 + confidence) / 2) * sigma) + step


@pytest.mark.parametrize("kind", sorted(BUDGETS))
def test_intervals_that_end_at_public_bounds_contain_the_difference(kind: str) -> None:
    """Averages of exactly 1 and 0 with much noise, 200 times: their intervals end at the bounds, and squares of such
    distances do not add up. If each interval contains the truth with probability 95 %, this fails with probability 1e-9.
    """
    tests, each = 200, 150
    arm = np.repeat(np.arange(2 * tests), each)
    frame = pd.DataFrame({"who": np.arange(arm.size), "arm": arm, "x": (arm % 2).astype(float)})
    with opened(frame, BUDGETS[kind], arms=2 * tests) as s:
        answer = s.ask(TEST, share=0.2)
    found = [answer.difference("m", (2 * k + 1, 2 * k)).noise_interval for k in range(tests)]
    held = sum(low <= 1 <= high for low, high in map(both, found))
    assert max(high - low for low, high in map(both, found)) > 0.05
    assert stats.binom.cdf(held, tests, 0.95) > 1e-9


def test_the_interval_by_hand() -> None:
    with opened(people(20, 2, 300), BUDGETS["gaussian"]) as s:
        answer = s.ask(TEST, mu=0.9)
        found = answer.difference("m", (1, 0))
        zero, one = (float(str(each)) for each in answer["m"])
        assert found.value == one - zero
        assert found.groups == (1, 0)
        ups = [both(answer.interval("m")[1])[1] - one, zero - both(answer.interval("m")[0])[0]]
        assert both(found.noise_interval)[1] - found.value == pytest.approx(math.hypot(*ups))
        sampled = [both(answer.interval("v")[k])[1] / both(answer.interval("n")[k])[0] for k in (0, 1)]
        whole = math.hypot(*ups, stats.norm.ppf(0.975) * math.sqrt(sum(sampled)))
        assert both(found.joint_interval)[1] - found.value == pytest.approx(whole)
        assert "noise and sampling error, at 95 %: " in str(found)
        deviation = s.ask(TEST.replace("VAR_SAMP(x)", "STDDEV_POP(x)"), mu=0.1)
        assert deviation.difference("m", (1, 0)).joint_interval is not None
        other = deviation.difference("m", (0, 1))
        assert other.value == -deviation.difference("m", (1, 0)).value


def test_a_group_of_few_people_has_no_joint_interval() -> None:
    with opened(people(21, 2, FEWEST - 20), dn.Budget.gaussian(mu=50, delta=1e-6)) as s:
        found = s.ask(TEST, mu=40).difference("m", (1, 0))
    assert found.joint_interval is None
    assert found.noise_interval is not None
    assert "no interval" in str(found)


WRONG: dict[str, tuple[str, Any]] = {
    "no variance": (TEST.replace(", VAR_SAMP(x) AS v", ""), (1, 0)),
    "the variance of another value": (TEST.replace("VAR_SAMP(x)", "VAR_SAMP(x * 2)"), (1, 0)),
    "no count": (TEST.replace("COUNT(*) AS n, ", ""), (1, 0)),
    "not an average": (TEST.replace("AVG(x) AS m", "SUM(x) AS m"), (1, 0)),
    "an unknown group": (TEST, (1, 7)),
    "one group": (TEST, "10"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_missing_is_named(wrong: str) -> None:
    text, groups = WRONG[wrong]
    with opened(people(22, 2, 200), BUDGETS["gaussian"]) as s:
        answer = s.ask(text, mu=0.5)
        with worded(InvalidParameter, parameter="groups" if "group" in wrong else "column"):
            answer.difference("m", groups)


def test_several_rows_of_a_person_low_confidence_and_changed_answers_are_refused() -> None:
    with opened(people(23, 2, 200), BUDGETS["gaussian"], rows=2) as s:
        with worded(InvalidParameter, parameter="answer"):
            s.ask(TEST, mu=0.3).difference("m", (1, 0))
        gathered = "(SELECT who, ANY_VALUE(arm) AS arm, AVG(x) AS x FROM t GROUP BY who)"
        each = TEST.replace("COUNT(*)", "COUNT(x)").replace("FROM t", f"FROM {gathered} WHERE arm IN (0, 1)")
        assert s.ask(each, mu=0.3).difference("m", (1, 0)).joint_interval is not None
        with worded(InvalidParameter, parameter="confidence"):
            s.ask(each, mu=0.3, confidence=0.9).difference("m", (1, 0))
        with worded(InvalidOperation):
            s.ask(each, mu=0.3).nonnegative().difference("m", (1, 0))
