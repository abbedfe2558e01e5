"""`check_mechanism`: statistical checks that a mechanism keeps its promise on two neighbours."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.audit.answer_columns import numbers_of, plain
from deniable.audit.claim import Promise
from deniable.audit.exact_curve import exact, own_law
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidDistribution, InvalidOperation, InvalidParameter, NotPrivateWarning
from deniable.mechanisms import Composed, Mechanism
from deniable.mechanisms.noise_steps import Additive
from deniable.testing import evidence, statistics
from deniable.testing.check_report import Check, Report

if TYPE_CHECKING:
    from deniable.local import Protocol
    from deniable.noise import Entropy

Law = Mapping[Any, float]
Laws = Callable[[Any], Law | Callable[[int], float]]
"""Maps a value to its output distribution: a dict of probabilities, or a function on the integers."""

COVERED: Final = (0.5, 0.9, 0.99)
"""Confidences at which `error` is checked."""
RUNS: Final = 3
"""The power k at which m ** k is checked."""
SEEDS: Final = {"seed", "rng", "prng", "random_state", "random_seed", "generator", "np_random"}
MOST_REPLAYS: Final = 2000
SMALL: Final = 1e-5
"""The δ at which ε is reported if the curve has no finite ε at δ = 0."""
LISTED: Final = 1000
"""The largest noise scale times dimension for which the output distribution is enumerated, in half a second."""
WIDEST: Final = 10**6
"""The largest integer at which a distribution is evaluated."""


def check_mechanism(
    mechanism: Any,
    neighbours: tuple[Any, Any],
    *,
    law: Laws | None = None,
    distance: Callable[[Any, Any], float] | None = None,
    trials: int = 10_000,
    confidence: float = 1 - statistics.FALSE_ALARM,
) -> Report:
    """Search for evidence that a mechanism breaks its promise. Each check blames a correct mechanism with probability
    at most 1 - confidence. A report without failures does not prove that the promise is kept.

    `mechanism` has `release(value)` and `curve`, and may have `error(confidence=)` and `law(value)`. `neighbours` are
    two values that its curve covers, ideally the two that are hardest to protect. `law(value)` is the intended
    distribution of `release`: a dict of probabilities by outcome, or a function on the integers.
    `distance(value, answer)` is what `error` bounds, by default |answer − value|.

    Failures are in the report; `report.raise_for_failures()` raises them.

    >>> from deniable import mechanisms, testing
    >>> noisy = mechanisms.Laplace(sensitivity=1, epsilon=1)
    >>> testing.check_mechanism(noisy, neighbours=(0, 1))["privacy"].passed
    True
    >>> testing.check_mechanism(noisy, neighbours=(0, 2))["privacy"].passed  # not a sensitivity of 1
    False
    """
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:
        raise InvalidParameter("neighbours", NOTHING, "must be two values that the curve covers")
    count = curve_arguments.integer("trials", trials, 100)
    miss = 1 - curve_arguments.inner_probability("confidence", confidence)
    return Report(_shown(mechanism), tuple(_checks(mechanism, tuple(neighbours), law, distance, count, miss)))


def _checks(
    mechanism: Any, neighbours: tuple[Any, Any], law: Laws | None, distance: Any, trials: int, miss: float
) -> Iterator[Check]:
    before = _shown(mechanism)
    laws = _laws(mechanism, law, neighbours)
    if missing := _missing(mechanism):
        yield Check("release", False, missing)
        return
    try:
        left, right = ([mechanism.release(value) for _ in range(trials)] for value in neighbours)
    except Exception as refused:  # a user's mechanism may raise any error; its type is reported
        yield Check("release", False, f"release(value) raised {type(refused).__name__} on a neighbour")
        return
    curve = mechanism.curve
    case = _Case(mechanism, curve, neighbours, (left, right), laws, miss)
    yield Check("release", True, f"{trials:,} releases on each neighbour")
    yield _law(case)
    yield _support(case)
    yield _privacy(case)
    yield _error(case, distance)
    yield _power(case)
    yield _copies(case)
    yield _echo(case)
    yield _nan(case)
    same = before == _shown(mechanism) and "<unprintable" not in before
    words = "is the same before and after releases" if same else "changed after releases, or raised an error"
    yield Check("repr", same, words)
    yield _seed(case)


def _missing(mechanism: Any) -> str:
    """What a mechanism lacks, checked before the first release; "" if nothing is missing."""
    if not callable(getattr(mechanism, "release", None)):
        remedy = (
            "; a local protocol is checked as testing.OnePerson(protocol)" if hasattr(mechanism, "randomize") else ""
        )
        return f"the method release(value) is missing{remedy}"
    try:
        curve = mechanism.curve
    except AttributeError:
        return "the attribute curve is missing; make a curve with deniable.curves"
    except Exception as refused:  # a user's property may raise any error, which is reported
        return f"curve raised {type(refused).__name__}"
    if isinstance(curve, Curve):
        return ""
    remedy = "; make it a property" if callable(curve) else ""
    return f"curve must be a deniable.curves.Curve, but is a {type(curve).__name__}{remedy}"


@final
@dataclass(frozen=True, slots=True)
class _Case:
    mechanism: Any
    curve: Curve
    neighbours: tuple[Any, Any]
    samples: tuple[list[Any], list[Any]]
    laws: tuple[Law, Law] | None
    miss: float

    @property
    def trials(self) -> int:
        return len(self.samples[0])


# -- laws ------------------------------------------------------------------------------------------------------------


def _laws(mechanism: Any, law: Laws | None, neighbours: tuple[Any, Any]) -> tuple[Law, Law] | None:
    given = law if law is not None else own_law(mechanism)
    if given is None:
        return None
    if not callable(given):
        rule = "must be a function that maps a value to the probability of each outcome"
        raise InvalidParameter("law", NOTHING, rule, "write law=lambda value: {0: 0.5, 1: 0.5}")
    left, right = (given(value) for value in neighbours)
    if callable(left) and callable(right):
        # Evaluate both at the same integers, so that neither seems to have outcomes that the other lacks.
        reach = max(_reach(left), _reach(right))
        left, right = ({y: pmf(y) for y in range(-reach, reach + 1)} for pmf in (left, right))
    return _listed(left, 0), _listed(right, 1)


def _listed(law: Any, which: int) -> Law:
    """A distribution as a dict whose probabilities add up to one, or slightly less if it was truncated."""
    found = {plain(y): float(p) for y, p in law.items()} if isinstance(law, Mapping) else {}
    if not all(p >= 0 for p in found.values()) or abs(math.fsum(found.values()) - 1) > 1e-6:
        rule = f"for neighbour {which} the probabilities must be at least 0 and add up to 1"
        raise InvalidDistribution("law", NOTHING, rule)
    return found


def _reach(pmf: Callable[[int], float]) -> int:
    """The distance from 0 within which almost all mass lies."""
    mass, reach = float(pmf(0)), 0
    while mass < 1 - statistics.UNSURE / 10 and reach < WIDEST:
        reach += 1
        mass += float(pmf(reach)) + float(pmf(-reach))
    return reach


def _against(law: Law, answers: Sequence[Any]) -> float:
    """The p-value of answers under a distribution: twice the smaller p-value of two tests (inside, and outside)."""
    seen = Counter(map(plain, answers))
    inside = [seen[y] for y in law]
    outside = len(answers) - sum(inside)
    left = max(0.0, 1 - math.fsum(law.values()))
    elsewhere = statistics.at_least(outside, len(answers), probability=min(1.0, left + statistics.UNSURE))
    total = math.fsum(law.values())
    matched = statistics.chi_square(inside, [p / total for p in law.values()]) if sum(inside) else 1.0
    return min(1.0, 2 * min(elsewhere, matched))


def _law(case: _Case) -> Check:
    if case.laws is None:
        return Check("law", None, "no law was given")
    least = min(1.0, 2 * min(_against(law, answers) for law, answers in zip(case.laws, case.samples, strict=True)))
    passed = least > case.miss
    words = "releases follow the law" if passed else "releases do not follow the law"
    return Check("law", passed, f"{words}: p-value {least:.2g}")


# -- privacy ---------------------------------------------------------------------------------------------------------


def _support(case: _Case) -> Check:
    if case.laws is not None:
        p, q = case.laws
        # A truncated distribution has more outcomes, which are unknown.
        cut = 2 * max(0.0, *(1 - math.fsum(law.values()) for law in (p, q)))
        allowed = float(case.curve.delta(epsilon=math.inf)) + cut + statistics.UNSURE
        alone = max(math.fsum(m for y, m in one.items() if not other.get(y)) for one, other in ((p, q), (q, p)))
        if alone > allowed:
            words = f"by the law, outcomes of probability {alone:.3g} are possible for one neighbour only"
            return Check("support", False, words)
    found = evidence.strongest(
        evidence.one_sided, *case.samples, evidence.promise_of(case.curve, case.trials), case.miss
    )
    if found.broken:
        return Check("support", False, f"by the kinds of answers, {found.words} for the other")
    return Check("support", True, "no kind of answer was proved to belong to one neighbour only")


def _privacy(case: _Case) -> Check:
    promise = evidence.promise_of(case.curve, case.trials)
    if case.laws is not None:
        p, q = case.laws
        for one, other in ((p, q), (q, p)):
            a, b = (np.array([law.get(y, 0.0) for y in p.keys() | q.keys()]) for law in (one, other))
            real = np.array([np.maximum(0.0, a - math.exp(e) * b).sum() for e in promise.epsilons])
            cut = max(0.0, 1 - math.fsum(other.values())) * np.exp(promise.epsilons)
            if np.any(real > promise.deltas * (1 + 1e-9) + cut + statistics.UNSURE):
                worst = int(np.argmax(real - promise.deltas))
                words = f"by the law, δ({promise.epsilons[worst]:.3g}) = {real[worst]:.4g}"
                return Check("privacy", False, f"{words}; the curve says {promise.deltas[worst]:.4g}")
    true = _true_deltas(case, promise)
    if np.any(true > promise.deltas * (1 + 1e-9) + statistics.UNSURE):
        worst = int(np.argmax(true / np.maximum(promise.deltas, statistics.UNSURE)))
        words = f"computed from its definition, δ({promise.epsilons[worst]:.3g}) = {true[worst]:.4g}"
        return Check("privacy", False, f"{words}; the curve says {promise.deltas[worst]:.4g}")
    found = evidence.strongest(evidence.telling, *case.samples, promise, case.miss)
    if found.broken:
        return Check("privacy", False, f"{found.words} for the other, which the curve rules out")
    delta = 0.0 if math.isfinite(case.curve.epsilon(delta=0.0)) else SMALL
    measured, claimed = found.epsilon(delta), float(case.curve.epsilon(delta=delta))
    if case.laws is None and not found.seen:
        words = (
            f"nothing seen: {case.trials:,} releases on each neighbour prove no difference between them, which is not "
        )
        remedy = f"evidence for ε = {claimed:.3f}; take more trials or other neighbours, or give law="
        return Check("privacy", None, words + remedy, unseen=True)
    return Check(
        "privacy", True, f"measured ε of at least {measured:.3f} at δ = {delta:g}; the curve says {claimed:.3f}"
    )


def _true_deltas(case: _Case, promise: Promise) -> Any:
    """Lower bounds on δ for these neighbours, for integer noise of a small scale, from `audit.exact`; 0 otherwise.

    Noise for a slightly too small sensitivity violates a δ of 1e-5 in about that share of releases, so sampling would
    need very many releases to detect it.
    """
    noisy = case.mechanism
    if isinstance(noisy, Additive) and noisy.exponent is None and noisy.width * (noisy.dimension or 1) <= LISTED:
        return np.asarray(exact(noisy, neighbours=case.neighbours).delta_bounds(epsilon=promise.epsilons)[0])
    return np.zeros(len(promise.epsilons))


# -- error -----------------------------------------------------------------------------------------------------------


def _error(case: _Case, distance: Callable[[Any, Any], float] | None) -> Check:
    try:
        reaches = {c: float(case.mechanism.error(confidence=c)) for c in COVERED}
    except (AttributeError, TypeError, InvalidOperation, InvalidParameter):
        return Check("error", None, "the mechanism has no method error(confidence=)")
    how = _far if distance is None else distance
    worst, at = 1.0, COVERED[0]
    for value, answers in zip(case.neighbours, case.samples, strict=True):
        try:
            far = np.array([how(value, answer) for answer in answers], dtype=float)
        except (TypeError, ValueError):
            return Check("error", None, "answers cannot be subtracted from the value: give distance=")
        for confidence, reach in reaches.items():
            chance = statistics.at_most(int((far <= reach).sum()), len(far), probability=confidence)
            if chance < worst:
                worst, at = chance, confidence
    bound = min(1.0, 2 * len(COVERED) * worst)
    if bound <= case.miss:
        return Check("error", False, f"error(confidence={at}) is exceeded too often: p-value {bound:.2g}")
    return Check("error", True, f"holds at confidence {', '.join(map(str, COVERED))}")


def _far(value: Any, answer: Any) -> float:
    truth, given = numbers_of(value), numbers_of(answer)
    if truth is None or given is None or np.shape(value) != np.shape(answer):
        raise TypeError
    return float(np.abs(given - truth).max())


# -- composition -----------------------------------------------------------------------------------------------------


def _power(case: _Case) -> Check:
    try:
        runs = case.mechanism**RUNS
    except TypeError:
        return Check("power", None, "the mechanism does not support **")
    if runs.curve != case.curve**RUNS:
        return Check("power", False, f"(m ** {RUNS}).curve is not m.curve ** {RUNS}")
    draws, value = max(100, case.trials // 4), case.neighbours[0]
    answers = [_grouped(case.mechanism, runs.release(value)) for _ in range(draws)]
    if any(not isinstance(answer, tuple) or len(answer) != RUNS for answer in answers):
        return Check("power", False, f"a release of m ** {RUNS} must be a tuple of {RUNS} answers")
    single, nothing, share = case.samples[0], Promise.nothing(), case.miss / (RUNS + 1)
    for place in range(RUNS):
        column = [answer[place] for answer in answers]
        is_same = (
            _against(case.laws[0], column) > share
            if case.laws is not None
            else not evidence.strongest(evidence.telling, column, single, nothing, share).broken
        )
        if not is_same:
            return Check("power", False, f"answer {place} of m ** {RUNS} does not have the law of one answer")
    # Repeated answers each have the right distribution, but are not independent.
    repeats = sum(plain(answer[0]) == plain(answer[1]) for answer in answers)
    alone = sum(plain(y) == plain(z) for y, z in zip(single[::2], single[1::2], strict=False))
    if evidence.certified(repeats, draws, alone, len(single) // 2, nothing, share / 2).broken:
        return Check("power", False, f"the answers of m ** {RUNS} repeat each other")
    return Check("power", True, f"m ** {RUNS} has the curve m.curve ** {RUNS} and {RUNS} answers like one")


def _grouped(mechanism: Any, answers: Any) -> Any:
    """The answers of (m * n) ** k, which come as one tuple, in k groups."""
    if not isinstance(mechanism, Composed):
        return answers
    size = len(mechanism)
    return tuple(answers[i : i + size] for i in range(0, len(answers), size))


def _copies(case: _Case) -> Check:
    ways: dict[str, Callable[[Any], Any]] = {"copy": copy.copy, "deepcopy": copy.deepcopy}
    kind = type(case.mechanism)
    is_comparable = any("__eq__" in vars(one) for one in kind.__mro__[:-1])  # otherwise nothing is equal to its copy
    if is_importable := getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        ways["pickle"] = lambda m: pickle.loads(pickle.dumps(m))
    for name, way in ways.items():
        try:
            other = way(case.mechanism)
        except Exception as refused:  # a user's copy methods may raise any error
            return Check("copies", False, f"{name} raised {type(refused).__name__}")
        if (is_comparable and other != case.mechanism) or other.curve != case.curve:
            return Check("copies", False, f"{name} gives a mechanism that is not equal, or has another curve")
    unpickled = "" if is_importable else " (not pickled: the class is not found in its module)"
    if not is_comparable:
        words = f"{' and '.join(ways)} keep the curve{unpickled}; equality is not checked: the class has no __eq__"
        return Check("copies", None, words)
    return Check("copies", True, f"{' and '.join(ways)} give an equal mechanism with the same curve{unpickled}")


# -- leaks -----------------------------------------------------------------------------------------------------------


def _echo(case: _Case) -> Check:
    promise = evidence.promise_of(case.curve, case.trials)
    for here, there in ((0, 1), (1, 0)):
        value = plain(case.neighbours[here])
        hits, others = (sum(plain(y) == value for y in case.samples[i]) for i in (here, there))
        if case.laws is not None:
            allowed = min(1.0, case.laws[here].get(value, 0.0) + statistics.UNSURE)
            is_echo = 2 * statistics.at_least(hits, case.trials, probability=allowed) <= case.miss
        else:
            is_echo = evidence.certified(hits, case.trials, others, case.trials, promise, case.miss / 4).broken
        if is_echo:
            return Check("echo", False, "the exact value is released more often than the promise allows")
    return Check("echo", True, "the exact value is released no more often than the promise allows")


def _nan(case: _Case) -> Check:
    value = case.neighbours[0]
    if isinstance(value, float | np.floating):
        asked: Any = math.nan
    elif (row := numbers_of(value)) is not None and np.asarray(value).dtype.kind == "f" and len(row):
        asked = np.where(np.arange(len(row)) == 0, math.nan, row).reshape(np.shape(value))
    else:
        return Check("nan", None, "the values are not floats")
    try:
        answer = case.mechanism.release(asked)
    except (ValueError, TypeError):
        return Check("nan", True, "NaN is refused")
    except Exception as failed:  # any other type of error is reported
        return Check("nan", False, f"NaN must be refused by a ValueError or answered, not by {type(failed).__name__}")
    row = numbers_of(answer)
    if row is not None and bool(np.isnan(row).any()):
        return Check("nan", False, "NaN is released, which reveals that NaN was in the data")
    return Check("nan", True, "NaN is answered by a number")


def _seed(case: _Case) -> Check:
    kind = type(case.mechanism)
    calls = {name: call for name in dir(kind) if not _is_private(name) and callable(call := getattr(kind, name, None))}
    for name, call in {"__init__": kind.__init__, **calls}.items():
        if bad := SEEDS & set(_parameters(call)):
            return Check(
                "seed", False, f"{name} takes {', '.join(sorted(bad))}: noise that can be chosen hides nothing"
            )
    if bad := SEEDS & {name for name in dir(case.mechanism) if not _is_private(name)}:
        return Check(
            "seed", False, f"it has the attribute {', '.join(sorted(bad))}: noise that can be chosen hides nothing"
        )
    if "entropy" in _parameters(kind.release) and not _warns(case):
        return Check("seed", False, "replayable entropy must warn: deniable.errors.NotPrivateWarning")
    if _replays(case):
        return Check("seed", False, "random.seed or numpy.random.seed determines the answers")
    return Check("seed", True, "no way to choose the noise was found")


def _is_private(name: str) -> bool:
    return name.startswith("_")


def _parameters(call: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(call).parameters)
    except (TypeError, ValueError):  # a built-in without a signature
        return ()


def _warns(case: _Case) -> bool:
    from deniable.noise import ReplayEntropy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        case.mechanism.release(case.neighbours[0], entropy=ReplayEntropy(0))
    return any(issubclass(w.category, NotPrivateWarning) for w in caught)


def _replays(case: _Case) -> bool:
    """Whether the global generators of random and numpy determine the answers. Enough answers are compared that
    independent ones would all agree with probability at most `miss`.
    """
    sample = case.samples[0]
    pairs = len(sample) // 2
    agree = sum(plain(y) == plain(z) for y, z in zip(sample[::2], sample[1::2], strict=False))
    chance = statistics.upper_bound(agree, pairs, miss=case.miss / 2)
    needed = math.ceil(math.log(case.miss / 2) / math.log(chance)) if chance < 1 else MOST_REPLAYS + 1
    if needed > MOST_REPLAYS:
        return False
    states = random.getstate(), np.random.get_state()
    try:
        runs = []
        for _ in range(2):
            random.seed(0)
            np.random.seed(0)
            runs.append([plain(case.mechanism.release(case.neighbours[0])) for _ in range(needed)])
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return runs[0] == runs[1]


def _shown(mechanism: Any) -> str:
    try:
        return repr(mechanism)
    except Exception:  # a user's repr may raise any error, which must not stop the report
        return f"<unprintable {type(mechanism).__name__}>"


# -- the local model -------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class OnePerson(Mechanism):
    """A local protocol as a mechanism: the value is one person's answer, and the release is their report.

    For all pairs of answers, the reports are as hard to distinguish as the protocol's curve states.

    >>> from deniable import local, testing
    >>> person = testing.OnePerson(local.RandomizedResponse(epsilon=1.0))
    >>> person.release(True) in (True, False)
    True
    """

    protocol: Protocol

    @property
    def curve(self) -> Curve:
        return self.protocol.curve

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        return self.protocol.randomize(value, entropy=entropy)
