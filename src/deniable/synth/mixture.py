"""A mixture of products: the distribution that is fitted to noisy marginals.

    p(x) = Σ_k w_k · p_k1(x_1) · … · p_kd(x_d)

Within a component the columns are independent, so every marginal is a sum over components, and all counts by two
columns come from one matrix product: Pᵀ diag(w) P, where row k of P is the concatenation of p_k1, …, p_kd. Any
distribution is such a mixture with enough components. With about a hundred components, a mixture can follow dependence
between columns, but not the independent noise of thousands of cells. So a fit removes most of the noise.

The fit minimises Σ (marginal of the mixture - noisy count)² / (2·variance) by gradient steps on the logits, from a
random start. Two measures keep the noise out; both use only its variance.

**Step size.** Adam moves every parameter equally fast, so it fits noise as fast as dependence between columns. Here a
gradient m moves its parameter by m/√(v + c²·F), where v is the mean square of the gradients, as in Adam, and F is the
variance of the gradient due to the noise of the counts: parameters with gradients below the noise move slowly.

**Early stopping.** Stein's unbiased risk estimate (1981) for a fit f to counts y with n cells, in units of the noise,
is |y - f|² - n + 2·Σ ∂f/∂y. The last sum, the degrees of freedom, is estimated by a second fit from the same start to
counts that are shifted by ±h (Ramani, Blu & Unser 2008). Between two steps of the fit the estimate has a standard error
of 2·|f - f'|. The fit stops when a quarter more steps do not lower the estimate by that much (the one-standard-error
rule).

The first fit has 60 components. If its distance to the counts is larger than noise explains (`misfit`), it is replaced
by a fit with twice as many components, up to 240; such a fit stops as soon as noise explains its distance. Then several
fits of that size from different starts are combined into one mixture, so that their chance errors average out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from deniable.synth.marginals import Marginal, checked, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FITS: Final = 4
"""The number of fits that are combined."""
_FLOOR: Final = 4.0
"""c: the number of standard deviations of noise at which a gradient moves its parameter at full speed. Chosen on the
Adult data at ε = 0.1 among 2, 5 and 10, with two-way errors of 0.088, 0.087 and 0.088."""
_MOVED: Final = 0.1
"""h: the shift of counts, in standard deviations, to estimate degrees of freedom."""
_FIRST_LOOK: Final = 40
_LOOK_AGAIN: Final = 1.25
"""The number of steps before the first check of a fit, and the factor to the next check."""
_NOISE_AGAIN: Final = 10
"""Steps between updates of the noise of gradients."""
_COMPONENTS: Final = 60
"""With fewer components strong dependence is missed; with more, more noise is fitted."""
_TOO_FAR: Final = 1.1
"""The misfit above which a fit is tried again with twice as many components."""
_MOST_COMPONENTS: Final = 240
_MOST_STEPS: Final = 3000
MOST_WORK: Final = 4e10
"""The most work of all fits of one mixture: steps × components × values², summed over slices. One unit took 0.2 to
0.65 ns on one core, so the limit corresponds to 8 to 26 s."""
_OVERHEAD: Final = 2500
"""The fixed work of a step, in units of values²."""
_WORTH_IT: Final = 300
"""The least number of steps that must be affordable to try a fit with twice as many components."""
_RATE: Final = 0.05
_STILL: Final = 200
"""A fit has converged if it has not improved by a thousandth in this number of steps."""
_CERTAIN: Final = 100.0
"""The weight of a cell that is certainly 0, relative to a noisy cell."""
_RARE: Final = 1e-4
_ONE_THREAD: Final = 2**18
"""The most multiplications of a matrix product that OpenBLAS computes in one thread."""
_LEAST_ROWS: Final = 8
_SIDE: Final = 64
"""The side of a square matrix; the product of two such matrices has `_ONE_THREAD` multiplications."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Components with weights; `columns[j][k]` is the distribution of column j in component k."""

    weights: Array
    columns: tuple[Array, ...]
    misfit: float = 0.0
    """The distance of a fit from the noisy marginals, relative to the distance that noise alone explains. At about 1 it
    is as close as the true distribution; at 2 or more it cannot represent the measured dependence."""
    fits: int = 1
    """The number of combined fits, each with the same number of components."""
    steps: int = 1
    """The number of steps of each fit."""
    cut_short: bool = False
    """Whether a fit was stopped at the limit of work while it was still improving."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(each.shape[1] for each in self.columns)

    def marginal(self, *places: int) -> Array:
        """The joint probabilities of these columns, with an axis for each."""
        found: Array = self.weights[:, None]
        for place in places:
            found = (found[:, :, None] * self.columns[place][:, None, :]).reshape(len(self.weights), -1)
        shape = [self.sizes[place] for place in places]
        return np.asarray(found.sum(axis=0).reshape(shape), dtype=np.float64)

    @classmethod
    def beside(cls, mixtures: Sequence[Mixture]) -> Mixture:
        """Several mixtures as one, each with the same weight."""
        weights = np.concatenate([each.weights for each in mixtures]) / len(mixtures)
        columns = tuple(np.concatenate(each) for each in zip(*(m.columns for m in mixtures), strict=True))
        return cls(weights, columns, fits=len(mixtures))


def fit(
    sizes: Sequence[int],
    measured: Sequence[Marginal],
    *,
    fits: int = FITS,
    work: float | None = None,
    generator: np.random.Generator | None = None,
) -> Mixture:
    """Fit a mixture to noisy marginals, until it is about as close to them as the true distribution is.

    The number of components grows as needed, up to a limit; `misfit` shows whether they sufficed. All fits together
    take at most `work`, by default MOST_WORK. If that is not enough for all of them, fewer fits are combined: with
    little noise, there is little to average out. The random starts are numpy's; they only select one of many good
    fits to public counts.

    >>> import numpy as np
    >>> both = Marginal((0, 1), np.array([[300.0, 0.0], [0.0, 100.0]]), variance=1.0)
    >>> found = fit([2, 2], [both], generator=np.random.default_rng(1))
    >>> bool(abs(found.marginal(0)[0] - 0.75) < 0.02)
    True
    """
    checked(sizes, measured)
    generator, work = generator or np.random.default_rng(), work or MOST_WORK
    problem, components, left = _Problem(sizes, measured), _COMPONENTS, work
    first = problem.watched(components, generator, work / 4)
    left -= 2 * first.steps * problem.work(components)
    # More components only help where these cannot represent the dependence, which shows only with little noise.
    while first.misfit > _TOO_FAR and 2 * components <= _MOST_COMPONENTS:
        if _WORTH_IT * problem.work(2 * components) > work / 8:
            break
        components *= 2
        is_last = 2 * components > _MOST_COMPONENTS or _WORTH_IT * problem.work(2 * components) > work / 8
        first = problem.fitted(components, generator, left if is_last else work / 8)
        left -= first.steps * problem.work(components)
    others = min(fits - 1, int(left / (first.steps * problem.work(components))))
    if components == _COMPONENTS:
        made = [problem.walked(components, generator, first.steps) for _ in range(others)]
    else:  # a fit from another start may be worse, and then adds more error than it averages out
        tried = [problem.fitted(components, generator, left / others) for _ in range(others)]
        made = [each for each in tried if each.misfit <= max(_TOO_FAR, first.misfit)]
    found = Mixture.beside([first, *made])
    loss = problem._loss(np.concatenate(found.columns, axis=1), found.weights)[0]
    return replace(found, misfit=2 * loss / problem.cells, steps=first.steps, cut_short=first.cut_short)


def refitted(
    sizes: Sequence[int], measured: Sequence[Marginal], like: Mixture, generator: np.random.Generator
) -> Mixture:
    """A fit to other counts, with the number of components and steps of each fit of a mixture."""
    checked(sizes, measured)
    problem, components = _Problem(sizes, measured), len(like.weights) // like.fits
    most = int(MOST_WORK / 8 / problem.work(components))
    return problem.walked(components, generator, max(1, min(like.steps, most)))


@dataclass(slots=True, eq=False)
class _Slice:
    """Measured marginals as one matrix over the values of some columns: all marginals of one and two columns, or those
    of three columns at one value of the column that they are sliced by.
    """

    column: int | None
    value: int
    inside: NDArray[np.int64] | slice
    """The places of those values."""
    counts: Array
    """Shares of the total. Single columns are on the diagonal."""
    precision: Array
    signs: NDArray[np.int8]
    """The sign of the shift of each noisy count for the degrees of freedom; 0 for cells without noise."""

    def noise(self) -> tuple[Array, Array]:
        """The precision of the noisy counts, by two columns and by one."""
        pairs = self.precision * (self.signs != 0)
        own = np.diagonal(pairs).copy()
        np.fill_diagonal(pairs, 0.0)
        return pairs, own

    def pairs(self, probabilities: Array, inside: Array) -> tuple[Array, Array, Array]:
        """(fitted shares with single columns on the diagonal, the components' probabilities, the same with weights)."""
        held = probabilities[:, self.inside]
        weighted = held * inside[:, None]
        found = _product(held.T, weighted)
        np.fill_diagonal(found, weighted.sum(axis=0))
        return found, held, weighted


class _Problem:
    """The least-squares problem with the values of all columns concatenated, laid out once."""

    def __init__(self, sizes: Sequence[int], measured: Sequence[Marginal], rows: float | None = None) -> None:
        self.ends = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.sizes = tuple(sizes)
        self.rows = rows or total(measured)
        self.cells = max(1, sum(each.counts.size - _certain(each) for each in measured))
        self.measured = measured
        self.slices: list[_Slice] = []
        found: dict[tuple[int | None, int, tuple[int, ...]], _Slice] = {}
        for each, (sliced, others) in zip(measured, _groups(sizes, [each.columns for each in measured]), strict=True):
            self._lay(each, sliced, others, found)
        self.slices = list(found.values())

    def place(self, column: int) -> slice:
        return slice(int(self.ends[column]), int(self.ends[column + 1]))

    def _lay(
        self,
        each: Marginal,
        sliced: int | None,
        others: tuple[int, ...],
        found: dict[tuple[int | None, int, tuple[int, ...]], _Slice],
    ) -> None:
        """Add a marginal to the matrix of its slice, or of each slice if it has three columns."""
        axis = 0 if sliced is None else each.columns.index(sliced)
        weights = np.full(each.counts.shape, self.rows**2 / each.variance)
        if each.zeros is not None:
            weights[each.zeros] *= _CERTAIN
        tables = [each.counts] if sliced is None else np.moveaxis(each.counts, axis, 0)
        precisions = [weights] if sliced is None else np.moveaxis(weights, axis, 0)
        known = np.zeros(each.counts.shape, dtype=bool) if each.zeros is None else each.zeros
        zeros = [known] if sliced is None else np.moveaxis(known, axis, 0)
        kept = [column for column in each.columns if column != sliced]
        for value, (table, precision, certain) in enumerate(zip(tables, precisions, zeros, strict=True)):
            at = found.get((sliced, value, others))
            width = sum(self.sizes[column] for column in others)
            if at is None:
                inside = np.concatenate([np.arange(*self.ends[column : column + 2]) for column in others])
                everything = width == int(self.ends[-1])
                at = found[sliced, value, others] = _Slice(
                    sliced, value, slice(None) if everything else inside, np.zeros((width, width)),
                    np.zeros((width, width)), _signs(width, len(found)),
                )  # fmt: skip
            before = {column: sum(self.sizes[one] for one in others if one < column) for column in kept}
            first, last = (slice(before[c], before[c] + self.sizes[c]) for c in (kept[0], kept[-1]))
            shares = np.asarray(table, dtype=np.float64) / self.rows
            if len(kept) == 1:
                diagonal = np.arange(first.start, first.stop)
                _merge(at, (diagonal, diagonal), shares, precision, certain)
            else:
                _merge(at, (first, last), shares, precision, certain)
                _merge(at, (last, first), shares.T, precision.T, certain.T)

    def work(self, components: int) -> float:
        """The work of one step."""
        return float(components * sum(each.counts.size + _OVERHEAD for each in self.slices))

    def watched(self, components: int, generator: np.random.Generator, most: float) -> Mixture:
        """A fit from a random start with early stopping by Stein's estimate, from a second fit to shifted counts."""
        start = self._start(components, generator)
        path, moved = _Path(self, *start), _Path(self, *(each.copy() for each in start), moved=True)
        allowed = max(1, min(_MOST_STEPS, int(most / 2 / self.work(components))))
        look, known = min(_FIRST_LOOK, allowed), (np.inf, path.now(), 0, np.inf)
        while path.steps < allowed:
            path.step()
            moved.step()
            if path.steps < look:
                continue
            look = math.ceil(look * _LOOK_AGAIN)
            now = path.now()
            freedom, away, loss = self._compared(now, moved.now(), known[1])
            risk = 2 * loss + 2 * freedom
            if known[0] - risk < 2 * away:
                return self._mixture(known[1], known[3], known[2], cut_short=False)
            known = (risk, now, path.steps, loss)
        now = path.now()
        return self._mixture(now, self._loss(*now)[0], path.steps, cut_short=path.steps < _MOST_STEPS)

    def fitted(self, components: int, generator: np.random.Generator, most: float) -> Mixture:
        """A fit from a random start that stops when it is as close to the counts as the true distribution would be, or
        when it has converged.
        """
        path, best, since = _Path(self, *self._start(components, generator)), np.inf, 0
        kept, allowed, is_done = path.now(), max(1, min(_MOST_STEPS, int(most / self.work(components)))), False
        while path.steps < allowed and not is_done:
            now = path.now()
            loss = path.step()
            since = 0 if loss < best * 0.999 else since + 1
            if loss < best:
                best, kept = loss, now
            is_done = 2 * loss <= self.cells or since > _STILL
        return self._mixture(kept, best, path.steps, cut_short=not is_done)

    def walked(self, components: int, generator: np.random.Generator, steps: int) -> Mixture:
        """A fit from a random start by `steps` steps, without early stopping."""
        path = _Path(self, *self._start(components, generator))
        loss = np.inf
        for _ in range(steps):
            loss = path.step()
        return self._mixture(path.now(), loss, steps, cut_short=False)

    def _mixture(self, now: tuple[Array, Array], loss: float, steps: int, *, cut_short: bool) -> Mixture:
        probabilities, shares = now
        columns = tuple(probabilities[:, self.place(column)] for column in range(len(self.sizes)))
        return Mixture(shares, columns, misfit=2 * loss / self.cells, steps=max(1, steps), cut_short=cut_short)

    def _start(self, components: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """A random start: each component close to the columns' own distributions, as far as these are known."""
        logits = np.empty((components, int(self.ends[-1])))
        known = {each.columns[0]: each.counts for each in self.measured if len(each.columns) == 1}
        for column, size in enumerate(self.sizes):
            counts = np.maximum(known.get(column, np.ones(size)), 1.0)
            near = np.log(np.maximum(counts / counts.sum(), _RARE))
            logits[:, self.place(column)] = near + generator.normal(0.0, 0.3 if size > 2 else 1.0, (components, size))
        return logits, np.zeros(components)

    def _inside(self, each: _Slice, probabilities: Array, shares: Array) -> tuple[Array, Array | None]:
        """(the weight of each component within a slice, the probability with which it draws the slice's value). For a
        slice of all rows, the second is None.
        """
        if each.column is None:
            return shares, None
        chance = probabilities[:, self.place(each.column).start + each.value]
        return shares * chance, chance

    def _loss(self, probabilities: Array, shares: Array, moved: float = 0.0) -> tuple[float, Array, Array]:
        """The sum of squares in standard deviations, halved, and its derivatives by probabilities and by weights. The
        derivatives are those for counts that are `moved` by so many standard deviations, each by its sign.
        """
        loss, by_probability, by_share = 0.0, np.zeros_like(probabilities), np.zeros_like(shares)
        for each in self.slices:
            inside, chance = self._inside(each, probabilities, shares)
            off, held, _ = each.pairs(probabilities, inside)
            off -= each.counts
            pull = each.precision * off
            own = np.diagonal(pull).copy()
            loss += 0.25 * float(np.einsum("ij,ij->", pull, off)) + 0.25 * float(own @ np.diagonal(off))
            if moved:
                pull -= moved * np.sqrt(each.precision) * each.signs
                own = np.diagonal(pull).copy()
            np.fill_diagonal(pull, 0.0)
            pulled = _product(held, pull)
            by_probability[:, each.inside] += inside[:, None] * (pulled + own)
            by_inside = np.einsum("ki,ki->k", held, 0.5 * pulled + own)
            if chance is None:
                by_share += by_inside
            else:
                by_share += by_inside * chance
                by_probability[:, self.place(each.column or 0).start + each.value] += by_inside * shares
        return loss, by_probability, by_share

    def _noise(self, probabilities: Array, shares: Array) -> tuple[Array, Array]:
        """The variance of the gradients by the logits of probabilities and of weights that the counts' noise causes."""
        by_probability, by_share = np.zeros_like(probabilities), np.zeros_like(shares)
        for each in self.slices:
            inside, chance = self._inside(each, probabilities, shares)
            squares, (pairs, own) = probabilities[:, each.inside] ** 2, each.noise()
            pulled = _product(squares, pairs)
            by_probability[:, each.inside] += inside[:, None] ** 2 * (pulled + own)
            by_inside = np.einsum("ki,ki->k", squares, 0.5 * pulled + own)
            if chance is None:
                by_share += by_inside
            else:
                by_share += by_inside * chance**2
                by_probability[:, self.place(each.column or 0).start + each.value] += by_inside * shares**2
        return by_probability * probabilities**2, by_share * shares**2

    def _compared(
        self, now: tuple[Array, Array], moved: tuple[Array, Array], before: tuple[Array, Array]
    ) -> tuple[float, float, float]:
        """The degrees of freedom of a fit, how far it is from an earlier step in standard deviations, and its loss."""
        freedom = away = loss = 0.0
        for each in self.slices:
            found, *others = (
                each.pairs(each_of[0], self._inside(each, *each_of)[0])[0] for each_of in (now, moved, before)
            )
            # The matrix contains each pair of values twice, and single columns once.
            halves = 0.5 + 0.5 * np.eye(len(found))
            weights = each.precision * halves
            freedom += float((halves * np.sqrt(each.precision) * each.signs * (others[0] - found)).sum())
            away += float((weights * (others[1] - found) ** 2).sum())
            loss += 0.5 * float((weights * (found - each.counts) ** 2).sum())
        return freedom / _MOVED, math.sqrt(away), loss

    def _softmax(self, logits: Array) -> Array:
        found = np.empty_like(logits)
        for column in range(len(self.sizes)):
            found[:, self.place(column)] = _softmax(logits[:, self.place(column)])
        return found

    def _through_softmax(self, probabilities: Array, by: Array) -> Array:
        moved = probabilities * by
        for column in range(len(self.sizes)):
            place = self.place(column)
            moved[:, place] -= probabilities[:, place] * moved[:, place].sum(axis=1, keepdims=True)
        return moved


def _groups(sizes: Sequence[int], measured: Sequence[tuple[int, ...]]) -> list[tuple[int | None, tuple[int, ...]]]:
    """For each marginal the column that it is sliced by, and the columns of the matrix that its slices are in.

    Of three columns, the one with the fewest values is chosen. Two marginals sliced by the same column share a matrix
    only if their other columns overlap; otherwise most of it would be empty.
    """
    together: dict[int, list[set[int]]] = {}
    sliced = [min(each, key=lambda column: sizes[column]) if len(each) == 3 else None for each in measured]
    for each, by in zip(measured, sliced, strict=True):
        if by is not None:
            others, apart = set(each) - {by}, []
            for known in together.get(by, []):
                if known & others:
                    others |= known
                else:
                    apart.append(known)
            together[by] = [*apart, others]
    found: list[tuple[int | None, tuple[int, ...]]] = []
    for each, by in zip(measured, sliced, strict=True):
        held = range(len(sizes)) if by is None else next(one for one in together[by] if set(each) - {by} <= one)
        found.append((by, tuple(sorted(held))))
    return found


def room(sizes: Sequence[int], measured: Sequence[tuple[int, ...]]) -> int:
    """The number of entries in the matrices of a fit.

    >>> room([2, 3, 4], [(0,), (1, 2)]), room([2, 3, 4], [(0, 1, 2)])
    (81, 98)
    """
    slices = {(by, others) for by, others in _groups(sizes, measured)}
    return sum((1 if by is None else sizes[by]) * sum(sizes[column] for column in others) ** 2 for by, others in slices)


def _certain(each: Marginal) -> int:
    return 0 if each.zeros is None else int(each.zeros.sum())


def _signs(width: int, seed: int) -> NDArray[np.int8]:
    """A random sign for each cell, the same for a cell and its mirror image."""
    found = np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.int8), (width, width))
    upper = np.triu(found)
    return np.asarray(upper + np.triu(found, 1).T, dtype=np.int8)


def _merge(at: _Slice, where: Any, shares: Array, precision: Array, certain: NDArray[np.bool_]) -> None:
    """Merge a second measurement of the same cells by inverse variance."""
    at.signs[where] *= ~certain
    before = at.precision[where]
    at.counts[where] = (at.counts[where] * before + shares * precision) / (before + precision)
    at.precision[where] = before + precision


def _product(left: Array, right: Array) -> Array:
    """left @ right, in pieces that a BLAS library computes in one thread.

    Larger products use several threads, which wait for each other on a busy machine: a fit took 25 times the CPU time.
    A product of one row uses threads far earlier, so wide matrices are cut into squares.
    """
    rows = _ONE_THREAD // right.size
    if rows < min(_LEAST_ROWS, left.shape[0]):
        return _in_squares(left, right)
    found = np.empty((left.shape[0], right.shape[1]))
    for start in range(0, left.shape[0], rows):
        np.matmul(left[start : start + rows], right, out=found[start : start + rows])
    return found


def _in_squares(left: Array, right: Array) -> Array:
    found = np.zeros((left.shape[0], right.shape[1]))
    for i in range(0, left.shape[0], _SIDE):
        for j in range(0, right.shape[1], _SIDE):
            for k in range(0, left.shape[1], _SIDE):
                found[i : i + _SIDE, j : j + _SIDE] += (
                    left[i : i + _SIDE, k : k + _SIDE] @ right[k : k + _SIDE, j : j + _SIDE]
                )
    return found


def _softmax(logits: Array) -> Array:
    found = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(found / found.sum(axis=-1, keepdims=True), dtype=np.float64)


class _Path:
    """A fit in progress, to the counts or to shifted counts."""

    def __init__(self, problem: _Problem, logits: Array, weights: Array, *, moved: bool = False) -> None:
        self.problem, self.logits, self.weights, self.steps = problem, logits, weights, 0
        self.moved = _MOVED if moved else 0.0
        self._adam = (_Adam(logits), _Adam(weights))
        self._noise: tuple[Array, Array] = (logits, weights)

    def now(self) -> tuple[Array, Array]:
        """The probabilities of each component and the components' weights."""
        return self.problem._softmax(self.logits), _softmax(self.weights)

    def step(self) -> float:
        """Take one step; returns the loss before it."""
        probabilities, shares = self.now()
        loss, by_probability, by_share = self.problem._loss(probabilities, shares, self.moved)
        if self.steps % _NOISE_AGAIN == 0:
            self._noise = self.problem._noise(probabilities, shares)
        self._adam[0].step(self.problem._through_softmax(probabilities, by_probability), self._noise[0])
        self._adam[1].step(shares * (by_share - (shares * by_share).sum()), self._noise[1])
        self.steps += 1
        return loss


class _Adam:
    """Adam (Kingma & Ba 2015) with a noise floor for its gradients; changes its array in place."""

    def __init__(self, changed: Array) -> None:
        self.changed, self.mean, self.square, self.steps = changed, np.zeros_like(changed), np.zeros_like(changed), 0

    def step(self, slope: Array, noise: Array) -> None:
        self.steps += 1
        self.mean += 0.1 * (slope - self.mean)
        self.square += 0.01 * (slope * slope - self.square)
        mean, square = self.mean / (1 - 0.9**self.steps), self.square / (1 - 0.99**self.steps)
        self.changed -= _RATE * mean / (np.sqrt(square + _FLOOR**2 * noise) + 1e-8)
