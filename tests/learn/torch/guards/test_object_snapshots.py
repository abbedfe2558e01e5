"""Whatever a forward pass may keep in the attributes of its modules is seen, undone, and seen again the next time."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict, deque
from pathlib import Path
from types import CellType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.guards.batch_guard import KEPT, PROVED  # noqa: E402
from deniable.learn.torch.guards.module_state import ModuleState  # noqa: E402
from deniable.learn.torch.guards.object_snapshots import NOTHING, held_by, put_into  # noqa: E402
from deniable.learn.torch.guards.training_checks import check_model  # noqa: E402
from tests.learn.runs import made, run  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)


class Box:
    def __init__(self):
        self.inner = 1


class Listed(list):
    pass


class Paired(tuple):
    pass


class Named(str):
    pass


class Numbered(int):
    pass


class Arrayed(np.ndarray):
    pass


def _running():
    centre = 0.0

    def moved(to):
        nonlocal centre
        was, centre = centre, to
        return was

    return moved


def _collecting():
    seen = []
    return seen.append


def _plain(kept=[1]):  # noqa: B006  # the mistake that is looked for
    return kept


def _hook(module, args):
    pass


class Slotted:
    """No `__dict__`."""

    __slots__ = ("__hidden", "inner")

    def __init__(self):
        self.__hidden = [1]

    def keep(self, value):
        self.__hidden = value


class Kept(nn.Module):
    """One of every kind of place."""

    def __init__(self):
        super().__init__()
        self.below = nn.Linear(2, 2)
        self.number, self.text, self.missing = 1000, "a", None
        self.listed, self.table, self.members, self.queue = [1, [2]], {"a": [1]}, {1, 2}, deque([1])
        self.ordered, self.pair, self.box = OrderedDict(a=1, b=2), ([1],), Box()
        self.array, self.tensor, self.chance = np.zeros(3), torch.zeros(3), torch.Generator()
        self.boxes = [Box(), Box()]
        self.register_buffer("marked", torch.zeros(2))
        self.own_list, self.own_pair, self.own_text = Listed([1]), Paired([1]), Named("a")
        self.own_number, self.own_array = Numbered(3), np.zeros(2).view(Arrayed)
        self.centre, self.collect, self.function, self.kind = _running(), _collecting(), _plain, Box
        self.part, self.method = functools.partial(_plain, [1], more=[2]), Box().__init__
        self.normal, self.leaf = torch.distributions.Normal(0.0, 1.0), torch.zeros(2, requires_grad=True)
        self.slotted, self.cached = Slotted(), functools.cache(lambda key=0: [key])
        self.bounded, self.warm = (functools.lru_cache(maxsize=4)(lambda key=0: [key]) for _ in range(2))
        self.cached()
        self.warm()
        self.register_forward_pre_hook(functools.partial(_hook, Box()))


def _replace_table(model):
    model.box.__dict__ = {"inner": 2}


CHANGES = {
    "plain attribute": lambda m: setattr(m, "number", 7),
    "text": lambda m: setattr(m, "text", "b"),
    "a value for none": lambda m: setattr(m, "missing", 0.5),
    "another object of the same value": lambda m: setattr(m, "listed", [1, [2]]),
    "new attribute": lambda m: setattr(m, "new", 1),
    "new attribute without a value": lambda m: setattr(m, "new", None),
    "attribute gone": lambda m: delattr(m, "text"),
    "attribute renamed": lambda m: m.__dict__.update(other=m.__dict__.pop("boxes")),
    "list appended": lambda m: m.listed.append(1),
    "list member": lambda m: m.listed.__setitem__(0, 5),
    "list in a list": lambda m: m.listed[1].append(1),
    "dict member": lambda m: m.table.__setitem__("b", 1),
    "list in a dict": lambda m: m.table["a"].append(1),
    "counter in a dict": lambda m: m.ordered.__setitem__("a", 2),
    "order of a dict": lambda m: m.ordered.move_to_end("a"),
    "set": lambda m: m.members.add(9),
    "queue": lambda m: m.queue.rotate() or m.queue.append(3),
    "list in a tuple": lambda m: m.pair[0].append(1),
    "plain object": lambda m: setattr(m.box, "inner", 3),
    "plain object in a list": lambda m: setattr(m.boxes[1], "other", 3),
    "the table of a plain object": _replace_table,
    "array": lambda m: m.array.__setitem__(0, 1.0),
    "generator": lambda m: torch.rand(1, generator=m.chance),
    "sub-module": lambda m: setattr(m.below, "seen", 3),
    "attribute of a buffer": lambda m: setattr(m.marked, "mean", 1.0),
    "attribute of a list": lambda m: setattr(m.own_list, "mean", 1.0),
    "attribute of a tuple": lambda m: setattr(m.own_pair, "mean", 1.0),
    "attribute of a text": lambda m: setattr(m.own_text, "mean", 1.0),
    "attribute of a number": lambda m: setattr(m.own_number, "mean", 1.0),
    "attribute of an array": lambda m: setattr(m.own_array, "mean", 1.0),
    "attribute of a tensor": lambda m: setattr(m.tensor, "mean_before", 1.0),
    "gradient of a tensor": lambda m: setattr(m.leaf, "grad", torch.ones(2)),
    "closure": lambda m: m.centre(m.centre(0.0) + 1.5),
    "list behind its method": lambda m: m.collect(1),
    "attribute of a function": lambda m: setattr(m.function, "mean", getattr(m.function, "mean", 0.0) + 1.5),
    "default of a function": lambda m: m.function().append(1),
    "attribute of a class": lambda m: setattr(m.kind, "mean", getattr(m.kind, "mean", 0.0) + 1.5),
    "argument of a partial": lambda m: m.part.args[0].append(1),
    "keyword of a partial": lambda m: m.part.keywords.update(more=[3]),
    "object of a method": lambda m: setattr(m.method.__self__, "inner", 3),
    "object of torch": lambda m: setattr(m.normal, "loc", torch.ones(())),
    "object of a hook": lambda m: setattr(next(iter(m._forward_pre_hooks.values())).args[0], "inner", 3),
    "slot": lambda m: setattr(m.slotted, "inner", 3),
    "private slot": lambda m: m.slotted.keep([2]),
    "cache": lambda m: m.cached(random.random()),
    "value in a cache": lambda m: m.cached().append(1),
    "cache of bounded size": lambda m: m.bounded(random.random()),
    "value in a cache of bounded size": lambda m: m.warm().append(1),
    "evaluation": lambda m: m.train(not m.training),
    "evaluation of a part": lambda m: m.below.train(not m.below.training),
    "attribute of a parameter": lambda m: setattr(m.below.weight, "mean", 1.0),
}
REFUSED = {
    "tensor written": lambda m: m.tensor.add_(1),
    "tensor written past autograd": lambda m: m.tensor.data.add_(1),
    "tensor replaced": lambda m: setattr(m.tensor, "data", torch.ones(3)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_kept_is_seen_and_undone_however_often_nothing_happened_before(kind):
    model = Kept()
    state = ModuleState(model)
    for _ in range(3):
        state.begin()
        assert state.changed() == []
    for _ in range(2):
        state.begin()
        CHANGES[kind](model)
        assert state.changed()
        assert not any(is_counter for _, is_counter in state.changed())
        state.restore()
        assert state.changed() == []


@pytest.mark.parametrize("kind", REFUSED)
def test_a_tensor_that_is_written_into_is_refused_however_often_nothing_happened_before(kind):
    model = Kept()
    state = ModuleState(model)
    state.begin()
    assert state.changed() == []
    state.begin()
    REFUSED[kind](model)
    with pytest.raises(InvalidParameter, match="wrote data"):
        state.changed()


@pytest.mark.parametrize("kind", CHANGES | REFUSED)
def test_what_the_caller_sets_between_two_batches_is_how_it_was(kind):
    model = Kept()
    state = ModuleState(model)
    state.begin()
    (CHANGES | REFUSED)[kind](model)
    state.begin()
    assert state.changed() == []
    # What came to be there between the batches is looked at as closely as all the rest.
    model.late, model.below.late = [Box()], nn.Identity()
    state.begin()
    model.late[0].inner = 5
    assert state.changed()
    state.restore()
    model.below.late.seen = 3
    assert state.changed()


def test_a_counter_is_told_from_other_numbers():
    model = Kept()
    state = ModuleState(model)
    state.begin()
    model.number += 1
    assert state.changed() == [("number", True)]
    assert state.counters() == [(model.__dict__, "number", 1001)]


TENSORS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.empty(3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.filterwarnings("ignore:.*(sparse|Sparse|nested|prototype|beta).*")
@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("place", ["attribute", "list", "buffer"])
def test_tensors_that_cannot_be_compared_have_a_remedy(kind, place):
    """Of a sparse buffer, a sparse attribute and a meta attribute torch itself said that something is not implemented."""
    model, tensor = nn.Linear(3, 1), TENSORS[kind]()
    if place == "buffer":
        model.register_buffer("held", tensor)
    else:
        model.held = tensor if place == "attribute" else [tensor]
    check = check_model if place == "buffer" else lambda model: ModuleState(model).begin()
    with worded(InvalidParameter, parameter="model") as refused:
        check(model)
    assert "held" in str(refused.value)


def test_the_guarantee_names_every_place_that_the_page_calls_unseen():
    """The page listed more than the guarantee assumed: what nobody looks at must be assumed where it is printed."""
    page = (Path(learn.__file__).parents[3] / "docs" / "learn.md").read_text(encoding="utf-8")
    parts = {part.partition("\n")[0]: " ".join(part.split()) for part in page.split("\n### ")}
    unseen = parts["State that is restored, and state that is not seen"].partition(
        "It does not see state in these places:"
    )
    assert unseen[1]
    places = (
        "modules of Python", "more than 4096 members in globals", "objects without a __dict__ or slots", "iterators",
        "globals that a function in an attribute names", "hooks", "more than 65 536 numbers", ".data",
        "code of the loop", "the loss of a later one", "torch.optim and torch.utils", "that keep numbers inside",
    )  # fmt: skip
    for each in places:
        assert each in unseen[2].replace("`", ""), each
        assert each in KEPT, each
    hooks = parts["Operations that no rule covers"]
    assert "grad_fn.register_hook" in hooks
    assert "threads of Python that already ran" in hooks
    assert "in threads that existed before" in PROVED


@pytest.mark.parametrize("path", [5, b"run.pt", None, ""])
def test_a_checkpoint_that_is_no_path(path):
    """A bare TypeError."""
    model = nn.Linear(3, 1)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=2, noise=1.0)
    data = torch.zeros(4, 3), torch.zeros(4, 1)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data, progress=False)
    for call in (trainer.load, trainer.save):
        with worded(InvalidParameter, parameter="path"):
            call(path)


def test_a_cell_that_was_empty_is_emptied_again():
    """A closure whose variable the forward pass sets first: the next one must not find it."""
    for held in ((), (3.0,)):
        cell = CellType(*held)
        before = held_by(cell)
        for after in ((), (5.0,)):
            del cell.cell_contents
            if after:
                cell.cell_contents = after[0]
            put_into(cell, before)
            assert held_by(cell) is before
    assert held_by(CellType()) is NOTHING


class Instantiating(OrderedDict):
    """Makes an object each time a name is read, as the table of activations of transformers does."""

    def __getitem__(self, name):
        return super().__getitem__(name)()


TABLE = Instantiating({"relu": nn.ReLU, "tanh": nn.Tanh})


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(4, 5), TABLE["tanh"], nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.act(self.first(x)) if "tanh" in TABLE else x)


def test_a_dictionary_that_makes_objects_when_it_is_read_stays_as_it_is():
    """It was filled with the objects that reading it had made, and each example was computed alone."""
    model = ByName()
    trainer = made(model)
    run(trainer)
    assert trainer.one_by_one is None
    assert dict(zip(TABLE, TABLE.values(), strict=True)) == {"relu": nn.ReLU, "tanh": nn.Tanh}
