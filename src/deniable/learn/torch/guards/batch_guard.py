"""Between a batch and its backward pass: decides whether to trace it, restores state, and whether to repeat it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any, final

from torch import nn

from deniable.learn.torch.gradients.bookkeeping import Bookkeeping
from deniable.learn.torch.gradients.forward_calls import Hook
from deniable.learn.torch.guards.module_state import ModuleState
from deniable.learn.torch.guards.outside_state import Outside
from deniable.learn.torch.guards.separation_trace import Trace, shapes_of
from deniable.learn.torch.guards.thread_watch import Threads

ALONE = "the loss of an example that is computed alone depends only on that example and on public numbers"

FOLLOWED = (
    "the loss of an example depends only on that example and on public numbers: a trace of torch's operations showed "
    "that they keep examples apart, in one batch of each shape and graph; this is assumed for other batches of the "
    "same shape and graph, for computations outside of torch, for work in threads that existed before, and for hooks "
    "on nodes of autograd's graph"
)

KEPT = (
    "a forward pass stores nothing for the next one, except in places that are checked: the model's attributes, the "
    "model's classes, and globals and closures that methods of these classes name; places that are not checked are "
    "other modules of Python, containers of more than 4096 members in globals, objects without a __dict__ (iterators, "
    "slots, caches of lru_cache), globals that a function in an attribute names, hooks that it registers, and writes "
    "through .data into a tensor of more than 65 536 numbers; its random numbers (dropout) come from a seed that "
    "nobody knows, or that it sets itself"
)


@final
class Following:
    """Traces forward passes that are not proved yet, and restores attributes that they set in the model."""

    def __init__(self, model: nn.Module, book: Bookkeeping, is_training: Callable[[], bool]) -> None:
        self._model, self._book, self._is_training = model, book, is_training
        self._state, self._outside = ModuleState(model), Outside(model)
        self._kept: str | None = None
        """The name of something outside of the model's attributes that a forward pass of this batch changed."""
        self._is_inside = False
        """Whether a forward pass is running."""
        self._threads, self._has_threads = Threads(), False
        self._trace: Trace | None = None
        self._is_open = False
        self._is_counting = False
        """Whether forward passes change counters. Then all of them are traced."""
        self._counters: list[tuple[dict[str, Any], str, int]] = []
        self.shapes: Hashable = None
        """The shapes of the current batch."""
        self.why_alone: str | None = None
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before)),
            model.register_forward_hook(Hook(self._after), always_call=True),
        ]

    @property
    def assumption(self) -> str:
        """The assumption of the guarantee about examples of one batch."""
        said = f"{FOLLOWED if self.why_alone is None else ALONE}; {KEPT}"
        return f"{said}; counters of the forward pass count steps alone" if self._is_counting else said

    def begin(self, batch: Any, count: int, *, follow: bool) -> None:
        """Begin a batch. Without `follow`, it is traced only if no batch of its shapes was traced before."""
        self.end()
        self._is_open, self._kept = True, None
        self._state.begin()
        self._threads.begin()
        self.shapes = shapes_of(batch)
        if count > 1 and (follow or self._is_counting or not self._book.is_proved(self.shapes)):
            self._trace = Trace(batch, count, {id(each): name for name, each in self._model.named_buffers()})
            self._book.listener.follow = self._trace.of
            self._trace.__enter__()

    def end(self) -> Trace | None:
        """End the batch's forward pass. Returns its trace, if there is one."""
        trace, self._trace, self._book.listener.follow = self._trace, None, None
        self._is_open = False
        self._has_threads = self._threads.end()
        if trace is not None:
            trace.end()
        return trace

    def close(self) -> None:
        """Stop tracing at the end of a loop over the trainer."""
        self.end()

    def unhook(self) -> None:
        for handle in self._handles:
            handle.remove()

    def redo(self, trace: Trace | None, count: int) -> str | None:
        """How to repeat a batch whose forward pass set attributes of the model or started threads: "followed" or
        "alone"; None if that is not needed."""
        changed = self._state.changed()
        kept, self._kept = self._kept, None
        if kept is not None:
            self.go_alone(f"{kept!r}, which the forward pass sets in a class, a global or a function of its own")
        if self._has_threads:
            self.go_alone("a thread that was started during the batch: the trace does not cover it")
        if not changed:
            return None if not (kept or self._has_threads) or count == 1 else "alone"
        names = [name for name, is_counter in changed if not is_counter or (trace is not None and trace.has_peeked)]
        counters = self._state.counters()
        self._state.restore()
        if trace is not None and not names and kept is None and not self._has_threads:
            self._is_counting = True  # a forward pass with a counter may take another path next time
            self._counters = self._counters or counters
            return None
        if names:
            self.go_alone(f"the attribute {names[0]!r}, which the forward pass sets and the trainer restores")
        return None if count == 1 else "alone" if names or kept or self._has_threads else "followed"

    def end_step(self) -> None:
        """End a step: counters keep the values after the first batch of the step."""
        for own, name, value in self._counters:
            own[name] = value
        self._counters = []

    def go_alone(self, why: str) -> None:
        """Compute each example alone from now on, and warn once."""
        if self.why_alone is None:
            self.why_alone = why
            rule = f"each example is computed alone, which is slow, because of {why}"
            warnings.warn(f"{rule}; see trainer.one_by_one, and docs/learn.md for remedies", stacklevel=4)

    def _before(self, *_: Any) -> None:
        if self._is_training():
            self._state.begin()
            self._outside.begin(self._state.taken)
            self._is_inside = True

    def _after(self, *_: Any) -> None:
        """Restore state outside of the model at once, before code of the loop can use it. After a forward pass without
        a backward pass, restore the model's attributes too."""
        if not self._is_inside:
            return
        self._is_inside = False
        kept = self._outside.changed()
        if kept is not None:
            self._outside.restore()
            self._kept = self._kept or kept
        if not self._is_open and self._is_training() and self._state.changed():
            self._state.restore()
