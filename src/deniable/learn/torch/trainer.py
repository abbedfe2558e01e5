"""The trainer: carries out a plan on the user's own model and optimizer, without wrapping either.

for x, y in trainer:                                              # Poisson samples, cut into physical batches
    losses = cross_entropy(model(x), y, reduction="none")         # one loss for each example
    trainer.backward(losses)                                      # clips; the trainer adds noise and steps by itself
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, final

import torch
from torch import Tensor, nn

from deniable import noise as chance
from deniable.curves import curve_arguments
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, require_path
from deniable.learn.epoch_batches import EpochDraws, Places
from deniable.learn.plans import Plan
from deniable.learn.torch import checkpoints, training_report
from deniable.learn.torch.batch_sampling import Records, parts
from deniable.learn.torch.canaries import Canaries, check_trained
from deniable.learn.torch.clip_norms import clip_norms
from deniable.learn.torch.compiled_steps import CompiledSteps
from deniable.learn.torch.gradient_noise import DeviceNoise, ExactNoise, GradientNoise
from deniable.learn.torch.gradients.bookkeeping import Alone, Bookkeeping, Proof
from deniable.learn.torch.gradients.gradient_check import Checked, checked
from deniable.learn.torch.gradients.gradient_sums import GradientSums
from deniable.learn.torch.gradients.step_graphs import Losses
from deniable.learn.torch.guards import training_checks
from deniable.learn.torch.guards.batch_guard import BatchGuard
from deniable.learn.torch.guards.batch_rows import repeated
from deniable.learn.torch.guards.forward_watch import ForwardWatch
from deniable.learn.torch.guards.sum_comparison import SumComparison
from deniable.learn.torch.guards.torch_calls import full_precision
from deniable.learn.torch.noise_history import past_of
from deniable.learn.torch.optimizers import AdamBC, copies_gradients, forget_gradients
from deniable.learn.torch.people_rows import ONE_EXAMPLE, PeopleRows, check_people
from deniable.learn.torch.run_assumptions import run_assumptions
from deniable.learn.torch.run_history import History
from deniable.learn.torch.run_payment import Payment, reserve_for_all, resume_for_all
from deniable.learn.torch.run_processes import Processes
from deniable.learn.torch.sharded_model import Shards
from deniable.noise.entropy import given_or_current

if TYPE_CHECKING:
    from deniable.audit import OneRun
    from deniable.curves import Curve
    from deniable.ledger import Ledger
    from deniable.plots import Figure
    from deniable.queries.session import Session
    from deniable.units import Guarantee

LEARNT = 5
"""Size of the first batch. It is small because its gradients are compared with autograd, which costs several passes."""

TRIES = 4
"""How often a whole batch is tried: again if its operations are new, and again if they differ from the reference."""

CHECKED_EVERY = 32
"""Parameters are checked for NaN and infinity after every this many steps, and after the last step."""


@final
class Trainer:
    """Private training of `model` by `optimizer` on `dataset`, according to `plan`.

    Promise: for all datasets that differ by one record, an attacker who sees the model after every step cannot
    distinguish them better than `guarantee` allows. The guarantee has the plan's curve and lists all assumptions.

    If the plan's unit is a person, `people` has the id of the person of each row. A batch has all rows of one person,
    and the mean of their losses is the loss that is clipped.

    Iterate over the trainer for batches (all remaining steps; `take(n)` for the next n) and call `backward` once for
    each batch. `dataset` has records by number (a Dataset, a list), or is a tuple of tensors with one row per record.
    `physical_batch` bounds how many examples are in memory at once and does not affect the guarantee. `after_step` is
    called with the trainer after each step. The model gets hooks, which `close` removes; nothing is wrapped.

    `ledger` (or `session`) is charged for the whole run before the first step. Sampled training needs `delta`, the part
    of the ledger's δ to spend. A step counts as taken when it begins. `noise` defaults to `ExactNoise()` on a CPU and
    to `DeviceNoise()` elsewhere.

    `separation` says how it is known that an example's loss depends on that example only; `guarantee` names the level.
    None takes "proved", and "isolated" for models that cannot be proved.

    ============  ==================================================================================================
    "proved"      rules for torch's operations show it for every batch; a model for which they do not is refused
    "isolated"    each example is computed alone: true of every model, and slow
    "assumed"     nothing is proved: the guarantee lists it as an assumption, and random batches are compared in full
    ============  ==================================================================================================

    `progress` shows a bar with steps (True), nothing (False), or losses too, which are not private ("owner").
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        plan: Plan,
        dataset: Any,
        *,
        physical_batch: int | None = None,
        noise: GradientNoise | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        ledger: Ledger | None = None,
        session: Session | None = None,
        delta: float | None = None,
        canaries: Any = None,
        people: Any = None,
        process_group: Any = None,
        after_step: Callable[[Trainer], None] | None = None,
        progress: bool | str = True,
        separation: str | None = None,
        entropy: chance.Entropy | None = None,
    ) -> None:
        training_checks.check_plan(plan)
        check_people(plan, people, canaries)
        self.plan, self.model = plan, training_checks.check_model(model)
        self.optimizer = training_checks.check_optimizer(optimizer, model)
        self._processes = Processes(process_group)
        self._entropy, self._device = entropy, next(model.parameters()).device
        self._size = None if physical_batch is None else curve_arguments.integer("physical_batch", physical_batch, 1)
        self._canaries = (
            None if canaries is None else Canaries(training_checks.check_dataset(canaries), collate, entropy)
        )
        if self._canaries is not None:
            self._canaries.share(self._processes, self._device)
        whole = training_checks.check_dataset(dataset)
        training_checks.check_callable("collate", collate)
        among = whole if self._canaries is None else self._canaries.among(whole)
        share = (self._processes.rank, self._processes.count)
        rows = Records(among, collate, share)
        self._records = rows if people is None else PeopleRows(rows, people, plan.unit.rows, share, entropy)
        plan.check_records(self._records.count)
        self._shards = Shards(model, process_group)
        self._book = Bookkeeping(model)
        self._noise = noise or (ExactNoise(entropy=entropy) if self._device.type == "cpu" else DeviceNoise())
        self._parameters = {name: each.tensor for name, each in self._book.parameters.items()}
        self._noise.open(plan, sum(each.numel() for each in self._parameters.values()))
        self._past, self._draws = past_of(plan), plan.draws()
        payer = training_checks.check_ledger(ledger, session)
        self._payment = None if payer is None else Payment(payer, plan, delta)
        self._clipping = clip_norms(plan, optimizer, entropy, self._parameters)
        self._after_step = training_checks.check_callable("after_step", after_step)
        self._progress = training_checks.check_progress(progress)
        self._is_charged, self._run = False, secrets.token_hex(16)
        self._journals: dict[Path, checkpoints.Journal] = {}
        """Journals of all checkpoints of this run that still exist. Each step is noted in each of them."""
        self._sums = GradientSums(self._parameters)
        self._open: int | None = None  # size of the batch that waits for its backward pass; None between batches
        self._is_added = True  # whether `backward` of the last batch completed
        self.steps_taken = 0
        """Steps begun. All of them are spent."""
        self.public_steps, self.history = 0, History()
        self._redo: str | None = None
        """How the last batch must be repeated: "whole" or "alone"; None if it was added."""
        self._for = ""
        """What the batch is for: "" for training, "single" if it has two copies of one example, "reference" or
        "comparison" if nothing of it is added."""
        self._weights: list[int] = []  # version counters of the parameters when the batch was yielded
        self._is_closed = self._is_running = False  # running: batches may run as compiled steps
        self._watch = ForwardWatch(model, self._parameters.values())
        level = training_checks.check_separation(separation)
        self._guard = BatchGuard(model, self._book, self._watch, level)
        if people is not None:
            self._guard.why_alone = ONE_EXAMPLE
        self._comparison = SumComparison(entropy)
        self._book.rest()
        self._compiled: CompiledSteps | None = None
        self._loop = object()  # identifies the newest loop over the trainer; an older loop must not continue
        for group in optimizer.param_groups:
            if isinstance(optimizer, AdamBC):
                group["noise_variance"] = (plan.sigma / self.expected_batch) ** 2
        self._processes.share((*model.parameters(), *model.buffers()))

    def __repr__(self) -> str:
        return f"<Trainer of {type(self.model).__name__}: {self.steps_taken} of {self.plan.steps} steps, {self.plan!r}>"

    # -- what is promised ----------------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole run, with all its assumptions."""
        more = run_assumptions(
            self.plan,
            self._guard.assumption,
            is_compiled=self._compiled is not None and self._compiled.has_run,
            is_private=given_or_current(self._entropy).is_private,
            is_reduced=training_checks.is_less_than_single(self.model, self._device),
            public_steps=self.public_steps,
            is_paid=self._payment is not None,
            has_journals=bool(self._journals),
            has_canaries=self._canaries is not None,
        )
        return self.plan.guarantee(*more, *self._noise.assumptions)

    @property
    def separation(self) -> str:
        """The level in force: "proved", "isolated" or "assumed"."""
        return self._guard.separation

    @property
    def one_by_one(self) -> str | None:
        """Why examples are computed one at a time, which is slow but always correct; None while batches are used."""
        return self._guard.why_alone

    @property
    def clip_norm(self) -> float:
        """The current clipping norm. It changes only with `AdaptiveNorm`, and then it is as private as the model."""
        return self._clipping.norm

    @property
    def curve(self) -> Curve:
        """The curve of the whole plan. It also holds for a run that stopped early, for any reason."""
        return self.plan.curve

    def epsilon(self, *, delta: float) -> float:
        """ε of the steps begun so far, rounded up. If results decided when to stop, only `curve` is valid."""
        return self.plan.so_far(self.steps_taken).epsilon(delta=delta) if self.steps_taken else 0.0

    @property
    def expected_batch(self) -> float:
        """The divisor of the noisy sums: the expected number of records in a step, from public numbers."""
        return self.plan.expected_batch(self._records.count)

    @property
    def finished(self) -> bool:
        """Whether all steps of the plan have begun. Then there are no more batches."""
        return self.steps_taken >= self.plan.steps

    # -- training ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self._batches(self.plan.steps)

    def take(self, steps: int) -> Iterator[Any]:
        """The batches of the next `steps` steps, or of all remaining steps if there are fewer."""
        return self._batches(curve_arguments.integer("steps", steps, 1))

    def run(self, losses: Losses, *, steps: int | None = None) -> None:
        """Take the next `steps` steps (None: all remaining ones), with `losses(model, batch)` in place of a loop.

        Model and loss are captured as one graph, which is compiled on CUDA devices (`compiled_steps`); what cannot be
        captured or proved runs as in a loop. Python code of both runs only for new shapes of batches: numbers that it
        computes are fixed from then on. Needs `physical_batch`, the number of examples of such a step.
        """
        if self._size is None:
            rule = "is needed for compiled steps, which all have the same number of examples"
            raise InvalidParameter("physical_batch", None, rule, "give Trainer(physical_batch=) a number")
        self._shards.check_whole("run")
        training_checks.check_callable("losses", losses)
        if self._compiled is None or self._compiled.losses_of is not losses:
            given = self._book, self._guard, self._clipping, losses, self._size
            is_free = self._past is None and copies_gradients(self.optimizer)
            self._compiled = CompiledSteps(*given, may_overwrite=is_free, before=self._compiled)
        try:
            self._is_running = True
            for batch in self.take(self.plan.steps if steps is None else steps):
                self.backward(losses(self.model, batch))
        finally:
            self._is_running = False

    def _batches(self, most: int) -> Iterator[Any]:
        if self._is_closed:
            rule = "this trainer was closed; make a new one, and load a checkpoint into it"
            raise InvalidOperation(f"{rule} to continue, unless a ledger has sealed the run")
        self._processes.check_not_forked()
        self._reserve()
        forget_gradients(self.optimizer)
        mine = self._loop = object()
        last = min(self.plan.steps, self.steps_taken + most)
        shown_to = self._progress if self._processes.is_first else False
        bar = self.history.bar(self.plan, self.steps_taken, last, shown=shown_to)
        with closing(self._guard), bar as shown:
            while self.steps_taken < last:
                self._processes.check_not_forked()
                self._records.check_length()
                self._watch.begin(closely=self._book.is_learning)
                step = self.steps_taken
                self._count_step()
                self._sums.clear()
                if self._past is not None:
                    self._past.begin()
                taken = self._draws.drawn(self._records.mine, step, self._entropy)
                for places in parts(taken, self._size, first=LEARNT if self._book.is_learning else None):
                    for batch in self._tried(places):
                        yield batch
                        self._processes.check_not_forked()
                        if self._loop is not mine:
                            rule = "another loop over this trainer began, so this one cannot continue"
                            raise InvalidOperation(f"{rule}; run one loop at a time, or their steps would be mixed up")
                        if self._open is not None or not self._is_added:
                            self._open = None
                            rule = "was not called for a batch, or failed; leaving a batch out would depend on the data"
                            raise InvalidOperation(f"trainer.backward {rule}; call it once for each batch")
                        training_checks.check_left_alone(self._parameters, self._weights)
                        self._watch.check()  # again, because a forward pass may have followed the backward pass
                self._finish_step()
                shown(self.steps_taken)
        if self.finished:
            self._unhook()
            self._seal()

    def _count_step(self) -> None:
        """Count a step in the ledger, in memory and in all journals, before it begins."""
        journals = list(self._journals.values()) if self._processes.is_first else []
        for journal in journals:
            journal.check_mine()
        if self._payment is not None and self._processes.is_first:
            self._payment.allow(self.steps_taken + 1)
        self.steps_taken += 1
        for journal in journals:
            journal.note(self.steps_taken)

    def _tried(self, places: Places) -> Iterator[Any]:
        """Yield a batch of these records, again if needed, and its examples one at a time if they cannot be separated.
        A single example is doubled, so that it takes the path of other batches."""
        if self.one_by_one is not None and len(places) > 1:
            for place in range(len(places)):
                yield from self._tried(places[place : place + 1])
            return
        whole, guard = self._records.batch(places, self._device), self._guard
        guard.look_at(whole, len(places))
        compiled = self._compiled if self._is_running else None
        if compiled is not None and compiled.add(whole, len(places), self._sums, self.history):
            return
        for _ in range(TRIES):
            if self.one_by_one is not None or (len(places) == 1 and guard.is_assumed):
                break
            batch, count = (repeated(whole, 2), 2) if len(places) == 1 else (whole, len(places))
            few = guard.reference_size(batch, count)
            if few is not None:
                yield self._handed_out(repeated(whole, few), few, "reference")
            elif guard.is_assumed and self._comparison.is_due():
                yield self._handed_out(batch, count, "comparison")
            if self.one_by_one is not None:
                break
            yield self._handed_out(batch, count, "single" if len(places) == 1 else "")
            if self._redo is None:
                return
            if self._redo == "alone":
                break
        if len(places) == 1:
            yield self._handed_out(whole, 1, "")
            return
        for place in range(len(places)):
            yield from self._tried(places[place : place + 1])

    def _handed_out(self, batch: Any, count: int, what_for: str) -> Any:
        self._open, self._is_added, self._redo, self._for = count, True, None, what_for
        self._book.listen()
        self._weights = [each._version for each in self._parameters.values()]
        self._guard.begin(batch, count, is_reference=what_for == "reference")
        return batch

    def backward(self, losses: Tensor) -> None:
        """Clip each example's gradient and add it to the sum of this step. Sets no `.grad` and frees the graph.

        `losses` has one loss for each example of the batch, in any order. Call it once for each batch. Raises
        `InvalidParameter` if the losses do not come from this batch, or if the model or the loss mixes examples.
        """
        if self._open is None:
            raise InvalidOperation(
                "trainer.backward must be called once for each batch of this trainer: for batch in trainer: ..."
            )
        self._processes.check_not_forked()
        trace = self._guard.end()
        losses = self._records.losses(losses, self._open)
        training_checks.check_left_alone(self._parameters, self._weights)
        if self._book.is_learning and not self._book.listener.calls:
            rule = "were not computed from this batch by this trainer's model"
            remedy = "call model(x) inside the loop, right before trainer.backward"
            raise InvalidParameter("losses", NOTHING, rule, remedy)
        self._watch.check()
        count, self._open = self._open, None
        self._book.rest()
        self._redo = self._guard.redo(trace, count)
        if self._for == "reference" and self._redo is None:
            self._guard.refer(trace, losses)
            self._redo = "whole"
        self._redo = self._redo or self._guard.settled(trace, losses)
        self._is_added = self._redo is not None
        if self._is_added:
            self._book.forget()
            return
        with full_precision(self._device.type):
            try:
                self._guard.undisturbed(lambda: self._add_up(losses, trace, count))
            except Alone as error:  # nothing of this batch was added: repeat it
                self._redo = "alone"
                if error.is_lasting:
                    self._guard.go_alone(error.why)
        self._is_added = True

    def _add_up(self, losses: Tensor, proof: Proof | None, count: int) -> None:
        """Add the clipped gradients of a batch to the sum of this step."""
        if self._for == "comparison":
            self._comparison.check(losses, self._book)
            self._redo = "whole"
            return
        was_learning = self._book.is_learning
        found = self._clipping.by_layer(self._book.gradients(losses, proof=proof))
        squared = found.squared(losses)
        copies = 2 if self._for == "single" else 1
        factors = torch.zeros_like(squared)  # stays 0 for a copy, which adaptive clipping must not count either
        real = len(squared) // copies
        factors[:real] = self._clipping.factors(squared[:real], found.lost)
        sums = list(found.summed(factors))
        if not found.is_sound():
            self._redo = "alone"
            return
        self._sums.add_all(sums)
        self._clipping.added()
        if count > 1:
            self._guard.accept(has_learned=was_learning)
        self.history.losses(found.loss / copies, found.count // copies, found.left_out // copies)

    def _finish_step(self) -> None:
        self._watch.end()
        self._guard.end_step()
        noisy = [self._processes.broadcast(each) for each in self._noisy(self._processes.added_up(self._sums.taken()))]
        expected = self.expected_batch
        torch._foreach_div_(noisy, expected / self._clipping.end_step(self._processes, expected, self._device))
        forget_gradients(self.optimizer)
        self._shards.give(self._parameters, noisy)
        self.optimizer.step()
        forget_gradients(self.optimizer)
        self._shards.refresh()
        self.history.stepped(self.steps_taken)
        if self.finished or self.steps_taken % CHECKED_EVERY == 0:
            training_checks.check_finite(self._parameters)
        if self._after_step is not None:
            self._after_step(self)

    def _noisy(self, totals: dict[str, Tensor]) -> list[Tensor]:
        if self._processes.is_first and self._past is not None:
            return self._past.released(totals, self._noise)
        return self._noise.add([*totals.values()]) if self._processes.is_first else [*totals.values()]

    def public_step(self, loss: Tensor) -> None:
        """Take an ordinary step, without clipping and noise, on a scalar loss over public data.

        The guarantee then lists as an assumption that these data are public.
        """
        self._processes.check_not_forked()
        self._shards.check_whole("public_step")
        training_checks.check_public_loss(loss)
        self._watch.check()
        self._book.forget()
        forget_gradients(self.optimizer)
        loss.backward()
        self.optimizer.step()
        forget_gradients(self.optimizer)
        self.public_steps += 1
        self._weights = [each._version for each in self._parameters.values()]
        if self._watch.is_on:
            self._watch.begin(closely=False)

    # -- looking -------------------------------------------------------------------------------------------------------

    def check(self, batch: Any, *, losses: Losses | None = None) -> Checked:
        """Compare this model's per-example gradients on a batch with vmap's. Free; the result is not private.

        `losses(model, batch)` returns one loss for each example. By default it is a fixed combination of the outputs.
        """
        book = Bookkeeping(self.model)  # what it learns from another batch and loss must not be used for training
        try:
            with self._book.listener.quiet():
                return checked(self.model, book, batch, losses)
        finally:
            book.close()

    def plot(self, *, delta: float) -> Figure:
        """A figure of loss and ε over the steps so far. The losses are not private: for the owner's eyes only."""
        return self.history.figure(self.plan, self.steps_taken, delta)

    def report(self, *, delta: float, **parts: Unpack[training_report.ReportParts]) -> training_report.TrainingReport:
        """A model card of this run, with ε at `delta`. Losses and accuracies are in it only if you pass them."""
        return training_report.made(self, delta=delta, **parts)

    def audit(self, losses: Losses, *, delta: float, confidence: float, guesses: int | None = None) -> OneRun:
        """A certified lower bound on the privacy loss of this run, from the canaries given to the trainer.

        A fair coin decided for each canary whether it was in the training; the audit guesses this from its loss
        (Steinke, Nasr & Jagielski 2023). The bound is usually far below the claim, and above it only if the training is
        faulty. `guesses`, the number of canaries to guess, must be fixed beforehand; by default several are tried, and
        the confidence is corrected for it.
        """
        canaries = check_trained(self._canaries, self.steps_taken)
        scores = canaries.scores(self.model, losses, self._device)
        return canaries.audited(scores, delta, confidence, guesses)

    def close(self) -> None:
        """Remove the hooks from the model, and seal the run in the ledger. This trainer cannot train any more."""
        self._processes.check_not_forked()
        self._is_closed = True
        self._unhook()
        if self.steps_taken:
            self._seal()

    def _unhook(self) -> None:
        self._book.close()
        self._guard.unhook()
        self._shards.restore()

    def __reduce__(self) -> NoReturn:
        rule = "a trainer cannot be copied or pickled: the steps of both would be counted once"
        raise InvalidOperation(f"{rule}; save() and load() transfer a run")

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write model, optimizer and steps taken into one file, atomically.

        Each later step is noted in the journal `<path>.steps` before it begins, so that it stays counted.
        """
        self._processes.check_not_forked()
        self._shards.check_whole("save")
        place = Path(require_path("path", path, "run.pt"))
        if not self._processes.is_first:
            return
        for journal in self._journals.values():
            journal.check_mine()
        known = {**self._journals, place.resolve(): checkpoints.Journal(place.resolve(), self._run)}
        payment = self._payment
        record: dict[str, Any] = {
            "run": self._run,
            "plan": self.plan.in_full(),
            "noise": self.plan.calibrated(),
            "steps": self.steps_taken,
            "public_steps": self.public_steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "kind": type(self.optimizer).__name__,
            "names": checkpoints.names_in(self.optimizer, self.model),
            "entry": None if payment is None or payment.entry is None else payment.entry.number,
            "token": None if payment is None else payment.checkpoint_token(),
            "past": None if self._past is None else self._past.state(),
            "draws": None if not isinstance(self._draws, EpochDraws) else self._draws.state(),
            "clip": self._clipping.norm,
            "journals": [str(each) for each in known],
            "guarantee": training_report.guarantee_text(self),
        }
        checkpoints.write(place, record)
        known[place.resolve()].begin(self.steps_taken)
        self._journals = known

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint. The steps taken are the maximum of those that the checkpoint, its journal, the
        ledger and this trainer have counted.

        Raises if plan, model or optimizer differ from the checkpoint's, or if the ledger has sealed the run.
        """
        self._processes.check_not_forked()
        self._shards.check_whole("load")
        place = Path(require_path("path", path, "run.pt"))
        record = checkpoints.read(place)
        checkpoints.check_plan_of(place, record, self.plan, self.optimizer)
        if record["entry"] is not None and self._payment is None:
            raise InvalidParameter("ledger", None, "must be the ledger that paid for this run", "give that one")
        there = checkpoints.journals(place, record)
        if self.steps_taken and record["run"] != self._run:
            rule = "belongs to another run than the one that this trainer has begun"
            raise InvalidParameter("path", place.name, rule, "make a new trainer for it")
        checkpoints.check_fits(place, record, self.model, self.optimizer)
        known = max(record["steps"], self.steps_taken, *(journal.read() for journal in there.values()))
        payment, steps = self._payment, known
        if payment is not None:
            payment, steps = resume_for_all(payment, self._processes, self._device, record, known, self.steps_taken)
        if self._past is not None:
            self._past.restore(record["past"], steps - record["steps"])
        if isinstance(self._draws, EpochDraws) and self._processes.count == 1:
            self._draws.restore(record["draws"])
        # Nothing is refused below this line, so that a trainer is never partly loaded.
        self.model.load_state_dict(record["model"])
        self.optimizer.load_state_dict(record["optimizer"])
        self._run, self._payment, self.steps_taken = record["run"], payment, steps
        self._clipping.norm = record.get("clip", self.plan.clip.norm)
        self.public_steps = max(record["public_steps"], self.public_steps)
        self._journals = {**self._journals, **there}
        for journal in self._journals.values() if self._processes.is_first else ():
            journal.take_over(self.steps_taken)

    # -- the ledger ----------------------------------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Charge the whole run before its first step. All processes learn whether the ledger granted it."""
        if self._payment is None or self._is_charged:
            return
        reserve_for_all(self._payment, self._processes, self._device, self._run)
        self._is_charged = True

    def _seal(self) -> None:
        if self._payment is not None and self._processes.is_first:
            self._payment.seal(self.steps_taken)
