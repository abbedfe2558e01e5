"""A mechanism: a function that carries a curve. Running two mechanisms multiplies their curves.

::

    Mechanism            release(value), curve, error(confidence=)
    ├── Composed         m * n, m ** k               a tuple of answers about one value
    ├── Adaptive         m.followed_by(choose, ...)  the next mechanism is chosen after seeing the answers so far
    ├── Parallel         disjoint parts of the data, one mechanism each
    ├── Processed        m.then(function)            post-processing of an answer, which costs nothing
    └── Asked            m.on(statistic)             the statistic is computed first

All mechanisms of this room derive from `Mechanism`. A mechanism checks its parameters once, in its constructor;
`release` checks only the value. An error about a value names the public rule that it broke, never the value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, islice
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable import curves
from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, type_of
from deniable.numbers import up
from deniable.units import Relation, Unit

if TYPE_CHECKING:
    from deniable.mechanisms.distinguishing_parts import Told
    from deniable.mechanisms.laws import OutputLaw
    from deniable.noise import Entropy

MOST_PARTS: Final = 10**7
"""Most answers of one release: a larger tuple would not fit into memory beside the data."""

MOST_MIXES: Final = 64
"""Most different selections of parts whose worst curve is computed; beyond it all parts are multiplied, which is never
smaller.
"""


MOST_ANSWERS: Final = 10**5
"""Most answers that are listed before an adaptive choice, for `told_apart`."""


class Mechanism(ABC):
    """One release: for all neighbours D, D′ the two distributions of the answer are at most as distinguishable as
    `curve` says.

    A subclass is final, takes keyword-only parameters, and implements `curve` and `release`, and `error` and `law`
    where they exist. Every `release` validates its value. If the value breaks a public rule, `release` raises
    InvalidParameter, and the error does not contain the value.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """The privacy guarantee of one call of `release`."""

    @abstractmethod
    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        """One noisy answer. `entropy` is for tests: a replayable one issues a NotPrivateWarning."""

    def error(self, *, confidence: float) -> float:
        """A bound on the error of every number of the answer that holds with probability at least `confidence`, 0 <
        confidence < 1. Raises InvalidOperation if the answer is not numeric.
        """
        raise InvalidOperation(
            f"no bound is known on the error of {type(self).__name__}; release made-up values to see how large it is"
        )

    def law(self, value: Any) -> OutputLaw:
        """The distribution of the answer on this value, for planning and teaching. It is not a release: never show it
        for private data. Raises InvalidOperation if the answer has no distribution of numbers.
        """
        raise InvalidOperation(
            f"an answer of {type(self).__name__} does not have a single distribution of numbers; "
            "look at one part of it, or at what an attacker can do with it: plots.tradeoff(mechanism.curve)"
        )

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The independent parts of an answer whose distributions differ between two values, each with both
        distributions: for teaching, as `law`. `plots.laws` draws them.
        """
        from deniable.mechanisms.distinguishing_parts import AnswerPart

        return [AnswerPart(self.law(x), self.law(x2), is_answer=True)]

    def efficiency(self) -> float:
        """The error of the best possible mechanism with this guarantee, divided by the error of this one, rounded down:
        1 is optimal. Raises InvalidOperation if no lower bound on the error is known.
        """
        raise InvalidOperation(f"no lower bound is known that {type(self).__name__} could be compared with")

    def _settle(self, **fields: Any) -> None:
        """Set the fields of a frozen mechanism, in its constructor."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def then(self, function: Callable[[Any], Any]) -> Mechanism:
        """Post-processing by `function`, which sees only the answer: the curve is unchanged."""
        return Processed(self, _callable("function", function))

    def on(self, statistic: Callable[[Any], Any]) -> Mechanism:
        """The mechanism applied to `statistic(data)`. The caller guarantees that the statistic has the mechanism's
        sensitivity.
        """
        return Asked(self, _callable("statistic", statistic))

    def followed_by(self, choose: Callable[[Any], Mechanism], *, curve: Curve) -> Adaptive:
        """An adaptive sequence: `choose(answers)` returns the next mechanism, given the answers so far.

        Its cost is fixed in advance: whatever is chosen must have the guarantee `curve` or a stronger one. So give a
        curve that many mechanisms fit into: `curves.pure(epsilon=)`, `curves.gaussian(mu=)`, `curves.zcdp(rho=)`,
        `curves.worst_of()`.
        """
        return Adaptive(self, _callable("choose", choose), curve)

    def __mul__(self, other: object) -> Composed:
        """Both mechanisms answer about the same value. (m * n).curve == m.curve * n.curve."""
        if not isinstance(other, Mechanism):
            what = "a number; to run it k times write m ** k" if isinstance(other, int | float) else "something else"
            raise InvalidOperation(f"a mechanism can be multiplied by a mechanism, not by {what}")
        return Composed(_runs(self) + _runs(other))

    def __pow__(self, count: int) -> Composed:
        """`count` independent answers about the same value. (m ** k).curve == m.curve ** k."""
        times = curve_arguments.integer("power", count, 0)
        runs = _runs(self)
        if times == 0 or len(runs) == 1:
            return Composed(tuple((m, n * times) for m, n in runs if times))
        if len(runs) * times > MOST_PARTS:
            raise InvalidParameter("power", times, f"a release may have at most {MOST_PARTS:,} answers")
        return Composed(runs * times)


def unit_of(*mechanisms: Mechanism) -> Unit | None:
    """The unit that all of these guarantees are about; None if no mechanism has one. Raises InvalidOperation for two
    different units.

    A curve is about the neighbours of its unit. A product of curves about different neighbours would not be a
    guarantee.
    """
    units = dict.fromkeys(unit for one in mechanisms if (unit := getattr(one, "unit", None)) is not None)
    if len(units) > 1:
        listed = " and ".join(map(repr, units))
        raise InvalidOperation(
            f"mechanisms for different units do not compose: {listed}; make all of them for one unit"
        )
    return next(iter(units), None)


def check_unit(unit: Any) -> None:
    """Raise InvalidParameter unless this is a Unit."""
    if not isinstance(unit, Unit):
        raise InvalidParameter("unit", unit, "must be a Unit", "write Unit.row() or Unit.replaced_row()")


def _runs(mechanism: Mechanism) -> tuple[tuple[Mechanism, int], ...]:
    return mechanism.runs if isinstance(mechanism, Composed) else ((mechanism, 1),)


def _callable(name: str, function: Any) -> Any:
    if not callable(function):
        raise InvalidParameter(name, function, "must be a function of one argument")
    return function


@final
@dataclass(frozen=True, slots=True)
class Composed(Mechanism):
    """Several mechanisms about one value, their answers in a tuple. Created by `m * n` and `m ** k`.

    For all neighbours D, D′: the tuple is at most as distinguishable as the product of the curves says (Dwork & Roth
    2014, section 3.5; for trade-off functions Dong, Roth & Su 2022, Theorem 3.2).

    >>> from deniable import mechanisms
    >>> noisy = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.5)
    >>> (noisy * noisy).curve == noisy.curve**2
    True
    """

    runs: tuple[tuple[Mechanism, int], ...]
    """The mechanisms in order, each with its number of consecutive answers."""

    def __post_init__(self) -> None:
        joined: list[tuple[Mechanism, int]] = []
        for mechanism, count in self.runs:
            if joined and joined[-1][0] == mechanism:
                joined[-1] = (mechanism, joined[-1][1] + count)
            else:
                joined.append((mechanism, count))
        object.__setattr__(self, "runs", tuple(joined))
        unit_of(*(mechanism for mechanism, _ in joined))
        if len(self) > MOST_PARTS:
            raise InvalidParameter("power", len(self), f"a release may hold at most {MOST_PARTS:,} answers")

    def __len__(self) -> int:
        return sum(count for _, count in self.runs)

    @property
    def unit(self) -> Unit | None:
        """The common unit; None if no mechanism has one."""
        return unit_of(*(mechanism for mechanism, _ in self.runs))

    @property
    def parts(self) -> tuple[Mechanism, ...]:
        """The mechanisms one by one, in the order of their answers."""
        return tuple(mechanism for mechanism, count in self.runs for _ in range(count))

    @property
    def curve(self) -> Curve:
        return curves.product(mechanism.curve**count for mechanism, count in self.runs)

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[Any, ...]:
        return tuple(mechanism.release(value, entropy=entropy) for mechanism, count in self.runs for _ in range(count))

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The differing parts of all mechanisms."""
        from deniable.mechanisms.distinguishing_parts import NOTHING_TOLD, differing, repeated

        every = (part for one, count in self.runs for part in repeated(one.told_apart(x, x2), count))
        return differing(every) or [NOTHING_TOLD]

    def error(self, *, confidence: float) -> float:
        """A bound for all answers at once: the largest of the parts' errors, each at confidence 1 - (1 -
        confidence)/parts.
        """
        if not self.runs:
            return 0.0
        each = _share(confidence, len(self))
        return max(mechanism.error(confidence=each) for mechanism, _ in self.runs)


def _share(confidence: float, parts: int) -> float:
    """The confidence that each of `parts` answers needs so that all hold at once (union bound), rounded up."""
    wanted = curve_arguments.inner_probability("confidence", confidence)
    if parts == 1:
        return wanted
    each = up(1 - (1 - Fraction(wanted)) / parts)
    if each >= 1:
        raise InvalidParameter("confidence", confidence, f"is too near to 1 for {parts:,} answers at once")
    return each


@final
@dataclass(frozen=True, slots=True)
class Adaptive(Mechanism):
    """A mechanism, then one that is chosen after seeing its answer. Created by `m.followed_by(choose, curve=)`.

    For all neighbours D, D′: the answers together are at most as distinguishable as first.curve * curve says, because
    for every first answer the second mechanism has the guarantee `curve` or a stronger one (Dong, Roth & Su 2022,
    Theorem 3.2). If a weaker mechanism is chosen, `release` raises InvalidOperation and returns no answer.

    >>> from deniable import curves, mechanisms
    >>> first = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.3)
    >>> finer = mechanisms.DiscreteLaplace(sensitivity=1, epsilon=0.7)
    >>> both = first.followed_by(lambda answers: finer if answers[0] > 10 else first, curve=curves.pure(epsilon=0.7))
    >>> round(both.curve.epsilon(delta=0), 6)
    1.0
    """

    first: Mechanism
    choose: Callable[[Any], Mechanism]
    allowed: Curve

    def __post_init__(self) -> None:
        if not isinstance(self.allowed, Curve):
            raise InvalidParameter("curve", self.allowed, "must be a curve", "deniable.curves makes them")

    @property
    def unit(self) -> Unit | None:
        """The unit of the first mechanism; the chosen one must have the same."""
        return unit_of(self.first)

    @property
    def curve(self) -> Curve:
        return self.first.curve * self.allowed

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[Any, ...]:
        """The answers so far, and the new one last. `choose` receives the tuple of answers so far."""
        so_far = self.first.release(value, entropy=entropy)
        answers = so_far if isinstance(self.first, Composed | Adaptive) else (so_far,)
        return (*answers, self.chosen(answers).release(value, entropy=entropy))

    def chosen(self, answers: tuple[Any, ...]) -> Mechanism:
        """The mechanism chosen after these answers. Raises InvalidOperation if its guarantee is weaker
        than declared.
        """
        from deniable.curves.meaning.blackwell_order import fits

        chosen = self.choose(answers)
        if not isinstance(chosen, Mechanism):
            raise InvalidParameter("choose", type_of(chosen), "must return a mechanism")
        unit_of(self.first, chosen)
        if not fits(chosen.curve, self.allowed):
            # The refusal depends on the answers and on public parameters only: it is post-processing.
            raise InvalidOperation(
                "the chosen mechanism is not known to have the declared guarantee; choose more noise, or "
                "declare a larger curve"
            )
        return chosen

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The privacy losses of both answers, the second for every first one. Real-valued answers are divided into
        cells.
        """
        from deniable.mechanisms.distinguishing_parts import Losses, all_losses

        one, two = [], []
        for answers, p, q in _all_answers(self.first, x, x2):
            then = all_losses(self.chosen(answers).told_apart(x, x2))
            one.append(p * then.one)
            two.append(q * then.two)
        return [Losses.of(np.concatenate(one), np.concatenate(two))]


Answers = list[tuple[tuple[Any, ...], float, float]]
"""Tuples of answers, and their probabilities on two values."""


def _all_answers(mechanism: Mechanism, x: Any, x2: Any) -> Answers:
    """All answers before the choice, with their probabilities."""
    found: Answers = [((), 1.0, 1.0)]
    if isinstance(mechanism, Adaptive):
        for answers, p, q in (before := _all_answers(mechanism.first, x, x2)):
            found += _and_then([(answers, p, q)], mechanism.chosen(answers), x, x2)
        return _few(found[1:], len(before))
    for part, count in _runs(mechanism):
        for _ in range(count):
            found = _few(_and_then(found, part, x, x2), len(found))
    return found


def _and_then(before: Answers, mechanism: Mechanism, x: Any, x2: Any) -> Answers:
    """Answers extended by one more. Those with probability below 10⁻¹⁵ on both values are dropped."""
    from deniable.mechanisms.distinguishing_parts import listed, the_answer

    if (part := the_answer(mechanism.told_apart(x, x2))) is None:
        raise InvalidOperation(
            "the first answer has several numbers, so the law of what follows it cannot be listed; use a first "
            "mechanism whose answer is one number, or look at plots.tradeoff(mechanism.curve)"
        )
    further = list(zip(*listed(part), strict=True))
    return [((*so, y), p * a, q * b) for so, p, q in before for y, a, b in further if max(p * a, q * b) > 1e-15]


def _few(found: Answers, before: int) -> Answers:
    if len(found) > MOST_ANSWERS and before > 1:
        raise InvalidOperation(
            f"more than {MOST_ANSWERS:,} answers can come before the last one: too many to list; choose "
            "after fewer, or look at plots.tradeoff(mechanism.curve)"
        )
    return found


@final
@dataclass(frozen=True, slots=True)
class Parallel(Mechanism):
    """One mechanism for each of several disjoint parts of the data: wards, years, blocks of rows.

    For all neighbours D, D′ by `unit`, only the parts that one unit touches differ, so the curve is the worst product
    over all selections of that many parts. The number of touched parts depends on what assigns rows to parts:

    `Parallel.by_value(parts, unit=)`: the content of a row determines its part. A unit that is added or removed touches
    as many parts as it has rows. A replaced row may leave one part and enter another, so it touches two: two curves
    multiply.

    `Parallel.by_unit(parts, unit=)`: the identity of a unit determines its part, whatever its rows contain. Added or
    removed: by the person's id, or by a key of the row's own; one part is touched. (Not by row number: one row more or
    less shifts all later rows, and so moves them to other parts.) A replaced row: by row number; one part is touched. A
    replaced person: by id; the new person has another id, so two parts are touched and multiply.

    Each part's sensitivity must hold for everything that can happen to one unit inside the part: under replacement by
    value this includes one row added or removed. A part built for a different unit raises InvalidParameter.

    >>> from deniable import Unit, mechanisms
    >>> wards = [mechanisms.DiscreteLaplace(sensitivity=1, epsilon=e) for e in (0.3, 0.7)]
    >>> round(mechanisms.Parallel.by_value(wards, unit=Unit.row()).curve.epsilon(delta=0), 6)
    0.7
    >>> round(mechanisms.Parallel.by_value(wards, unit=Unit.replaced_row()).curve.epsilon(delta=0), 6)
    1.0
    """

    parts: tuple[Mechanism, ...]
    touched: int
    """The largest number of parts that differ between neighbours."""
    mixed: bool
    """Whether a neighbour may have more rows in one part and fewer in another."""
    unit: Unit

    @classmethod
    def by_value(cls, parts: Sequence[Mechanism], *, unit: Unit) -> Parallel:
        """Parts determined by the content of rows, one mechanism for each; `unit` says what neighbours differ by.
        Raises InvalidParameter for a part that was built for another unit.
        """
        checked = _parts(parts, unit)
        if unit.relation is Relation.REPLACE:
            _stand_moves(checked)
        return cls(checked, min(len(checked), unit.row_changes), unit.relation is Relation.REPLACE, unit)

    @classmethod
    def by_unit(cls, parts: Sequence[Mechanism], *, unit: Unit) -> Parallel:
        """Parts determined by the identity of the unit, not by its content: by id, or, for replaced rows, by row
        number.
        """
        checked = _parts(parts, unit)
        if unit.relation is Relation.REPLACE and unit.column is not None:
            _stand_moves(checked)
            return cls(checked, min(len(checked), 2), True, unit)
        return cls(checked, 1, False, unit)

    @property
    def curve(self) -> Curve:
        every = [part.curve.symmetrized() if self.mixed else part.curve for part in self.parts]
        if self.touched == len(every):
            return curves.product(every)
        counts: dict[Curve, int] = {}
        for curve in every:
            counts[curve] = counts.get(curve, 0) + 1
        # For the curve, a selection of `touched` parts is a multiset of the different curves.
        mixes = (
            mix
            for mix in combinations_with_replacement(counts, self.touched)
            if all(mix.count(curve) <= counts[curve] for curve in set(mix))
        )
        selections = list(islice(mixes, MOST_MIXES + 1)) if len(counts) ** min(self.touched, 4) <= 10**6 else []
        if not 0 < len(selections) <= MOST_MIXES:
            return curves.product(every)
        return curves.worst_of(*(curves.product(mix) for mix in selections))

    def release(self, value: Any, *, entropy: Entropy | None = None) -> tuple[Any, ...]:
        """One answer per part. `value` contains one value for each part, in their order."""
        self._check_parts(value)
        return tuple(part.release(one, entropy=entropy) for part, one in zip(self.parts, value, strict=True))

    def _check_parts(self, value: Any) -> None:
        is_table = isinstance(value, Mapping | str | bytes) or hasattr(type(value), "columns")
        if is_table or not hasattr(value, "__len__") or len(value) != len(self.parts):
            raise InvalidParameter(
                "value", NOTHING, f"must be a sequence of {len(self.parts)} values, one for each part"
            )

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The differing parts of all mechanisms, named by their number."""
        from deniable.mechanisms.distinguishing_parts import differing, named

        self._check_parts(x)
        self._check_parts(x2)
        each = enumerate(zip(self.parts, x, x2, strict=True), 1)
        return differing(told for i, (part, a, b) in each for told in named(part.told_apart(a, b), f"part {i}"))

    def error(self, *, confidence: float) -> float:
        """A bound for all parts at once: the largest of their errors, each at confidence 1 - (1 - confidence)/parts."""
        each = _share(confidence, len(self.parts))
        return max(part.error(confidence=each) for part in dict.fromkeys(self.parts))


def _stand_moves(parts: tuple[Mechanism, ...]) -> None:
    if any(getattr(part, "needs_its_rows", False) for part in parts):
        rule = "a replaced unit may move to another part, and these sensitivities hold only while all rows stay"
        raise InvalidParameter("parts", NOTHING, rule, "count with bounds around 0, or replaced rows by_unit")


def _parts(parts: Sequence[Mechanism], unit: Unit) -> tuple[Mechanism, ...]:
    check_unit(unit)
    if isinstance(parts, Mechanism) or not isinstance(parts, Sequence) or not parts:
        raise InvalidParameter("parts", NOTHING, "must be several mechanisms, in a list or tuple")
    if not all(isinstance(part, Mechanism) for part in parts):
        raise InvalidParameter("parts", NOTHING, "must be mechanisms only")
    common = unit_of(*parts)
    if common not in (None, unit):
        raise InvalidParameter("unit", unit, f"must be the unit of the parts, {common!r}")
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class _Around(Mechanism):
    """Base of mechanisms that wrap another one and keep its curve and unit."""

    mechanism: Mechanism

    @property
    def unit(self) -> Unit | None:
        """The unit of the wrapped mechanism, or None if that mechanism has no unit."""
        return unit_of(self.mechanism)

    @property
    def curve(self) -> Curve:
        return self.mechanism.curve


@final
@dataclass(frozen=True, slots=True)
class Processed(_Around):
    """A mechanism and the post-processing of its answer. Created by `m.then(function)`.

    For all neighbours D, D′: at most as distinguishable as before, because `function` sees only the answer
    (post-processing, Dwork & Roth 2014, proposition 2.1).
    """

    function: Callable[[Any], Any]

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        return self.function(self.mechanism.release(value, entropy=entropy))

    def law(self, value: Any) -> OutputLaw:
        """Masses on the values of the function. It is called for many answers, twice for each."""
        from deniable.mechanisms.distinguishing_parts import the_answer
        from deniable.mechanisms.laws import pushed

        law = self.mechanism.law(value)
        if the_answer(self.mechanism.told_apart(value, value)) is None:
            raise InvalidOperation(
                f"law() of {type(self.mechanism).__name__} is not the law of what release returns, to which then "
                "applies its function; take law() before then, or look at plots.laws(mechanism, x, x2)"
            )
        return pushed(law, self.function)

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The values of the function, if the answer is one part; otherwise the parts before post-processing, which
        reveal at least as much.
        """
        from deniable.mechanisms.distinguishing_parts import made_from, pushed_apart, the_answer

        found = self.mechanism.told_apart(x, x2)
        if (whole := the_answer(found)) is not None:
            return [pushed_apart(whole, self.function)]
        return made_from(found, "what it was before the last step (then)")


@final
@dataclass(frozen=True, slots=True)
class Asked(_Around):
    """A mechanism about a statistic of the data. Created by `m.on(statistic)`."""

    statistic: Callable[[Any], Any]

    def release(self, value: Any, *, entropy: Entropy | None = None) -> Any:
        return self.mechanism.release(self.statistic(value), entropy=entropy)

    def law(self, value: Any) -> OutputLaw:
        """The law of the wrapped mechanism on the statistic of this value."""
        return self.mechanism.law(self.statistic(value))

    def told_apart(self, x: Any, x2: Any) -> list[Told]:
        """The differing parts of the wrapped mechanism on the statistics of both values."""
        return self.mechanism.told_apart(self.statistic(x), self.statistic(x2))

    def error(self, *, confidence: float) -> float:
        return self.mechanism.error(confidence=confidence)

    def efficiency(self) -> float:
        return self.mechanism.efficiency()
