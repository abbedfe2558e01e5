"""With and without a record: the clipped sum of every step moves by at most one clipping norm, whatever the model does.

Brute force: both sums are computed, with weights that move by public amounts only. The bound has a margin for rounding,
by precision. The same comparison finds out the trainer when it believes (`test_the_comparison_can_fail`).
"""

from __future__ import annotations

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*(Sparse|sparse).*")]

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.gradient_noise import GradientNoise  # noqa: E402
from deniable.learn.torch.gradients import bookkeeping  # noqa: E402
from deniable.learn.torch.guards.sum_comparison import SumComparison  # noqa: E402
from tests.learn.mixing_models import (  # noqa: E402
    APART,
    MIXING,
    WRITING,
    Backwards,
    Ragged,
    losses_on,
    padded,
    ragged,
    records,
)
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

CLIP = 0.01

ROUNDING = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.05, "autocast": 0.05}
"""How much more than one norm a sum may move, in clipping norms. Norms are rounded up by 2⁻¹⁶; gradients of the other
examples are rounded anew in a batch of another size."""


class Told(GradientNoise):
    """No noise: it keeps what it was given."""

    assumptions = ()

    def __init__(self):
        self.sums = []

    def open(self, plan, coordinates):
        pass

    def add(self, totals):
        self.sums.append(torch.cat([each.flatten().double() for each in totals]))
        return list(totals)


def summed(make, listed, *, steps, precision="float32", is_run=False, **more):
    """The trainer, and the clipped sum of each step. The bias of the first layer grows by a public factor. `is_run`:
    by `trainer.run`, not by a loop."""
    torch.manual_seed(0)
    model, told = make(), Told()
    model = model if precision == "autocast" else model.to(getattr(torch, precision))

    def after(trainer):
        with torch.no_grad():
            model.inner.bias.mul_(1.05)

    plan = learn.DPSGD(clip=CLIP, rate=1.0, steps=steps, noise=1.0, records=len(listed))
    trainer = Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        plan,
        listed,
        collate=ragged if isinstance(model, Ragged) else padded,
        noise=told,
        progress=False,
        physical_batch=max(len(listed) // 3, 1),
        after_step=after,
        **more,
    )
    lower = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()

    def losses_of(model, batch):
        with lower:
            losses = losses_on(model, batch)
        return losses.float() if precision == "autocast" else losses

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="each example is computed alone")
        if is_run:
            trainer.run(losses_of)
            return trainer, told.sums
        for batch in trainer:
            trainer.backward(losses_of(model, batch))
    return trainer, told.sums


def moved(make, count, *, steps, precision="float32", places=None, **more):
    """The trainer of all records, and by how many clipping norms a sum moves without one record, at most."""
    listed = records(count, torch.float32 if precision == "autocast" else getattr(torch, precision))
    trainer, whole = summed(make, listed, steps=steps, precision=precision, **more)
    most = 0.0
    for gone in (0, count // 2) if places is None else places:
        _, others = summed(make, listed[:gone] + listed[gone + 1 :], steps=steps, precision=precision, **more)
        most = max(most, *(float((a - b).norm()) / CLIP for a, b in zip(whole, others, strict=True)))
    return trainer, most


def _steps(name):
    return 4 if "warm-up" in name else 1


REFUSED = {
    "running sum",
    "batch statistics of a checkpointed part",
    "a swapped module after a warm-up",
}
"""Models that are refused by what they are, whatever the data are."""

SLOW = pytest.mark.slow
CASES = [
    *((name, 30, "float32") for name in MIXING),
    *(pytest.param(name, 60, each, marks=SLOW) for name in MIXING for each in ROUNDING),
    *(pytest.param(name, 240, "float32", marks=SLOW) for name in MIXING if "warm-up" not in name),
    *(pytest.param(name, 800, each, marks=SLOW) for name in ("sorted and undone", "ragged") for each in ROUNDING),
]


@pytest.mark.parametrize(("name", "count", "precision"), CASES)
def test_one_record_moves_the_clipped_sum_by_one_norm_at_most(name, count, precision):
    """Sorted and undone, 800 records: one of them moved the sum by 97 clipping norms."""
    if name in REFUSED:
        with pytest.raises(InvalidParameter, match="other examples"):
            moved(MIXING[name], count, steps=_steps(name), precision=precision)
        return
    trainer, most = moved(MIXING[name], count, steps=_steps(name), precision=precision)
    assert trainer.separation == "isolated"
    assert any("separation is isolated" in words for words in trainer.guarantee.assumptions)
    assert most <= 1 + ROUNDING[precision]


def test_a_hook_on_a_parameter_carries_no_number_to_the_next_batch():
    """Autograd runs it in the comparison of the first batch; the list moved the sum by 1.9 norms."""
    trainer, most = moved(lambda: Backwards("parameter"), 30, steps=3)
    assert trainer.separation == "proved"
    assert 0.9 < most <= 1 + ROUNDING["float32"]


@pytest.mark.parametrize("separation", [None, "isolated", "assumed"])
@pytest.mark.parametrize("kind", WRITING)
def test_a_forward_pass_that_writes_into_a_parameter_or_buffer_is_refused(kind, separation):
    """`codebook.data.mul_(.9).add_(...)`, a running mean in a parameter, was taken for proved: 3.7 norms."""
    if kind[1] == "numpy" and separation == "assumed":
        pytest.skip("nothing is proved, and numpy is not seen")
    with worded(InvalidParameter, parameter="model", asked="kept") as refused:
        summed(WRITING[kind], records(9), steps=3, separation=separation)
    assert ("buffer" in refused.value.rule) == (kind[0] == "buffer")


@pytest.mark.parametrize(
    ("name", "precision"), [pytest.param(a, b, marks=SLOW if b != "float32" else ()) for a in APART for b in ROUNDING]
)
def test_models_that_keep_examples_apart_are_proved_and_move_by_one_norm(name, precision):
    trainer, most = moved(APART[name], 60, steps=3, precision=precision)
    assert trainer.separation == "proved"
    assert any("separation is proved" in words for words in trainer.guarantee.assumptions)
    assert 0.9 < most <= 1 + ROUNDING[precision]


RED = {
    "sorted and undone": 1.3,
    "ragged": 1.1,
    "data centred in large batches": 3,
    "negatives of large batches": 1.2,
    "data centred after a warm-up": 3,
    "data centred once the weights have moved, warm-up": 3,
    "rolled": 1.4,
    "flipped by an index": 3,
    "picked by argmax": 3,
    "a branch on the data": 3,
    "numpy": 3,
    "an address": 2,
    "an error that is caught": 3,
    "a sparse product": 3,
    "a sign by the size of the batch": 5,
    "a constant by the size of the batch": 5,
    "the size of the batch as a sum of ones": 5,
    "as many features as examples": 5,
    "a seed by the size of the batch": 3,
}
"""Name -> by how many norms a sum moves at least if the trainer believes that examples are apart, with 60 records."""


@pytest.mark.parametrize("name", RED)
def test_the_comparison_can_fail(name, monkeypatch):
    """A test of the tests above: nothing is proved, and nothing is compared."""
    monkeypatch.setattr(bookkeeping, "check_alone", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_check_graph", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_look_again", lambda *_: None)
    monkeypatch.setattr(SumComparison, "is_due", lambda self: False)
    _, most = moved(MIXING[name], 60, steps=_steps(name), separation="assumed")
    assert most > RED[name]
