"""Between a batch and its backward pass: proves that examples are separate, restores state, has the batch repeated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, final

from torch import Tensor, nn

from deniable.errors import InvalidParameter
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping
from deniable.learn.torch.gradients.forward_calls import Hook
from deniable.learn.torch.guards.batch_rows import kinds_of, leaves_of, shapes_of, why_not_rows
from deniable.learn.torch.guards.cleared_memory import ClearedMemory
from deniable.learn.torch.guards.forward_programs import Program, ProgramComparison, dependence_on_size
from deniable.learn.torch.guards.forward_watch import ForwardWatch
from deniable.learn.torch.guards.module_state import ModuleState
from deniable.learn.torch.guards.outside_state import Outside
from deniable.learn.torch.guards.separation_trace import Trace
from deniable.learn.torch.guards.tensor_domains import ExampleRows
from deniable.learn.torch.guards.thread_watch import Threads

Captured = TypeVar("Captured")

HELD = 32
"""The most shapes of batches whose programs are cached, newest first. Batches of other shapes are traced again."""

ISOLATED = (
    "separation is isolated: the loss of an example that is computed alone depends only on that example and on public "
    "numbers"
)

PROVED = (
    "separation is proved: in every batch, rules for torch's operations showed that the loss of an example depends "
    "only on that example and on public numbers, and that these operations are the same for batches of other sizes; "
    "not covered are computations outside of torch, code that disables torch's dispatch or function modes, work in "
    "threads that existed before, and code that computes something else when gradient checkpointing runs it again"
)

ASSUMED = (
    "separation is assumed, because the trainer was given separation='assumed': the loss of an example depends only on "
    "that example and on public numbers, which the trainer did not prove; it compared random batches with autograd"
)

BOTH = "the loss of an example alone is the one that it had in earlier batches, which were processed as a whole"

KEPT = (
    "a forward or backward pass stores nothing for the next one, except in places that are checked: the model's "
    "attributes, the model's classes, and globals and closures that methods of these classes name; code of the loop "
    "takes no number of one batch into the loss of a later one; places that are not checked are "
    "other modules of Python, containers of more than 4096 members in globals, iterators and other objects without a "
    "__dict__ or slots, objects of other libraries that keep numbers inside (pandas), objects of torch.optim and "
    "torch.utils, globals that a function in an attribute names, hooks that it registers, and writes through "
    ".data or numpy into a tensor of more than 65 536 numbers; its random numbers (dropout) come from a seed that "
    "nobody knows, or that it sets itself"
)


@final
class BatchGuard:
    """Proves for each batch that its examples are apart, by a trace or by comparison with a traced program. Restores
    attributes that forward passes set in the model."""

    def __init__(self, model: nn.Module, book: Bookkeeping, watch: ForwardWatch, asked: str | None = None) -> None:
        self._watch = watch
        self._model, self._book, self._asked = model, book, asked
        self._state, self._outside = ModuleState(model), Outside(model)
        self._kept: str | None = None
        """The name of something outside of the model's attributes that a forward pass of this batch changed."""
        self._is_inside = False
        """Whether a forward pass is running."""
        self._has_entered = False
        """Whether a forward pass of the whole model has run in this batch, and all of it between the guard's hooks."""
        self._is_aside = False
        """Whether a forward pass is captured, not run."""
        self._threads, self._has_threads = Threads(), False
        self._trace: Trace | ProgramComparison | None = None
        self._clearing: ClearedMemory | None = None
        """Active in a forward pass without a trace; None in a pass with one, because a trace clears memory itself."""
        self._is_open = False
        self._is_counting = False
        """Whether forward passes change counters."""
        self._counters: list[tuple[dict[str, Any], str, int]] = []
        self._programs: dict[Hashable, Program] = {}
        """Shapes of a batch -> a program that was proved for them."""
        self._references: dict[Hashable, Program] = {}
        """Shapes of a batch without the number of examples -> a program for some number of them."""
        self._is_fresh = False
        """Whether the reference was made for the current batch."""
        self._has_accepted = False
        """Whether a batch was processed as a whole."""
        self._shapes: Hashable = None
        self._kinds: Hashable = None
        self.why_alone: str | None = "separation='isolated'" if asked == "isolated" else None
        self._handles = [
            model.register_forward_pre_hook(Hook(self._before)),
            model.register_forward_hook(Hook(self._after), always_call=True),
        ]

    @property
    def separation(self) -> str:
        """The level in force: "proved", "isolated" or "assumed"."""
        return "isolated" if self.why_alone is not None else "assumed" if self.is_assumed else "proved"

    @property
    def is_assumed(self) -> bool:
        """Whether the caller assumes that examples are separate, and asks for no proof."""
        return self._asked == "assumed"

    @property
    def assumption(self) -> str:
        """The assumption of the guarantee about examples of one batch."""
        whole = ASSUMED if self.is_assumed else PROVED
        text = whole if self.why_alone is None else ISOLATED
        if self.why_alone is not None and self._has_accepted:
            text = f"{ISOLATED}; before, {whole}; {BOTH}"
        text = f"{text}; {KEPT}"
        return f"{text}; counters of the forward pass count steps alone" if self._is_counting else text

    def look_at(self, batch: Any, count: int) -> None:
        """Inspect a new batch: a batch that does not consist of rows cannot be processed as a whole."""
        self._is_fresh = False
        if self.why_alone is None and not self.is_assumed:
            why = why_not_rows(batch, count)
            if why is not None:
                self.go_alone(why)

    def reference_size(self, batch: Any, count: int) -> int | None:
        """The size of a reference batch that must be traced before this batch; None if the reference is known."""
        if self.is_assumed or shapes_of(batch) in self._programs:
            return None
        known = self._references.get(kinds_of(batch))
        if known is not None and known.count != count:
            return None
        return 2 if count == 3 else 3

    def begin(self, batch: Any, count: int, *, is_reference: bool) -> None:
        """Begin a batch. A reference batch is always traced."""
        self.end()
        self._is_open, self._kept, self._has_entered = True, None, False
        self._state.begin()
        self._outside.begin(self._state.taken)
        self._threads.begin()
        self._watch.is_close = count == 1 or self._book.is_learning
        if count == 1 or self.is_assumed:
            self._clearing = ClearedMemory(self._watch.wrote)
            self._clearing.__enter__()
            return
        self._shapes, self._kinds = shapes_of(batch), kinds_of(batch)
        program = None if is_reference else self._programs.get(self._shapes)
        if program is None:
            names = {id(each): name for name, each in self._model.named_buffers()}
            self._trace = Trace(batch, count, names, self._watch.wrote)
        else:
            self._trace = ProgramComparison(program, [each for each in leaves_of(batch) if isinstance(each, Tensor)])
        self._book.listener.follow = self._trace.answer
        self._trace.__enter__()

    def refer(self, trace: Trace | ProgramComparison | None, losses: Tensor) -> None:
        """Use this pass, over a few copies of one example, as the reference for batches of other sizes."""
        if isinstance(trace, Trace):
            _put(self._references, self._kinds, trace.finished(losses))
            self._is_fresh = True

    def settled(self, trace: Trace | ProgramComparison | None, losses: Tensor) -> str | None:
        """How to repeat the batch: "whole" (all examples together) or "alone" (one by one). None if it may go on.

        It may go on if this pass is proved; if there is no trace, because it has a single example or separation is
        assumed; and if the trace could not separate the losses, because the bookkeeping then refuses the model or has
        the examples computed alone.
        """
        if trace is None:
            return None
        if isinstance(trace, ProgramComparison):
            if trace.has_run(losses):
                return None
            self._drop()
            return "whole"
        if trace.of_losses(losses, self._model) != ExampleRows(0, 1):
            return None
        program, reference = trace.finished(losses), self._references.get(self._kinds)
        why = "no reference" if reference is None else dependence_on_size(program, reference)
        if why is None:
            _put(self._programs, self._shapes, program)
            return None
        if self._is_fresh:
            self.go_alone(why)
            return "alone"
        self._references.pop(self._kinds, None)
        return "whole"

    def _drop(self) -> None:
        """Forget the program of the current batch, so that it is traced when it is handed out again."""
        self._programs.pop(self._shapes, None)
        self._references.pop(self._kinds, None)

    def accept(self, *, has_learned: bool) -> None:
        """Note that a batch was processed as a whole. After learning, fewer hooks run, and so other operations."""
        self._has_accepted = True
        if has_learned:
            self._programs.clear()
            self._references.clear()

    def end(self) -> Trace | ProgramComparison | None:
        """End the batch's forward pass. Returns its trace, if there is one."""
        trace, self._trace, self._book.listener.follow = self._trace, None, None
        clearing, self._clearing = self._clearing, None
        if clearing is not None:
            clearing.end()
        self._is_open = False
        self._has_threads = self._threads.end()
        if trace is not None:
            trace.end()
        return trace

    def close(self) -> None:
        """Stop tracing at the end of a loop over the trainer."""
        self.end()

    def unhook(self) -> None:
        """Remove the hooks from the model."""
        for handle in self._handles:
            handle.remove()

    def redo(self, trace: Trace | ProgramComparison | None, count: int) -> str | None:
        """How to repeat a batch whose forward pass set attributes of the model or started threads: "whole" or
        "alone"; None if that is not needed."""
        if not self._has_entered:
            self._look_outside()
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
        if isinstance(trace, ProgramComparison) and trace.is_other and kept is None and not self._has_threads:
            self._drop()  # a trace decides first whether the new program is refused
            return "whole"
        if (trace is not None or self.is_assumed) and not names and kept is None and not self._has_threads:
            self._is_counting = True
            self._counters = self._counters or counters
            return None
        if names:
            self.go_alone(f"the attribute {names[0]!r}, which the forward pass sets and the trainer restores")
        return None if count == 1 else "alone" if names or kept or self._has_threads else "whole"

    def end_step(self) -> None:
        """End a step: counters keep the values after the first batch of the step."""
        for own, name, value in self._counters:
            own[name] = value
        self._counters = []

    def go_alone(self, why: str) -> None:
        """Compute each example alone from now on, and warn once."""
        if self._asked == "proved" and not self._has_accepted:
            rule = f"examples cannot be proved separate, because of {why}"
            remedy = (
                "leave separation= out, so that examples are computed one by one, or see docs/learn.md for remedies"
            )
            raise InvalidParameter("separation", self._asked, rule, remedy)
        if self.why_alone is None:
            self.why_alone = why
            rule = f"each example is computed alone, which is slow, because of {why}"
            warnings.warn(f"{rule}; see trainer.one_by_one, and docs/learn.md for remedies", stacklevel=4)

    def undisturbed(self, work: Callable[[], Captured]) -> tuple[Captured, bool]:
        """Run `work`, which runs code of the model, and restore state. Also returns whether that code stored something
        in it, or started a thread.

        A backward pass runs such code too: hooks, an `autograd.Function`, and a checkpointed part for the second time.
        """
        self._is_aside = True
        self._state.begin()
        self._outside.begin(self._state.taken)
        self._threads.begin()
        try:
            made = work()
        finally:
            self._is_aside = False
            has_threads, changed, kept = self._threads.end(), self._state.changed(), self._outside.changed()
            if changed:
                self._state.restore()
            if kept is not None:
                self._outside.restore()
        return made, bool(has_threads or changed or kept is not None)

    def _before(self, *_: Any) -> None:
        if self._watch.is_on and not self._is_aside:
            with self._unseen():
                self._state.begin()
                if not self._is_open or self._is_alone_around():
                    self._outside.begin(self._state.taken)
                    self._has_entered = True
            self._is_inside = True

    def _is_alone_around(self) -> bool:
        """Whether all code of a forward pass runs between the hooks of the guard. That is so if the model has no
        other hooks and its class does not define `__call__`."""
        kind, everywhere = type(self._model), nn.modules.module
        mine = (*self._model._forward_pre_hooks.values(), *self._model._forward_hooks.values())
        is_hooked = bool(everywhere._global_forward_pre_hooks or everywhere._global_forward_hooks)
        is_plain = kind.__call__ is nn.Module.__call__ and kind._call_impl is nn.Module._call_impl
        return is_plain and not is_hooked and all(isinstance(each, Hook) for each in mine)

    def _look_outside(self) -> None:
        """Restore state outside of the model, and note what had changed."""
        kept = self._outside.changed()
        if kept is not None:
            self._outside.restore()
            self._kept = self._kept or kept

    def _after(self, *_: Any) -> None:
        """Restore state outside of the model at once, before code of the loop can use it. After a forward pass without
        a backward pass, restore the model's attributes too."""
        if not self._is_inside:
            return
        self._is_inside = False
        with self._unseen():
            if not self._is_open or self._has_entered:
                self._look_outside()
            if not self._is_open and self._watch.is_on and self._state.changed():
                self._state.restore()

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Operations of the trainer itself are not part of the program."""
        trace = self._trace
        if trace is None:
            yield
            return
        was, trace.is_off = trace.is_off, True
        try:
            yield
        finally:
            trace.is_off = was


def _put(programs: dict[Hashable, Program], key: Hashable, program: Program) -> None:
    """Hold a program, and drop the oldest one if there are too many."""
    programs.pop(key, None)
    programs[key] = program
    if len(programs) > HELD:
        del programs[next(iter(programs))]
