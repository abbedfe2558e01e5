"""The noise of fitted numbers: which draws are in which tables, and the share of each draw in a fitted number.

A fit mixes several tables, and several tables may contain the same draw. So the shares of a draw are added up before
variances are computed. Most draws have a mark, which identifies them across tables. Older answers have no marks. For
those, two accounts are kept, one in which draws that look equal are the same and one in which they are different, and
intervals hold under both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from deniable.queries.answer.release import DrawnShares, shares_of
from deniable.queries.intervals.noise_intervals import Share
from deniable.synth import least_squares_fit
from deniable.synth.least_squares_fit import Axes, Margin
from deniable.synth.table_noise import summed

if TYPE_CHECKING:
    from deniable.queries.answer.answer import Answer
    from deniable.queries.publication.consistent_fit import TablesBySide
    from deniable.synth.table_noise import TableNoise

_EXACT: Final = Share(0.0, 1.0)
"""The share of a number without noise."""


Drawn = tuple[int, int] | str
"""The identity of a draw: its mark or, if it has no mark, (index of the table, index of the draw in the table)."""


@final
class DrawPart(NamedTuple):
    """The contribution of one draw to a table: `weight` times the sums of a noise table by `axes`.

    Each cell of the noise table has independent noise of `width`; `cells` of them are summed in one cell by `axes`, if
    the other axes of the noise table are unknown.
    """

    draw: Drawn
    weight: float
    width: float
    axes: Axes
    cells: int = 1
    loads: tuple[tuple[Axes, float], ...] = ()
    """The factor of each residual, if the contribution is not a plain sum; otherwise empty."""

    @property
    def carried(self) -> float | least_squares_fit.Loads:
        """The contribution in the form that `least_squares_fit.TableFit.effects` takes."""
        return {part: self.weight * load for part, load in self.loads} if self.loads else self.weight


@final
@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table as input of a fit, and its draws by one or more possible accounts."""

    margin: Margin
    accounts: tuple[tuple[DrawPart, ...], ...]


def measured_of(side: TablesBySide, answers: Sequence[Answer], *, apart: bool) -> list[MeasuredTable]:
    """The tables with their noise.

    A batch may have merged a table with the sums of a finer table. If the finer table is among the answers, both
    contain the same draw of noise. The draw is recognised by its cost alone, which may coincide, so two accounts are
    kept: with and without a common draw. With `apart`, such a merge is undone: the table keeps only its own draw and is
    independent of the finer table.
    """
    found: dict[int, MeasuredTable] = {}
    places = _places(side, answers)
    for i in sorted(range(len(answers)), key=lambda i: -len(side.axes[i])):  # finer ones first
        law = answers[i].released.law
        if law is not None:
            found[i] = _by_law(side, answers[i], i, law, places)
        else:
            found[i] = _with_noise(side, answers, i, found, apart=apart)
    return [found[i] for i in range(len(answers))]


def _places(side: TablesBySide, answers: Sequence[Answer]) -> dict[tuple[str, int], int]:
    """(mark of a draw, column of its noise table) -> axis, for all columns that some answer has as a key."""
    found: dict[tuple[str, int], int] = {}
    for answer, order in zip(answers, side.order, strict=True):
        released = answer.released
        names = dict(zip(released.columns, order, strict=True)) if released.law is not None else {}
        for source in released.law.sources if released.law is not None else ():
            if source.mark:
                pairs = zip(source.names, source.columns, strict=True)
                found |= {(source.mark, name): names[column] for name, column in pairs if column in names}
        if released.law is None:
            found |= {(mark, place): axis for mark in released.marks if mark for place, axis in enumerate(order)}
    return found


def _by_law(
    side: TablesBySide, answer: Answer, i: int, law: TableNoise, places: Mapping[tuple[str, int], int]
) -> MeasuredTable:
    """A table whose noise is a `TableNoise`: sources with a factor for each residual.

    A marked draw may be in other tables too. It is described over all axes that any of them has, so that its shares in
    several tables can be added up.
    """
    released = answer.released
    names = dict(zip(released.columns, side.order[i], strict=True))
    parts: list[DrawPart] = []
    variances: dict[Axes, float] = {}
    for k, source in enumerate(law.sources):
        known = [places.get((source.mark, name)) for name in source.names]
        at = known if source.mark else [names.get(column) for column in source.columns]
        inside = tuple(sorted(axis for axis in at if axis is not None))
        outside = math.prod(law.sizes[c] for c, axis in zip(source.columns, at, strict=True) if axis is None)
        loads = tuple((tuple(sorted(names[each] for each in part)), load) for part, load in source.loads)
        parts.append(DrawPart(source.mark or (i, k), 1.0, source.width, inside, outside, loads))
        one = Share(1.0, source.width).deviation(answer.budget.accounting.shape) ** 2
        for part, load in loads:
            cells = outside * _below(side.sizes, inside, part)
            variances[part] = variances.get(part, 0.0) + load**2 * one * cells
    counts = side.read(i, released.parts[0])
    variance = released.deviation(answer.plan, answer.budget, 0) ** 2
    return MeasuredTable(Margin(side.axes[i], counts, max(variance, 1e-12), variances), (tuple(parts),))


def _with_noise(
    side: TablesBySide, answers: Sequence[Answer], i: int, finer: Mapping[int, MeasuredTable], *, apart: bool
) -> MeasuredTable:
    sizes, axes, draws = side.sizes, side.axes[i], answers[i].released.all_draws
    counts = side.read(i, answers[i].released.parts[0])
    shares = shares_of(answers[i].plan, answers[i].budget, 0, draws)
    own = [k for k, each in enumerate(draws) if each.cells == 1]
    others = [k for k in range(len(draws)) if k not in own]
    near = [(_below(sizes, side.axes[j], axes), j) for j in finer if set(axes) < set(side.axes[j])]
    beside = [j for _, j in sorted(near)]  # in a batch, the closest finer table helps, so the finest is tried last
    marks = answers[i].released.marks
    alone = tuple(
        DrawPart(marks[k] or (i, k), each.weight, each.width, axes, each.cells) for k, each in enumerate(shares)
    )
    accounts: tuple[tuple[DrawPart, ...], ...] = (alone,)
    variance = answers[i].released.deviation(answers[i].plan, answers[i].budget, 0) ** 2
    helper = next((j for j in beside if others and own and _helped(sizes, answers, side, i, j, others)), None)
    if apart and helper is not None:
        helping = finer[helper]
        weight = math.fsum(shares[k].weight for k in own)
        counts = (counts - (1 - weight) * summed(helping.margin.counts, helping.margin.axes, axes)) / weight
        parts = tuple(alone[k]._replace(weight=alone[k].weight / weight) for k in own)
        # If the merged draw did not come from the helper, its noise is still in the table, and the helper's noise was
        # subtracted.
        left = tuple(alone[k]._replace(weight=alone[k].weight / weight) for k in others)
        minus = tuple(each._replace(weight=-(1 / weight - 1) * each.weight) for each in helping.accounts[0])
        accounts = (parts, (*parts, *left, *minus))
        lengths = [Share(each.weight, each.width).deviation(answers[i].budget.accounting.shape) for each in parts]
        variance = math.hypot(*lengths) ** 2
    elif others and beside:
        matches = [_same_draw(side, answers, i, k, beside) if k in others else None for k in range(len(draws))]
        shared = tuple(
            part if each is None else part._replace(draw=each.draw, axes=each.axes, cells=1)
            for part, each in zip(alone, matches, strict=True)
        )
        accounts = (alone, shared)
    return MeasuredTable(Margin(axes, counts, max(variance, 1e-12)), accounts)


def _below(sizes: Sequence[int], fine: Axes, coarse: Axes) -> int:
    return math.prod(sizes[axis] for axis in fine if axis not in coarse)


def _helped(
    sizes: Sequence[int], answers: Sequence[Answer], side: TablesBySide, i: int, j: int, others: Sequence[int]
) -> bool:
    """Whether the draws of table i look like sums of the original draws of table j, by costs and numbers of cells."""
    draws = answers[i].released.all_draws
    cells = _below(sizes, side.axes[j], side.axes[i])
    own = [each for each in answers[j].released.all_draws if each.cells == 1]
    return sorted((draws[k].cost.units, draws[k].cells) for k in others) == sorted(
        (each.cost.units, cells) for each in own
    )


def _same_draw(side: TablesBySide, answers: Sequence[Answer], i: int, k: int, near: Sequence[int]) -> DrawPart | None:
    """The draw of a finer table with the cost and the number of cells of draw k of table i, which may be the same draw;
    None if no draw matches.
    """
    one = answers[i].released.all_draws[k]
    for j in near:
        cells = _below(side.sizes, side.axes[j], side.axes[i])
        for at, each in enumerate(answers[j].released.all_draws):
            if each.cells == 1 and each.cost.units == one.cost.units and cells == one.cells:
                return DrawPart(answers[j].released.marks[at] or (j, at), 1.0, 1.0, side.axes[j])
    return None


def law_of(fit: least_squares_fit.TableFit, axes: Axes, measured: Sequence[MeasuredTable]) -> DrawnShares:
    """The shares of all draws in a cell of a fitted table, by the first account and by the widest of the others."""
    most = max(len(each.accounts) for each in measured)
    laws = []
    for which in range(most):
        carried: dict[tuple[Drawn, float, Axes, int], list[tuple[int, float | least_squares_fit.Loads]]] = {}
        for i, each in enumerate(measured):
            for part in each.accounts[min(which, len(each.accounts) - 1)]:
                carried.setdefault((part.draw, part.width, part.axes, part.cells), []).append((i, part.carried))
        alike: dict[tuple[float, float], int] = {}
        for (_, width, of, cells), where in carried.items():
            for moves, number in fit.effects(axes, where, of):
                if abs(moves) > 1e-12:
                    law = float(f"{abs(moves):.12g}"), width  # rounded, so that equal shares are recognised
                    alike[law] = alike.get(law, 0) + number * cells
        laws.append(tuple(Share(weight, width, cells) for (weight, width), cells in alike.items()) or (_EXACT,))
    first, *others = laws
    others = [each for each in others if each != first]
    widest = max(others, key=lambda law: math.fsum((s.weight * s.width) ** 2 * s.cells for s in law), default=())
    return DrawnShares(first, widest)
