"""A proof that a forward pass keeps its examples apart: a trace of all its operations, from the batch to the losses.

The trace is an abstract interpretation. Each tensor that torch computes between the start of a batch and its backward
pass has one of three domains:

===============  ======================================================================================================
`ExampleRows`    its entries lie example by example along one axis, and depend on their own example only
`Same`           it does not depend on the data: weights, constants, random numbers, positions
`MixedExamples`  anything else: examples were sorted, selected, summed or compared, or an operation has no rule
===============  ======================================================================================================

`separation_rules` has a rule for each operation that keeps examples apart. If losses and layer outputs are ExampleRows,
the batch is processed as a whole; otherwise its examples are processed one at a time.

Limits. Computations outside of torch (numpy, Python globals) are not traced. Backward passes are torch's own and are
not traced: if the graph has Python functions or hooks of modules and tensors, the losses are mixed. Hooks on single
nodes of the graph are not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._ops import HigherOrderOperator
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.torch.guards import separation_rules
from deniable.learn.torch.guards.backward_graphs import functions_of, structure
from deniable.learn.torch.guards.batch_rows import leaves_of
from deniable.learn.torch.guards.cleared_memory import cleared
from deniable.learn.torch.guards.forward_programs import IGNORED, Numbers, Program, ProgramStep
from deniable.learn.torch.guards.tensor_domains import (
    Domain,
    ExampleRows,
    GivenOperation,
    MixedExamples,
    Same,
    StorageFrame,
    frame_of,
)
from deniable.learn.torch.guards.torch_calls import (
    HOOKS,
    READS,
    FunctionCalls,
    GeneratorWatch,
    digest_of,
    hooks_of,
    is_plain_argument,
    looked_into,
    may_be_state,
    states,
)

PEEKS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")
"""Operations that turn a tensor into a Python number. Later code may depend on it, and no rule can see how."""


OWN = frozenset({"aten", "prims", "mkldnn", "c10d", "_c10d_functional", "fsdp"})
"""Namespaces of torch's own operations. An operation of another library may run code of Python, in which no mode is on.
"""

NESTED = MixedExamples("a nested tensor, for which there are no rules")

NOWHERE = -1
"""Stands for the storage of a tensor that has no storage (a sparse tensor)."""

WITH_OPERATIONS = (Tensor, tuple, type(None), type(NotImplemented))
"""Types that a function may return if it ran operations, because the trace has seen those operations."""

NORMS = frozenset({"batch_norm", "native_batch_norm"})
"""Functions with statistics over the examples of the first axis. `training` is the sixth argument of each."""


@final
class Trace(TorchDispatchMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """The domains of all tensors computed from a batch of `count` examples while this mode is entered."""

    def __init__(
        self,
        batch: Any,
        count: int,
        buffers: Mapping[int, str] | None = None,
        wrote: Callable[[Tensor], None] | None = None,
    ) -> None:
        """`wrote` is called with each tensor that an operation writes into."""
        super().__init__()
        self._wrote = wrote
        self._count = count
        self._buffers = buffers
        """id of a buffer -> its name in the model; None if the trace is not for training."""
        self._known = WeakTensorKeyDictionary()
        """Tensor -> domain."""
        self._homes = WeakTensorKeyDictionary()
        """Tensor -> its storage at that time. Code may give a tensor another storage."""
        self._written: dict[int, tuple[Tensor, Domain, StorageFrame | None]] = {}
        """Storage that had no data until examples were written into a part of it -> (a tensor on it, the domain of what
        was written, the bytes of each example)."""
        self._uneven: dict[int, tuple[Tensor, bool]] = {}
        """For memory into which parts were written one by one, with values that do not depend on the data: storage ->
        (a tensor on it, whether these values are equal for all examples along the first axis).
        """
        self._places: dict[int, StorageWeakRef | None] = {}
        """Storages that depend on the data, held so that their ids are not reused. NOWHERE: tensors without storage."""
        self._memory: dict[int, StorageWeakRef] = {}
        """The same by address, because storages of other libraries may share memory."""
        self._operations = 0
        self._met: set[int] = set()
        """ids of the tensors that the operations of the current function were called with."""
        self._peeked: MixedExamples | None = None
        self._hooked: MixedExamples | None = None
        self._chance = GeneratorWatch()
        self._repeated: str | None = None
        """The name of an operation whose random numbers can be repeated by a person who knows the seed."""
        self.is_off = False
        self._asked = FunctionCalls(self._called)
        leaves = [each for each in leaves_of(batch) if isinstance(each, Tensor)]
        self._numbers, self.program = Numbers(leaves), Program(count)
        self.program.outers = self._numbers.outers
        for each in leaves:
            in_front = each.dim() > 0 and each.shape[0] == count
            self._set(
                each, ExampleRows(0, 1) if in_front else MixedExamples("a batch whose first axis is not the examples")
            )
            self.program.data.add(self._numbers.named(each))
            if may_be_state(each, is_written=False):
                self._peek("a tensor in the batch that may be the state of a generator of random numbers")

    def __enter__(self) -> Trace:
        self._asked.__enter__()
        super().__enter__()
        return self

    def _called(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch. If it runs no operation, it may return only what it was given: any other result was
        read from the tensors without the trace."""
        if self.is_off:
            return func(*args, **kwargs)
        if name in HOOKS:
            self._hooked = self._hooked or MixedExamples(f"a hook on the backward pass ({name})")
            return func(*args, **kwargs)
        listed = tree_flatten((args, kwargs))[0]
        if not all(map(is_plain_argument, listed)):
            self._peek(f"an object that torch turns into numbers by code of Python ({name})")
        given = [each for each in listed if isinstance(each, Tensor)]
        if any(is_functorch_wrapped_tensor(each) for each in given):
            self._peek("torch.vmap or a transform of torch.func, which cannot be traced operation by operation")
            return func(*args, **kwargs)
        if self._buffers is not None and name in NORMS and self._is_over_examples(args, kwargs):
            rule = f"in the forward pass, {name} with training=True depends on the other examples of the batch"
            remedy = "use F.group_norm or F.layer_norm, or fixed statistics with training=False"
            held = [self._buffers[id(each)] for each in given if id(each) in self._buffers]
            raise InvalidParameter("model", held[0] if held else NOTHING, rule, remedy)
        has_data, before = not all(isinstance(self.of(each), Same) for each in given), self._operations
        looked_at = looked_into(name, args, kwargs) if has_data else []
        self._met.clear()
        try:
            out = self._one_hot(func, *args, **kwargs) if name == "one_hot" else func(*args, **kwargs)
        except Exception as error:  # the model may catch any error, and so learn something about the data
            if has_data:
                self._peek(f"an error that the data may have caused ({name})")
            if isinstance(func, HigherOrderOperator) and isinstance(error, NotImplementedError):
                raise _unfollowed(f"the operator {name}, which takes functions") from None
            raise
        if name == "data":
            for each in given[:1]:
                self._known.pop(each, None)
        made = tree_flatten(out)[0]
        has_run = self._operations != before
        is_read = not all(
            isinstance(each, WITH_OPERATIONS) if has_run else self._is_among(each, given) for each in made
        )
        # A function may read numbers without an operation: torch.tensor([x[0], x[1]]), x.tensor_split(y).
        is_read = is_read or not all(
            not has_run or id(each) in self._met or any(each is one for one in made) or isinstance(self.of(each), Same)
            for each in looked_at
        )
        if has_data and (is_read or name in READS):
            self._peek(f"values of the data that were read without torch's operations ({name})")
        return out

    def _is_over_examples(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a norm takes its statistics over the examples of this batch."""
        batch = args[0] if args else kwargs.get("input")
        is_training = args[5] if len(args) > 5 else kwargs.get("training", kwargs.get("train", False))
        if not isinstance(batch, Tensor) or not is_training or batch.dim() < 2 or batch.shape[0] != self._count:
            return False
        return not isinstance(self.of(batch), Same)

    def _is_among(self, value: Any, given: list[Tensor]) -> bool:
        """Whether a result is one of the arguments, or a tensor with a known domain."""
        if isinstance(value, Tensor):
            return any(value is each for each in given) or value in self._known
        return value is NotImplemented  # from a comparison with an object that is not a tensor

    def _peek(self, why: str) -> None:
        self._peeked = self._peeked or MixedExamples(why)

    def _one_hot(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """`one_hot` adds an axis. torch reads all ids first, but if the number of classes is given, it does so only to
        refuse ids out of range."""
        tensor = args[0] if args else kwargs.get("self", kwargs.get("input", kwargs.get("tensor")))
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        found = self.of(tensor) if isinstance(tensor, Tensor) else None
        if not isinstance(found, ExampleRows) or not isinstance(classes, int) or classes < 1:
            return func(*args, **kwargs)
        self.is_off = True
        try:
            made = func(*args, **kwargs)
        finally:
            self.is_off = False
        self._operations += 1
        self._met.update(id(each) for each in (*args, *kwargs.values()))
        self._set(made, self._peeked or found)
        row = self._numbers.row(args, kwargs)
        self.program.steps.append(ProgramStep("one_hot", row, self._numbers.made(made), draws=False))
        self.program.data.add(self._numbers.named(made))
        return made

    def end(self) -> None:
        """Stop tracing. A mode that other code has entered since is left in place."""
        self.is_off = True
        self._asked.left(self)

    @property
    def has_peeked(self) -> bool:
        """Whether a Python number was computed from the data."""
        return self._peeked is not None

    def of_losses(self, losses: Tensor, model: nn.Module) -> Domain:
        """The domain of losses before their backward pass. Mixed if that pass runs Python code."""
        found = self._hooked or hooks_of(model) or functions_of(losses) or self._peeked or self.of(losses)
        if isinstance(found, MixedExamples) and self._repeated is not None:
            return MixedExamples(f"random numbers whose seed may be known ({self._repeated}), or {found.why}")
        return found

    def of(self, tensor: Tensor) -> Domain:
        """The domain of a tensor. Tensors from before the batch do not depend on its data."""
        if tensor.is_nested:  # it has no shape and no strides
            return NESTED
        place, memory = _place(tensor)
        found: Domain | None = self._known.get(tensor) if self._homes.get(tensor) == place else None
        if found is None:
            shared = self._memory.get(memory)
            if place in self._places or (shared is not None and not shared.expired()):
                return MixedExamples("a tensor that was computed from the data without torch's operations")
            found = Same.varying(tensor)
        if isinstance(found, Same) and place in self._uneven:
            alike = self._uneven[place][1] and self._is_in_front(tensor)
            found = Same((1, *tensor.shape[1:])) if alike else Same.varying(tensor)
        return self._beside(tensor, found, place) if place in self._written else found

    def _beside(self, tensor: Tensor, found: Domain, place: int) -> Domain:
        """The domain of a tensor after writes into its storage."""
        base, domain, frame = self._written[place]
        if isinstance(domain, MixedExamples) or isinstance(found, MixedExamples | ExampleRows):
            return domain if isinstance(domain, MixedExamples) else found
        rows = ExampleRows(0, 1)
        here = frame_of(tensor, rows, self._count)
        wider = None if frame is None or here is None else frame.with_(here)
        if wider is None or found.periods[0] != 1:
            return MixedExamples("a shared tensor that examples were written into")
        self._written[place] = base, domain, wider
        return rows

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_off or func.namespace in IGNORED:
            return func(*args, **kwargs)
        given = GivenOperation(func, args, kwargs, self.of, self._count, is_seeded=self._chance.is_seeded())
        has_data = not all(isinstance(each, Same) for each in given.domains)
        self._operations += 1
        if any(self._numbers.known(each) is None for each in given.written):
            self.program.is_complete = False  # a tensor from outside; other views of it may exist
        row = self._numbers.row(args, kwargs)
        if given.is_repeatable and given.value("generator") is None:
            row.append(digest_of(*states()))  # the seed may depend on the size of the batch
        shapes = [_shape(each) for each in given.tensors]
        self._met.update(map(id, given.tensors))
        if given.is_in_place and self._wrote is not None:
            for each in given.written:
                self._wrote(each)
        try:
            out = cleared(func, args, kwargs)
        except Exception:  # the model may catch any error, and so learn something about the data
            if has_data:
                self._peek(f"an error that the data may have caused ({given.name})")
            raise
        self._chance.drawn()
        if func.namespace not in OWN:
            self._peek(f"an operation that is not torch's own ({given.name})")
        made = [each for each in tree_flatten(out)[0] if isinstance(each, Tensor)]
        if has_data and (_is_peek(given) or not self._has_known_shapes(func, args, kwargs, made)):
            self._peek(f"a Python number that was computed from the data ({given.name})")
        if given.is_repeatable:
            self._repeated = given.name
        if made or given.is_in_place:
            self._keep(given, made)
        if any(
            may_be_state(each, is_written=given.is_in_place) for each in (*made, *given.written) if self._has_data(each)
        ):
            self._peek(f"the state of a generator of random numbers, made from the data ({given.name})")
        self._record(given, row, shapes, made)
        return out

    def _has_data(self, tensor: Tensor) -> bool:
        return not isinstance(self.of(tensor), Same)

    def _has_known_shapes(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> bool:
        """Whether the shapes of the outputs follow from the shapes of the inputs. Rules are for such operations only;
        others are asked on tensors without values."""
        if separation_rules.has_rule(func) or not made:
            return True

        def bare(each: Any) -> Any:
            is_read = isinstance(each, Tensor) and each.layout is torch.strided and not each.is_nested
            return torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta") if is_read else each

        try:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                found = tree_flatten(func(*tree_map(bare, args), **tree_map(bare, kwargs)))[0]
        except Exception:  # the shapes stay unknown, so each example is computed alone
            return False
        return [_shape(each) for each in found if isinstance(each, Tensor)] == [_shape(each) for each in made]

    def _record(self, given: GivenOperation, row: list[Any], shapes: list[tuple[int, ...]], made: list[Tensor]) -> None:
        slots, domains = [self._numbers.named(each) for each in made], [self.of(each) for each in made]
        self.program.data.update(slot for slot, each in zip(slots, domains, strict=True) if not isinstance(each, Same))
        for each in given.written:
            if not isinstance(self.of(each), Same):
                self.program.data.add(self._numbers.named(each))
        step = ProgramStep(
            given.func,
            row,
            slots,
            torch.Tag.nondeterministic_seeded in given.func.tags,
            shapes,
            given.domains,
            [_shape(each) for each in made],
            domains,
            separation_rules.reduced_axes(given),
        )
        self.program.steps.append(step)

    def answer(self, tensor: Tensor) -> Domain:
        """The domain of a module's output, for the listener."""
        slot, found = self._numbers.known(tensor), self.of(tensor)
        if slot is None:
            self.program.is_complete = False
        else:
            self.program.answers[slot, len(self.program.steps)] = found
        return found

    def finished(self, losses: Tensor) -> Program:
        """The program up to these losses."""
        self.program.losses, self.program.graph = self._numbers.known(losses), structure(losses)
        return self.program

    def _keep(self, given: GivenOperation, made: list[Tensor]) -> None:
        if any(each.is_nested for each in made):
            for each in made:
                self._set(each, NESTED)
            return
        for tensor, found in zip(made, separation_rules.domains(given, made), strict=True):
            domain = self._peeked if self._peeked is not None and isinstance(found, ExampleRows) else found
            if given.is_in_place:
                domain = self._written_into(tensor, domain)
            if isinstance(domain, ExampleRows) and _place(tensor)[0] == NOWHERE:
                domain = MixedExamples(f"a tensor without strides ({given.name})")
            self._set(tensor, domain)
        for tensor in given.written if given.is_in_place else ():
            if not any(tensor is each for each in made):
                self._set(tensor, self._written_into(tensor, separation_rules.unknown(given, tensor)))

    def _set(self, tensor: Tensor, domain: Domain) -> None:
        place, memory = _place(tensor)
        self._known[tensor], self._homes[tensor] = domain, place
        if isinstance(domain, Same) or place in self._places:
            return
        held = self._places[place] = None if place == NOWHERE else StorageWeakRef(tensor.untyped_storage())
        if memory and held is not None:  # an empty tensor has address 0
            self._memory[memory] = held

    def _written_into(self, tensor: Tensor, domain: Domain) -> Domain:
        """The domain of a tensor after values of `domain` were written into it. Remembers it for other views."""
        was, (place, _) = self.of(tensor), _place(tensor)
        if place == NOWHERE:
            alike = isinstance(was, Same) and isinstance(domain, Same)
            return domain if alike else MixedExamples("a tensor without strides that values were written into")
        before, uneven = self._written.get(place), self._uneven.get(place)
        if isinstance(was, Same) and isinstance(domain, Same):
            if set(domain.periods) <= {1} and _is_whole(tensor):
                return domain
            in_front = self._is_in_front(tensor) and domain.periods[0] == 1
            self._uneven[place] = tensor, in_front and (uneven is None or uneven[1])
            return self.of(tensor)
        rows = was if isinstance(was, ExampleRows) else domain
        frame = frame_of(tensor, rows, self._count) if isinstance(rows, ExampleRows) else None
        if before is not None:
            frame = None if frame is None or before[2] is None else before[2].with_(frame)
        if isinstance(was, MixedExamples):
            domain = domain if isinstance(domain, MixedExamples) else was
        elif isinstance(was, ExampleRows):
            is_even = isinstance(domain, Same) and was.after % domain.periods[was.axis] == 0
            if domain == was or is_even:
                domain = was
                if before is None:
                    return was
            elif not isinstance(domain, MixedExamples):
                domain = MixedExamples("a tensor whose examples were written over in another order")
        elif isinstance(domain, ExampleRows) and uneven is not None and not uneven[1]:
            domain = MixedExamples("a tensor that examples and positions were written into")
        if isinstance(domain, ExampleRows) and before is not None and before[2] is not None and frame is None:
            domain = MixedExamples("a tensor that examples were written into in different ways")
        self._written[place] = tensor, domain, frame
        return domain

    def _is_in_front(self, tensor: Tensor) -> bool:
        """Whether the first axis covers the whole storage, with one index per example."""
        if tensor.dim() == 0 or tensor.shape[0] != self._count:
            return False
        return bool(tensor.stride(0) * self._count * tensor.itemsize == tensor.untyped_storage().nbytes())


def _unfollowed(what: str) -> InvalidParameter:
    """Not a TypeError: torch reads a TypeError as "this operator cannot do it", and `x == y` would become False."""
    return InvalidParameter(
        "model",
        NOTHING,
        f"the forward pass uses {what}, which cannot be traced operation by operation",
        "write it with operations on the whole batch (torch.where for torch.cond), or do this part before the batch is "
        "made",
    )


def _place(tensor: Tensor) -> tuple[int, int]:
    """The id of a tensor's storage and its address; NOWHERE and 0 if it has no storage of its own."""
    if tensor.is_nested:
        return NOWHERE, 0
    with torch._C.DisableTorchFunction():  # the trace's own question, not the model's
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # a sparse tensor: its parts have storages
            return NOWHERE, 0
        return storage._cdata, storage.data_ptr()


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return () if tensor.is_nested else tuple(tensor.shape)


def _is_whole(tensor: Tensor) -> bool:
    return bool(tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes())


def _is_peek(given: GivenOperation) -> bool:
    """Whether a Python number or a shape depends on the values of a tensor."""
    if given.name == "aten::index":
        return any(each.dtype in (torch.bool, torch.uint8) for each in given.tensors[1:])
    return given.name in PEEKS or torch.Tag.dynamic_output_shape in given.func.tags
