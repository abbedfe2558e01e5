"""Scores: a number for each answer, large if the first neighbour is likelier. A part of the answers trains them.

No score can make an audit wrong, because its events are judged by fresh answers. A bad score only proves less.

    Combined             a number of the answer, or a weighted sum of numbers (differences, logistic regression)
    Binned               log-likelihood ratio by bins of such a number; for several numbers: naive Bayes
    Outcomes             log-likelihood ratio of whole answers, of their kinds (None, NaN, an exception), or of one word
    JointScore           the sum of such ratios
    Digits, DigitsRatio  the position of the last binary digit, of one number or of all
    GivenScore           the user's own log-likelihood ratio

`decision_tree` has a small decision tree, and `score_learning` trains all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from deniable.audit.answer_columns import NAMEABLE, Answers, Floats, Ints, Raised, each_last_digit, last_digits, look
from deniable.audit.answer_table import BLOCK, Dense, Path
from deniable.audit.distinguishing_columns import named, worded
from deniable.audit.object_contents import Kept
from deniable.errors import NOTHING, InvalidParameter

NO_NUMBER: Final = -1.7e308
"""Marks a missing number; below all other numbers."""
MOST_OF_ALL: Final = "most of all"
NAMED: Final = 3
"""The most outcomes of an event that are listed by name."""


class Score(ABC):
    """A number for each answer."""

    __slots__ = ()
    learned: bool = True
    """Whether it was trained on answers. Those must then not be used to choose between scores."""

    @abstractmethod
    def __call__(self, answers: Answers) -> Floats:
        """The score of each answer; never NaN, except for the user's own score."""

    def passes(self, answers: Answers) -> Any:
        """A mask of the answers that the score cannot rate; False if it rates all."""
        return False

    @property
    @abstractmethod
    def words(self) -> str:
        """The name of the score in sentences."""

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """The answers with a score of at least `least`, or at most `most`, in words."""
        bound = f"least {_number_text(least)}" if least is not None else f"most {_number_text(most or 0.0)}"
        return f"{self.words} is at {bound}"

    @property
    def hint(self) -> str:
        """Advice about a leak that this score finds; may be empty."""
        return ""


def _number_text(border: float) -> str:
    """A threshold in words: 0 without a minus sign, infinity as ∞."""
    if abs(border) >= np.finfo(np.float64).max:
        return "∞" if border > 0 else "-∞"
    return f"{border + 0.0:.6g}" if abs(border) < 1e6 else f"{border:.17g}"


def digits_of(answers: Answers, path: Path | None) -> Floats:
    """The position of the last binary digit of the number at `path`, or of the finest number of each answer."""
    if path is not None:
        return each_last_digit(answers.numbers.column(path)[:, None])[:, 0]
    places = range(len(answers.numbers.paths)) if isinstance(answers.numbers, Dense) else range(0)
    found = np.full(len(answers), np.inf)
    for _, block in answers.numbers.blocks(places):
        found = np.minimum(found, last_digits(block))
    return found


@final
@dataclass(frozen=True, slots=True)
class Combined(Score):
    """A weighted sum of numbers, in which NaN counts as 0. A single number that is NaN is a pass instead."""

    paths: tuple[Path, ...]
    weights: tuple[float, ...]
    name: str
    learned = False
    sign: float = 1.0
    """-1 for a negated sum, so that thresholds are described with the original sign."""

    @classmethod
    def column(cls, path: Path = (), name: str = "the answer") -> Combined:
        return cls((path,), (1.0,), name)

    def negated(self) -> Combined:
        """The score with the other sign, which is large where the second neighbour is likelier."""
        return Combined(self.paths, tuple(-w for w in self.weights), self.name, -self.sign)

    def __call__(self, answers: Answers) -> Floats:
        total = np.zeros(len(answers))
        weights = np.array(self.weights)
        for start in range(0, len(weights), BLOCK):
            block = answers.numbers.rows(self.paths[start : start + BLOCK])
            with np.errstate(invalid="ignore", over="ignore"):  # an overflowing sum is infinite
                # Column by column: a matrix product rounds differently for different numbers of rows.
                for column, weight in zip(block.T, weights[start : start + BLOCK].tolist(), strict=True):
                    total += weight * np.where(np.isnan(column), 0.0, column)
        return np.nan_to_num(total, nan=0.0, posinf=np.inf, neginf=-np.inf)

    def passes(self, answers: Answers) -> Any:
        return np.isnan(answers.numbers.column(self.paths[0])) if len(self.paths) == 1 else False

    @property
    def words(self) -> str:
        return self.name

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        return _where(self, self.sign, least, most)


def _where(score: Score, sign: float, least: float | None, most: float | None) -> str:
    """Thresholds in words; for a negated score, with the original sign."""
    if sign > 0:
        return Score.where(score, least=least, most=most)
    return Score.where(score, most=-least) if least is not None else Score.where(score, least=-(most or 0.0))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Binned(Score):
    """The sum, over some numbers, of the log-likelihood ratios of their bins."""

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
            if not is_number.all():  # a separate bin for missing numbers
                cuts = np.concatenate([[NO_NUMBER / 2], cuts])
            counts = [
                np.bincount(np.searchsorted(cuts, x, "right"), minlength=len(cuts) + 1) for x in (on_first, on_second)
            ]
            edges.append(cuts)
            ratios.append(log_ratio(*counts))
        return cls(numbers, tuple(edges), tuple(ratios)) if any(len(cuts) for cuts in edges) else None

    def __call__(self, answers: Answers) -> Floats:
        total = np.zeros(len(answers))
        for number, cuts, ratios in zip(self.numbers, self.edges, self.ratios, strict=True):
            total += ratios[np.searchsorted(cuts, with_gaps(number, answers), "right")]
        return total

    @property
    def words(self) -> str:
        named = (
            self.numbers[0].words if len(self.numbers) == 1 else f"all numbers, {MOST_OF_ALL} {self.numbers[0].words}"
        )
        return f"the log-likelihood ratio of the bin of {named}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """Names the bins, if there is one number and they form few intervals."""
        inside = self.ratios[0] >= least if least is not None else self.ratios[0] <= (most or 0.0)
        pieces = _pieces(self.edges[0], inside.tolist())
        if len(self.numbers) > 1 or not 0 < len(pieces) <= NAMED:
            return Score.where(self, least=least, most=most)
        return f"{self.numbers[0].words} is {' or '.join(pieces)}"


def _pieces(cuts: Floats, inside: list[bool]) -> list[str]:
    """Bins in words, with adjacent bins merged. Bin i reaches from cut i - 1 up to cut i."""
    ends = [-math.inf, *cuts.tolist(), math.inf]
    found: list[str] = []
    if ends[1] == NO_NUMBER / 2:  # the bin of missing numbers
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
        return "any number" if math.isinf(high) else f"below {_number_text(high)}"
    return f"at least {_number_text(low)}" + ("" if math.isinf(high) else f" and below {_number_text(high)}")


def with_gaps(number: Combined, answers: Answers) -> Floats:
    """The score of each answer, with NO_NUMBER for passes."""
    return np.where(number.passes(answers), NO_NUMBER, np.maximum(number(answers), NO_NUMBER / 4))


def log_ratio(on_first: Any, on_second: Any) -> Floats:
    """Log-likelihood ratios from counts, with 1/2 added to each count."""
    p, q = np.asarray(on_first, dtype=float) + 0.5, np.asarray(on_second, dtype=float) + 0.5
    return np.asarray(np.log(p / q) - math.log(p.sum() / q.sum()))


@final
@dataclass(frozen=True, slots=True, eq=False)
class OutcomeKind:
    """What an outcome is: a whole answer, its kind, or a word, a type or a value at a path."""

    codes: Callable[[Answers, Path], Ints]
    """The code of each answer's outcome."""
    look: Callable[[Answers, int, int, Path], str]
    """An outcome as text, from the answers, a place at which it occurs, its code and the path."""
    subject: Callable[[Path, int], str] = lambda path, count: "the answer"
    """What varies, in words; the count is the number of numbers in an answer."""
    words: str | None = None
    """The outcome in words, where the subject does not say it."""


def _word_codes(answers: Answers, path: Path) -> Ints:
    return np.asarray(np.nan_to_num(answers.words.column(path), nan=-1.0).astype(np.int64))


def _word_look(side: Answers, place: int, code: int, path: Path) -> str:
    return "missing" if code < 0 else look(side.looks[code]) if code in side.looks else "another one"


def _value_codes(answers: Answers, path: Path) -> Ints:
    return np.ascontiguousarray(answers.numbers.column(path)).view(np.int64)


def _value_look(side: Answers, place: int, code: int, path: Path) -> str:
    return "no number" if np.isnan(value := np.int64(code).view(np.float64)) else _number_text(float(value))


OUTCOME_KINDS: Final[Mapping[str, OutcomeKind]] = {
    "keys": OutcomeKind(
        lambda answers, path: answers.keys,
        lambda side, place, code, path: look(side.raw[place]),
        words="the outcome",
    ),
    "kinds": OutcomeKind(
        lambda answers, path: answers.kinds,
        lambda side, place, code, path: _kind_in_words(side.raw[place]),
        words="the kind of answer",
    ),
    "types": OutcomeKind(
        lambda answers, path: answers.types_at(path),
        lambda side, place, code, path: side.type_named(place, path),
        lambda path, count: f"the type of {worded(path)}",
    ),
    "words": OutcomeKind(_word_codes, _word_look, lambda path, count: worded(path)),
    "values": OutcomeKind(_value_codes, _value_look, lambda path, count: named(path, count)),
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outcomes(Score):
    """The log-likelihood ratio of the outcome itself; 0 for an outcome that was not in the training answers."""

    what: str
    """A name of `OUTCOME_KINDS`: whole answers ("keys"), their "kinds", or "words", "types" or "values" at a path."""
    known: Ints
    ratios: Floats
    looks: tuple[str, ...] = ()
    """Texts for the known outcomes; empty if there are too many."""
    subject: str = "the answer"
    path: Path = ()

    @classmethod
    def learn(cls, what: str, first: Ints, second: Ints) -> Outcomes | None:
        known, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        if len(known) == 1 or len(known) == len(places):  # always the same, or never twice
            return None
        counts = [np.bincount(part, minlength=len(known)) for part in (places[: len(first)], places[len(first) :])]
        kept = counts[0] + counts[1] > 1
        return cls(what, known[kept], log_ratio(*counts)[kept])

    @classmethod
    def of(cls, what: str, path: Path, first: Answers, second: Answers) -> Outcomes | None:
        """Train on two samples, with texts for the outcomes if they are few. None if outcomes never vary or repeat."""
        kind = OUTCOME_KINDS[what]
        codes = [kind.codes(side, path) for side in (first, second)]
        found = cls.learn(what, *codes)
        if found is None:
            return None
        count = max(len(side.numbers.paths) for side in (first, second))
        subject = kind.subject(path, count)
        if len(found.known) > NAMEABLE:
            return cls(what, found.known, found.ratios, (), subject, path)
        looks: dict[int, str] = {}
        for side, mine in zip((first, second), codes, strict=True):
            keys, places = np.unique(mine, return_index=True)
            is_known = np.isin(keys, found.known)
            for key, place in zip(keys[is_known].tolist(), places[is_known].tolist(), strict=True):
                if key not in looks:
                    looks[key] = kind.look(side, place, key, path)
        return cls(what, found.known, found.ratios, tuple(looks[key] for key in found.known.tolist()), subject, path)

    def __call__(self, answers: Answers) -> Floats:
        return self.at(OUTCOME_KINDS[self.what].codes(answers, self.path))

    def at(self, codes: Ints) -> Floats:
        """The ratios of outcomes with these codes."""
        places = np.minimum(np.searchsorted(self.known, codes), len(self.known) - 1)
        return np.where(self.known[places] == codes, self.ratios[places], 0.0)

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of {OUTCOME_KINDS[self.what].words or self.subject}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        """Names the outcomes, strongest first, unless unknown outcomes (which score 0) are among them."""
        inside = self.ratios >= least if least is not None else self.ratios <= (most or 0.0)
        has_the_rest = least <= 0 if least is not None else (most or 0.0) >= 0
        if not self.looks or has_the_rest or not inside.any():
            return Score.where(self, least=least, most=most)
        order = [int(i) for i in np.argsort(-np.abs(self.ratios), kind="stable") if inside[i]]
        listed = [self.looks[i] for i in order[:NAMED]]
        more = f" or one of {len(order) - NAMED:,} more" if len(order) > NAMED else ""
        return f"{self.subject} is {' or '.join(listed)}{more}"


def _kind_in_words(answer: Any) -> str:
    """The kind of an answer in words. None, NaN and errors are kinds of their own."""
    alone = answer is None or isinstance(answer, Raised) or (isinstance(answer, float) and math.isnan(answer))
    return look(answer) if alone else f"of the kind of {look(answer)}"


@final
@dataclass(frozen=True, slots=True, eq=False)
class JointScore(Score):
    """The sum of several log-likelihood ratios, as if they were independent."""

    parts: tuple[Binned | Outcomes, ...]
    most: str
    """The name of the strongest part."""

    def __call__(self, answers: Answers) -> Floats:
        return np.asarray(sum(part(answers) for part in self.parts))

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of all numbers and words, {MOST_OF_ALL} {self.most}"


LAST_DIGIT: Final = "the place of the last binary digit"
FLOATS_LEAK: Final = (
    "Sums of floats leave gaps that reveal to which value the noise was added (in the zoo: naive float Laplace). Noise "
    "on a grid removes this leak; to judge the scale of the noise alone, audit rounded answers."
)


@final
@dataclass(frozen=True, slots=True)
class Digits(Score):
    """The position of the last binary digit, or its negative. It passes for 0 and NaN, which have no last digit."""

    sign: float
    name: str = LAST_DIGIT
    path: Path | None = None
    """The path of one number; None for the finest number."""
    learned = False

    def __call__(self, answers: Answers) -> Floats:
        return self.sign * digits_of(answers, self.path)

    def passes(self, answers: Answers) -> Any:
        return np.isinf(digits_of(answers, self.path))

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
    """The log-likelihood ratio of the position of the last binary digit."""

    inner: Outcomes | None
    name: str = LAST_DIGIT
    path: Path | None = None

    @classmethod
    def learn(cls, first: Floats, second: Floats, *, name: str = LAST_DIGIT, path: Path | None = None) -> DigitsRatio:
        inner = Outcomes.learn("digits", *(_whole(places[np.isfinite(places)]) for places in (first, second)))
        if inner is None:
            return cls(None, name, path)
        looks = tuple(map(str, inner.known.tolist()))
        return cls(Outcomes(inner.what, inner.known, inner.ratios, looks, name), name, path)

    def __call__(self, answers: Answers) -> Floats:
        if self.inner is None:
            return np.zeros(len(answers))
        return self.inner.at(_whole(digits_of(answers, self.path)))

    def passes(self, answers: Answers) -> Any:
        return np.isinf(digits_of(answers, self.path))

    @property
    def words(self) -> str:
        return f"the log-likelihood ratio of {self.name}"

    def where(self, *, least: float | None = None, most: float | None = None) -> str:
        where = None if self.inner is None else self.inner.where(least=least, most=most)
        return where if where is not None and where.startswith(self.name) else Score.where(self, least=least, most=most)

    @property
    def hint(self) -> str:
        return FLOATS_LEAK


def _whole(places: Floats) -> Ints:
    return np.nan_to_num(places, posinf=2.0**40).astype(np.int64)


@final
@dataclass(frozen=True, slots=True)
class GivenScore(Score):
    """The user's own log-likelihood ratio of the first neighbour against the second."""

    function: Callable[[Any], float]
    learned = False

    def __call__(self, answers: Answers) -> Floats:
        """The user's ratios; NaN for a call that raised. Raises `InvalidParameter` if the user's function fails."""
        try:
            raw = (y.answer if isinstance(y, Kept) else y for y in answers.raw)
            found = [math.nan if isinstance(y, Raised) else float(self.function(y)) for y in raw]
        except Exception as error:  # a user's function may raise any error; its message may contain an answer
            rule = f"must return a number for every answer, but raised {type(error).__name__}"
            raise InvalidParameter("likelihood_ratio", NOTHING, rule) from None
        return np.array(found, dtype=np.float64)

    @property
    def words(self) -> str:
        return "the log-likelihood ratio that was given"


def given(function: Callable[[Any], float]) -> Sequence[Score]:
    """The scores for a user who knows the log-likelihood ratio: only that."""
    return [GivenScore(function)]
