"""Answers as files: CSV, CSV for spreadsheets, Parquet, LaTeX and HTML, each with intervals and notes.

Keys are text that other people may have entered, so cells are escaped for each format: HTML and LaTeX by their own
rules, and a spreadsheet gets no cell that it would run as a formula.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from deniable.errors import InvalidParameter, type_of
from deniable.numbers import percent
from deniable.queries.answer.answer_display import NO_VALUE, Cell, cell_text, key_text, library

if TYPE_CHECKING:
    from deniable.queries.answer.answer_display import Shown

BYTE_ORDER: Final = "\ufeff"
"""The byte-order mark by which Excel recognises UTF-8."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "＝", "＋", "－", "＠")
"""First characters of text that a spreadsheet may run (OWASP, CSV injection), also in full width."""
_NUMBER: Final = re.compile(r"[+-]?\d+([.,]\d+)*(e[+-]?\d+)?\Z", re.IGNORECASE)

_GREEK: Final = re.compile(r"(\w) (\w+)").findall(
    "α alpha β beta γ gamma δ delta ε varepsilon ζ zeta η eta θ theta ι iota κ kappa λ lambda μ mu ν nu ξ xi π pi "
    "ρ rho σ sigma τ tau υ upsilon φ varphi χ chi ψ psi ω omega "
    "Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Φ Phi Ψ Psi Ω Omega"
)
_LATEX: Final = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "`": r"\textasciigrave{}",
    "±": r"$\pm$", "–": "--", "—": "---", "…": r"\ldots{}", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\leq$",
    "≥": r"$\geq$", "−": "$-$", "∞": r"$\infty$", "“": "``", "”": "''", "‘": "`", "’": "'",
    "\n": " ", "\t": " ", "\r": " ",
    "[": "{[}", "*": "{*}",  # directly after the end of a row, \\[ and \\* would be read as one command
    **{letter: f"$\\{name}$" for letter, name in _GREEK},
}  # fmt: skip
_FOREIGN: Final = re.compile("[^\x00-\x7f¡-ſ‐-―‖†‡•‰€←-↓]|[«»ÐÞðþĄąĐđĘęĮįĸĿŀŉŊŋŦŧŲųſ]")
"""Letters that pdfLaTeX cannot print without a package (tried with TeX Live 2022)."""
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_POWER: Final = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")

STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;"
    "background:#fff}"
    "table{border-collapse:collapse;margin:1.5rem 0 .25rem;font-variant-numeric:tabular-nums}"
    "h1{font-size:1.6rem}h2{font-size:1.15rem}caption{text-align:left;font-weight:600;padding:.25rem 0}"
    "th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #ddd}"
    "thead th{border-bottom:2px solid #333}tbody th{font-weight:400}"
    "td.n,th.n{text-align:right}td.i{color:#555;white-space:nowrap;text-align:right}th.i{text-align:right}"
    ".notes{font-size:.85rem;color:#444;margin:.25rem 0 2rem;max-width:45rem}.notes li{margin:.1rem 0}"
    "@media print{body{margin:0;max-width:none}}"
)


@final
@dataclass(frozen=True, slots=True)
class Sheet:
    """An answer with a title, ready to be written to a file."""

    title: str
    answer: Shown

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes below the table, as sentences."""
        remarks = (each for each in self.answer._remarks() if not each.startswith("± is"))
        return tuple(_sentence(each, self.answer.columns) for each in remarks)

    @property
    def interval_words(self) -> str:
        """The name of the intervals: "95 % noise interval"."""
        return f"{percent(self.answer.confidence)} % noise interval"

    def flat(self) -> dict[str, list[Any]]:
        """The columns, with NAME_low and NAME_high beside each noisy one."""
        return self.answer._flat(intervals=True)


def sheet(answer: Shown, title: str | None) -> Sheet:
    """An answer with a title; by default "measures by keys"."""
    if title is not None and not isinstance(title, str):
        raise InvalidParameter("title", type_of(title), "must be text")
    if title is None:
        noisy = answer._noisy
        measured = [name for name, one in zip(answer.columns, noisy, strict=True) if one]
        keys = [name for name, one in zip(answer.columns, noisy, strict=True) if not one]
        title = ", ".join(measured) + (f" by {', '.join(keys)}" if keys else "")
    return Sheet(title, answer)


def _sentence(words: str, columns: Sequence[str]) -> str:
    """The words with a capital letter and a full stop; a column name at the start keeps its case."""
    named = words.startswith(tuple(f"{name}{after}" for name in columns for after in ":,"))
    begun = words if named else words[:1].upper() + words[1:]
    return begun + ("" if words.endswith((".", "?", "!")) else ".")


def saved(text: str, path: str | Path | None, *, encoding: str = "utf-8") -> str:
    """Return the text, and write it to `path` if given."""
    if path is not None:
        in_folder(path).write_text(text, encoding=encoding, newline="")
    return text


def in_folder(path: str | Path) -> Path:
    """The path of a file to write. Raises `InvalidParameter` if its folder does not exist."""
    place = Path(path)
    if not place.parent.is_dir():
        raise InvalidParameter("path", str(path), "is in a folder that does not exist", "make the folder first")
    return place


# -- for machines ------------------------------------------------------------------------------------------------------


def as_csv(one: Sheet) -> str:
    """CSV by RFC 4180: a line of names, then unrounded numbers; missing values are empty. `about_csv` has the notes."""
    return _lines(one, _plain, ",")


def as_excel_csv(one: Sheet, *, separator: str = ",", statement: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """CSV for a spreadsheet: with a byte-order mark, formulas disarmed, the notes below the table, then the statement,
    one line for each section. `separator` is a comma, a semicolon or a tab.
    """
    if separator not in {",", ";", "\t"}:
        raise InvalidParameter("separator", separator, "must be a comma, a semicolon or a tab")
    below = [[], [_guarded(one.title)], *([_guarded(note)] for note in _excel_notes(one))]
    if statement:
        below += [[], *([f"{name}. {' '.join(sentences)}"] for name, sentences in statement)]
    return BYTE_ORDER + _lines(one, _guarded, separator, below)


def _excel_notes(one: Sheet) -> list[str]:
    ends = [name for name, noisy in zip(one.answer.columns, one.answer._noisy, strict=True) if noisy]
    columns = ", ".join(f"{name}_low and {name}_high" for name in ends)
    return [*([f"{columns}: ends of the {one.interval_words}."] if ends else []), *one.notes]


def _lines(one: Sheet, as_text: Any, separator: str, below: Sequence[Sequence[str]] = ()) -> str:
    columns = one.flat()
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\r\n")
    writer.writerow([as_text(name) for name in columns])
    for row in zip(*columns.values(), strict=True):
        writer.writerow([as_text(cell) for cell in row])
    writer.writerows(below)
    return text.getvalue()


def _plain(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return repr(cell) if isinstance(cell, int | float) else str(cell)


def _guarded(cell: Cell) -> str:
    """A cell that no spreadsheet runs as a formula: text that starts like one gets a leading apostrophe."""
    text = _plain(cell)
    if not isinstance(cell, str):
        return text
    dangerous = text.lstrip(" \u00a0").startswith(_FORMULA)
    return f"'{text}" if dangerous and not _NUMBER.match(text) else text


def about_csv(one: Sheet, name: str, statement: str = "") -> str:
    """The content of NAME.csv-metadata.json: a description of the columns by W3C's "Metadata Vocabulary for Tabular
    Data".
    """
    columns = []
    for each in one.flat():
        base, _, end = each.rpartition("_")
        is_end = end in {"low", "high"} and base in one.answer.columns and each not in one.answer.columns
        about = f"{'lower' if end == 'low' else 'upper'} end of the {one.interval_words} of {base}" if is_end else each
        columns.append({"name": each, "titles": each, "dc:description": about})
    record = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": name,
        "dc:title": one.title,
        "dc:description": statement,
        "notes": list(one.notes),
        "tableSchema": {"columns": columns},
    }
    return json.dumps({key: each for key, each in record.items() if each}, ensure_ascii=False, indent=2)


def to_parquet(one: Sheet, path: str | Path, statement: str = "") -> None:
    """Write a Parquet file with title, notes and statement as JSON in its metadata, under the key `deniable`."""
    writer = library("pyarrow.parquet", "sql")
    table = one.answer.to_arrow(intervals=True)
    about: Mapping[str, Any] = {"title": one.title, "confidence": one.answer.confidence, "notes": list(one.notes),
                                "statement": statement}  # fmt: skip
    kept = {**(table.schema.metadata or {}), b"deniable": json.dumps(about, ensure_ascii=False).encode()}
    writer.write_table(table.replace_schema_metadata(kept), str(in_folder(path)))


# -- for people --------------------------------------------------------------------------------------------------------


def _columns(one: Sheet) -> list[tuple[str, str]]:
    """(heading, CSS class) of each column: "k" for a key, "n" for a number, "i" for an interval."""
    found = []
    for name, noisy in zip(one.answer.columns, one.answer._noisy, strict=True):
        found.append((name, "n" if noisy else "k"))
        if noisy:
            found.append((one.interval_words, "i"))
    return found


def _rows(one: Sheet) -> list[list[str]]:
    found = []
    for row, intervals in zip(one.answer.rows, one.answer._intervals, strict=True):
        cells: list[str] = []
        for cell, around, noisy in zip(row, intervals, one.answer._noisy, strict=True):
            if not noisy:
                cells.append(key_text(cell))
                continue
            number = cell_text(cell, around)
            cells.append(re.split(r" ± | \(", number)[0])
            cells.append(_between(cell, around))
        found.append(cells)
    return found


def _between(cell: Cell, around: tuple[float, float] | None) -> str:
    """The two ends as text, with as many digits as the number itself."""
    if around is None:
        return NO_VALUE
    low, high = around
    if all(isinstance(each, int) or float(each).is_integer() for each in around) and isinstance(cell, int):
        return f"{int(low):,} to {int(high):,}"
    shown = re.split(r" ± | \(", cell_text(cell, around))[0]
    digits = len(shown.partition(".")[2])
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def as_html(sheets: Sequence[Sheet], *, title: str, statement: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """A self-contained HTML page: each table with a caption and its notes, then the statement by sections.

    Notes that all tables share are printed once. Without a title, the window's title lists the tables.
    """
    sections = [(name, escape(" ".join(each)).replace("e^ε", "e<sup>ε</sup>")) for name, each in statement]
    about = "".join(f"<p><strong>{escape(name)}.</strong> {each}</p>" for name, each in sections)
    common = [note for note in sheets[0].notes if all(note in each.notes for each in sheets[1:])] if sheets[1:] else []
    body = "".join(html_table(each, common) for each in sheets)
    if common:
        body += f"<section><h2>Notes on all tables</h2>{_list(common)}</section>"
    method = f"<section><h2>Method</h2>{about}</section>" if about else ""
    heading, called = f"<h1>{escape(title)}</h1>" if title else "", title or "; ".join(each.title for each in sheets)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(called)}</title><style>{STYLE}</style></head><body>{heading}{body}{method}</body></html>\n"
    )


def _list(notes: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>' if notes else ""


def html_table(one: Sheet, elsewhere: Sequence[str] = ()) -> str:
    """One table as HTML, with its caption and its notes, except those in `elsewhere`."""
    columns = _columns(one)
    heads = "".join(f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in columns)
    lines = []
    for row in _rows(one):
        cells = [
            f'<th scope="row">{escape(cell)}</th>' if kind == "k" else f'<td class="{kind}">{escape(cell)}</td>'
            for cell, (_, kind) in zip(row, columns, strict=True)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    notes = _list([note for note in one.notes if note not in elsewhere])
    return (
        f"<table><caption>{escape(one.title)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{notes}"
    )


def as_latex(one: Sheet, *, label: str = "") -> str:
    """A LaTeX `table` with a caption and notes below it. It needs no package.

    A comment lists letters that pdfLaTeX cannot print.
    """
    columns = _columns(one)
    shape = "".join("l" if kind == "k" else "r" for _, kind in columns)
    heads = " & ".join(latex(name) for name, _ in columns)
    lines = [" & ".join(latex(cell) for cell in row) + r" \\" for row in _rows(one)]
    notes = [f"\\par {latex(note)}" for note in one.notes]
    named = [f"\\label{{{re.sub('[^A-Za-z0-9:.-]', '-', label)}}}"] if label else []
    written = "".join((latex(one.title), heads, *lines, *notes))
    foreign = ", ".join(f"U+{ord(each):04X}" for each in sorted(set(_FOREIGN.findall(written)))[:20])
    return "\n".join(
        [
            *([f"% pdfLaTeX needs a package for {foreign}; LuaLaTeX needs a font that has them"] if foreign else []),
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{latex(one.title)}}}",
            *named,
            f"\\begin{{tabular}}{{{shape}}}",
            r"\hline",
            f"{heads} \\\\",
            r"\hline",
            *lines,
            r"\hline",
            r"\end{tabular}",
            *([r"\begin{flushleft}\footnotesize", *notes, r"\end{flushleft}"] if notes else []),
            r"\end{table}",
            "",
        ]
    )


def latex(text: str) -> str:
    r"""Text for LaTeX: special characters are escaped, and symbols that pdfLaTeX cannot print become commands.

    >>> print(latex("a_b & 50 % ± ε ≤ 10⁻⁶"))
    a\_b \& 50 \% $\pm$ $\varepsilon$ $\leq$ 10$^{-6}$
    """
    texts, powers = _POWER.split(text), [*_POWER.findall(text), ""]
    found = []
    for each, power in zip(texts, powers, strict=True):
        found.append("".join(_LATEX.get(one, one) for one in each))
        found.append(f"$^{{{power.translate(_RAISED)}}}$" if power else "")
    return "".join(found)
