"""Records of a forward pass: one for each call of a module, made by hooks that do not change the computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_flatten

from deniable.errors import InvalidParameter
from deniable.learn.torch.gradients.attention_projections import Listening, block_of
from deniable.learn.torch.guards.tensor_domains import Domain
from deniable.learn.torch.kernels.half_products import HALF

VIEWS = ("ViewBackward0", "UnsafeViewBackward0")
PRODUCTS = {"AddmmBackward0": "_saved_mat1", "MmBackward0": "_saved_self"}
"""Nodes of autograd's graph for a linear map: a change of shape, and the product with the input that it used."""

Key = tuple[str, str, int]
"""Path of the module, kind of record, and the number of the call among the calls with this path and kind."""


@final
@dataclass(slots=True)
class ModuleCall:
    """One call of a module: its inputs, and edges to obtain the gradients at its outputs."""

    key: Key
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    edges: list[GradientEdge]
    shapes: list[torch.Size]
    dtypes: list[torch.dtype]
    places: list[int]
    """The index of each edge's tensor among the flattened outputs."""
    blocks: dict[str, tuple[int, int]]
    """For a linear map inside attention: parameter -> rows that it used."""
    versions: list[tuple[Tensor, int]]
    """Input tensors with their version counters at the time of the call."""
    proved: list[Domain]
    """What the trace knows of each output (`separation_trace`); empty without a trace."""
    given: list[Domain | None]
    """What the trace knows of each flattened input of a "unit"; None for an input that is not a tensor."""

    @property
    def path(self) -> str:
        return self.key[0]

    @property
    def kind(self) -> str:
        """ "layer": a layer with a closed form; "projection": a linear map of attention; "unit": a module to rerun."""
        return self.key[1]

    @property
    def is_whole_model(self) -> bool:
        """Whether this is a call of the model itself, recorded to be run again."""
        return self.path == "" and self.kind == "unit"

    @property
    def x(self) -> Tensor:
        """The first argument of the call."""
        return self.args[0]

    def let_go(self) -> None:
        """Free the input."""
        self.args, self.versions = (), []

    def check_unchanged(self) -> None:
        """Raise if an input was overwritten after the call."""
        for tensor, version in self.versions:
            if tensor._version != version:
                rule = "its input was changed in place after the call, so its gradient cannot be computed"
                raise InvalidParameter("model", shown(self.path), rule, "do not write into inputs of layers")


def shown(path: str) -> str:
    """A module's path as errors print it."""
    return path or "(the model itself)"


@final
class Hook:
    """A hook on one model. In a copy, or in a pickle of the model, the hook does nothing: calls of a copy are not part
    of the training."""

    __slots__ = ("_on_call",)

    def __init__(self, on_call: Callable[..., None] | None) -> None:
        self._on_call = on_call

    def __call__(self, *seen: Any) -> None:
        if self._on_call is not None:
            self._on_call(*seen)

    def __reduce__(self) -> tuple[type[Hook], tuple[None]]:
        return Hook, (None,)


@final
class Listener:
    """Hooks on every module that has trained parameters, and the calls they recorded since the last `taken`."""

    def __init__(self, model: nn.Module, wanted: Callable[[str, str], bool]) -> None:
        self.model, self.wanted = model, wanted
        self.paused = False
        self.follow: Callable[[Tensor], Domain] | None = None
        """The domain of a tensor, while a trace is active."""
        self.calls: list[ModuleCall] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._modes: list[Listening | None] = []
        self._handles: dict[str, list[Any]] = {}
        self._kinds: dict[str, list[str]] = {}
        """Path -> kinds of records to make: a cache of `wanted`, cleared by `listen_only_to`."""
        for path, module in model.named_modules():
            if any(each.requires_grad for each in module.parameters()):
                self._listen(path, module)

    def _listen(self, path: str, module: nn.Module) -> None:
        handles = self._handles[path] = []
        if type(module) is nn.MultiheadAttention:
            before = module.register_forward_pre_hook(Hook(lambda m, _: self._enter(path, m)))
            handles.append(before)
            handles.append(module.register_forward_hook(Hook(lambda m, a, o: self._leave()), always_call=True))
        handles.append(module.register_forward_hook(Hook(partial(self._seen, path)), with_kwargs=True))

    def listen_only_to(self, paths: Collection[str]) -> None:
        """Remove the hooks from all other modules, so that their calls cost nothing extra."""
        self._kinds.clear()
        for path in [path for path in self._handles if path not in paths]:
            for handle in self._handles.pop(path):
                handle.remove()

    def forget(self) -> None:
        """Forget the recorded calls."""
        self.calls = []
        self._counts.clear()

    def taken(self) -> list[ModuleCall]:
        """Return the recorded calls, and forget them. Raises if an input of one was overwritten."""
        calls = self.calls
        self.forget()
        for call in calls:
            call.check_unchanged()
        return calls

    def close(self) -> None:
        self.listen_only_to(())

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Pause recording inside of the `with` block."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def _off(self) -> bool:
        return self.paused or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1

    def _seen(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._off():
            return
        kinds = self._kinds.get(path)
        if kinds is None:
            kinds = self._kinds[path] = [kind for kind in ("layer", "unit") if self.wanted(path, kind)]
        # These calls are not part of the model: the guards need not follow them, only the operations.
        with torch._C.DisableTorchFunction():
            for kind in kinds:
                if kind == "layer":
                    self._keep_map(path, kind, module, args[0] if args else next(iter(kwargs.values())), output)
                else:
                    self._keep_unit(path, kind, module, args, kwargs, output)

    def _keep_map(self, path: str, kind: str, module: nn.Module, x: Tensor, output: Any) -> ModuleCall | None:
        """Record a call that maps one tensor to one tensor."""
        if not isinstance(output, Tensor) or not output.requires_grad:
            return None
        x = _as_used(x, output)
        call = ModuleCall(
            self._key(path, kind),
            module,
            (x.detach(),),
            {},
            [_edge(output)],
            [output.shape],
            [output.dtype],
            [0],
            {},
            [(x, x._version)],
            [] if self.follow is None else [self.follow(output)],
            [],
        )
        self.calls.append(call)
        return call

    def _keep_unit(
        self, path: str, kind: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Record a call with any inputs and outputs."""
        flat = tree_flatten(output)[0]
        places = [i for i, each in enumerate(flat) if isinstance(each, Tensor) and each.requires_grad]
        if not places:
            return
        made = [flat[i] for i in places]
        inputs = tree_flatten((args, kwargs))[0]
        follow = self.follow
        call = ModuleCall(
            self._key(path, kind),
            module,
            tuple([each.detach() if isinstance(each, Tensor) else each for each in args]),
            kwargs,
            [_edge(each) for each in made],
            [each.shape for each in made],
            [each.dtype for each in made],
            places,
            {},
            [(each, each._version) for each in inputs if isinstance(each, Tensor)],
            [] if follow is None else [follow(each) for each in made],
            [] if follow is None else [follow(each) if isinstance(each, Tensor) else None for each in inputs],
        )
        self.calls.append(call)

    def _key(self, path: str, kind: str) -> Key:
        before = self._counts.get((path, kind), 0)
        self._counts[path, kind] = before + 1
        return path, kind, before

    def _enter(self, path: str, module: nn.Module) -> None:
        if self._off() or not self.wanted(path, "projection"):
            self._modes.append(None)
            return

        def on_linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
            blocks = {}
            for part in (weight, bias):
                block = None if part is None else block_of(part, module)
                if block is not None:
                    blocks[block[0]] = block[1:]
            call = self._keep_map(path, "projection", module, x, out) if blocks else None
            if call is not None:
                call.blocks = blocks

        mode = Listening(on_linear)
        mode.__enter__()
        self._modes.append(mode)

    def _leave(self) -> None:
        mode = self._modes.pop() if self._modes else None
        if mode is not None:
            mode.__exit__(None, None, None)


def _as_used(x: Tensor, output: Tensor) -> Tensor:
    """The input of a linear map as autocast converted it: autograd holds that copy in any case, so the input itself
    need not be kept. Returns the input if it was not copied.
    """
    if output.dtype not in HALF or not x.is_floating_point() or x.dtype == output.dtype:
        return x
    node = output.grad_fn
    if node.name() in VIEWS:
        node = node.next_functions[0][0]
    used = None if node is None else getattr(node, PRODUCTS.get(node.name(), ""), None)
    if used is None or used.dtype != output.dtype or used.shape[-1] != x.shape[-1] or used.numel() != x.numel():
        return x
    return used.detach().reshape(x.shape)


def _edge(output: Tensor) -> GradientEdge:
    """The edge of an output's gradient. Built directly, which is faster, unless the node is a custom Function."""
    node = output.grad_fn
    if node is None or isinstance(node, torch._C._FunctionBase):
        return get_gradient_edge(output)
    return GradientEdge(node, output.output_nr)


def gradients(losses: Tensor, edges: Iterable[GradientEdge], *, keep: bool, times: float = 1.0) -> list[Tensor | None]:
    """`times` the gradient of the summed losses at each edge, from one backward pass that sets no `.grad`. None where
    the losses do not depend on an edge. `keep` keeps the graph for another pass."""
    listed = list(edges)
    if not listed:
        return []
    start = torch.full_like(losses, times)
    return list(torch.autograd.grad(losses, listed, start, allow_unused=True, retain_graph=keep))
