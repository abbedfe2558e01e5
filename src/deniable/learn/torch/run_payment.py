"""What a ledger is told of a run: the charge before the first step, which steps were begun, and that it is over.

**A step is taken once.** Files can be copied: whoever keeps a copy of a checkpoint, and of the journal beside it, could
go on from it again and again, on one charge. The ledger cannot be turned back. So once a run has a checkpoint, the
ledger is asked for its steps, a block at a time and before the first of them begins; it gives every block to one
trainer. Who goes on from a checkpoint gets the rest of the block in which it was saved, if nobody else did, and
otherwise begins with the next block that nobody has. Steps that were given and not taken (a crash) are lost.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any, final

from deniable.errors import NOTHING, BudgetExceeded, InvalidOperation, InvalidParameter
from deniable.learn.plans import Plan

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger

BLOCKS = 64
"""A run asks for its steps in so many blocks at most: a crash loses less than 2 % of a plan, and no ledger fills up."""


@final
class Payment:
    """The charge for one run, and which of its steps this trainer may take."""

    def __init__(self, ledger: Ledger, plan: Plan, delta: float | None) -> None:
        self.ledger, self._plan, self._delta = ledger, plan, delta
        self.entry: Entry | None = None
        self._block = -(-plan.steps // BLOCKS)
        self._is_shared = False
        """Whether there is a checkpoint, so that others may go on with this run."""
        self._last = 0
        """The last step that this trainer was given."""
        self._token: str | None = None
        """Of the newest checkpoint: it stands for the rest of its block, and whoever uses it first has that."""

    def reserve(self, run: str) -> None:
        """Charge the whole run before anything is released: a plan is fixed in advance, a stopping time is not."""
        plan, ledger = self._plan, self.ledger
        try:
            cost = plan.price(ledger.budget, unit=ledger.unit, delta=self._delta)
            question, said, key = _question(run, plan), f"training: {plan!r}", _key(run)
            self.entry = ledger.keyed(key)
            if self.entry is not None:  # whoever went on from another copy of the checkpoint has paid for all of them
                return self._check_open(self.entry)
            self.entry = ledger.reserve(cost, question=question, description=said, key=key)
        except BudgetExceeded as refused:
            more = f"plan more noise, {plan.cheaper_by}"
            remedy = f"nothing was spent; {more}: plan.calibrate(epsilon=, delta=) for what is left"
            raise BudgetExceeded(refused.asked, refused.left, remedy, account=refused.account) from None

    def seal(self, steps: int) -> None:
        """The run is over, and nobody goes on with it; once is enough."""
        if self.entry is not None and self.ledger.closing(self.entry.number) is None:
            self.ledger.seal(self.entry, json.dumps({"steps": steps, "plan": repr(self._plan)}).encode())

    # -- who may take which step ---------------------------------------------------------------------------------------

    def share(self) -> str | None:
        """There is a new checkpoint: its token. Two of the same step stand for the same rest of a block."""
        self._is_shared = True
        if self.entry is None:  # whoever begins first pays
            return None
        if self._token is None:
            self._token = secrets.token_hex(8)
        return self._token

    def allow(self, step: int) -> None:
        """Before a step begins, counted from 1: refuse it if another trainer was given it."""
        if not self._is_shared or self.entry is None or (step <= self._last and self._token is None):
            return
        self._check_open(self.entry)
        begun = (step - 1) % self._block > 0
        key = self._saved(self._token) if begun and self._token is not None else self._of_block(step)
        if (begun and self._token is None) or not self._given(key):
            rule = "another trainer was given the next steps of this run, so steps of both would be counted once"
            raise InvalidOperation(f"{rule}; load the newest checkpoint to go on, or begin a new run")
        self._last, self._token = self._end(step), None

    def resumed(self, record: dict[str, Any], known: int, *, own: int) -> tuple[Payment, int]:
        """Who pays after a checkpoint, and how many steps count as taken: at least the `known` ones.

        `own` are those that this trainer has begun itself.
        """
        steps = known
        if record["entry"] is not None:
            entry = self.ledger.entry(record["entry"])
        else:
            entry = self.ledger.keyed(_key(record["run"]))
            if entry is None:  # it was saved before the first step, and nobody has begun
                self._is_shared = True
                return self, known
        if entry is None or entry.question != _question(record["run"], self._plan):
            raise InvalidParameter("ledger", NOTHING, "is not the one that paid for this run", "give the same ledger")
        self._check_open(entry)
        if self.entry is not None and self.entry.number == entry.number and own == known:
            return self, known  # nobody else went on since
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
        """Whether the ledger gives this to us: the first who asks has it, also where many ask at once."""
        from deniable.ledger import Cost, State

        assert self.entry is not None
        question = hashlib.sha256(f"{self.entry.question} {key}".encode()).hexdigest()
        try:
            found = self.ledger.reserve(Cost(0, 0), question=question, description=key, key=key)
        except InvalidParameter:  # somebody has it, and is about to write that down
            return False
        if found.state is not State.RESERVED:
            return False
        self.ledger.seal(found, b"")
        return True


def _key(run: str) -> str:
    """By which a ledger finds the charge for a run: a checkpoint from before its first step knows no entry."""
    return f"training run {run}"


def _question(run: str, plan: Plan) -> str:
    return hashlib.sha256(f"training {run} {plan.in_full()}".encode()).hexdigest()
