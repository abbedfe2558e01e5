"""Models that regroup, gather or mix their examples, keep something of them, or look at the size of the batch."""

from __future__ import annotations

import array
import ctypes
import functools
import io
import math
import random
import threading
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, PLACES = 4, 6


class Two(nn.Module):
    """Two layers. Subclasses change the mean over places, the features of a batch, in between."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.later(torch.tanh(self.inner(self.first(x.mean(1))))))

    def first(self, x):
        return x

    def later(self, hidden):
        return hidden


class Sorted(Two):
    """By length, and undone: nothing mixes examples."""

    def forward(self, x):
        order = (x[:, :, 0] > 0).sum(1).argsort(stable=True)
        hidden = torch.tanh(self.inner(x[order])).sum(1)
        return self.head(hidden[order.argsort()])


class Ragged(Two):
    """All rows of all examples one behind the other, and to whom each belongs."""

    def forward(self, rows, owner, count):
        hidden = torch.tanh(self.inner(rows))
        return self.head(hidden.new_zeros(count, WIDTH).index_add(0, owner, hidden))


class Remembering(Two):
    """A running mean in a plain attribute, or in a list."""

    def __init__(self, where):
        super().__init__()
        self.where, self.mean, self.means = where, torch.zeros(WIDTH), [torch.zeros(WIDTH)]

    def first(self, x):
        before = self.mean if self.where == "attribute" else self.means[-1]
        now = 0.5 * before.to(x.dtype) + 0.5 * x.detach().mean(0)
        if self.where == "attribute":
            self.mean = now
        else:
            self.means.append(now)
        return x - before.to(x.dtype)


class Writing(Two):
    """A running mean in a parameter or a buffer, written past torch's versions once the weights have moved."""

    def __init__(self, kind, write):
        super().__init__()
        self.kept = nn.Parameter(torch.zeros(WIDTH), requires_grad=kind == "trained")
        if kind == "buffer":
            del self.kept
            self.register_buffer("kept", torch.zeros(WIDTH))
        self.write, self.limit = write, float(self.inner.bias.detach().abs().sum()) * 1.02

    def first(self, x):
        before = self.kept.detach().clone()
        if float(self.inner.bias.detach().abs().sum()) > self.limit:
            self.write(self.kept, x.detach().mean(0).to(before.dtype))
        return x - before


def replace_data(kept, now):
    kept.data = now.clone()


def write_numpy(kept, now):
    kept.detach().numpy()[:] = now.numpy()


WRITING = {
    (kind, name): functools.partial(Writing, kind, write)
    for kind in ("trained", "frozen", "buffer")
    for name, write in {
        "data": lambda kept, now: kept.data.mul_(0.5).add_(now, alpha=0.5),
        "other data": replace_data,
        "numpy": write_numpy,
    }.items()
    if (kind, name) != ("buffer", "numpy")  # buffers are compared in the first batch only
}
"""(kind of tensor, way) -> model that must be refused when it writes."""


class Keeping(Two):
    """A running mean in an object whose state is not in attributes."""

    def __init__(self, kept, read, write):
        super().__init__()
        self.kept, self.read, self.write = kept, read, write

    def first(self, x):
        before = self.read(self.kept)
        self.write(self.kept, float(x.detach().abs().mean()))
        return x - before


def write_file(file, value):
    file.seek(0)
    file.write(f"{value:20.9e}")


def write_bytes(kept, value):
    kept[:] = np.float64(value).tobytes()


def seed_state(kept, value):
    kept.bit_generator.state = np.random.default_rng(int(value * 1e6)).bit_generator.state


class Later(Two):
    """Does something else after some calls, in large batches, or once the weights have moved."""

    def __init__(self, what, when):
        super().__init__()
        self.what, self.when, self.calls = what, when, 0
        self.limit = float(self.inner.bias.detach().abs().sum()) * 1.05

    def forward(self, x):
        self.calls += self.when == "calls"
        is_on = self.calls > 2 or (self.when == "batch" and len(x) > 8)
        is_on = is_on or (self.when == "weights" and float(self.inner.bias.detach().abs().sum()) > self.limit)
        x = x.mean(1)
        if self.what == "data":
            x = x - (x.mean(0) if is_on else x.new_ones(WIDTH))
        hidden = torch.tanh(self.inner(x))
        if is_on and self.what == "negatives":
            hidden = hidden - torch.softmax(hidden @ hidden.T, 1) @ hidden
        if is_on and self.what == "saved":
            hidden = packed(hidden)
        elif self.what == "saved":
            hidden = torch.tanh(3 * hidden) * hidden
        if is_on and self.what == "hidden":
            hidden = hidden - hidden.mean(0)
        if is_on and self.what == "twice":
            hidden = F.linear(hidden, self.inner.weight)
        return self.head(hidden)


class Centring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.sum(0)


class CentringBetween(torch.autograd.Function):
    """Mixes only examples that are not the first two or the last two of a batch."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.cat([grad[:2], grad[2:-2] + 9 * grad[2:-2].sum(0), grad[-2:]])


class OtherBackward(Two):
    """Once the weights have moved, the same operations have another backward pass."""

    def __init__(self):
        super().__init__()
        self.limit = float(self.inner.bias.detach().abs().sum()) * 1.08

    def later(self, hidden):
        is_on = float(self.inner.bias.detach().abs().sum()) > self.limit
        return CentringBetween.apply(hidden) if is_on else hidden.clone()


class WithoutGradient(Two):
    """A factor has no gradient in batches of an even size. The operations are the same."""

    def later(self, hidden):
        with torch.set_grad_enabled(len(hidden) % 2 == 1):
            factor = 9 * torch.sin(9 * hidden)
        return factor - 0.01 * hidden


class Backwards(Two):
    """Python code in a backward pass keeps numbers for the next forward pass."""

    def __init__(self, where):
        super().__init__()
        self.kept, self.where = [0.0], where
        if where == "module":
            self.head.register_full_backward_hook(lambda module, into, out: self.keep(out[0]))
        if where == "parameter":
            self.inner.weight.register_hook(self.keep)

    def keep(self, numbers):
        self.kept.append(0.9 * self.kept[-1] + 1000 * float(numbers.detach()[..., 0].sum()))

    def first(self, x):
        return x - self.kept[-1]

    def later(self, hidden):
        if self.where == "tensor" and hidden.requires_grad:
            hidden.register_hook(self.keep)
        return checkpoint(self.part, hidden, use_reentrant=False) if self.where == "checkpoint" else hidden

    def part(self, hidden):
        self.keep(hidden)
        return torch.tanh(hidden) * hidden


class KeepingBackward(torch.autograd.Function):
    kept: ClassVar = [0.0]

    @staticmethod
    def forward(ctx, x):
        return x - KeepingBackward.kept[-1]

    @staticmethod
    def backward(ctx, grad):
        KeepingBackward.kept.append(0.9 * KeepingBackward.kept[-1] + 100 * float(grad.sum()))
        return grad


class KeptBackward(Two):
    def later(self, hidden):
        return KeepingBackward.apply(hidden)


class Growing(Two):
    """A sum of the data in a module that is new each time, or in the name of the model's class."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def first(self, x):
        known = type(self).__name__ if self.where == "class" else ""
        before = float(known) if known != "Growing" and known else getattr(getattr(self, "newest", None), "total", 0.0)
        total = before + float(x.mean())
        if self.where == "class":
            self.__class__ = type(str(total), (Growing,), {})
        else:
            self.newest = nn.Identity()
            self.newest.total = total
        return x * math.cos(90 * before) - before


def cut(x):
    """Columns up to a number of the first example."""
    first = x.tensor_split((x[0, :1] > 0.7).long() + 1, 1)[0]
    return x * first.shape[1] + first.sum(1, keepdim=True)


class LaterCut(Two):
    """Once the weights have moved, columns are cut by a number of the first example."""

    def __init__(self):
        super().__init__()
        self.limit = float(self.inner.bias.detach().abs().sum()) * 1.08

    def first(self, x):
        at = (x[0, :1] > 0.7).long() + 1
        is_on = float(self.inner.bias.detach().abs().sum()) > self.limit
        first = x.tensor_split(at if is_on else [1], 1)[0]
        return x * first.shape[1] + first.sum(1, keepdim=True)


class Swapped(Two):
    """A module is exchanged in mid-run."""

    def __init__(self):
        super().__init__()
        self.middle, self.calls = nn.Identity(), 0

    def later(self, hidden):
        self.calls += 1
        if self.calls > 2:
            self.middle = nn.BatchNorm1d(WIDTH, affine=False, track_running_stats=False)
        return self.middle(hidden)


@functools.lru_cache(maxsize=4)
def seen_before():
    return [torch.zeros(WIDTH)]


class Caching(Two):
    """A running mean in the cache of a function."""

    def first(self, x):
        means = seen_before()
        before = means[-1].to(x.dtype)
        means.append(x.detach().mean(0))
        return x - before


def with_(first=None, later=None):
    """A model with a function on its features, or on what its first layer makes of them."""

    class Changed(Two):
        def first(self, x):
            return x if first is None else first(x)

        def later(self, hidden):
            return hidden if later is None else later(hidden)

    return Changed


def by_address(x):
    """The first number of another example, read past torch."""
    if x.dtype != torch.float32:
        return x - x.flatten().tolist()[0]
    return x - ctypes.c_float.from_address(x.data_ptr()).value


def by_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x.mean(0)))
    thread.start()
    thread.join()
    return x - found[0]


def by_writes(x):
    out = torch.zeros_like(x)
    out[torch.arange(len(x)).flip(0)] = x
    return x - out


def by_error(x):
    try:
        torch.linalg.cholesky((x.float().mean() - 1.0).reshape(1, 1))
    except RuntimeError:
        return -x
    return x


def over_examples(x):
    """A recurrence from example to example."""
    out, total = [], torch.zeros_like(x[0])
    for each in x:
        total = 0.5 * total + each
        out.append(total)
    return torch.stack(out)


def by_sparse(x):
    with torch.no_grad():
        return x - torch.sparse.mm(torch.ones(len(x), len(x)).to_sparse(), x.float()).to(x.dtype) / len(x)


def hooked(hidden):
    hidden.grad_fn and hidden.grad_fn.register_prehook(lambda grads: tuple(grad - grad.sum(0) for grad in grads))
    return hidden


def by_nested(x):
    rows = list(x.detach().float().flip(0))
    return x - torch.nested.as_nested_tensor(rows, layout=torch.jagged).values().view(len(x), -1).to(x.dtype)


def packed(hidden):
    """What the backward pass needs is scaled by all examples."""
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept - kept.mean(0)):
        return torch.tanh(3 * hidden) * hidden


def edged(hidden):
    node = torch.autograd.graph.get_gradient_edge(hidden).node
    node.register_prehook(lambda grads: tuple(grad - grad.sum(0) for grad in grads))
    return hidden


LIBRARY = torch.library.Library("mixing", "DEF")
"""An operation of another library, with a false promise and a name like those of torch's constants."""
LIBRARY.define("centred_like(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
LIBRARY.impl("centred_like", lambda x: x - x.mean(0), "CompositeExplicitAutograd")


def on_used_memory(x):
    """Memory that nothing was written to holds the numbers of others."""
    used = x.flip(0) * 1.0
    del used
    return x - torch.empty_like(x).nan_to_num().clamp(-9, 9)


def on_grown_memory(x):
    used = x.flip(0) * 1.0
    del used
    return x - torch.empty(0).resize_(x.shape).to(x.dtype).nan_to_num().clamp(-9, 9)


MIXING = {
    "sorted and undone": Sorted,
    "ragged": Ragged,
    "data centred in large batches": lambda: Later("data", "batch"),
    "hidden numbers centred in large batches": lambda: Later("hidden", "batch"),
    "negatives of large batches": lambda: Later("negatives", "batch"),
    "a weight used twice in large batches": lambda: Later("twice", "batch"),
    "a running mean in an attribute, warm-up": lambda: Remembering("attribute"),
    "a running mean in a list, warm-up": lambda: Remembering("list"),
    "a running mean in a cache, warm-up": Caching,
    "a mean in bytes, warm-up": lambda: Keeping(bytearray(8), lambda kept: float(np.frombuffer(kept)[0]), write_bytes),
    "a mean in an array, warm-up": lambda: Keeping(
        array.array("d", [0.0]), lambda kept: kept[0], lambda kept, value: kept.__setitem__(0, value)
    ),
    "a mean in a text, warm-up": lambda: Keeping(io.StringIO("0.0"), lambda kept: float(kept.getvalue()), write_file),
    "a seed of Python's generator, warm-up": lambda: Keeping(
        random.Random(0), random.Random.random, random.Random.seed
    ),
    "a state of numpy's generator, warm-up": lambda: Keeping(
        np.random.default_rng(0), lambda kept: kept.random(), seed_state
    ),
    "data centred after a warm-up": lambda: Later("data", "calls"),
    "negatives of the batch after a warm-up": lambda: Later("negatives", "calls"),
    "a weight used twice after a warm-up": lambda: Later("twice", "calls"),
    "data centred once the weights have moved, warm-up": lambda: Later("data", "weights"),
    "saved tensors that are changed once the weights have moved, warm-up": lambda: Later("saved", "weights"),
    "rolled": with_(lambda x: x.roll(1, 0)),
    "flipped by an index": with_(lambda x: x - x[torch.arange(len(x)).flip(0)]),
    "sorted along the examples": with_(lambda x: x.sort(0).values),
    "picked by argmax": with_(lambda x: x - x[x[:, 0].argmax()]),
    "running sum": with_(lambda x: x.cumsum(0)),
    "a recurrence over examples": with_(over_examples),
    "scaled by a number of Python": with_(lambda x: x / x.abs().max().item()),
    "a branch on the data": with_(lambda x: x if x.sum() > 3 * len(x) else -x),
    "a length of what is picked": with_(lambda x: x / (1 + len(x[x > 0.7]))),
    "a list of numbers": with_(lambda x: x - sum(x[:, 0].tolist()) / len(x)),
    "numpy": with_(lambda x: x - torch.from_numpy(np.asarray(x.detach().float())).mean(0).to(x.dtype)),
    "an address": with_(by_address),
    "a thread": with_(by_thread),
    "writes by an index": with_(by_writes),
    "an error that is caught": with_(by_error),
    "a sparse product": with_(by_sparse),
    "batch statistics of a checkpointed part": with_(
        later=lambda h: checkpoint(lambda z: z - z.mean(0), h, use_reentrant=False)
    ),
    "a backward pass in Python": with_(later=Centring.apply),
    "a hook on a tensor": with_(later=lambda h: h.register_hook(lambda grad: grad - grad.sum(0)) and h),
    "a hook on a node": with_(later=hooked),
    "a sign by the size of the batch": with_(lambda x: x if len(x) % 2 else -x),
    "divided by the size of the batch": with_(later=lambda h: h / len(h)),
    "shifted by the size of the batch": with_(later=lambda h: (h - len(h)).sin()),
    "a constant by the size of the batch": with_(later=lambda h: (h - torch.tensor(float(len(h)))).sin()),
    "the size of the batch as a sum of ones": with_(later=lambda h: (h - torch.ones(len(h)).sum()).sin()),
    "the size of the batch as a product of ones": with_(
        later=lambda h: (h - h.new_ones(len(h), len(h)) @ h.new_ones(len(h), 1)).sin()
    ),
    "the size of the batch in one number": with_(later=lambda h: (h - torch.full((), math.log(len(h))).exp()).sin()),
    "as many features as examples": with_(lambda x: torch.cat([x[:, : len(x) % 4], -x[:, len(x) % 4 :]], 1)),
    "a position by the size of the batch": with_(lambda x: x - x[:, (len(x) % 4) :][:, :1]),
    "a seed by the size of the batch": with_(
        lambda x: x * torch.randn(WIDTH, generator=torch.Generator().manual_seed(len(x))).to(x.dtype)
    ),
    "a swapped module after a warm-up": Swapped,
    "a tensor made of numbers": with_(lambda x: x - torch.tensor([x[0, 0], x[0, 1], 0, 0]).to(x.dtype)),
    "a tensor made like another of numbers": with_(lambda x: x - x.new_tensor([list(x[0])])),
    "a nested tensor": with_(by_nested),
    "saved tensors that are changed": with_(later=packed),
    "a hook on a node that torch gives": with_(later=edged),
    "an operation of another library": with_(lambda x: x - torch.ops.mixing.centred_like(x)),
    "memory that grows": with_(on_grown_memory),
    "a transform of torch.func": with_(lambda x: torch.vmap(lambda each: each - each.mean(), 1, 1)(x)),
    "cut by a number of an example": with_(cut),
    "cut by a number of an example after a warm-up": LaterCut,
    "another backward pass after a warm-up": OtherBackward,
    "no gradient in batches of an even size": WithoutGradient,
    "a backward hook of a module keeps numbers, warm-up": lambda: Backwards("module"),
    "a backward hook of a tensor keeps numbers, warm-up": lambda: Backwards("tensor"),
    "a checkpointed part keeps numbers, warm-up": lambda: Backwards("checkpoint"),
    "a backward pass in Python keeps numbers, warm-up": KeptBackward,
    "a new module each time, warm-up": lambda: Growing("module"),
    "another class each time, warm-up": lambda: Growing("class"),
    "gradients divided by how often all ids name a row": with_(
        lambda x: x + F.embedding((x[:, 0] > 0.7).long(), x.new_ones(2, WIDTH), scale_grad_by_freq=True)
    ),
}
"""Name -> model that must be isolated or refused. Those with a warm-up do it only after some steps."""

APART = {
    "two layers": Two,
    "positions and a softmax": with_(later=lambda h: h * torch.softmax(h, 1) + torch.arange(WIDTH)),
    "a mask of the data": with_(lambda x: torch.where(x > 0.7, x, -x)),
    "picked within each example": with_(lambda x: x.gather(1, x.argsort(1))),
    "dropout": with_(later=lambda h: F.dropout(h, 0.0)),
    "its own width": with_(later=lambda h: h / h.shape[1] ** 0.5),
    "used memory": with_(on_used_memory),
    "a zero for each": with_(lambda x: torch.cat([x[:, 1:], x.new_zeros(len(x), 1)], 1)),
}
"""Name -> model whose batches are proved."""


def records(count, dtype=torch.float32, seed=0):
    """Half of them are as long as each other, so that at first no order shows; then shorter and longer ones take turns,
    and the lengths of all still divide. One is far away from the others."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, PLACES, WIDTH, generator=generator).abs() + 0.1
    x[count // 2] *= 100
    lengths = torch.tensor(([3] * (count // 2 + 1) + [2, 4] * count)[:count])
    x[torch.arange(PLACES) >= lengths[:, None]] = 0
    x = x.to(dtype)
    return [(x[i, : lengths[i]], x[i], torch.randint(0, 3, (), generator=generator)) for i in range(count)]


def ragged(listed):
    owner = torch.cat([torch.full((len(rows),), place) for place, (rows, _, _) in enumerate(listed)])
    return torch.cat([rows for rows, _, _ in listed]), owner, torch.stack([label for _, _, label in listed])


def padded(listed):
    return torch.stack([x for _, x, _ in listed]), torch.stack([label for _, _, label in listed])


def losses_on(model, batch):
    """One cross entropy for each example."""
    *x, y = batch
    out = model(*x, len(y)) if isinstance(model, Ragged) else model(*x)
    return F.cross_entropy(out, y, reduction="none")
