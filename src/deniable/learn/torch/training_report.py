"""The report of a training run: a model card with the statement for a paper, the plan, assumptions and tests.

It contains the plan, the trainer's public facts, and what the owner passes. Losses of the training data are in it only
if the owner passes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, final

import numpy as np

from deniable.audit import OneRun
from deniable.curves import curve_arguments
from deniable.curves.curve_display import percent_up, rounded_up
from deniable.curves.curve_display import title as title_of
from deniable.errors import NOTHING, InvalidParameter, nearest, type_of
from deniable.learn.loss_membership import RATES, MembershipTest
from deniable.learn.torch.gradient_noise import ExactNoise
from deniable.numbers import above
from deniable.queries.answer import privacy_statement
from deniable.queries.answer.answer_files import saved
from deniable.queries.answer.privacy_statement import markdown_text, power
from deniable.units import Guarantee

if TYPE_CHECKING:
    from deniable.curves import Curve
    from deniable.learn.plans import Plan
    from deniable.learn.torch.trainer import Trainer
    from deniable.queries.answer.privacy_statement import Statement

EXACT: Final = "The noise is drawn exactly, on a grid, from the operating system's cryptographic randomness."
CAPPED: Final = (
    "A false alarm is a record outside of the training data that a test takes for a member. At each rate of false "
    "alarms, no test finds a larger share of the members than the certified one, whatever the attacker knows."
)
OWNERS: Final = (
    "The owner gave these numbers. The guarantee does not cover them: numbers that were computed from private data "
    "without noise may reveal something about it."
)
MEASURED: Final = "It is computed from the data without noise: for the owner."

STYLE: Final = """
:root{--ink:#1c2330;--soft:#5b6575;--line:#d9dee7;--page:#fff;--card:#f5f7fa;--main:#1f5fbf;--other:#b8541a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#9aa4b5;--line:#343c4a;--page:#14181f;--card:#1d232d;
--main:#7fb0ff;--other:#f0a268}}
.training-report{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:46rem;
margin:0 auto;padding:1.5rem 1rem 3rem}
.training-report h1{font-size:1.7rem;line-height:1.2;margin:.2rem 0 .2rem}
.training-report h2{font-size:1.15rem;margin:2.2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
.training-report .sub,.training-report .note{color:var(--soft);font-size:.92rem}
.training-report .cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.7rem;
margin:1.3rem 0}
.training-report .cards div{background:var(--card);border-radius:.6rem;padding:.7rem .9rem}
.training-report .cards b{display:block;font-size:1.3rem;white-space:nowrap;line-height:1.25;
font-variant-numeric:tabular-nums}
.training-report .cards span{color:var(--soft);font-size:.85rem}
.training-report table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;margin:.6rem 0}
.training-report th,.training-report td{padding:.35rem .6rem;border-bottom:1px solid var(--line);text-align:right;
vertical-align:top;color:inherit;background:none}
.training-report th:first-child,.training-report td:first-child{text-align:left}
.training-report table.facts td{text-align:left}
.training-report table.facts td:first-child{color:var(--soft);white-space:nowrap;width:11rem}
.training-report th{font-weight:600;font-size:.9rem}
.training-report li{margin:.35rem 0}
.training-report svg{display:block;width:100%;max-width:30rem;height:auto;margin:1rem auto}
.training-report svg text{fill:var(--soft);font-size:11px;font-family:inherit}
"""


@final
@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What to publish beside a trained model. Print it, show it in a notebook, or write it with `to_html` and
    `to_markdown`."""

    title: str
    curve: Curve
    delta: float
    statement: Statement
    """The paragraphs for a paper."""
    plan: tuple[str, ...]
    """The plan in sentences."""
    facts: tuple[tuple[str, str], ...]
    """(name, value): the model, the optimizer, the steps."""
    audit: OneRun | None
    membership: MembershipTest | None
    results: tuple[tuple[str, str], ...]
    """(name, value), as the owner gave them."""

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of false alarms in the table of membership."""
        return RATES if self.membership is None else tuple(each.false_alarms for each in self.membership.rates)

    def cap(self, false_alarms: float) -> float:
        """The largest share of members that any test finds at this rate of false alarms: 1 - β(α), rounded up."""
        return min(1.0, above(1.0 - float(self.curve.beta(alpha=false_alarms))))

    # -- taking it elsewhere -------------------------------------------------------------------------------------------

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that needs nothing else; written to `path` if given."""
        head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(self.title)}"
        page = f"<!doctype html><html lang='en'><head>{head}</title><style>body{{margin:0}}"
        dark = "@media(prefers-color-scheme:dark){body{background:#14181f}}"
        return saved(f"{page}{dark}</style></head><body>{self._repr_html_()}</body></html>\n", path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """A model card in Markdown; written to `path` if given."""
        return saved(self._repr_markdown_(), path)

    def __str__(self) -> str:
        return "\n\n".join([self.title, self.statement.text(), *self.plan])

    def __repr__(self) -> str:
        return f"<TrainingReport {self.title!r}: {self._figures()[0][0]} at δ = {self.delta:g}>"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _figures(self) -> list[tuple[str, str]]:
        """(number, meaning) of the four numbers on top."""
        mu = float(self.curve.gdp(delta=self.delta))
        return [
            (f"ε = {rounded_up(float(self.curve.epsilon(delta=self.delta)), 4)}", f"at δ = {power(self.delta)}"),
            (f"μ = {rounded_up(mu, 4)}", f"Gaussian DP, up to δ = {power(self.delta)}"),
            (percent_up((1 + self.curve.advantage()) / 2), "of guesses from even odds are right, at most"),
            (percent_up(self.cap(0.01)), "of members are found at 1 % false alarms, at most"),
        ]

    def _membership(self) -> list[list[str]]:
        """The table: a header, and a row for each rate of false alarms."""
        head = ["false alarms", "found at most (certified)"]
        found = self.membership
        rows = [[f"{100 * rate:g} %", percent_up(self.cap(rate))] for rate in self.rates]
        if found is not None:
            head.append(f"found by the test ({100 * found.confidence:g} % interval)")
            for row, each in zip(rows, found.rates, strict=True):
                row.append(f"{100 * each.found:.1f} % ({100 * each.low:.1f} to {100 * each.high:.1f})")
        return [head, *rows]

    def _tested(self) -> list[str]:
        """Sentences below the table of membership."""
        found = self.membership
        return [CAPPED] if found is None else [CAPPED, f"{found.describe()} {MEASURED}"]

    def _repr_markdown_(self) -> str:
        top = " · ".join(f"**{number}** {meaning}" for number, meaning in self._figures())
        parts = [
            f"# {markdown_text(self.title)}",
            top,
            "## Statement",
            self.statement.markdown().strip(),
            "## The plan",
        ]
        parts += [
            "\n".join(f"- {markdown_text(each)}" for each in self.plan),
            "## The run",
            _table([["", ""], *map(list, self.facts)]),
        ]
        parts += ["## Membership", _table(self._membership()), *map(markdown_text, self._tested())]
        if self.audit is not None:
            parts += ["## Canary audit", markdown_text(self.audit.sentence)]
        if self.results:
            parts += ["## Results", _table([["", ""], *map(list, self.results)]), markdown_text(OWNERS)]
        return "\n\n".join(parts) + "\n"

    def _repr_html_(self) -> str:
        cards = "".join(
            f"<div><b>{escape(number)}</b><span>{escape(meaning)}</span></div>" for number, meaning in self._figures()
        )
        sections = "".join(
            f"<p><b>{escape(name)}.</b> {escape(' '.join(words))}</p>"
            for name, words in self.statement.sections
            if name != "Assumptions"
        )
        assumed = next((words for name, words in self.statement.sections if name == "Assumptions"), ())
        parts = [
            f"<h1>{escape(self.title)}</h1><p class='sub'>Report of a private training run</p>",
            f"<div class='cards'>{cards}</div>",
            f"<h2>Statement</h2>{sections}",
            f"<h2>What is assumed</h2><ul>{''.join(f'<li>{escape(each)}</li>' for each in assumed)}</ul>"
            if assumed
            else "",
            f"<h2>The plan</h2><ul>{''.join(f'<li>{escape(each)}</li>' for each in self.plan)}</ul>",
            f"<h2>The run</h2>{_html_facts(self.facts)}",
            f"<h2>Membership</h2>{self._picture()}{_html_table(self._membership())}",
            *(f"<p class='note'>{escape(each)}</p>" for each in self._tested()),
            "" if self.audit is None else f"<h2>Canary audit</h2><p>{escape(self.audit.sentence)}</p>",
            f"<h2>Results</h2>{_html_facts(self.results)}<p class='note'>{escape(OWNERS)}</p>" if self.results else "",
        ]
        return f"<style>{STYLE}</style><article class='training-report'>{''.join(parts)}</article>"

    def _picture(self) -> str:
        """The cap over the rate of false alarms, with a logarithmic axis, and what a test found."""
        wide, high, left, low = 450, 250, 44, 210

        def at(alpha: float, share: float) -> tuple[float, float]:
            return left + (math.log10(alpha) + 3) / 3 * (wide - left - 24), low - share * (low - 14)

        grid = np.geomspace(1e-3, 1, 49)
        caps = 1 - np.asarray(self.curve.beta(alpha=grid))
        cap = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, grid, caps))
        chance = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(each, each) for each in grid))
        marks = "".join(
            f"<text x='{at(alpha, 0)[0]:.1f}' y='{low + 16}' text-anchor='middle'>{name}</text>"
            for alpha, name in ((0.001, "0.1 %"), (0.01, "1 %"), (0.1, "10 %"), (1.0, "100 %"))
        )
        marks += "".join(
            f"<path d='M{left} {y:.1f}H{wide - 24}' stroke='var(--line)'/>"
            f"<text x='{left - 6}' y='{y + 4:.1f}' text-anchor='end'>{100 * share:g} %</text>"
            for share, y in ((share, at(1, share)[1]) for share in (0.0, 0.5, 1.0))
        )
        tested = () if self.membership is None else self.membership.rates
        dots = "".join(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='var(--other)'/>"
            for x, y in (at(max(each.false_alarms, 1e-3), each.found) for each in tested)
        )
        legend = f"<text x='{left + 10}' y='26' style='fill:var(--main)'>no test finds more</text>"
        legend += f"<text x='{left + 10}' y='42'>- - guessing</text>"
        legend += f"<text x='{left + 10}' y='58' style='fill:var(--other)'>● found by the test</text>" if dots else ""
        label = "The largest share of members that any test finds, over its rate of false alarms"
        return (
            f"<svg viewBox='0 0 {wide} {high}' role='img' aria-label='{label}'>{marks}"
            f"<polyline points='{chance}' fill='none' stroke='var(--soft)' stroke-dasharray='4 4'/>"
            f"<polyline points='{cap}' fill='none' stroke='var(--main)' stroke-width='2.5'/>{dots}{legend}"
            f"<text x='{(wide + left) / 2}' y='{high - 6}' text-anchor='middle'>false alarms</text></svg>"
        )


class ReportParts(TypedDict, total=False):
    """What `Trainer.report` takes besides δ."""

    title: str
    audit: OneRun
    """What `Trainer.audit` returned."""
    membership: MembershipTest
    """What `learn.membership_test` returned."""
    results: Mapping[str, Any]
    """Numbers of your own, such as accuracies. They are not private, unless their data is public."""


def made(trainer: Trainer, *, delta: float, **parts: Unpack[ReportParts]) -> TrainingReport:
    """The report of a trainer's run."""
    known = tuple(ReportParts.__annotations__)
    for name in parts.keys() - known:
        hint = "" if (near := nearest(name, known)) is None else f"did you mean {near}=? "
        raise InvalidParameter(name, NOTHING, "is not a part of a report", f"{hint}there are {', '.join(known)}")
    audit, membership = parts.get("audit"), parts.get("membership")
    if not (audit is None or isinstance(audit, OneRun)):
        raise InvalidParameter("audit", type_of(audit), "must be what trainer.audit(...) returned")
    if not (membership is None or isinstance(membership, MembershipTest)):
        raise InvalidParameter("membership", type_of(membership), "must be what learn.membership_test(...) returned")
    at, plan, model = curve_arguments.inner_probability("delta", delta), trainer.plan, trainer.model
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    facts = {
        "model": type(model).__name__,
        "trained parameters": f"{trained:,} of {sum(each.numel() for each in model.parameters()):,}",
        "optimizer": type(trainer.optimizer).__name__,
        "steps": f"{trainer.steps_taken:,} of {plan.steps:,} (the guarantee is for all of them)",
        "plan": repr(plan),
        "curve": title_of(plan.curve),
    }
    if trainer.public_steps:
        facts["public steps"] = f"{trainer.public_steps:,}"
    is_exact = isinstance(trainer._noise, ExactNoise)
    return TrainingReport(
        title=str(parts.get("title") or f"{type(model).__name__}, trained privately"),
        curve=trainer.curve,
        delta=at,
        statement=privacy_statement.of_training(trainer.guarantee, _how(plan, is_exact=is_exact), delta=at),
        plan=tuple(_sentence(line) for line in plan.explain(delta=at).splitlines()),
        facts=tuple(facts.items()),
        audit=audit,
        membership=membership,
        results=tuple((str(name), str(value)) for name, value in (parts.get("results") or {}).items()),
    )


@functools.lru_cache(maxsize=8)
def _text(plan: Plan, promise: Guarantee, is_exact: bool) -> str:
    return privacy_statement.of_training(
        promise, _how(plan, is_exact=is_exact), delta=privacy_statement.USUAL_DELTA
    ).text()


def guarantee_text(trainer: Trainer) -> str:
    """The statement about a run as plain text, with ε at δ = 10⁻⁶: for its checkpoints."""
    return _text(trainer.plan, trainer.guarantee, isinstance(trainer._noise, ExactNoise))


def _how(plan: Plan, *, is_exact: bool) -> list[str]:
    """Sampling, clipping and noise in sentences, without the promise."""
    lines = takewhile(lambda line: not line.startswith("Between"), plan.explain().splitlines())
    return [*map(_sentence, lines), *([EXACT] if is_exact else [])]


def _sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}"


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(map(markdown_text, row))} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _html_table(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_facts(rows: tuple[tuple[str, str], ...]) -> str:
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table class='facts'><tbody>{body}</tbody></table>"
