"""Per-example gradients from one backward pass, beside autograd one example at a time and vmap."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from deniable.learn.torch.bookkeeping import Bookkeeping  # noqa: E402
from tests.learn.zoo import ZOO, built, losses_of  # noqa: E402

torch.set_num_threads(1)


def one_by_one(model, losses):
    """The same by autograd, example by example."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = []
    for loss in losses:
        grads = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(named.values(), grads, strict=True)])
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(named)}


def close(mine, truth, tolerance=1e-9):
    return float((mine - truth).norm()) <= tolerance * float(truth.norm()) + 1e-14


@pytest.mark.parametrize("name", ZOO)
def test_norms_and_sums_are_those_of_single_examples(name):
    for count, seed in ((5, 0), (4, 1), (1, 2), (5, 3)):  # the second and later batches go by what the first one taught
        if seed == 0:
            model, x, y = built(name, count, seed)
            book = Bookkeeping(model)
        else:
            _, x, y = built(name, count, seed)
        truth = one_by_one(model, losses_of(model, x, y))
        book.forget()
        found = book.gradients(losses_of(model, x, y))
        squares = sum(g.reshape(count, -1).square().sum(1) for g in truth.values())
        assert close(found.squared(), squares, 1e-6), (count, seed)  # ghost norms have a margin on the safe side
        assert bool((found.squared() >= squares * (1 - 1e-12)).all())
        factors = torch.rand(count, dtype=torch.float64)
        sums = {key: torch.zeros_like(value[0]) for key, value in truth.items()}
        for key, part, (start, stop) in found.summed(factors):
            (sums[key][start:stop] if sums[key].dim() else sums[key]).add_(part)
        for key, value in truth.items():
            assert close(sums[key], torch.tensordot(factors, value, 1)), key
            each = found.each(key, 0, count)
            assert close(value * 0 if each is None else each, value), key
    book.close()
