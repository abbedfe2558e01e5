"""A step's forward and backward pass as one graph of operations, captured once for a shape of batches.

The graph computes the losses and the factors of all captures (`gradient_captures`) from parameters, buffers and a
batch. `step_graph` makes it by running model and loss once on tensors without values. Decisions of Python code are then
fixed: code of the model does not run for later batches.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from deniable.learn.torch.gradients.batch_layout import Layout
from deniable.learn.torch.gradients.bookkeeping import Alone, Bookkeeping
from deniable.learn.torch.gradients.convolutions import Convolution
from deniable.learn.torch.gradients.gradient_captures import (
    BiasSums,
    Capture,
    EmbeddingRows,
    Outer,
    Vectors,
)
from deniable.learn.torch.gradients.per_example import Block, Gathered
from deniable.learn.torch.guards.backward_graphs import functions_of
from deniable.learn.torch.guards.cleared_memory import clear_in
from deniable.learn.torch.guards.tensor_domains import Domain, Same
from deniable.learn.torch.guards.torch_calls import HOOKS, FunctionCalls, full_precision

Losses = Callable[[Any, Any], Tensor]
"""(model, batch) -> one loss for each example."""

FACTORS: dict[type[Capture], tuple[str, ...]] = {
    Outer: ("g", "a"),
    Convolution: ("g", "x"),
    EmbeddingRows: ("g", "ids"),
    Vectors: ("values",),
}
"""The tensors that a capture is made from."""


@final
class NotCaptured(Exception):
    """This model or this loss cannot be captured as a graph, for a reason that does not depend on the data. If not
    `is_final`, capturing may succeed after one batch that runs without compilation, on which the bookkeeping learns the
    layers.
    """

    def __init__(self, why: str, *, is_final: bool = True) -> None:
        super().__init__(why)
        self.is_final = is_final


@final
@dataclass(frozen=True, slots=True)
class Template:
    """A capture without its tensors, and the numbers of these tensors among the outputs of the graph."""

    name: str
    rows: Block
    bare: Capture
    outputs: tuple[int, ...]
    beside: int | None
    """For the bias of a layer with one place: the number of its weight's template."""


@final
@dataclass(frozen=True, slots=True)
class LayerOutput:
    """Where the examples lie in one output of a layer."""

    layout: Layout | None
    """None for an output that the losses do not depend on."""
    shape: tuple[int, ...]
    is_shared: bool
    """Whether the output has no examples, and is added to every one."""


@final
@dataclass(frozen=True, slots=True)
class StepGraph:
    """The graph, and the meaning of its outputs."""

    whole: fx.GraphModule
    """(parameters and buffers, tensors of the batch) -> losses, outputs of the layers, factors of the captures."""
    layers: list[LayerOutput]
    templates: list[Template]
    count: int
    scale: float

    def part(self, *, is_forward: bool) -> fx.GraphModule:
        """The graph up to losses and outputs of layers (`is_forward`), or the graph of losses and factors alone."""
        made = copy.deepcopy(self.whole)
        (last,) = made.graph.find_nodes(op="output")
        listed, split = last.args[0], 1 + len(self.layers)
        last.args = (listed[:split] if is_forward else [listed[0], *listed[split:]],)
        made.graph.eliminate_dead_code()
        made.recompile()
        return made

    def gathered(self, factors: Sequence[Tensor]) -> Gathered:
        """The captures from the factors that the graph computed."""
        made: list[Capture] = []
        found: Gathered = defaultdict(lambda: defaultdict(list))
        for each in self.templates:
            if each.beside is not None:
                outer = made[each.beside]
                assert isinstance(outer, Outer)
                capture: Capture = BiasSums(outer)
            else:
                capture = copy.copy(each.bare)
                for field, at in zip(FACTORS[type(capture)], each.outputs, strict=True):
                    setattr(capture, field, factors[at])
            made.append(capture)
            found[each.name][each.rows].append(capture)
        return found


def step_graph(model: nn.Module, book: Bookkeeping, losses_of: Losses, batch: Any, count: int) -> StepGraph:
    """Capture the step of a batch of these shapes. Raises `NotCaptured`."""
    from torch.fx.experimental.proxy_tensor import make_fx  # a large import

    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    leaves, form = tree_flatten(batch)
    if not all(isinstance(each, Tensor) for each in leaves):
        raise NotCaptured("a batch that has values beside its tensors")
    capturing = _Capturing(model, book, losses_of, list(state), form, count)
    try:
        whole = make_fx(lambda *given: capturing.run(given), tracing_mode="fake")(*state.values(), *leaves)
    except NotCaptured:
        raise
    except Alone as error:
        raise NotCaptured(error.why, is_final=False) from None
    except Exception as error:  # code of the model may raise any error on tensors that have no values
        raise NotCaptured(f"an operation that cannot be captured ({type(error).__name__})") from None
    if any(node.op == "get_attr" for node in whole.graph.nodes):
        raise NotCaptured("a constant tensor that the forward pass uses")
    if not clear_in(whole.graph):
        raise NotCaptured("memory whose size is changed")
    inputs = list(whole.graph.find_nodes(op="placeholder"))[: len(state)]
    if any(written_into(node) in inputs for node in whole.graph.nodes if node.op == "call_function"):
        raise NotCaptured("a parameter or buffer that the forward pass writes into")
    return StepGraph(whole, capturing.layers, capturing.templates, count, book.scale)


@final
class _Capturing:
    """The function that `make_fx` captures, and what it notes about its outputs."""

    def __init__(
        self, model: nn.Module, book: Bookkeeping, losses_of: Losses, names: list[str], form: TreeSpec, count: int
    ) -> None:
        self._model, self._book, self._losses_of = model, book, losses_of
        self._names, self._form, self._count = names, form, count
        self._heard: list[Tensor] = []
        self.layers: list[LayerOutput] = []
        self.templates: list[Template] = []

    def run(self, given: Sequence[Tensor]) -> list[Tensor]:
        named, leaves = dict(zip(self._names, given, strict=False)), list(given[len(self._names) :])
        trained = {each.name: named[each.name].detach().requires_grad_(True) for each in self._book.parameters.values()}
        kind = leaves[0].device.type
        with torch.enable_grad(), self._in_place_of(named | trained):
            with FunctionCalls(_refusing_hooks):
                losses = self._losses_of(self._model, tree_unflatten(leaves, self._form))
            if losses.shape != (self._count,) or losses.grad_fn is None:
                raise NotCaptured("losses that are not one for each example")
            if functions_of(losses) is not None:
                raise NotCaptured("a backward pass that is written in Python")
            with full_precision(kind):
                calls, gathered = self._book.fixed(losses)
        for call in calls:
            layouts = self._book.layouts_of(call)
            listed = zip(layouts or [None] * len(call.shapes), call.shapes, strict=True)
            self.layers += [LayerOutput(layout, tuple(shape), layouts is None) for layout, shape in listed]
        if len(self.layers) != len(self._heard):
            raise NotCaptured("a layer that was not recorded")
        outputs: list[Tensor] = []
        for name, blocks in gathered.items():
            for rows, captures in blocks.items():
                self.templates += [self._template(name, rows, each, outputs) for each in captures]
        return [losses.detach(), *self._heard, *(each.detach() for each in outputs)]

    def _template(self, name: str, rows: Block, capture: Capture, outputs: list[Tensor]) -> Template:
        if isinstance(capture, BiasSums):
            beside = [at for at, each in enumerate(self.templates) if each.bare is capture.outer]
            if not beside:
                raise NotCaptured("a bias without its weight")
            return Template(name, rows, capture, (), beside[0])
        numbers = []
        for field in FACTORS[type(capture)]:
            tensor = getattr(capture, field)
            numbers.append(next((at for at, each in enumerate(outputs) if each is tensor), len(outputs)))
            if numbers[-1] == len(outputs):
                outputs.append(tensor)
        return Template(name, rows, capture, tuple(numbers), None)

    def _hear(self, tensor: Tensor) -> Domain:
        self._heard.append(tensor.detach())
        return Same(())

    @contextmanager
    def _in_place_of(self, tensors: dict[str, Tensor]) -> Iterator[None]:
        """Use these tensors for parameters and buffers of the model, and listen to its layers."""
        listener = self._book.listener
        with _reparametrize_module(self._model, tensors, tie_weights=True), _known_as(self._book, tensors):
            self._book.listen()
            listener.follow = self._hear
            try:
                yield
            finally:
                listener.follow = None
                self._book.rest()


@contextmanager
def _known_as(book: Bookkeeping, tensors: dict[str, Tensor]) -> Iterator[None]:
    """Let the book take these tensors for the parameters."""
    before = {each.name: each.tensor for each in book.parameters.values()}
    try:
        for each in book.parameters.values():
            each.tensor = tensors[each.name]
        yield
    finally:
        for each in book.parameters.values():
            each.tensor = before[each.name]


def written_into(node: fx.Node) -> fx.Node | None:
    """The node whose memory an operation writes into, found through views; None if the operation changes no tensor."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return None
    place: Any = node.args[0]
    while isinstance(place, fx.Node) and place.op == "call_function":
        schema = getattr(place.target, "_schema", None)
        if schema is None or not any(each.alias_info is not None for each in schema.returns):
            break
        place = place.args[0]
    return place if isinstance(place, fx.Node) else None


def _refusing_hooks(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name in HOOKS:
        raise NotCaptured("a hook on the backward pass")
    return func(*args, **kwargs)
