"""Privacy labels: what a release promises, on one signed page, as JSON, HTML or SVG. The signature is of the JSON.

A label states the unit, the neighbouring relation, the privacy loss, the mechanisms, the public schema, and the threat
model. It holds the hash of the answer instead of the answer, so that it cannot be shown beside other numbers;
`ledger.verify_label` checks signature and hash.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Final

from deniable.ledger.keys import SigningKey
from deniable.ledger.label_verification import BINDING, answer_digest, check_label, label_message
from deniable.queries.answer.answer import Answer
from deniable.queries.answer.answer_display import key_text
from deniable.queries.plan.noise_families import family_of
from deniable.queries.plan.pricing import released_as
from deniable.queries.synthetic.synthetic_records import record_of
from deniable.server.noted_questions import words_of
from deniable.tables.schema import schema_records

if TYPE_CHECKING:
    from deniable.ledger import Budget, Cost, Entry, Ledger
    from deniable.queries.answer.release import Draw, Released
    from deniable.queries.plan.noise_planner import NoisePlan
    from deniable.queries.session import Session
    from deniable.server.datasets.synthetic_downloads import Recalled
    from deniable.units import Guarantee

__all__ = ["as_html", "as_svg", "check_label", "label_of", "label_of_synthetic", "lines", "signed"]

VERSION: Final = BINDING
_MERGED: Final = "merged by inverse variance"
_TOGETHER: Final = "measured together with other tables and fitted to all of them by least squares"
_SOME: Final = "; a key that only some of the draws showed carries the noise of those"
_LONG: Final = re.compile(r"\b[0-9]+\.[0-9]{7,}\b(?!e)")
_HEAD, _LINE = 50, 76
"""Characters per line of the picture: in the heading, and below it."""
THREAT_MODEL: Final = (
    "Anyone who sees this answer, every other answer under the same budget, and all data about everybody else in the "
    "data. The operator of the server and the owner of the data see the data itself and are trusted."
)


def label_of(dataset: str, sql: str, answer: Answer, entry: Entry, session: Session) -> dict[str, Any]:
    """The unsigned label of an answer. `entry` is its charge in the ledger."""
    plan, budget, ledger, released = answer.plan, session.budget, session.ledger, answer.released
    tables = {table.name: table for table in plan.question.relation.tables}
    merged = _MERGED + ("" if plan.people is None else _SOME)
    return {
        **_heading(dataset, sql, answer.released.cost, answer.guarantee, entry, session),
        "draws": [_drawn(each, plan, budget) for each in released.all_draws]
        if released.law is None
        else [_drawn_together(released, plan, budget)],
        "merged": merged if len(released.all_draws) > 1 else None,
        "deviations": [
            {"of": name, "deviation": released.deviation(plan, budget, i) * (step or 1.0)}
            for i, (name, step) in enumerate(released_as(plan, budget))
            if not plan.is_picked  # a cell that is drawn at random has no added noise
        ],
        "public": schema_records(tables),
        "answer": answer_digest(answer.to_dict()),
        **_footing(answer.guarantee, entry, ledger),
    }


def label_of_synthetic(dataset: str, sql: str, found: Recalled, entry: Entry, session: Session) -> dict[str, Any]:
    """The unsigned label of a synthetic table. It holds the hash of the noisy counts. Rows drawn from them are
    post-processing, so the same guarantee holds for them.
    """
    made, text, then = found
    budget, ledger, measured = session.budget, session.ledger, made._measured
    record = record_of(made, text, then.tables)
    named = [f"count by {', '.join(names)}" for names, _, _ in record["rows"]]
    table = measured.plans[0].question.relation.tables[0]
    each_of = list(zip(named, measured.plans, measured.released, strict=True))
    mechanisms = [
        {**mechanism, "of": name}
        for name, plan, released in each_of
        for draw in released.all_draws
        for mechanism in _drawn(draw, plan, budget)["mechanisms"]
    ]
    return {
        **_heading(dataset, sql, entry.cost, made.guarantee, entry, session),
        "draws": [{"paid": entry.cost.describe(budget), "summed_cells": 1, "mechanisms": mechanisms}],
        "merged": None,
        "deviations": [
            {"of": name, "deviation": released.deviation(plan, budget, 0)} for name, plan, released in each_of
        ],
        "public": schema_records({table.name: table}),
        "answer": answer_digest(record),
        **_footing(made.guarantee, entry, ledger),
    }


def _heading(
    dataset: str, sql: str, loss: Cost, guarantee: Guarantee, entry: Entry, session: Session
) -> dict[str, Any]:
    """The first fields of every label: the release, its question, its unit, and its privacy loss."""
    budget, ledger = session.budget, session.ledger
    return {
        "version": VERSION,
        "release": f"{dataset}:{entry.charge}",
        "dataset": dataset,
        "question": sql,
        "question_hash": entry.question,
        "time": entry.time,
        "unit": ledger.unit.describe(),
        "neighbours": ledger.unit.relation.value,
        "loss": loss.describe(budget),
        "curve": guarantee.curve.to_dict(),
        "lifetime_limit": ledger.largest_limit.describe(budget),
        "lifetime_spent": entry.spent.describe(budget),
    }


def _footing(guarantee: Guarantee, entry: Entry, ledger: Ledger) -> dict[str, Any]:
    """The last fields of every label: its assumptions, its threat model, and its entry in the ledger."""
    return {
        "assumptions": list(guarantee.assumptions),
        "threat_model": THREAT_MODEL,
        "ledger": {"serial": ledger.serial, "entry": entry.charge, "hash": entry.hash},
    }


def _drawn(draw: Draw, plan: NoisePlan, budget: Budget) -> dict[str, Any]:
    """One draw of noise: its cost, and the mechanism of each statistic."""
    from deniable.queries.plan.noise_planner import unthresholded

    noise = unthresholded(plan, budget, draw.cost.units)
    return {
        "paid": draw.cost.describe(budget),
        "summed_cells": draw.cells,
        "mechanisms": [
            {"of": name, "noise": repr(mechanism), **_in_units(step, mechanism)}
            for (name, step), mechanism in zip(released_as(plan, budget), noise.mechanisms, strict=True)
        ],
    }


def _drawn_together(released: Released, plan: NoisePlan, budget: Budget) -> dict[str, Any]:
    """The noise of a table that was measured together with others, at one cost."""
    assert released.law is not None
    [(name, _)] = released_as(plan, budget)
    family, count = family_of(budget), len(released.law.sources)
    noise = f"{family.name} noise on {count} {family.measured_together}{'s' * (count > 1)}, {_TOGETHER}"
    return {
        "paid": released.cost.describe(budget),
        "summed_cells": 1,
        "mechanisms": [{"of": name, "noise": noise}],
    }


def _in_units(step: float | None, mechanism: Any) -> dict[str, Any]:
    """Sensitivity and scale of the noise on a sum in the units of the measure; its mechanism counts in grid steps."""
    if step is None:  # counts and running totals, which have steps of 1
        return {}
    units = {"sensitivity": float(mechanism.sensitivity) * step, mechanism.LEVEL: float(mechanism.width) * step}
    return {"step": f"2^{math.frexp(step)[1] - 1}", "units": units}


def signed(label: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """The label with the public key and its signature."""
    whole = {**label, "key": key.public.hex}
    return {**whole, "signature": key.sign(label_message(whole))}


# -- for people ------------------------------------------------------------------------------------------------------


def lines(label: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A label in words: (name, text) for each line."""
    bounded = [
        f"{table}.{column}: {_public(facts)}"
        for table, record in label["public"].items()
        for column, facts in record["columns"].items()
    ]
    return [
        ("Release", label["release"]),
        ("Time", label["time"]),
        ("Question", words_of(label["question"])),
        ("Protects", label["unit"]),
        ("Neighbours", label["neighbours"]),
        ("This release", label["loss"]),
        ("All so far", label["lifetime_spent"]),
        ("Never more than", label["lifetime_limit"]),
        *_draws(label),
        *(("Public", each) for each in bounded),
        *(("Assumes", each) for each in label["assumptions"]),
        ("Against", label["threat_model"]),
        *([("Numbers", f"SHA-256 {label['answer']}")] if "answer" in label else ()),
        ("Ledger", f"{label['ledger']['serial']}, charge {label['ledger']['entry']}, {label['ledger']['hash']}"),
        ("Signed by", label["key"]),
        ("Signature", label["signature"]),
    ]


def _public(facts: Mapping[str, Any]) -> str:
    """The public facts of a column, in words."""
    text = [facts["kind"]]
    if "low" in facts:
        text.append(f"{facts['low']} to {facts['high']}")
    if "keys" in facts:
        text.append("one of " + ", ".join(key_text(key) for key in facts["keys"]))
    return ", ".join([*text, "may be missing" if facts.get("nullable", True) else "never missing"])


def _draws(label: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lines for the draws and their mechanisms, how they were merged, and the standard deviation of the result."""
    several, found = len(label["draws"]) > 1, []
    for number, draw in enumerate(label["draws"], 1):
        for each in draw["mechanisms"]:
            text = _mechanism(each)
            if several:
                cells = draw["summed_cells"]
                text += f", paid {draw['paid']}" + (f", summed over at most {cells:,} cells" if cells > 1 else "")
            found.append((f"Draw {number}" if several else "Mechanism", text))
    if several:
        found.append(("Answer", label["merged"]))
    spread = "; ".join(f"{each['of']} {each['deviation']:,.6g}" for each in label["deviations"])
    return [*found, ("Deviation", f"standard deviation of the noise: {spread}")]


def _mechanism(each: Mapping[str, Any]) -> str:
    text = f"{_LONG.sub(_shorter, each['noise'])} on the {each['of']}"
    if "units" not in each:
        return text
    units = ", ".join(f"{name} {value:,.6g}" for name, value in each["units"].items())
    return f"{text}, counted in steps of {each['step']}; in its own units: {units}"


def _shorter(number: re.Match[str]) -> str:
    """A number cut to six digits: rounded down, so that it does not overstate the noise. The JSON has all digits."""
    whole, _, rest = number[0].partition(".")
    return f"{whole}.{rest[: max(1, 6 - len(whole.lstrip('0')))]}"


def as_html(label: Mapping[str, Any]) -> str:
    """A complete page, without scripts and external styles."""
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{escape(str(text))}</td></tr>" for name, text in lines(label)
    )
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:48rem;padding:0 1rem;"
        "color-scheme:light dark}"
        "table{border-collapse:collapse;width:100%;border:2px solid}th,td{text-align:left;vertical-align:top;"
        "padding:.35rem .6rem;border-bottom:1px solid #8886;overflow-wrap:anywhere}th{white-space:nowrap}"
    )
    title = f"Privacy label of {escape(label['release'])}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head>'
        f"<body><h1>{title}</h1><table>{rows}</table></body></html>"
    )


def as_svg(label: Mapping[str, Any]) -> str:
    """A picture, with long lines wrapped."""
    title = f"Privacy label of {label['release']}"
    heads = _wrapped(title, _HEAD)
    width, y, parts = 720, 34, []
    for each in heads:
        parts.append(f'<text x="20" y="{y}" font-size="18" font-weight="700">{escape(each)}</text>')
        y += 24
    y += 6
    for name, text in lines(label):
        parts.append(f'<text x="20" y="{y}" font-size="13" font-weight="600">{escape(name)}</text>')
        for each in _wrapped(str(text), _LINE):
            # Monospace: the width of a line is known, so that it stays inside the frame.
            parts.append(f'<text x="150" y="{y}" font-family="monospace" xml:space="preserve">{escape(each)}</text>')
            y += 17
        y += 7
    total, title = y, escape(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" role="img" aria-label="{title}" '
        f'font-family="system-ui,sans-serif" font-size="12"><rect x="1" y="1" width="{width - 2}" height="{total - 2}" '
        'rx="8" fill="#fff" stroke="#111" stroke-width="2"/>'
        f"{''.join(parts)}</svg>"
    )


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken between words where possible. A wide character takes two cells."""
    found = []
    for line in text.splitlines() or [""]:
        rest = "".join(each if each.isprintable() else " " for each in line)
        while rest:
            cells, end = 0, 0
            while end < len(rest) and (cells := cells + _cells(rest[end])) <= width:
                end += 1
            cut = rest.rfind(" ", 1, end + 1) if end < len(rest) else end
            cut = cut if cut > 0 else end
            found.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip()
    return found or [""]


def _cells(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
