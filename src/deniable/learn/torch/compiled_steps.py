"""Steps of one shape that run as compiled code: forward and backward pass, norms and clipped sums.

**What runs.** `step_graphs` captures model, loss and backward pass as one graph of torch's operations. Inductor, the
compiler of torch.compile, compiles it, and on a CUDA device the whole step is recorded as a CUDA graph, so that a batch
costs a few launches. Norms and clipped sums are computed from the factors as in every other batch (`PerExample`).

**Why examples stay apart.** The forward part of the graph is run once operation by operation under the rules of
`separation_trace`, and compared with the graph of a batch of another size. The rules depend on operations only, and the
same graph runs for every later batch, so the proof holds for all of them. The model's Python code does not run again.

**What is not compiled** runs operation by operation, as in a loop: models and losses that cannot be captured or proved,
batches with an example that is not finite, and clipping layer by layer. A batch that is smaller than the compiled size
is filled up with copies of its first example, which have the weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, fx, nn

from deniable.learn.torch.clip_norms import FlatNorm
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping
from deniable.learn.torch.gradients.device_graphs import for_devices
from deniable.learn.torch.gradients.gradient_sums import GradientSums
from deniable.learn.torch.gradients.per_example import Block, PerExample, fetched
from deniable.learn.torch.gradients.step_graphs import Losses, NotCaptured, StepGraph, step_graph
from deniable.learn.torch.guards.batch_guard import BatchGuard
from deniable.learn.torch.guards.batch_rows import filled_up, leaves_of, repeated, shapes_of
from deniable.learn.torch.guards.forward_programs import Program, dependence_on_size
from deniable.learn.torch.guards.forward_watch import parts_of
from deniable.learn.torch.guards.separation_trace import Trace
from deniable.learn.torch.guards.tensor_domains import ExampleRows, MixedExamples, Same
from deniable.learn.torch.guards.torch_calls import full_precision, hooks_of
from deniable.learn.torch.kernels import half_products
from deniable.learn.torch.run_history import History

SHAPES = 8
"""The most shapes of batches for which steps are compiled; other batches run without compilation."""

TRIES = 3
"""How often capturing a step is tried before compilation is given up for the run."""

COMPILED_ON = ("cuda",)
"""Kinds of devices for which graphs are compiled. Elsewhere they run operation by operation: on a CPU a compiler needs
minutes, and a step does not wait for Python."""

CLOSE = 0.05
"""The largest relative difference between compiled norms and losses and the norms and losses of the uncompiled graph.
They differ because a compiler rounds half precision at other places. A wrong formula, or an example at a wrong place,
causes a larger difference.
"""


@final
@dataclass(frozen=True, slots=True)
class Clipped:
    """The clipped sums of one batch."""

    sums: list[tuple[str, Tensor, Block]]
    loss: Tensor
    left_out: int


Weighed = tuple[PerExample, Tensor]
"""The gradients of a batch, and the weight of each example in the sums."""


@final
class CompiledSteps:
    """Compiled steps by the shapes of batches, for one model and one loss."""

    def __init__(
        self,
        book: Bookkeeping,
        guard: BatchGuard,
        clipping: FlatNorm,
        losses_of: Losses,
        size: int,
        *,
        may_overwrite: bool,
        before: CompiledSteps | None = None,
    ) -> None:
        """Each compiled batch has `size` examples. `may_overwrite` allows CUDA graphs, whose sums the next batch
        overwrites. `before` are the compiled steps of an earlier loss function of the same run.
        """
        model = self._model = book.model
        self._book, self._guard, self._clipping = book, guard, clipping
        self.losses_of, self._size, self._may_overwrite = losses_of, size, may_overwrite
        self._steps: dict[Hashable, _CompiledStep | None] = {}
        """Shapes -> the step; None if it cannot be compiled."""
        self._failed: dict[Hashable, int] = {}
        """Shapes -> how often their step could not be compiled."""
        self._state, self._kind = _ModelState(model), next(model.parameters()).device.type
        self.has_run: bool = before is not None and before.has_run
        """Whether a batch of this run ran as a captured graph."""
        self.why_not: str | None = None
        """Why the last step that could not be compiled was not."""

    def add(self, batch: Any, count: int, sums: GradientSums, history: History) -> bool:
        """Add the clipped gradients of a batch of `count` examples to the sums. False if it must run without
        compilation.
        """
        found = self._clipped(batch, count, sums)
        if found is None:
            return False
        sums.add_all(found.sums)
        self._clipping.added()
        history.losses(found.loss, count, found.left_out)
        self.has_run = True
        return True

    def _clipped(self, batch: Any, count: int, sums: GradientSums) -> Clipped | None:
        if self._book.is_learning or self._guard.why_alone is not None or not 1 < self._size >= count:
            return None
        if not self._clipping.is_whole:
            self.why_not = "clipping layer by layer"
            return None
        if not self._state.is_still():
            self._steps, self._state = {}, _ModelState(self._model)
        whole = filled_up(batch, count, self._size)
        key = shapes_of(whole)
        if key not in self._steps:
            if len(self._steps) == SHAPES:
                return None
            try:
                self._steps[key] = self._made(whole)
            except NotCaptured as error:
                self.why_not = str(error)
                self._failed[key] = self._failed.get(key, 0) + 1
                if error.is_final or self._failed[key] == TRIES:
                    self._steps[key] = None
                return None
        step = self._steps[key]
        sums.keep()
        return None if step is None else step.clipped(leaves_of(whole), count)

    def _made(self, batch: Any) -> _CompiledStep:
        """Capture, prove and compile the step of a batch. Raises `NotCaptured`."""
        few = 2 if self._size == 3 else 3
        graph = self._captured(batch, self._size)
        reference = self._captured(repeated(batch, few), few)
        given = self._state.tensors
        one = _proved(graph, given, leaves_of(batch), self._model)
        other = _proved(reference, given, leaves_of(repeated(batch, few)), self._model)
        why = dependence_on_size(one, other)
        if why is not None:
            raise NotCaptured(why)
        made = _CompiledStep(graph, self._book, self._clipping, given, is_recorded=self._may_overwrite)
        if self._kind in COMPILED_ON:
            made.compile(leaves_of(batch))
        return made

    def _captured(self, batch: Any, count: int) -> StepGraph:
        made, is_kept = self._guard.undisturbed(
            lambda: step_graph(self._model, self._book, self.losses_of, batch, count)
        )
        if is_kept:
            raise NotCaptured("something that the forward pass stores or starts")
        return made


@final
class _ModelState:
    """The parts of a model that a captured graph was made from."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._modules = model, parts_of(model)
        self._kind = next(model.parameters()).device.type
        self.tensors = [*model.parameters(), *model.buffers()]
        """In the order of the graph's inputs."""
        self._held = [
            (held, local, each, each._version if held is module._buffers else None)
            for module in self._modules
            for held in (module._parameters, module._buffers)
            for local, each in held.items()
            if each is not None
        ]
        self._flags = self._now()

    def _now(self) -> Hashable:
        kind = self._kind
        cast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        return cast, tuple(each.training for each in self._modules)

    def is_still(self) -> bool:
        """Whether the model has the same modules, parameters and buffers, and buffers the same values."""
        if parts_of(self._model) != self._modules or self._now() != self._flags:
            return False
        return all(
            held.get(local) is each and version in (None, each._version) for held, local, each, version in self._held
        )


def _proved(graph: StepGraph, given: Sequence[Tensor], leaves: Sequence[Tensor], model: nn.Module) -> Program:
    """The program of the forward part of a graph, if the rules show that it keeps examples apart."""
    forward, count = graph.part(is_forward=True), graph.count
    trace = Trace(list(leaves), count, {})
    with torch.no_grad():
        trace.__enter__()
        try:
            # Only the operations themselves are traced: there are no functions around them that could read values.
            with torch._C.DisableTorchFunction():
                losses, *made = fx.Interpreter(forward).run(*given, *leaves)
        finally:
            trace.end()
    apart = hooks_of(model) or trace.of(losses)
    if trace.has_peeked or apart != ExampleRows(0, 1):
        raise NotCaptured(
            apart.why if isinstance(apart, MixedExamples) else "losses that do not lie example by example"
        )
    for tensor, layer in zip(made, graph.layers, strict=True):
        found = trace.of(tensor)
        if layer.is_shared:
            is_known = isinstance(found, Same)
        else:
            is_known = layer.layout is None or layer.layout.is_of(found, layer.shape, count)
        if not is_known:
            raise NotCaptured("examples in another order in a layer")
    return trace.finished(losses)


@final
class _CompiledStep:
    """One graph, compiled."""

    def __init__(
        self, graph: StepGraph, book: Bookkeeping, clipping: FlatNorm, given: list[Tensor], *, is_recorded: bool
    ) -> None:
        self._graph, self._book, self._clipping, self._count = graph, book, clipping, graph.count
        self._given = [each.detach() for each in given]
        self._code: Callable[..., Sequence[Tensor]] = graph.part(is_forward=False)
        device = self._given[0].device
        is_current = device.type == "cuda" and device.index == torch.cuda.current_device()
        self._is_recorded = is_recorded and is_current and clipping.is_fixed
        self._recording: _Recording | None = None

    def compile(self, leaves: Sequence[Tensor]) -> None:
        """Compile the step for these inputs, and compare the code with the uncompiled graph on them. Raises
        `NotCaptured` if the compiler fails or the results differ.
        """
        from torch._inductor import compile as compiled_code  # a large import, for devices only

        generators = _states()
        truth = self._lengths(self._run(leaves))
        code = for_devices(self._graph.part(is_forward=False))
        try:
            # With torch's own random numbers, so that both passes draw the same ones.
            with torch.no_grad():
                self._code = compiled_code(code, [*self._given, *leaves], options={"fallback_random": True})
            _restore(generators)
            found = self._lengths(self._run(leaves))
        except Exception as error:  # an error of the compiler: the step runs without compilation
            raise NotCaptured(f"a graph that was not compiled ({type(error).__name__})") from None
        for one, other in zip(found, truth, strict=True):
            both = torch.isfinite(other)
            if not torch.allclose(one[both], other[both], rtol=CLOSE, atol=CLOSE * float(other[both].abs().mean())):
                raise NotCaptured("compiled code that computes something else")

    def _lengths(self, outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        losses, *factors = outputs
        with torch.no_grad(), full_precision(losses.device.type):
            return losses, self._per_example(factors).norms()

    def _per_example(self, factors: Sequence[Tensor]) -> PerExample:
        graph = self._graph
        return PerExample(self._book.parameters, graph.gathered(factors), graph.count, scale=graph.scale)

    def _run(self, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
        with torch.no_grad():
            return self._code(*self._given, *leaves)

    def clipped(self, leaves: Sequence[Tensor], count: int) -> Clipped | None:
        """The clipped sums of the first `count` examples; None if an example is not finite on an accelerator."""
        if self._is_recorded and self._recording is None:
            try:
                self._recording = _Recording(self._weighed, leaves, count)
            except RuntimeError:  # an operation that waits for the device cannot be recorded
                self._is_recorded = False
        if self._recording is not None:
            return self._recording.clipped(leaves, count)
        found, weights = self._weighed(leaves, count, None)
        sums = list(found.summed(weights))
        if not found.is_sound():
            return None
        left_out = 0 if found.kept is None else count - int(found.kept[:count].sum())
        return Clipped(sums, found.losses[:count].sum(), left_out)

    def _weighed(self, leaves: Sequence[Tensor], count: int, is_real: Tensor | None) -> Weighed:
        """The gradients of a batch, and the weight of each example, which is 0 for copies. `is_real` is a mask of
        the first `count` examples while the step is recorded."""
        losses, *factors = self._run(leaves)
        with torch.no_grad(), full_precision(losses.device.type):
            found = self._per_example(factors)
            del factors
            squared = found.squared(losses, is_recorded=is_real is not None)
            if is_real is not None:
                return found, torch.where(is_real, self._clipping.factors(squared, found.lost), 0.0)
            weights = torch.zeros_like(squared)
            weights[:count] = self._clipping.factors(squared[:count], found.lost)
            return found, weights


@final
class _Recording:
    """CUDA graphs of a whole step: one up to the weights of the examples, and one of the weighted sums."""

    def __init__(
        self, work: Callable[[Sequence[Tensor], int, Tensor | None], Weighed], leaves: Sequence[Tensor], count: int
    ) -> None:
        self._leaves = [each.clone() for each in leaves]
        self._real, self._count = leaves[0].new_zeros(len(leaves[0]), dtype=torch.bool), -1
        self._mark(count)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():  # kernels are compiled and libraries set up before recording
            found, weights = work(self._leaves, count, self._real)
            list(found.summed(weights))
        torch.cuda.current_stream().wait_stream(side)
        del found, weights
        self._first, self._second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._addresses = torch.empty(half_products.ADDRESSES, dtype=torch.int64).pin_memory()
        with half_products.recorded(self._addresses), torch.no_grad():
            with torch.cuda.graph(self._first):
                found, weights = work(self._leaves, count, self._real)
                self._loss = torch.where(self._real, found.losses, 0.0).sum()
                self._whole = found.whole
            with torch.cuda.graph(self._second, pool=self._first.pool()):
                self._sums = list(found.summed(weights))
        torch.cuda.empty_cache()  # the memory of the passes before: the recording has its own

    def _mark(self, count: int) -> None:
        if count != self._count:
            self._real[:count], self._real[count:] = True, False
            self._count = count

    def clipped(self, leaves: Sequence[Tensor], count: int) -> Clipped | None:
        """See `_CompiledStep.clipped`. The sums are overwritten by the next batch."""
        self._mark(count)
        torch._foreach_copy_(self._leaves, list(leaves))
        self._first.replay()
        whole = fetched(self._whole)
        self._second.replay()
        return Clipped(self._sums, self._loss.clone(), 0) if math.isfinite(whole()) else None


def _states() -> list[Tensor]:
    on_device = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_device]


def _restore(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])
