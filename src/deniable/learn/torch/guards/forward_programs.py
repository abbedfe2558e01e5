"""The operations of a forward pass, recorded and compared, so that a proof about one pass holds for another.

A *program* lists the operations that a traced forward pass ran, in order: the operation, its input and output tensors
(by number), and all other arguments. Two comparisons use it:

* `ProgramComparison` runs beside a later batch of the same shapes. The domains of a trace follow from the operations
  and their arguments alone, so a pass that runs the same program is proved by the same trace.
* `dependence_on_size` compares the programs of two batches of different sizes. The size of a batch depends on who
  takes part, so no loss may depend on it. Only lengths along the examples may differ, in proportion to the sizes, and
  no number may be computed from a length.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from deniable.learn.torch.guards.backward_graphs import structure
from deniable.learn.torch.guards.cleared_memory import cleared
from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows, MixedExamples, Same, argument_names
from deniable.learn.torch.guards.torch_calls import (
    HOOKS,
    READS,
    FunctionCalls,
    GeneratorWatch,
    digest_of,
    hooks_of,
    looked_into,
)

SIZES = frozenset({"size", "stride", "end", "N", "repeats"})
"""Arguments that are lengths. They may be proportional to the number of examples."""

SMALL = 1 << 12
"""Tensors from outside of a forward pass with at most this many numbers are compared by their values."""


PLAIN_KINDS = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device, torch.layout})
"""Types of arguments that contain no tensor."""

WHOLE_KIND = frozenset({int})

IGNORED = frozenset({"profiler"})
"""Namespaces of operations that compute nothing: torch's optimizers mark their steps for the profiler."""


@final
class _Slot:
    """Stands for one tensor of a forward pass. Compared by identity, so that it is not mistaken for an argument."""

    __slots__ = ()


_slots: list[_Slot] = []


def _slot(number: int) -> _Slot:
    while len(_slots) <= number:
        _slots.append(_Slot())
    return _slots[number]


@final
class _Outer:
    """A tensor from outside of a forward pass: a parameter, an attribute, or a constant that Python made."""

    __slots__ = ("dtype", "held", "shape", "stride", "values")

    def __init__(self, tensor: Tensor) -> None:
        self.held = weakref.ref(tensor)
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype
        is_strided = tensor.layout is torch.strided
        self.stride = tensor.stride() if is_strided else ()
        is_read = is_strided and tensor.device.type == "cpu" and tensor.numel() <= SMALL
        self.values = repr(tensor.tolist()) if is_read and not isinstance(tensor, nn.Parameter) else None

    def is_like(self, other: _Outer) -> bool:
        """Whether both are the same tensor, or constants of the same values."""
        mine = self.held()
        if mine is not None and mine is other.held():
            return True
        facts = (self.shape, self.stride, self.dtype, self.values)
        return self.values is not None and facts == (other.shape, other.stride, other.dtype, other.values)


@final
@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One operation. The last four fields are for the comparison of two sizes."""

    func: Any
    row: list[Any]
    made: list[_Slot]
    draws: bool
    given_shapes: Sequence[tuple[int, ...]] = ()
    given_domains: Sequence[Domain] = ()
    made_shapes: Sequence[tuple[int, ...]] = ()
    made_domains: Sequence[Domain] = ()
    reduced: Sequence[frozenset[int]] | None = ()
    """For each given tensor, the axes along which its values are combined; None if they are not known."""


@final
@dataclass(slots=True)
class Program:
    """All operations of one forward pass over `count` examples, from the batch to the losses."""

    count: int
    steps: list[ProgramStep] = field(default_factory=list)
    outers: list[_Outer] = field(default_factory=list)
    answers: dict[tuple[_Slot, int], Domain] = field(default_factory=dict)
    """(output of a module, number of steps before it) -> its domain in the trace at that step."""
    data: set[_Slot] = field(default_factory=set)
    """Tensors that depend on the data."""
    losses: _Slot | None = None
    graph: int | None = None
    """The structure of the autograd graph of the losses. The same operations may have another one: without gradients
    (`no_grad`), or in an `autograd.Function`."""
    is_complete: bool = True
    """False if the pass did something that a program cannot express."""


@final
class Numbers:
    """Numbers the tensors of one forward pass: first the tensors of the batch, then the others in the order in which
    operations use or return them.
    """

    def __init__(self, leaves: Sequence[Tensor], expected: Sequence[_Outer] = ()) -> None:
        self._table: dict[int, tuple[weakref.ref[Tensor], _Slot]] = {}
        self._next = 0
        self._expected = expected
        self.outers: list[_Outer] = []
        for each in leaves:
            self.named(each)

    def row(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of an operation, with numbers for tensors."""
        row = [self._one(each) for each in args]
        if kwargs:
            row.append({name: self._one(each) for name, each in kwargs.items()})
        return row

    def are(self, args: Sequence[Any], kwargs: Mapping[str, Any], row: list[Any]) -> bool:
        """Whether `row(args, kwargs)` equals this row. It runs for every operation, so common cases come first."""
        if len(args) + bool(kwargs) != len(row):
            return False
        for value, expected in zip(args, row, strict=False):
            if not self._is(value, expected):
                return False
        if not kwargs:
            return True
        named = row[-1]
        return (
            named.__class__ is dict
            and named.keys() == kwargs.keys()
            and all(self._is(value, named[name]) for name, value in kwargs.items())
        )

    def _is(self, value: Any, expected: Any) -> bool:
        """Whether `_one(value)` equals what is expected."""
        if expected.__class__ is _Slot:
            held = self._table.get(id(value))
            is_held = held is not None and held[1] is expected and held[0]() is value
            return is_held or self._one(value) is expected
        if value.__class__ in PLAIN_KINDS or (value.__class__ is list and set(map(type, value)) <= WHOLE_KIND):
            return value is expected or bool(value == expected)
        return bool(self._one(value) == expected)

    def _one(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.of(value)
        if isinstance(value, torch.Generator):
            return digest_of(value.get_state())  # equal states give equal numbers
        return [self._one(each) for each in value] if isinstance(value, list | tuple) else value

    def known(self, tensor: Tensor) -> _Slot | None:
        held = self._table.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def of(self, tensor: Tensor) -> _Slot:
        found = self.known(tensor)
        if found is None:
            at = len(self.outers)
            is_expected = at < len(self._expected) and self._expected[at].held() is tensor
            self.outers.append(self._expected[at] if is_expected else _Outer(tensor))
            found = self.named(tensor)
        return found

    def named(self, tensor: Tensor) -> _Slot:
        """The number of a tensor that an operation made, or returned."""
        found = self.known(tensor)
        if found is None:
            found = _slot(self._next)
            self._next += 1
            self._table[id(tensor)] = weakref.ref(tensor), found
        return found

    def made(self, out: Any) -> list[_Slot]:
        if out.__class__ is Tensor or isinstance(out, Tensor):
            return [self.named(out)]
        return [self.named(each) for each in tree_flatten(out)[0] if isinstance(each, Tensor)]


@final
class ProgramComparison(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """Runs beside a forward pass, and checks whether the pass runs the operations of a proved program."""

    has_peeked = False

    def __init__(self, program: Program, leaves: Sequence[Tensor]) -> None:
        super().__init__()
        self._program, self._numbers = program, Numbers(leaves, program.outers)
        self._at = self._met = 0
        self._chance = GeneratorWatch() if any(step.draws for step in program.steps) else None
        self.is_off = False
        self._has_run: bool | None = None
        self.is_other = False
        """Whether the pass has done something that differs from the program."""
        self._asked = FunctionCalls(self._called)

    def __enter__(self) -> ProgramComparison:
        self._asked.__enter__()
        super().__enter__()
        return self

    def end(self) -> None:
        """Stop comparing."""
        self.is_off = True
        self._asked.left(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_off or self.is_other:
            return func(*args, **kwargs)
        steps, at = self._program.steps, self._at
        if at >= len(steps) or steps[at].func is not func:
            self.is_other = func.namespace not in IGNORED
            return func(*args, **kwargs)
        step, self._at = steps[at], at + 1
        if not self._numbers.are(args, kwargs, step.row) or not self._knows_outers():
            self.is_other = True
            return func(*args, **kwargs)
        if step.draws and self._chance is not None and self._chance.is_seeded():
            self.is_other = True
        try:
            out = cleared(func, args, kwargs)
        except Exception:  # the model may catch it
            self.is_other = True
            raise
        if step.draws and self._chance is not None:
            self._chance.drawn()
        if self._numbers.made(out) != step.made:
            self.is_other = True
        return out

    def _knows_outers(self) -> bool:
        """Whether the outside tensors that this pass has used since the last call are those that the program used."""
        mine, theirs = self._numbers.outers, self._program.outers
        while self._met < len(mine):
            at = self._met
            if at >= len(theirs) or (mine[at] is not theirs[at] and not mine[at].is_like(theirs[at])):
                return False
            self._met += 1
        return True

    def _called(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch. If the function runs no operation, it may return only what it was given: any other
        result was read from the tensors without the trace.
        """
        if self.is_off or self.is_other:
            return func(*args, **kwargs)
        if name == "one_hot" and self._is_at("one_hot"):
            return self._one_hot(func, args, kwargs)
        before = self._at
        try:
            out = func(*args, **kwargs)
        except Exception:  # the model may catch it, and then branch on the data
            self.is_other = True
            raise
        if isinstance(out, Tensor) and self._at != before and name not in READS and name not in HOOKS:
            return out
        given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        has_data = any(self._numbers.known(each) in self._program.data for each in given)
        is_read = has_data and (name in READS or self._is_read(out, given, before))
        if name in HOOKS or name == "data" or is_read or (has_data and self._is_hidden(name, args, kwargs, before)):
            self.is_other = True
        return out

    def _is_hidden(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], before: int) -> bool:
        """Whether a function may have read numbers of a tensor that none of its operations was given."""
        met = {id(each) for step in self._program.steps[before : self._at] for each in tree_flatten(step.row)[0]}
        slots = [self._numbers.known(each) for each in looked_into(name, args, kwargs)]
        return self._at != before and any(each in self._program.data and id(each) not in met for each in slots)

    def _is_read(self, out: Any, given: list[Tensor], before: int) -> bool:
        """Whether a result may have been read from tensors without an operation."""
        for each in tree_flatten(out)[0]:
            if isinstance(each, Tensor):
                if self._at == before and not any(each is one for one in given) and self._numbers.known(each) is None:
                    return True
            elif each is not NotImplemented and (self._at == before or each is not None):
                return True
        return False

    def _is_at(self, func: Any) -> bool:
        steps = self._program.steps
        return self._at < len(steps) and steps[self._at].func == func

    def _one_hot(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step, self._at = self._program.steps[self._at], self._at + 1
        self.is_other = self._numbers.row(args, kwargs) != step.row
        self.is_off = True
        try:
            out = func(*args, **kwargs)
        finally:
            self.is_off = False
        self._numbers.made(out)
        return out

    def answer(self, tensor: Tensor) -> Domain:
        """The domain that the trace of the program had for this output of a module."""
        slot = self._numbers.known(tensor)
        found = None if slot is None else self._program.answers.get((slot, self._at))
        if self.is_other or found is None:
            self.is_other = True
            return MixedExamples("another program")
        return found

    def of_losses(self, losses: Tensor, model: nn.Module) -> Domain:
        """ExampleRows(0, 1) if this pass ran the whole program up to these losses; else mixed."""
        if not self.has_run(losses):
            return MixedExamples("another program")
        return hooks_of(model) or ExampleRows(0, 1)

    def has_run(self, losses: Tensor) -> bool:
        """Whether the pass ran the whole program, and these are its losses."""
        program = self._program
        if self._has_run is None:
            is_whole = self._at == len(program.steps) and self._knows_outers()
            is_whole = is_whole and self._numbers.known(losses) is program.losses
            self._has_run = not self.is_other and is_whole and structure(losses) == program.graph
        self.is_other = not self._has_run
        return self._has_run


# -- two sizes ---------------------------------------------------------------------------------------------------------


def dependence_on_size(one: Program, other: Program) -> str | None:
    """What depends on the size of the batch in two programs for different sizes; None if nothing does.

    If nothing does, both programs compute the same function of each example.
    """
    counts = one.count, other.count
    if not (one.is_complete and other.is_complete):
        return "a tensor from outside of the forward pass that it writes into, or that a module returns"
    for mine, theirs in zip(one.steps, other.steps, strict=False):
        if not _is_same_step(mine, theirs, counts):
            name = mine.func if isinstance(mine.func, str) else mine.func._schema.name
            return f"{name}, which is not the same for batches of different sizes, or which no rule covers"
    for before, after in zip(one.outers, other.outers, strict=False):
        if not before.is_like(after) and not _is_longer(before.shape, after.shape, counts):
            return "a constant that is not the same for batches of different sizes"
    is_whole = len(one.steps) == len(other.steps) and len(one.outers) == len(other.outers)
    if not is_whole or one.losses is not other.losses or one.count == other.count:
        return "operations that are not the same for batches of different sizes"
    if one.graph != other.graph:
        return "gradients that are computed in batches of some sizes only"
    return None


def _is_same_step(one: ProgramStep, other: ProgramStep, counts: tuple[int, int]) -> bool:
    if one.func is not other.func or one.made != other.made or len(one.row) != len(other.row):
        return False
    matched = _matched(one, other, counts)
    if matched is None:
        return False
    given = list(zip(one.given_shapes, other.given_shapes, strict=True))
    made = list(zip(one.made_shapes, other.made_shapes, strict=True))
    for (mine, theirs), domain, its in (
        *zip(given, one.given_domains, other.given_domains, strict=True),
        *zip(made, one.made_domains, other.made_domains, strict=True),
    ):
        if type(domain) is not type(its) or not _fits(mine, theirs, domain, counts):
            return False
    sized = [mine for mine, theirs in made if mine != theirs]
    if matched == "longer" and len(sized) < len(made):
        return False
    return any(isinstance(each, ExampleRows) for each in one.given_domains) or _keeps_lengths(one, given, bool(sized))


def _keeps_lengths(step: ProgramStep, given: list[tuple[tuple[int, ...], tuple[int, ...]]], sized: bool) -> bool:
    """Whether an operation on tensors without data computes no number from a length along the examples."""
    if all(mine == theirs for mine, theirs in given):
        return True
    if step.reduced is None or not sized:
        return False
    listed = zip(given, step.reduced, strict=True)
    return all(mine[axis] == theirs[axis] for (mine, theirs), axes in listed for axis in axes)


def _matched(one: ProgramStep, other: ProgramStep, counts: tuple[int, int]) -> str | None:
    """ "equal" if the arguments are equal, "longer" if only lengths differ, in proportion; else None."""
    if one.row == other.row:
        return "equal"
    if isinstance(one.func, str):
        return None
    names = argument_names(one.func)
    for mine, theirs in zip(_by_name(names, one.row), _by_name(names, other.row), strict=False):
        if mine != theirs and (
            mine[0] != theirs[0] or mine[0] not in SIZES or not _are_longer(mine[1], theirs[1], counts)
        ):
            return None
    return "longer"


def _by_name(names: Sequence[str], row: list[Any]) -> list[tuple[str, Any]]:
    listed, named = (row[:-1], row[-1]) if row and isinstance(row[-1], dict) else (row, {})
    return [*zip(names, listed, strict=False), *named.items()]


def _are_longer(one: Any, other: Any, counts: tuple[int, int]) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_are_longer(a, b, counts) for a, b in zip(one, other, strict=True))
    if type(one) is not int or type(other) is not int:
        return bool(one == other)
    return one == other or one * counts[1] == other * counts[0]


def _is_longer(one: tuple[int, ...], other: tuple[int, ...], counts: tuple[int, int]) -> bool:
    """Whether two shapes differ, and only by lengths in proportion to the sizes."""
    return one != other and _are_longer(list(one), list(other), counts)


def _fits(one: tuple[int, ...], other: tuple[int, ...], domain: Domain, counts: tuple[int, int]) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(domain, Same):
        return _are_longer(list(one), list(other), counts)
    if not isinstance(domain, ExampleRows):
        return True  # an output that is not used: otherwise the losses would be mixed
    axes = range(len(one))
    return all(
        one[axis] * counts[1] == other[axis] * counts[0] if axis == domain.axis else one[axis] == other[axis]
        for axis in axes
    )
