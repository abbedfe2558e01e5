"""The result of an audit: certified numbers with their error rate, a sentence, and a figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from deniable.audit.answer_columns import UNREADABLE, SeenAnswers
from deniable.audit.event_search import Band, ClaimLevel, Event, Tally
from deniable.curves import Curve
from deniable.curves.curve_display import rounded_down, rounded_up

if TYPE_CHECKING:
    from deniable.plots import Figure


REFUTED: Final = "refuted"
CONSISTENT: Final = "consistent"
MEASURED: Final = "measured"
NOTHING_SEEN: Final = "nothing seen"
ROUNDING: Final = 1e-12
"""Tolerance for the sum of two floats."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """All statements of a finding hold together with probability at least `confidence`, for any mechanism."""

    epsilon: float
    """A certified lower bound: at `delta`, the mechanism is not (ε, δ)-DP for any smaller ε. 0 if nothing is proved."""
    delta: float
    refuted: bool | None
    """Whether the claim is proved wrong; None without a claim. False does not prove the claim; if nothing was `seen`,
    it is not even evidence for it: see `verdict`.
    """
    confidence: float
    event: Event
    """The guessing rule that proves ε."""
    tally: Tally
    """Its right and wrong guesses on answers that were not used to choose it."""
    band: Band
    """Certified points of the trade-off between false alarms and misses."""
    claim: Curve | None
    claimed: float
    """The claim's ε at `delta`; infinite if no ε holds at `delta`."""
    broken: tuple[ClaimLevel, float] | None
    """The (ε, δ) of the claim that the guesses violate, with the p-value; None if the guesses violate no claim."""
    breaking: tuple[Event, Tally] | None
    """The guessing rule that violates the claim, and the counts of its guesses."""
    trials: int
    """The average number of calls for each neighbour."""
    read: SeenAnswers
    """A summary of the answers."""
    reach: float
    """The ε that these trials would certify for a mechanism that leaks as much as the claim allows (everything, if the
    claim has no finite ε).
    """

    @property
    def seen(self) -> bool:
        """Whether the answers prove that the output distributions differ: by an ε above 0, or by a test in the band
        that is better than a coin.
        """
        better = any(a + b < 1 - ROUNDING for a, b in zip(self.band.alpha, self.band.beta, strict=True))
        return bool(self.refuted) or self.epsilon > 0 or better

    @property
    def verdict(self) -> str:
        """One of four:

        "refuted": the claim is proved wrong; "consistent": a difference was proved, and the claim allows it;
        "measured": the same without a claim; "nothing seen": no difference was proved, or a part of the answers could
        not be read, which is not evidence for any claim.
        """
        if self.refuted:
            return REFUTED
        if not self.seen or self.read.shut:
            return NOTHING_SEEN
        return MEASURED if self.claim is None else CONSISTENT

    @property
    def ratio(self) -> float:
        """The certified ε divided by the claimed ε; NaN if the claimed ε is 0 or infinite."""
        return self.epsilon / self.claimed if 0 < self.claimed < math.inf else math.nan

    @property
    def proof(self) -> tuple[Event, Tally]:
        """The guessing rule that proves the sentence, and its guesses."""
        if self.refuted and self.epsilon <= self.claimed and self.breaking is not None:
            return self.breaking
        return self.event, self.tally

    @property
    def sentence(self) -> str:
        """The finding in words."""
        sure, level = f"{float(self.confidence)!r}", f"δ = {self.delta:.3g}"
        measured = f"ε is at least {rounded_down(self.epsilon, 4)} at {level}"
        if self.verdict == NOTHING_SEEN:
            return self._partly(sure, measured) if self.seen else self._nothing(sure, level)
        if self.claim is None:
            return f"With confidence {sure}: {measured}."
        claim = "no ε" if math.isinf(self.claimed) else f"ε = {rounded_up(self.claimed, 4)}"
        if not self.refuted:
            share = f", {100 * self.ratio:.0f} % of it" if math.isfinite(self.ratio) else ""
            agreed = f"Consistent with the claim, which says {claim} at {level}"
            return f"{agreed}; measured with confidence {sure}: {measured}{share}."
        if self.epsilon > self.claimed:
            return f"Refuted with confidence {sure}: {measured}; the claim says {claim}."
        if self.broken is not None:
            at = self.broken[0]
            breaks = f"at ε = {at.epsilon:.4g} the claim allows δ = {at.delta:.3g}, and the guesses show more"
        else:
            breaks = "an attack has fewer misses at the same false alarms than the claim allows"
        return f"Refuted with confidence {sure}: {breaks}. Also measured: {measured}, where the claim says {claim}."

    def _nothing(self, sure: str, level: str) -> str:
        """The sentence if no difference was proved, with a likely reason."""
        begin = f"Nothing seen: at confidence {sure} the answers prove no difference between the neighbours"
        if self.claim is not None:
            begin += f", which is not evidence for the claim of ε = {rounded_up(self.claimed, 4)} at {level}"
        if not self.read.changing:
            why = f"All {self.read.answers:,} answers were alike"
        elif self.claimed == 0:
            why = "No number of answers can prove that a mechanism ignores the data"
        elif self.reach <= 0:
            why = "So few trials cannot show so small an ε"
        else:
            shown = f"would have shown up to ε = {rounded_down(self.reach, 3)} in as many trials"
            why = f"A mechanism that leaks all that the claim allows {shown}"
        return f"{begin}. {why}.{self._unread}"

    def _partly(self, sure: str, measured: str) -> str:
        """The sentence if a part of the answers could not be read."""
        begin = "Nothing seen in a part of the answers: the part that was not read may reveal everything"
        evidence = "" if self.claim is None else ", so this is not evidence for the claim"
        return f"{begin}{evidence}.{self._unread} Measured in the rest, with confidence {sure}: {measured}."

    @property
    def _unread(self) -> str:
        return f" Not read: {', '.join(self.read.shut)}, {UNREADABLE}." if self.read.shut else ""

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"<Finding: {self.sentence} {self.read.sentence}>"

    def plot(self) -> Figure:
        """A figure of the certified trade-off and the claimed one, for `plots.render`."""
        import numpy as np

        from deniable.plots.figure_spec import REFERENCE, Axis, Figure, Line, Mark, Panel

        marks: list[Mark] = [Line("learns nothing", (0.0, 1.0), (1.0, 0.0), REFERENCE, "dashed")]
        if self.claim is not None:
            alpha = 0.5 * (1 - np.cos(np.linspace(0, math.pi, 61)))
            beta = self.claim.beta(alpha=alpha)
            marks.append(Line("claimed: no attack gets below", _floats(alpha), _floats(beta), 0))
        marks.append(Line("measured: an attack gets this low", self.band.alpha, self.band.beta, 1))
        panel = Panel(Axis("false alarms α", 0, 1), Axis("misses β", 0, 1), tuple(marks), labels="inside", square=True)
        return Figure("An audit", (panel,), self.sentence, height=5.0)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
