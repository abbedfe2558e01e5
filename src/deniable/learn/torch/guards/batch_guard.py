"""Between a batch and its backward pass: is it followed, does it set attributes, and must its examples come alone?"""

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

ALONE = "the loss of an example that is computed alone depends on that example and on public numbers alone"

FOLLOWED = (
    "the loss of an example depends on that example and on public numbers alone: torch's operations were followed and "
    "keep examples apart, in one batch of each shape and graph; others of the same shape and graph, and what does not "
    "go through torch, or goes through it in another thread that was there before or in a hook on a node of autograd's "
    "graph, are assumed to"
)

KEPT = (
    "a forward pass keeps nothing for the next one, or keeps it in the model's attributes, in the model's classes, or "
    "in globals and closures that methods of these classes name; and not in other modules of Python, in containers of "
    "more than 4096 members in globals, behind objects without a __dict__ (iterators, slots, caches of lru_cache), in "
    "globals that a function in an attribute names, in hooks that it registers, or through .data in a tensor of more "
    "than 65 536 numbers; what it draws (dropout) comes from a seed that nobody knows, or that it sets itself"
)


@final
class Following:
    """Follows forward passes where nothing is proved of them yet, and puts back what they set in the model."""

    def __init__(self, model: nn.Module, book: Bookkeeping, is_training: Callable[[], bool]) -> None:
        self._model, self._book, self._is_training = model, book, is_training
        self._state, self._outside = ModuleState(model), Outside(model)
        self._kept: str | None = None
        """Something outside of the model's attributes that a forward pass of this batch has set."""
        self._is_inside = False
        """Whether a forward pass has begun and is not over."""
        self._threads, self._has_threads = Threads(), False
        self._trace: Trace | None = None
        self._is_open = False
        self._is_counting = False
        """Whether forward passes move counters: then all of them are followed."""
        self._counters: list[tuple[dict[str, Any], str, int]] = []
        self.shapes: Hashable = None
        """Of the batch that was handed out last."""
        self.why_alone: str | None = None
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before)),
            model.register_forward_hook(Hook(self._after), always_call=True),
        ]

    @property
    def assumption(self) -> str:
        """What the guarantee says of examples in one batch."""
        said = f"{FOLLOWED if self.why_alone is None else ALONE}; {KEPT}"
        return f"{said}; counters of the forward pass count steps alone" if self._is_counting else said

    def begin(self, batch: Any, count: int, *, follow: bool) -> None:
        """A batch is handed out; without `follow`, it is followed only if there was none of its shapes before."""
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
        """What was followed since then."""
        trace, self._trace, self._book.listener.follow = self._trace, None, None
        self._is_open = False
        self._has_threads = self._threads.end()
        if trace is not None:
            trace.end()
        return trace

    def close(self) -> None:
        """Follow nothing more: a loop is over, or was left."""
        self.end()

    def unhook(self) -> None:
        for handle in self._handles:
            handle.remove()

    def redo(self, trace: Trace | None, count: int) -> str | None:
        """How a batch must come again whose forward pass set attributes of the model, or started threads; None if it
        need not."""
        changed = self._state.changed()
        kept, self._kept = self._kept, None
        if kept is not None:
            self.go_alone(f"{kept!r}, which the forward pass sets in a class, a global or a function of its own")
        if self._has_threads:
            self.go_alone("a thread that was started while the batch was worked on: torch is not followed in it")
        if not changed:
            return None if not (kept or self._has_threads) or count == 1 else "alone"
        names = [name for name, is_counter in changed if not is_counter or (trace is not None and trace.has_peeked)]
        counters = self._state.counters()
        self._state.restore()
        if trace is not None and not names and kept is None and not self._has_threads:
            self._is_counting = True  # a forward pass that counts may do something else next time
            self._counters = self._counters or counters
            return None
        if names:
            self.go_alone(f"the attribute {names[0]!r}, which the forward pass sets, and which is put back each time")
        return None if count == 1 else "alone" if names or kept or self._has_threads else "followed"

    def end_step(self) -> None:
        """A step is over: counters stand where its first batch brought them."""
        for own, name, value in self._counters:
            own[name] = value
        self._counters = []

    def go_alone(self, why: str) -> None:
        """From now on each example is computed alone."""
        if self.why_alone is None:
            self.why_alone = why
            rule = f"each example is computed alone, which is slow, because of {why}"
            warnings.warn(f"{rule}; trainer.one_by_one says so, and docs/learn.md what can be done", stacklevel=4)

    def _before(self, *_: Any) -> None:
        if self._is_training():
            self._state.begin()
            self._outside.begin(self._state.taken)
            self._is_inside = True

    def _after(self, *_: Any) -> None:
        """What was kept outside of the model is put back at once: code of the loop may set it next. Of a forward pass
        that no backward pass follows, nothing stays at all."""
        if not self._is_inside:
            return
        self._is_inside = False
        kept = self._outside.changed()
        if kept is not None:
            self._outside.restore()
            self._kept = self._kept or kept
        if not self._is_open and self._is_training() and self._state.changed():
            self._state.restore()
