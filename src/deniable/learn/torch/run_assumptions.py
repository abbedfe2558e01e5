"""What the guarantee of a run assumes beside its plan and its noise."""

from __future__ import annotations

from deniable.learn.plans import Plan

ARITHMETIC = "gradients, their norms and their sums are computed as in real arithmetic"

COMPILED = (
    "compiled steps compute what their graph says, and the code of model and loss that was captured in it changes "
    "nothing outside of torch's operations"
)


def run_assumptions(
    plan: Plan,
    separation: str,
    *,
    is_compiled: bool,
    is_private: bool,
    is_reduced: bool,
    public_steps: int,
    is_paid: bool,
    has_journals: bool,
    has_canaries: bool,
) -> list[str]:
    """The assumptions of a run, in the order in which a guarantee lists them."""
    more = [separation, ARITHMETIC]
    if is_compiled:
        more.append(COMPILED)
    if not is_private:
        more.append("who takes part is replayable, for tests only: this protects nobody")
    if is_reduced:
        more.append("norms of gradients from products of reduced precision (TF32) are as good as exact ones")
    more += plan.training_assumptions
    if public_steps:
        more.append(f"the data of {public_steps} public steps is public")
    if not is_paid and has_journals:
        more.append("a trainer that resumes from a copy of a checkpoint reaches the journal of the first one")
    if is_paid and plan.unit.column is None:
        more.append("the records are rows of the ledger's dataset, and nobody owns more of them than its unit says")
    if plan.unit.column is not None:
        more.append(f"people= has the {plan.unit.column!r} of every row, as the rows' own data say")
    if has_canaries:
        more.append("canaries are nobody's records")
    return more
