"""Scores: a number for each answer, large where the first neighbour is likelier. Learnt from a part of the answers.

No score can make an audit wrong: what it suggests is judged by answers that it has never seen. A bad score only finds
less.

    Column, Combined     a number of the answer, or a weighted sum of them (differences, logistic regression)
    Binned               log-likelihood ratio by bins of such a number; several columns: naive Bayes
    Outcomes             log-likelihood ratio of whole answers, or of their kinds (None, NaN, an exception)
    Digits               the place of the last binary digit
    Tree                 a small decision tree over all numbers
    Given                the user's own log-likelihood ratio
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answers import Answers, Floats, Ints, Raised, last_digits, look
from deniable.errors import NOTHING, InvalidParameter

BINS: Final = (12, 64)
"""Coarse bins see tails with few draws, fine ones see shapes."""
ALONE: Final = 8
"""Columns looked at by themselves; of more, those that differ most."""
PAIRED: Final = 4
"""Up to so many columns, all differences of two of them are looked at."""
DEPTH: Final = 5
LEAF: Final = 20
"""Fewest answers in a leaf of a tree."""
CUTS: Final = 24
"""Borders tried on one number in one node of a tree."""
RIDGE: Final = 1e-3
NO_NUMBER: Final = -1.7e308
"""Stands below all numbers."""
NAMED: Final = 3
"""Outcomes of an event that are told by name."""
NAMEABLE: Final = 1000
"""Of more outcomes than these nobody reads names."""


class Score(ABC):
    """A number for each answer."""

    __slots__ = ()
    learned: bool = True
    """Whether it was made from answers, which must then not choose between scores."""

    @abstractmethod
    def __call__(self, answers: Answers) -> Floats:
        """The scores; never NaN, but for the user's own."""

    def passes(self, answers: Answers) -> Any:
        """Where it says nothing about an answer, one by one; False: nowhere."""
        return False

    @property
    @abstractmethod
    def words(self) -> str:
        """What is looked at."""

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """The answers with a score of at least, or of at most, so much, in words."""
        return f"{self.words} is at {f'least {_said(least)}' if least is not None else f'most {_said(most or 0.0)}'}"

    @property
    def hint(self) -> str:
        """What to do about a leak that is found this way; empty where there is nothing to say."""
        return ""


def _said(border: float) -> str:
    """A border in words: no minus before 0, and infinite answers by their name."""
    if abs(border) >= np.finfo(np.float64).max:
        return "∞" if border > 0 else "-∞"
    return f"{border + 0.0:.6g}"


def learn(first: Answers, second: Answers) -> list[Score]:
    """Every score that these answers suggest."""
    found: list[Score] = []
    width = max(first.columns.shape[1], second.columns.shape[1])
    first, second = first.of_width(width), second.of_width(width)
    both = np.concatenate([first.columns, second.columns])
    varied = [j for j in range(both.shape[1]) if _varies(both[:, j])]
    names = _names([side.raw for side in (first, second) if len(side)], width)
    numbers: list[Combined] = [Combined.column(j, names[j]) for j in _telling(first, second, varied)]
    if len(varied) > 1:
        numbers += _sums(both, varied, names)
        numbers.append(_logistic(first, second, varied))
    for number in numbers:
        found += [number, number.negated()]
        on = _with_gaps(number, first), _with_gaps(number, second)
        found += [binned for bins in BINS if (binned := Binned.learn((number,), (on,), bins)) is not None]
    if len(varied) > 1:
        columns = tuple(Combined.column(j) for j in varied)
        every = tuple((_with_gaps(column, first), _with_gaps(column, second)) for column in columns)
        found += [binned for bins in BINS if (binned := Binned.learn(columns, every, bins)) is not None]
        found.append(Tree.learn(first, second))
    for name in ("keys", "kinds"):
        outcomes = Outcomes.learn(name, getattr(first, name), getattr(second, name))
        if outcomes is not None:
            found.append(outcomes.named(first, second))
    digits = last_digits(both)
    if np.unique(digits).size > 1:
        places = [last_digits(one.columns) for one in (first, second)]
        place = LAST_DIGIT if width == 1 else f"{LAST_DIGIT} of the finest of its numbers"
        found += [Digits(1.0, place), Digits(-1.0, place), DigitsRatio.learn(*places, name=place)]
    return found


def _names(sides: Sequence[Sequence[Any]], width: int) -> list[str]:
    """The numbers of an answer in words: by key, where every answer is a dict of single values with the same keys."""
    one: Any = sides[0][0] if sides else None
    # Of other people's types not even the names of keys can be read for sure.
    is_dict = type(one) is dict and len(one) >= width and all(isinstance(key, str | int) for key in one)
    if is_dict and all(type(y) is dict and y.keys() == one.keys() and _is_flat(y) for side in sides for y in side):
        return [f"the number at {look(key)}" for key in sorted(one, key=repr)]
    return ["the answer"] if width == 1 else [f"number {j + 1}" for j in range(width)]


def _is_flat(answer: dict[Any, Any]) -> bool:
    return not any(isinstance(value, Mapping | list | tuple | np.ndarray | complex) for value in answer.values())


def _varies(column: Floats) -> bool:
    finite = column[np.isfinite(column)]
    return bool(finite.size > 1 and finite.min() < finite.max())


def _telling(first: Answers, second: Answers, varied: list[int]) -> list[int]:
    """The columns whose laws differ most, by Kolmogorov's distance."""
    if len(varied) <= ALONE:
        return varied
    return sorted(varied, key=lambda j: -_distance(first.columns[:, j], second.columns[:, j]))[:ALONE]


def _distance(a: Floats, b: Floats) -> float:
    a, b = np.sort(np.nan_to_num(a)), np.sort(np.nan_to_num(b))
    at = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, at, "right") / len(a) - np.searchsorted(b, at, "right") / len(b)).max())


def _sums(both: Floats, varied: list[int], names: Sequence[str]) -> list[Combined]:
    width = both.shape[1]
    total = np.zeros(width)
    total[varied] = 1.0
    found = [Combined(tuple(total.tolist()), "the sum of the numbers")]
    for i in range(min(len(varied), PAIRED)):
        for j in range(i + 1, min(len(varied), PAIRED)):
            weights = np.zeros(width)
            weights[[varied[i], varied[j]]] = 1.0, -1.0
            found.append(Combined(tuple(weights.tolist()), f"{names[varied[i]]} minus {names[varied[j]]}"))
    return found


@final
@dataclass(frozen=True, slots=True)
class Combined(Score):
    """A weighted sum of the numbers, in which what is no number counts as 0. One number alone says nothing where it is
    none.
    """

    weights: tuple[float, ...]
    name: str
    learned = False
    sign: float = 1.0
    """-1: the sum turned round."""

    @classmethod
    def column(cls, place: int, name: str = "the answer") -> Combined:
        return cls((0.0,) * place + (1.0,), name)

    def negated(self) -> Combined:
        return Combined(tuple(-w for w in self.weights), self.name, -self.sign)

    def __call__(self, answers: Answers) -> Floats:
        total = np.zeros(len(answers))
        for place, weight in enumerate(self.weights[: answers.columns.shape[1]]):
            if weight:
                with np.errstate(invalid="ignore"):
                    column = answers.columns[:, place]
                    total += weight * np.where(np.isnan(column), 0.0, column)
        return np.nan_to_num(total, nan=0.0, posinf=np.inf, neginf=-np.inf)

    def passes(self, answers: Answers) -> Any:
        used = [place for place, weight in enumerate(self.weights) if weight]
        if len(used) != 1:
            return False
        return used[0] >= answers.columns.shape[1] or np.isnan(answers.columns[:, used[0]])

    @property
    def words(self) -> str:
        return self.name

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        return _where(self, self.sign, least, most)


def _where(score: Score, sign: float, least: float | None, most: float | None) -> str:
    """Borders in words, also those of a score that was turned round."""
    if sign > 0:
        return Score.where(score, least=least, most=most)
    return Score.where(score, most=-least) if least is not None else Score.where(score, least=-(most or 0.0))


def _logistic(first: Answers, second: Answers, varied: list[int]) -> Combined:
    """Logistic regression by Newton's method, a little pulled towards 0."""
    both = np.nan_to_num(np.concatenate([first.columns, second.columns])[:, varied], posinf=0.0, neginf=0.0)
    # Ranks would be robust; clipping far tails is nearly so and keeps the sum a sum.
    low, high = np.quantile(both, [0.001, 0.999], axis=0)
    centre, spread = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-300)
    x = (np.clip(both, low, high) - centre) / spread
    x = np.column_stack([x, np.ones(len(x))])
    y = np.repeat([1.0, 0.0], [len(first), len(second)])
    w = np.zeros(x.shape[1])
    for _ in range(8):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (y - p) - RIDGE * len(x) * w
        bend = (x * (p * (1 - p))[:, None]).T @ x + RIDGE * len(x) * np.eye(x.shape[1])
        w = w + np.linalg.solve(bend, slope)
    weights = np.zeros(first.columns.shape[1])
    weights[varied] = w[:-1] / spread
    return Combined(tuple(weights.tolist()), "a weighted sum of the numbers")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Binned(Score):
    """The sum over some numbers of the log-likelihood ratios of the bins they fall into."""

    numbers: tuple[Combined, ...]
    edges: tuple[Floats, ...]
    ratios: tuple[Floats, ...]

    @classmethod
    def learn(
        cls, numbers: tuple[Combined, ...], samples: tuple[tuple[Floats, Floats], ...], bins: int
    ) -> Binned | None:
        edges, ratios = [], []
        for on_first, on_second in samples:
            both = np.concatenate([on_first, on_second])
            is_number = both > NO_NUMBER
            if not is_number.any():
                return None
            cuts = np.unique(np.quantile(both[is_number], np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
            cuts = cuts[np.isfinite(cuts)]
            if not is_number.all():  # what is no number has a bin of its own
                cuts = np.concatenate([[NO_NUMBER / 2], cuts])
            counts = [
                np.bincount(np.searchsorted(cuts, x, "right"), minlength=len(cuts) + 1) for x in (on_first, on_second)
            ]
            edges.append(cuts)
            ratios.append(_log_ratio(*counts))
        return cls(numbers, tuple(edges), tuple(ratios)) if any(len(cuts) for cuts in edges) else None

    def __call__(self, answers: Answers) -> Floats:
        total = np.zeros(len(answers))
        for number, cuts, ratios in zip(self.numbers, self.edges, self.ratios, strict=True):
            total += ratios[np.searchsorted(cuts, _with_gaps(number, answers), "right")]
        return total

    @property
    def words(self) -> str:
        named = self.numbers[0].words if len(self.numbers) == 1 else "all numbers"
        return f"the log-likelihood ratio of the bin of {named}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """The bins themselves, if there is one number and they are few pieces of it."""
        inside = self.ratios[0] >= least if least is not None else self.ratios[0] <= (most or 0.0)
        pieces = _pieces(self.edges[0], inside.tolist())
        if len(self.numbers) > 1 or not 0 < len(pieces) <= NAMED:
            return Score.where(self, least=least, most=most)
        return f"{self.numbers[0].words} is {' or '.join(pieces)}"


def _pieces(cuts: Floats, inside: list[bool]) -> list[str]:
    """Bins in words, those that touch as one: bin i reaches from cut i - 1 up to cut i."""
    ends = [-math.inf, *cuts.tolist(), math.inf]
    found: list[str] = []
    if ends[1] == NO_NUMBER / 2:  # the bin of what is no number
        found += ["no number"] if inside[0] else []
        ends, inside = [-math.inf, *ends[2:]], inside[1:]
    start = None
    for i, (here, after) in enumerate(zip(inside, [*inside[1:], False], strict=True)):
        start = ends[i] if here and start is None else start
        if here and not after:
            found.append(_piece(start or 0.0, ends[i + 1]))
            start = None
    return found


def _piece(low: float, high: float) -> str:
    if math.isinf(low):
        return "any number" if math.isinf(high) else f"below {_said(high)}"
    return f"at least {_said(low)}" + ("" if math.isinf(high) else f" and below {_said(high)}")


def _with_gaps(number: Combined, answers: Answers) -> Floats:
    """A number of the answers, with a mark where it says nothing."""
    return np.where(number.passes(answers), NO_NUMBER, np.maximum(number(answers), NO_NUMBER / 4))


def _log_ratio(on_first: Any, on_second: Any) -> Floats:
    """Log-likelihood ratios from counts, with half an answer added to each."""
    p, q = np.asarray(on_first, dtype=float) + 0.5, np.asarray(on_second, dtype=float) + 0.5
    return np.asarray(np.log(p / q) - math.log(p.sum() / q.sum()))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outcomes(Score):
    """The log-likelihood ratio of the outcome itself; 0 for one that was not seen."""

    name: str
    known: Ints
    ratios: Floats
    looks: tuple[str, ...] = ()
    """How the known outcomes look, if that was kept."""
    subject: str = "the answer"

    @classmethod
    def learn(cls, name: str, first: Ints, second: Ints) -> Outcomes | None:
        known, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        if len(known) == 1 or len(known) == len(places):  # always the same, or never twice
            return None
        counts = [np.bincount(part, minlength=len(known)) for part in (places[: len(first)], places[len(first) :])]
        kept = counts[0] + counts[1] > 1
        return cls(name, known[kept], _log_ratio(*counts)[kept])

    def __call__(self, answers: Answers) -> Floats:
        asked: Ints = getattr(answers, self.name)
        places = np.minimum(np.searchsorted(self.known, asked), len(self.known) - 1)
        return np.where(self.known[places] == asked, self.ratios[places], 0.0)

    def named(self, first: Answers, second: Answers) -> Outcomes:
        """The same, with the looks of its outcomes, if they are few."""
        if len(self.known) > NAMEABLE:
            return self
        seen: dict[int, str] = {}
        for side in (first, second):
            keys, places = np.unique(getattr(side, self.name), return_index=True)
            for key, place in zip(keys.tolist(), places.tolist(), strict=True):
                if key not in seen:
                    answer = side.raw[place]
                    seen[key] = look(answer) if self.name == "keys" else _kind_in_words(answer)
        return Outcomes(self.name, self.known, self.ratios, tuple(seen[key] for key in self.known.tolist()))

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of the {'outcome' if self.name == 'keys' else 'kind of answer'}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """By name, the likeliest first, if what was not seen (which counts 0) is not among them."""
        inside = self.ratios >= least if least is not None else self.ratios <= (most or 0.0)
        has_the_rest = least <= 0 if least is not None else (most or 0.0) >= 0
        if not self.looks or has_the_rest or not inside.any():
            return Score.where(self, least=least, most=most)
        order = [int(i) for i in np.argsort(-np.abs(self.ratios), kind="stable") if inside[i]]
        told = [self.looks[i] for i in order[:NAMED]]
        more = f" or one of {len(order) - NAMED:,} more" if len(order) > NAMED else ""
        return f"{self.subject} is {' or '.join(told)}{more}"


def _kind_in_words(answer: Any) -> str:
    """None, NaN and errors are a kind each by themselves."""
    alone = answer is None or isinstance(answer, Raised) or (isinstance(answer, float) and math.isnan(answer))
    return look(answer) if alone else f"of the kind of {look(answer)}"


LAST_DIGIT: Final = "the place of the last binary digit"
FLOATS_LEAK: Final = (
    "Floats that are added leave gaps, and these tell which value the noise was added to (in the zoo: naive float "
    "Laplace). Noise on a grid mends it; to judge the scale of the noise alone, audit rounded answers."
)


@final
@dataclass(frozen=True, slots=True)
class Digits(Score):
    """The place of the last binary digit, upwards or downwards. Where there is none (0, no number) it says nothing."""

    sign: float
    name: str = LAST_DIGIT
    learned = False

    def __call__(self, answers: Answers) -> Floats:
        return self.sign * last_digits(answers.columns)

    def passes(self, answers: Answers) -> Any:
        return np.isinf(last_digits(answers.columns))

    @property
    def words(self) -> str:
        return self.name

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        return _where(self, self.sign, least, most)

    @property
    def hint(self) -> str:
        return FLOATS_LEAK


@final
@dataclass(frozen=True, slots=True, eq=False)
class DigitsRatio(Score):
    """The log-likelihood ratio of the place of the last binary digit."""

    inner: Outcomes | None
    name: str = LAST_DIGIT

    @classmethod
    def learn(cls, first: Floats, second: Floats, *, name: str = LAST_DIGIT) -> DigitsRatio:
        inner = Outcomes.learn("keys", *(_whole(places[np.isfinite(places)]) for places in (first, second)))
        if inner is None:
            return cls(None, name)
        return cls(Outcomes(inner.name, inner.known, inner.ratios, tuple(map(str, inner.known.tolist())), name), name)

    def __call__(self, answers: Answers) -> Floats:
        if self.inner is None:
            return np.zeros(len(answers))
        places = _whole(last_digits(answers.columns))
        return self.inner(Answers(answers.raw, answers.columns, places, answers.kinds))

    def passes(self, answers: Answers) -> Any:
        return np.isinf(last_digits(answers.columns))

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of {self.name}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        told = None if self.inner is None else self.inner.where(least=least, most=most)
        return told if told is not None and told.startswith(self.name) else Score.where(self, least=least, most=most)

    @property
    def hint(self) -> str:
        return FLOATS_LEAK


def _whole(places: Floats) -> Ints:
    return np.nan_to_num(places, posinf=2.0**40).astype(np.int64)


@final
@dataclass(frozen=True, slots=True)
class Given(Score):
    """The user's own log-likelihood ratio of the first neighbour against the second."""

    function: Callable[[Any], float]
    learned = False

    def __call__(self, answers: Answers) -> Floats:
        """NaN where the user says so, and for a call that raised: that is no answer to ask about."""
        try:
            found = [math.nan if isinstance(y, Raised) else float(self.function(y)) for y in answers.raw]
        except Exception as error:  # the user's own function may raise anything; its message may show an answer
            rule = f"must give a number for every answer, and met {type(error).__name__}"
            raise InvalidParameter("likelihood_ratio", NOTHING, rule) from None
        return np.array(found, dtype=np.float64)

    @property
    def words(self) -> str:
        return "the log-likelihood ratio that was given"


# -- trees -----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tree(Score):
    """A decision tree: each node asks whether one number is at least a border. A leaf is a log-likelihood ratio."""

    questions: tuple[tuple[int, float] | None, ...]
    """Node i has the children 2i + 1 (no) and 2i + 2 (yes); None: a leaf."""
    ratios: Floats
    width: int
    """Columns of the answers that it was made from."""

    @classmethod
    def learn(cls, first: Answers, second: Answers) -> Tree:
        table = np.concatenate([_features(first), _features(second)])
        is_first = np.repeat([True, False], [len(first), len(second)])
        size = 2 ** (DEPTH + 1) - 1
        questions: list[tuple[int, float] | None] = [None] * size
        ratios = np.zeros(size)
        rows: dict[int, Ints] = {0: np.arange(len(table))}
        for node in range(size):
            if node not in rows:
                continue
            here = rows[node]
            yes = int(is_first[here].sum())
            ratios[node] = float(
                _log_ratio([yes, len(first) - yes], [len(here) - yes, len(second) - len(here) + yes])[0]
            )
            split = _best_split(table[here], is_first[here]) if node < size // 2 else None
            if split is None:
                continue
            questions[node] = split
            above = table[here, split[0]] >= split[1]
            rows[2 * node + 1], rows[2 * node + 2] = here[~above], here[above]
        return cls(tuple(questions), ratios, first.columns.shape[1])

    def __call__(self, answers: Answers) -> Floats:
        table = _features(answers.of_width(self.width))
        node = np.zeros(len(answers), dtype=np.int64)
        for place, question in enumerate(self.questions):
            if question is not None:
                here = np.flatnonzero(node == place)
                node[here] = 2 * place + 1 + (table[here, question[0]] >= question[1])
        return self.ratios[node]

    @property
    def words(self) -> str:
        return "the log-likelihood ratio of a decision tree"


def _features(answers: Answers) -> Floats:
    """The numbers, their largest and smallest, and where the largest stands."""
    x = np.nan_to_num(answers.columns, nan=-1e300, posinf=1e300, neginf=-1e300)
    return np.column_stack([x, x.max(axis=1), x.min(axis=1), x.argmax(axis=1), np.clip(x, -1e9, 1e9).sum(axis=1)])


def _best_split(table: Floats, is_first: Any) -> tuple[int, float] | None:
    """The question that raises the likelihood most."""
    best: tuple[float, int, float] | None = None
    total, yes = len(table), int(is_first.sum())
    if total < 2 * LEAF or yes in (0, total):
        return None
    for place in range(table.shape[1]):
        column = table[:, place]
        cuts = np.unique(np.quantile(column, np.linspace(0, 1, CUTS + 2)[1:-1], method="higher"))
        bins = np.searchsorted(cuts, column, "right")
        all_in = np.cumsum(np.bincount(bins, minlength=len(cuts) + 1)[::-1])[::-1][1:]
        yes_in = np.cumsum(np.bincount(bins[is_first], minlength=len(cuts) + 1)[::-1])[::-1][1:]
        gain = _likelihood(yes_in, all_in) + _likelihood(yes - yes_in, total - all_in)
        gain[(all_in < LEAF) | (total - all_in < LEAF)] = -np.inf
        if gain.size and (best is None or gain.max() > best[0]):
            at = int(gain.argmax())
            best = (float(gain[at]), place, float(cuts[at]))
    if best is None or best[0] <= float(_likelihood(np.array([yes]), np.array([total]))[0]) + 2.0:
        return None
    return best[1], best[2]


def _likelihood(yes: Any, total: Any) -> Floats:
    p = (yes + 0.5) / (total + 1)
    return np.asarray(yes * np.log(p) + (total - yes) * np.log1p(-p))


def given(function: Callable[[Any], float]) -> Sequence[Score]:
    """The one score of a user who knows the log-likelihood ratio."""
    return [Given(function)]
