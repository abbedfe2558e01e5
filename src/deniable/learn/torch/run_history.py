"""The history of a run: losses and ε over the steps, as a progress bar while it runs and as a figure afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from torch import Tensor

from deniable.curves import curve_arguments
from deniable.learn.plans import Plan

if TYPE_CHECKING:
    from deniable.plots import Figure

POINTS = 24
"""The number of steps at which a figure computes ε."""


@final
class History:
    """The average loss of each step, and the number of examples that were not finite. Computed without noise, so not
    private: for the owner's eyes only."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, list[Tensor], int]] = []
        """(number of the step, sums of losses, number of examples). A resumed run does not begin with step 1."""
        self._sums: list[Tensor] = []
        self._count = self._left_out = 0
        self.left_out: list[int] = []
        """For each step: how many examples counted as gradient 0 because a loss or gradient was not finite."""

    def losses(self, total: Tensor, count: int, left_out: int) -> None:
        """Add the sum of the losses of a batch of `count` examples, of which `left_out` had no finite gradient."""
        self._sums.append(total)
        self._count += count - left_out
        self._left_out += left_out

    def stepped(self, step: int) -> None:
        """Close this step: the losses since the last call belong to it."""
        self._steps.append((step, self._sums, self._count))
        self.left_out.append(self._left_out)
        self._sums, self._count, self._left_out = [], 0, 0

    @property
    def average(self) -> list[float | None]:
        """The average loss of each step; None for a step without examples. Waits for the device."""
        return [sum(map(float, sums)) / count if count else None for _, sums, count in self._steps]

    @property
    def latest(self) -> float | None:
        """The average loss of the newest step; None without examples. Waits for the device."""
        if not self._steps or not self._steps[-1][2]:
            return None
        _, sums, count = self._steps[-1]
        return sum(map(float, sums)) / count

    @contextmanager
    def bar(self, plan: Plan, done: int, last: int, *, shown: bool | str) -> Iterator[Callable[[int], None]]:
        """A progress bar on stderr, as a function of the steps done. It does nothing without rich or a terminal.

        Losses are computed from the data without noise: the bar has them only if `shown` is "owner".
        """
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            yield lambda _: None
            return
        console = Console(stderr=True)
        if not shown or not console.is_terminal:
            yield lambda _: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, transient=True, console=console) as progress:
            task = progress.add_task("private steps", total=last, completed=done, words="")

            def update(steps: int) -> None:
                loss = self.latest if shown == "owner" else None
                words = f"{steps} of {plan.steps}"
                words += "" if loss is None else f", loss {loss:.4f} (not private)"
                progress.update(task, completed=steps, words=words)

            yield update

    def figure(self, plan: Plan, steps: int, delta: float) -> Figure:
        """Two panels: losses, and ε so far at `delta`, rounded up."""
        from deniable.plots.figure_spec import Axis, Figure, Line, Panel

        small = curve_arguments.inner_probability("delta", delta)
        taken = [step for step, _, _ in self._steps]
        losses = [(step, loss) for step, loss in zip(taken, self.average, strict=True) if loss is not None]
        least = min([0.0, *(loss * 1.05 for _, loss in losses)])  # a log-likelihood may be above 0, and its loss below
        most = max([loss for _, loss in losses if loss > 0], default=0.0 if least else 1.0) * 1.05
        last = max(steps, 1)
        counts = sorted({max(1, round(last * share / POINTS)) for share in range(1, POINTS + 1)})
        epsilons = [plan.so_far(count).epsilon(delta=small) for count in counts]
        x = Axis("step", 0, last)
        loss = Line("loss", tuple(float(at) for at, _ in losses), tuple(each for _, each in losses))
        spent = Line("ε so far", tuple(map(float, counts)), tuple(epsilons), colour=1)
        panels = (
            Panel(x, Axis("average loss of a step", least, most), (loss,), "Loss", labels="none"),
            Panel(x, Axis(f"ε at δ = {small:g}", 0, max(epsilons) * 1.05), (spent,), "Privacy", labels="none"),
        )
        note = "The losses are computed from the training data without noise: not private, for the owner only."
        return Figure("A private training run", panels, note)
