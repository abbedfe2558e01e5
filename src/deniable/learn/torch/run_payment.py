"""A run's entries in a ledger: the charge before the first step, the blocks of steps begun, and the seal at the end.

**Each step is taken once.** Files can be copied: a person with a copy of a checkpoint of training and its journal could
resume from it many times and pay once. A ledger cannot be set back. So, once a run has one, a trainer claims its steps
from the ledger, one block at a time and before the block's first step. The ledger grants each block to one trainer. A
trainer that resumes from a checkpoint gets the rest of the block in which it was saved, if no other trainer has claimed
it, and otherwise the next unclaimed block. Steps that were claimed but not taken, because of a crash, are lost.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any, final

import torch

from deniable.errors import NOTHING, BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.learn.plans import Plan
from deniable.learn.torch.run_processes import Processes

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger

BLOCKS = 64
"""The most blocks of a run: a crash loses less than 2 % of the plan, and the ledger gets few entries."""


@final
class Payment:
    """The charge for one run, and the steps that this trainer has claimed."""

    def __init__(self, ledger: Ledger, plan: Plan, delta: float | None) -> None:
        self.ledger, self._plan, self._delta = ledger, plan, delta
        self.entry: Entry | None = None
        self._block = -(-plan.steps // BLOCKS)
        self._is_shared = False
        """Whether a checkpoint exists, so that other trainers may resume this run."""
        self._last = 0
        """The last step that this trainer has claimed."""
        self._token: str | None = None
        """The token of the newest checkpoint. The first trainer to use it gets the rest of its block."""

    def reserve(self, run: str) -> None:
        """Charge the whole plan before the first release, because the stopping time may depend on the data."""
        plan, ledger = self._plan, self.ledger
        try:
            cost = plan.price(ledger.budget, unit=ledger.unit, delta=self._delta)
            question, words, key = _question(run, plan), f"training: {plan!r}", _key(run)
            self.entry = ledger.keyed(key)
            if self.entry is not None:  # a trainer that resumed from another copy of the checkpoint has paid already
                return self._check_open(self.entry)
            self.entry = ledger.reserve(cost, question=question, description=words, key=key)
        except BudgetExceeded as refused:
            more = f"plan more noise, {plan.cheaper_by}"
            remedy = f"nothing was spent; {more}: plan.calibrate(epsilon=, delta=) for what is left"
            raise BudgetExceeded(refused.asked, refused.left, remedy, account=refused.account) from None

    def seal(self, steps: int) -> None:
        """End the run: no trainer can resume it. A second call does nothing."""
        if self.entry is not None and self.ledger.closing(self.entry.number) is None:
            self.ledger.seal(self.entry, json.dumps({"steps": steps, "plan": repr(self._plan)}).encode())

    # -- claims on steps -----------------------------------------------------------------------------------------------

    def checkpoint_token(self) -> str | None:
        """The token for a new checkpoint. Checkpoints at the same step share one token; None before the charge."""
        self._is_shared = True
        if self.entry is None:  # the trainer that begins first pays
            return None
        if self._token is None:
            self._token = secrets.token_hex(8)
        return self._token

    def allow(self, step: int) -> None:
        """Claim a step, counted from 1, before it begins. Raises if another trainer has claimed it."""
        if not self._is_shared or self.entry is None or (step <= self._last and self._token is None):
            return
        self._check_open(self.entry)
        begun = (step - 1) % self._block > 0
        key = self._saved(self._token) if begun and self._token is not None else self._of_block(step)
        if (begun and self._token is None) or not self._given(key):
            rule = "another trainer was given the next steps of this run, so steps of both would be counted once"
            raise InvalidOperation(f"{rule}; load the newest checkpoint to continue, or begin a new run")
        self._last, self._token = self._end(step), None

    def resumed(self, record: dict[str, Any], known: int, *, own: int) -> tuple[Payment, int]:
        """The payment after loading a checkpoint, and the number of steps that count as taken, at least `known`.

        `own` is the number of steps that this trainer has begun itself.
        """
        steps = known
        if record["entry"] is not None:
            entry = self.ledger.entry(record["entry"])
        else:
            entry = self.ledger.keyed(_key(record["run"]))
            if entry is None:  # saved before the first step, and no trainer has begun
                self._is_shared = True
                return self, known
        if entry is None or entry.question != _question(record["run"], self._plan):
            raise InvalidParameter("ledger", NOTHING, "is not the one that paid for this run", "give the same ledger")
        self._check_open(entry)
        if self.entry is not None and self.entry.number == entry.number and own == known:
            return self, known  # no other trainer has resumed since
        new = Payment(self.ledger, self._plan, self._delta)
        new.entry, new._is_shared = entry, True
        token = record.get("token") if steps == record["steps"] else None
        if steps % new._block and token is not None and new._given(new._saved(token)):
            new._last = new._end(steps + 1)
            return new, steps
        steps = -(-steps // new._block) * new._block
        while steps < self._plan.steps and self.ledger.keyed(new._of_block(steps + 1)) is not None:
            steps += new._block
        return new, min(steps, self._plan.steps)

    def _check_open(self, entry: Entry) -> None:
        if self.ledger.closing(entry.number) is not None:
            rule = f"the ledger has sealed this run (entry {entry.number}), so no step of it is left"
            remedy = "begin a new run, which is charged; torch.load(path)['model'] reads the weights of a checkpoint"
            raise InvalidOperation(f"{rule}; {remedy}")

    def _end(self, step: int) -> int:
        return min(-(-step // self._block) * self._block, self._plan.steps)

    def _of_block(self, step: int) -> str:
        assert self.entry is not None
        return f"training {self.entry.number} steps {(step - 1) // self._block * self._block + 1} to {self._end(step)}"

    def _saved(self, token: str) -> str:
        assert self.entry is not None
        return f"training {self.entry.number} from checkpoint {token}"

    def _given(self, key: str) -> bool:
        """Whether the ledger grants this claim. The first to ask gets it, also among concurrent trainers."""
        from deniable.ledger import Cost, State

        assert self.entry is not None
        question = hashlib.sha256(f"{self.entry.question} {key}".encode()).hexdigest()
        try:
            found = self.ledger.reserve(Cost(0, 0), question=question, description=key, key=key)
        except InvalidParameter:  # another trainer has reserved it and is about to seal it
            return False
        if found.state is not State.RESERVED:
            return False
        self.ledger.seal(found, b"")
        return True


def reserve_for_all(payment: Payment, processes: Processes, device: torch.device, run: str) -> None:
    """Charge the whole run in the first process. All processes learn whether the ledger granted it."""
    granted = torch.zeros(1, device=device)
    try:
        if processes.is_first and payment.entry is None:
            payment.reserve(run)
        granted += 1
    finally:
        processes.broadcast(granted)  # also after a refusal: other processes must not wait forever
    if not granted:
        raise InvalidOperation("the first process was not granted the budget; see its error")


def resume_for_all(
    payment: Payment, processes: Processes, device: torch.device, record: dict[str, Any], known: int, own: int
) -> tuple[Payment, int]:
    """The payment for the steps after a checkpoint, and how many steps count as taken in all processes: at least
    `known`. `own` is the number of steps that this trainer has begun itself."""
    steps = torch.full((1,), -1, device=device)
    try:
        if processes.is_first:
            payment, number = payment.resumed(record, known, own=own)
            steps += 1 + number
    finally:
        processes.broadcast(steps)
    if int(steps) < 0:
        raise InvalidOperation("the first process could not continue from this checkpoint; see its error")
    return payment, int(steps)


def _key(run: str) -> str:
    """The idempotency key of a run's charge. A checkpoint from before the first step has no entry number."""
    return f"training run {run}"


def _question(run: str, plan: Plan) -> str:
    return hashlib.sha256(f"training {run} {plan.in_full()}".encode()).hexdigest()
