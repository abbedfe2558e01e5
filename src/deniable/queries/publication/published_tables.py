"""Publications: several tables that add up, written to files together with one statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.queries.answer import answer_files, privacy_statement
from deniable.queries.answer.shared_measurements import total_cost
from deniable.queries.plan.answer_notes import cost_in_words, wrapped
from deniable.queries.publication import consistent_fit

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.answer.privacy_statement import Statement
    from deniable.queries.publication.consistent_fit import Invariants, Joint
    from deniable.units import Guarantee


def publish(answers: Sequence[Answer] | Mapping[str, Answer], *, invariants: Invariants | None = None) -> Publication:
    """Fit several answers to each other by least squares so that they add up. Free: it uses released numbers only.

    All answers have the same count or sum of the same rows, by public keys; a mapping gives them titles. `invariants`
    are totals that are public by law and taken as exact: `{"ward": {"A": 500, "B": 300}}`, `{(): 800}` for all rows.
    Raises `InvalidParameter` if the answers do not belong together.
    """
    if isinstance(answers, Mapping):
        titles, tables = tuple(answers), tuple(answers.values())
    elif isinstance(answers, str) or not isinstance(answers, Sequence):
        raise InvalidParameter("answers", type_of(answers), "must be a list of answers, or a dict by title")
    else:
        titles, tables = (), tuple(answers)
    if not tables:
        raise InvalidParameter("answers", NOTHING, "must be at least one answer")
    if any(not isinstance(each, str) or not each for each in titles):
        raise InvalidParameter("answers", NOTHING, "must have titles that are texts")
    if len({id(each) for each in tables}) < len(tables):
        raise InvalidParameter("answers", NOTHING, "must not contain an answer twice")
    found = consistent_fit.joint(tables, invariants)
    if len(found.answers) != len(tables):
        rule = "contain one that was fitted to an answer that is not given"
        raise InvalidParameter("answers", NOTHING, rule, "give the original answers, with all totals")
    names = titles or tuple(answer_files.sheet(each, None).title for each in tables)
    return Publication(found, found.tables(), names)


@final
class Publication:
    """Tables that add up. `publish` creates it; each adjustment returns a new one.

    `p[0]` or `p["title"]` is one table, an `Answer`.
    """

    __slots__ = ("_joint", "_tables", "titles")

    def __init__(self, joint: Joint, tables: Sequence[Answer], titles: Sequence[str]) -> None:
        self._joint, self._tables, self.titles = joint, tuple(tables), tuple(titles)

    # -- adjustments ---------------------------------------------------------------------------------------------------

    def nonnegative(self) -> Publication:
        """The closest tables without negative numbers that still add up (constrained least squares). Free.

        Raising many small numbers lowers others, so a table with many empty cells becomes biased, as the US census of
        2020 was. Intervals stay valid.
        """
        return self._with(self._joint.nonnegative())

    def rounded(self, *, base: int = 1) -> Publication:
        """Multiples of `base` that add up; every number of every table becomes one of the two nearest. Free."""
        return self._with(self._joint.rounded(base))

    def suppressed(self, *, below: int | float) -> Publication:
        """Hide counts below a number, for readers and not for privacy (see `Answer.suppressed`). Do this last."""
        return Publication(self._joint, [each.suppressed(below=below) for each in self._tables], self.titles)

    def _with(self, joint: Joint) -> Publication:
        for each in self._tables:
            each._not_suppressed()
        return Publication(joint, joint.tables(), self.titles)

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[Answer, ...]:
        """The tables in their order."""
        return self._tables

    @property
    def adjustments(self) -> tuple[str, ...]:
        """Descriptions of the changes made to the released numbers, in order."""
        return self._tables[0].adjustments

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all tables together."""
        return _together(self._tables)

    def statement(self, *, delta: float | None = None) -> Statement:
        """A methods paragraph for a paper or a regulator. ε is stated at `delta`, by default the budget's δ."""
        return privacy_statement.of_answers(self._tables, self.adjustments, delta)

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._tables)

    def __getitem__(self, which: int | str) -> Answer:
        if isinstance(which, str):
            if which not in self.titles:
                raise InvalidParameter("title", which, f"must be one of {', '.join(self.titles)}")
            return self._tables[self.titles.index(which)]
        return self._tables[which]

    # -- files ---------------------------------------------------------------------------------------------------------

    def to_csv(self, folder: str | Path) -> list[Path]:
        """Write a CSV file for each table, with a JSON file of column descriptions and notes; returns the paths."""
        found = []
        for path, each in self._files(folder, "csv"):
            answer_files.saved(answer_files.as_csv(each), path)
            answer_files.saved(answer_files.about_csv(each, path.name, " ".join(self.statement().sentences)),
                          path.with_name(f"{path.name}-metadata.json"))  # fmt: skip
            found.append(path)
        return found

    def to_excel_csv(self, folder: str | Path, *, separator: str = ",") -> list[Path]:
        """Write a CSV file for spreadsheets for each table, with notes and statement below it; returns the paths."""
        found, sections = [], self.statement().sections
        for path, each in self._files(folder, "csv"):
            answer_files.saved(answer_files.as_excel_csv(each, separator=separator, statement=sections), path)
            found.append(path)
        return found

    def to_parquet(self, folder: str | Path) -> list[Path]:
        """Write a Parquet file for each table, with notes and statement in its metadata; returns the paths."""
        found = []
        for path, each in self._files(folder, "parquet"):
            answer_files.to_parquet(each, path, " ".join(self.statement().sentences))
            found.append(path)
        return found

    def to_latex(self, path: str | Path | None = None) -> str:
        """All tables and the statement as LaTeX; written to `path` if given. Labels are tab:NAME.

        In a label other letters than a to z become hyphens. So a name with such letters is preceded by its number.
        """
        labelled = [
            (f"tab:{name}" if name.isascii() else f"tab:{place}.{name}", each)
            for place, (name, each) in enumerate(self._sheets(), start=1)
        ]
        tables = [answer_files.as_latex(each, label=label) for label, each in labelled]
        return answer_files.saved("\n".join([*tables, self.statement().latex()]), path)

    def to_html(self, path: str | Path | None = None, *, title: str = "") -> str:
        """A self-contained HTML page with all tables and the statement; written to `path` if given."""
        sections, sheets = self.statement().sections, [each for _, each in self._sheets()]
        return answer_files.saved(answer_files.as_html(sheets, title=title, statement=sections), path)

    def _sheets(self) -> list[tuple[str, answer_files.Sheet]]:
        """(file name without ending, table) with unique names."""
        found: dict[str, answer_files.Sheet] = {}
        for title, table in zip(self.titles, self._tables, strict=True):
            name = re.sub(r"\W+", "_", title.strip().lower()).strip("_")[:80] or "table"
            while name in found:
                name += "_"
            found[name] = answer_files.sheet(table, title)
        return list(found.items())

    def _files(self, folder: str | Path, suffix: str) -> Iterator[tuple[Path, answer_files.Sheet]]:
        place = Path(folder)
        if place.is_file():
            raise InvalidParameter(
                "folder", str(place), "is a file", "name a folder: each table gets a file of its own"
            )
        place.mkdir(parents=True, exist_ok=True)
        for name, each in self._sheets():
            yield place / f"{name}.{suffix}", each

    # -- display -------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        remarks = [each._remarks() for each in self._tables]
        common = [each for each in remarks[0] if all(each in others for others in remarks)]
        texts = [
            "\n".join([title, *table._lines(), *wrapped([each for each in own if each not in common])])
            for title, table, own in zip(self.titles, self._tables, remarks, strict=True)
        ]
        entries = sorted({each.receipt.entry for each in self._tables})
        cost = cost_in_words(total_cost(self._tables), self._tables[0].budget)
        paid = f"charge{'s' * (len(entries) > 1)} {', '.join(map(str, entries))}: {cost} in all"
        return "\n\n".join([*texts, "\n".join(wrapped([*common, paid]))])

    def __repr__(self) -> str:
        done = f"; {'; then '.join(self.adjustments)}" if self.adjustments else ""
        return f"<Publication of {', '.join(self.titles)}{done}>"

    def _repr_html_(self) -> str:
        return "".join(answer_files.html_table(each) for _, each in self._sheets())


def _together(tables: Sequence[Answer]) -> Guarantee:
    """The guarantee of several tables together."""
    from deniable.units import Guarantee

    assumptions = tuple(dict.fromkeys(words for each in tables for words in each.guarantee.assumptions))
    curve = tables[0].budget.curve(total_cost(tables))
    return Guarantee(curve, tables[0].guarantee.unit, assumptions=assumptions)
