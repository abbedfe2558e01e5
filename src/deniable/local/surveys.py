"""A whole survey: answers are randomized on one side, shares or a mean are estimated on the other.

    deniable survey answers.csv --question smokes --epsilon 1 --out reports.csv      # where the answers are
    deniable survey --estimate reports.csv                                           # anywhere else

The file of reports begins with the public design in one line of JSON (question, protocol, its parameters, possible
answers), so the estimating side needs nothing else. It contains no answer, and nothing computed from answers except the
reports. The possible answers are part of the design and are never collected from the answers themselves.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from deniable.csv_structure import extent_of, fields_of, records_of
from deniable.errors import NOTHING, InvalidParameter, MissingExtra, UnreadableRecord
from deniable.local import binary_responses, categorical_responses, numeric_means
from deniable.local.collector_estimates import Estimate, Shares
from deniable.local.local_protocol import Protocol
from deniable.numbers import percent

if TYPE_CHECKING:
    from deniable.local.exact_odds import Rational
    from deniable.local.shuffled_surveys import ShuffledSurvey
    from deniable.noise import Entropy

FORMAT: Final = "deniable survey"
VERSION: Final = 1
LONGEST_RATIO: Final = 4000
"""Most characters of a parameter: enough for any float, and few enough to parse quickly."""

DELIMITERS: Final = ",;\t"
"""Delimiters of a CSV file: the first one with which its first line names the question is used."""

REPORTS: Final = "give the file of reports that survey(..., out=) or --out wrote"

YES_AND_NO: Final = {"yes": 1, "y": 1, "true": 1, "1": 1, "no": 0, "n": 0, "false": 0, "0": 0}

PROTOCOLS: Final[Mapping[str, type[Protocol]]] = {
    kind.__name__: kind
    for kind in (
        binary_responses.RandomizedResponse,
        categorical_responses.KaryRandomizedResponse,
        categorical_responses.SymmetricUnary,
        categorical_responses.OptimizedUnary,
        categorical_responses.LocalHashing,
        categorical_responses.SubsetSelection,
        numeric_means.DuchiMean,
        numeric_means.PiecewiseMean,
        numeric_means.HybridMean,
    )
}
"""The protocols that a file of reports may name."""


@final
@dataclass(frozen=True, slots=True)
class Design:
    """The public part of a survey: the question, the protocol, and the categories of a choice."""

    question: str
    protocol: Protocol
    categories: tuple[str, ...]
    """In the order of the protocol's numbers; empty for yes or no, and for numbers."""

    @property
    def answers(self) -> tuple[str, ...]:
        """The names of the estimated quantities."""
        if self.categories:
            return self.categories
        return ("mean",) if isinstance(self.protocol, numeric_means.MeanProtocol) else ("yes",)

    def numbered(self, values: Sequence[Any]) -> Any:
        """Answers as the protocol takes them. Raises InvalidParameter, without the value, if one breaks the public
        rule.
        """
        if isinstance(self.protocol, numeric_means.MeanProtocol):
            try:
                return [_real(value) for value in values]
            except (TypeError, ValueError):
                remedy = "leave out the rows of those who did not answer: who took part is public anyway"
                raise InvalidParameter("answers", NOTHING, "must all be numbers, and none missing", remedy) from None
        known: Mapping[str, int] = {word: i for i, word in enumerate(self.categories)} or YES_AND_NO
        words = [_word(value) for value in values]
        if not self.categories:
            words = [word.lower() for word in words]
        if not all(word in known for word in words):
            allowed = "one of the categories of the design" if self.categories else "yes or no, true or false, 1 or 0"
            remedy = "list every possible answer in categories, also the empty one if answers may be missing"
            raise InvalidParameter("answers", NOTHING, f"must all be {allowed}", remedy)
        return [known[word] for word in words]

    def to_dict(self) -> dict[str, Any]:
        """A record that `from_dict` reads back exactly."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "question": self.question,
            "protocol": type(self.protocol).__name__,
            "parameters": self.protocol.parameters(),
            "categories": list(self.categories),
        }

    @classmethod
    def from_dict(cls, record: Any) -> Design:
        """The design of a record. It constructs only known protocols, and only from numbers. Raises
        UnreadableRecord.
        """
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise UnreadableRecord("this is not a survey of deniable")
        if record.get("version") != VERSION:
            raise UnreadableRecord(f"this survey was written by another version; version {VERSION} is known here")
        kind = PROTOCOLS.get(str(record.get("protocol")))
        parameters, categories = record.get("parameters"), record.get("categories")
        if kind is None or not isinstance(parameters, dict) or not isinstance(categories, list):
            raise UnreadableRecord("the design names a protocol that is not known here")
        try:
            protocol = kind(**{name: _number_of(value) for name, value in parameters.items()})
        except (TypeError, ValueError, ZeroDivisionError):
            raise UnreadableRecord(f"the design's parameters do not make a {kind.__name__}") from None
        if len(categories) != getattr(protocol, "categories", 0):
            raise UnreadableRecord("the design and its protocol have different numbers of categories")
        if len(set(map(str, categories))) != len(categories):
            raise UnreadableRecord("the design has two categories of one name")
        return cls(str(record.get("question")), protocol, tuple(str(word) for word in categories))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Survey:
    """A design and everybody's reports: all that a collector sees."""

    design: Design
    reports: Any

    def __len__(self) -> int:
        return len(self.reports)

    def __repr__(self) -> str:
        return f"Survey({self.design.question!r}, {self.design.protocol!r}, people={len(self)})"

    def estimate(self) -> Estimate:
        """The estimate from all reports, in the order of `design.answers` and labelled with them."""
        found = self.design.protocol.estimate(self.reports)
        return replace(found, labels=self.design.answers) if isinstance(found, Shares) else found

    def shuffled(self, *, entropy: Entropy | None = None) -> ShuffledSurvey:
        """The same reports in a random order, with the smaller curve that shuffling gives every person. Run it on a
        shuffler between the people and the collector; `entropy` is for tests.

        >>> table = {"smokes": ["yes", "no", "no", "no"] * 2500}
        >>> hidden = survey(table, question="smokes", epsilon=2.0).shuffled()
        >>> round(hidden.curve.epsilon(delta=1e-6), 2)
        0.11
        """
        from deniable.local.shuffled_surveys import shuffled_reports

        return shuffled_reports(self, entropy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write design and reports to a new file.

        Raises InvalidParameter if the file exists: new reports about the same people are another release, and together
        they reveal more. To do that on purpose, remove the first file.
        """
        with _new_file(Path(path)) as file:
            file.write(f"# {json.dumps(self.design.to_dict(), ensure_ascii=False)}\n")
            # The text of a report contains no quote, comma or line end, so each line is one report.
            file.writelines(f"{text}\n" for text in ("report", *self.design.protocol.encode(self.reports)))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Survey:
        """The survey of a file that `save` wrote. Raises UnreadableRecord for any other file."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                first = file.readline()
                record = json.loads(first[2:]) if first.startswith("# ") else None
                design = Design.from_dict(record)
                if file.readline() != "report\n":
                    raise UnreadableRecord("the reports of this survey are missing")
                texts = [line.removesuffix("\n") for line in file]
                if "" in texts:
                    raise UnreadableRecord(f"line {texts.index('') + 3:,} is empty, and every line is a report")
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
            raise UnreadableRecord(f"{path}: this is not a survey of deniable; {REPORTS}") from None
        except UnreadableRecord as error:
            raise UnreadableRecord(f"{path}: {error}; {REPORTS}") from None
        return cls(design, design.protocol.decode(texts))


def survey(
    answers: Any,
    *,
    question: str,
    epsilon: Rational,
    categories: Sequence[str] | None = None,
    low: Rational | None = None,
    high: Rational | None = None,
    protocol: type[Protocol] | None = None,
    out: str | os.PathLike[str] | None = None,
    entropy: Entropy | None = None,
) -> Survey:
    """Randomize the answers to one question, from a CSV file or a table with columns (a dict, pandas, polars).

    For all answers that one person may have, the two distributions of their report are at most as distinguishable as
    `survey.design.protocol.curve` says, with ε as given. The question is yes or no, unless `categories` lists all
    possible answers or `low` and `high` bound a number. `protocol` is a class of this room to use instead of the
    recommended one; `out` is a new file for the reports.

    >>> table = {"smokes": ["yes", "no", "no", "no"] * 250}
    >>> done = survey(table, question="smokes", epsilon=1.0)
    >>> done
    Survey('smokes', RandomizedResponse(epsilon=1.0), people=1000)
    >>> low, high = done.estimate().interval(confidence=0.999999)
    >>> low < 0.25 < high
    True
    """
    design = Design(str(question), *_protocol(epsilon, categories, low, high, protocol))
    numbered = design.numbered(column_of(answers, design.question))
    if not numbered:
        raise InvalidParameter("answers", NOTHING, "must contain the answer of at least one person")
    done = Survey(design, design.protocol.randomize(numbered, entropy=entropy))
    if out is not None:
        done.save(out)
    return done


def _protocol(
    epsilon: Rational,
    categories: Sequence[str] | None,
    low: Rational | None,
    high: Rational | None,
    kind: Any,
) -> tuple[Protocol, tuple[str, ...]]:
    """The protocol, and the categories as texts."""
    if (low is None) != (high is None):
        raise InvalidParameter("low, high", NOTHING, "must be given together")
    if kind is not None and not any(kind is one for one in PROTOCOLS.values()):
        raise InvalidParameter("protocol", NOTHING, f"must be one of the classes {', '.join(PROTOCOLS)}")
    if low is not None:
        if categories is not None:
            raise InvalidParameter(
                "categories", NOTHING, "a number has bounds, a choice has categories; give one of them"
            )
        return _make(kind or numeric_means.HybridMean, low=low, high=high, epsilon=epsilon), ()
    if categories is None:
        return _make(kind or binary_responses.RandomizedResponse, epsilon=epsilon), ()
    if isinstance(categories, Set):  # the order of a set of texts differs from process to process
        raise InvalidParameter("categories", NOTHING, "must have an order, and a set has none", "write sorted(...)")
    is_list = isinstance(categories, Iterable) and getattr(categories, "ndim", 1) == 1
    if not is_list or isinstance(categories, str | bytes | Mapping) or hasattr(type(categories), "columns"):
        raise InvalidParameter("categories", NOTHING, "must be a list of texts")
    words = tuple(_word(word) for word in categories)
    if len(set(words)) != len(words) or len(words) < 2:
        raise InvalidParameter("categories", NOTHING, "must be at least two, all different")
    if kind is None:
        return categorical_responses.recommended(categories=len(words), epsilon=epsilon), words
    return _make(kind, categories=len(words), epsilon=epsilon), words


def _make(kind: type[Protocol], **parameters: Any) -> Protocol:
    try:
        return kind(**parameters)
    except TypeError:
        raise InvalidParameter("protocol", kind.__name__, "does not fit this kind of question") from None


def _number_of(value: Any) -> Any:
    """A parameter of a record: "numerator/denominator" as a Fraction, other values unchanged."""
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_RATIO or not re.fullmatch(r"-?[0-9]+/[0-9]+", value):
        raise ValueError
    return Fraction(value)


def _word(value: Any) -> str:
    """An answer as text, without surrounding blanks; 1.0 and 1 are the same, and None is empty."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def column_of(table: Any, question: str) -> list[Any]:
    """The answers in one column, one for each person. Raises InvalidParameter if the table has no such column."""
    if isinstance(table, str | os.PathLike):
        return _csv_column(Path(table), question)
    if hasattr(type(table), "collect"):
        raise InvalidParameter("answers", NOTHING, "must be a table in memory", "collect() it first")
    dtype = getattr(table, "dtype", None)  # of a column, or of numpy's records, whose fields have names
    if isinstance(table, list | tuple) or (dtype is not None and not getattr(dtype, "names", None)):
        remedy = f"give it its name: {{{question!r}: column}}"
        raise InvalidParameter("answers", NOTHING, "must be a table with columns; this is one column", remedy)
    try:
        column = table[question]
    except Exception:  # every kind of table has its own error for "no such column", and its text may quote the table
        column = None
    if column is None or isinstance(column, str | bytes):
        raise InvalidParameter("question", question, "is not a column of the table")
    if hasattr(type(column), "columns"):
        raise InvalidParameter("question", question, "is the name of several columns", "rename all but one")
    return list(column.to_list()) if hasattr(column, "to_list") else list(column)


def _csv_column(path: Path, question: str) -> list[Any]:
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        first = file.readline().rstrip("\r\n")
    for delimiter in DELIMITERS:
        names = fields_of(first, delimiter) or []
        place = _place(names, question, path)
        if place is not None:
            return _cells(str(path), delimiter, len(names), place)
    remedy = "its first line must name the columns, with commas, semicolons or tabs between them"
    raise InvalidParameter("question", question, f"is not the name of a column of {path}", remedy)


def _cells(path: str, delimiter: str, columns: int, place: int) -> list[Any]:
    """The fields of one column. Raises InvalidParameter if people could be lost, or an empty line be counted as a
    person.
    """
    extent = extent_of(path, columns, delimiter=delimiter, called="answers")
    if columns == 1 and extent.blank is not None:
        rule = f"line {extent.blank:,}: is empty, which may be an empty answer or no answer at all"
        raise InvalidParameter("answers", path, rule, 'write "" for an empty answer, and remove other empty lines')
    records = records_of(path, delimiter, extent.longest)
    next(records, None)
    return [row[place] for row in records]


def _place(names: list[str], question: str, path: Path) -> int | None:
    """The index of the column, or None. Errors do not contain the first line: in a file without names it is data."""
    # The exact name, or else the name without surrounding blanks.
    found = [i for i, name in enumerate(names) if name == question]
    found = found or [i for i, name in enumerate(names) if name.strip() == question.strip()]
    if len(found) > 1:
        raise InvalidParameter("question", question, f"is the name of several columns of {path}", "rename all but one")
    return found[0] if found else None


def _new_file(path: Path) -> Any:
    try:
        return path.open("x", encoding="utf-8", newline="")
    except FileExistsError:
        rule = "exists already; more reports about the same people reveal more"
        raise InvalidParameter("out", str(path), rule, "choose another file, or remove that one first") from None


# -- deniable survey -------------------------------------------------------------------------------------------------


def survey_command(
    answers: Path | None = None,
    *,
    question: str | None = None,
    epsilon: float | None = None,
    categories: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    out: Path | None = None,
    estimate: Path | None = None,
    confidence: float = 0.95,
    as_json: bool = False,
) -> None:
    """The command: randomize answers into a file of reports, or estimate from such a file. Prints public facts only."""
    if (answers is None) == (estimate is None):
        given = "neither was given" if answers is None else "both were given"
        rule = f"give a file of answers, or --estimate with a file of reports; {given}"
        raise InvalidParameter("answers, --estimate", NOTHING, rule)
    if not as_json:
        _need_rich()  # before anything is written
    if estimate is not None:
        _show_estimate(Survey.read(estimate), confidence, as_json)
        return
    for name, value in (("--question", question), ("--epsilon", epsilon), ("--out", out)):
        if value is None:
            remedy = "deniable survey answers.csv --question COLUMN --epsilon 1 --out reports.csv"
            raise InvalidParameter(name, NOTHING, "is needed to randomize answers", remedy)
    assert answers is not None
    assert question is not None
    assert epsilon is not None
    done = survey(answers, question=question, epsilon=epsilon, categories=categories, low=low, high=high, out=out)
    _show_design(done, str(out), as_json)


def _show_design(done: Survey, out: str, as_json: bool) -> None:
    curve = done.design.protocol.curve
    if as_json:
        record = done.design.to_dict() | {"people": len(done), "reports": out, "curve": curve.to_dict()}
        print(json.dumps(record, ensure_ascii=False, indent=2))
        return
    from deniable.curves.curve_display import percent_up, rounded_up

    _print_rows(
        f"{done.design.question}: {len(done):,} reports in {out}",
        ("", ""),
        [
            ("protocol", repr(done.design.protocol)),
            ("each person's ε", rounded_up(curve.epsilon(delta=0.0))),
            (
                "promise",
                f"from a report, a guess with a 50 % prior is right at most {percent_up(curve.guess(prior=0.5))}",
            ),
        ],
    )
    if isinstance(protocol := done.design.protocol, numeric_means.MeanProtocol):
        low, high = float(protocol.low), float(protocol.high)
        print(f"An answer below {low:g} counts as {low:g}, and one above {high:g} as {high:g}.")
    print(f"Next: deniable survey --estimate {shlex.quote(out)}")  # not wrapped, so that it can be copied


def _show_estimate(done: Survey, confidence: float, as_json: bool) -> None:
    found = done.estimate()
    low, high = found.interval(confidence=confidence)
    names = done.design.answers
    columns = [_listed(values) for values in (found.value, found.standard_error, low, high)]
    if as_json:
        rows = [
            {"answer": name, "value": value, "standard_error": error, "interval": [begin, end]}
            for name, value, error, begin, end in zip(names, *columns, strict=True)
        ]
        record = done.design.to_dict() | {"people": found.people, "confidence": confidence, "estimates": rows}
        print(json.dumps(record, ensure_ascii=False, indent=2))
        return
    shares = isinstance(found, Shares)
    shown = [
        (name or "(empty)", *(_number(value, shares) for value in row), _bar(row[0]) if shares else "")
        for name, *row in zip(names, *columns, strict=True)
    ]
    level = f"{percent(confidence)} %"
    heads = ("answer", "share" if shares else "value", "std. error", f"{level} low", f"{level} high", "")
    _print_rows(f"{done.design.question}: {found.people:,} people, {done.design.protocol!r}", heads, shown)
    if shares and not all(0 <= value <= 1 for value in columns[0]):
        print("A share outside of 0 to 100 % is not an error: estimates are unbiased, so noise may move them there.")


def _need_rich() -> None:
    try:
        import rich  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "rich", "cli") from None


def _print_rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=any(heads))
    for place, head in enumerate(heads):
        numeric_column = any(heads) and 0 < place < len(heads) - 1
        table.add_column(head, justify="right" if numeric_column else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    console.print(Text(title, "bold"))
    console.print(table, highlight=False)


def _listed(values: Any) -> list[float]:
    return [float(values)] if isinstance(values, float) else [float(value) for value in values]


def _real(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats, and so beyond the bounds
        return math.inf if value > 0 else -math.inf


def _number(value: float, share: bool) -> str:
    return f"{100 * value:.2f} %" if share else f"{value:.6g}"


def _bar(share: float) -> str:
    return "█" * round(30 * min(max(share, 0.0), 1.0))
