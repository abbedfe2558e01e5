"""One backward pass for everything: norms of all per-example gradients, then their clipped sum.

Hooks see what goes into each layer (`calls`). A backward pass that stops at the layers' outputs makes no gradient of
any parameter. From both, `layers` has the norms in closed form, or `rerun` by running a module again; then the factors,
then the clipped sums, from the same tensors.

**Nothing of this is believed.** On the first batch, and whenever a call is seen that was not there before, the
gradients of three examples, and their lengths, are compared with what autograd says about their losses alone. A
parameter whose gradients differ (it is used by other means than its layer, its layer sees no examples, ...) is tried
from the next larger module, up to the whole model; where that fails as well, the examples cannot be told apart, and
training is refused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.learn.torch.gradients.batch_layout import Layout, Search
from deniable.learn.torch.gradients.broadcast_additions import additions, narrowed
from deniable.learn.torch.gradients.forward_calls import Key, Listener, ModuleCall, gradients, shown
from deniable.learn.torch.gradients.gradient_captures import Capture, Vectors, counted, is_quick
from deniable.learn.torch.gradients.layers import closed_form, outer_product, passed, spread_over, summed_to_last
from deniable.learn.torch.gradients.parameters import Trained, common_path, names_at, sources, trained_parameters
from deniable.learn.torch.gradients.per_example import Block, Gathered, PerExample, all_rows
from deniable.learn.torch.gradients.stacked_layers import IN_ORDER, Family, alike, put_together
from deniable.learn.torch.gradients.vmap_rerun import input_layouts, rerun
from deniable.learn.torch.guards.separation_trace import Trace, structure
from deniable.learn.torch.guards.single_example import check_alone
from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows, MixedExamples, Same

TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
"""How far a probed gradient may be from autograd's, relative to its length, by the coarsest precision in use."""

SCALE = 2.0**32
"""How much larger gradients are made than they are; see `per_example`. A power of two: nothing is rounded by it."""

AGAIN = (2, 16)
"""On the second batch, and when there were 16 times as many, one example is asked about again."""

Pulled = dict[Any, list[Tensor | None]]
"""Gradients at outputs, by the key of the call; by ("spread", key) where something was added to every example."""


@final
class Alone(Exception):
    """Gradients of this batch cannot be told apart; those of its examples one at a time can."""

    def __init__(self, why: str, *, is_lasting: bool) -> None:
        super().__init__(why)
        self.why, self.is_lasting = why, is_lasting


@final
class Unproved(Exception):
    """The forward pass was not followed, and is another one than those that were: it must be run again."""


@final
class Bookkeeping:
    """Per-example gradients of a model that stays as it is."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._modules = dict(model.named_modules())
        self.parameters = {each.name: each for each in trained_parameters(model, self._modules)}
        self._by_path: dict[str, list[tuple[str, Trained]]] = defaultdict(list)
        """Parameters by the modules whose calls use them, and their names as seen from there."""
        for each in self.parameters.values():
            for path in sources(each):
                self._by_path[path] += [(local, each) for local in names_at(each, path)]
        self.is_learning = True
        self._batches, self._next_look = 0, AGAIN[0]
        self._proved: set[tuple[Hashable, int]] = set()
        """Shapes of batches and graphs whose examples were proved to stay apart."""
        self._shapes: set[Hashable] = set()
        self._graphs: set[int] = set()
        """Graphs for which what was learnt was compared with autograd."""
        self._is_refused = False
        """Whether examples could not be told apart: a refusal holds, also for who catches it and goes on."""
        self.scale = 1.0
        """How much larger gradients are made than they are, in this model."""
        self._closed: set[str] = set()
        self._units: set[str] = set()
        self._layouts: dict[Key, list[Layout | None]] = {}
        self._fitting: dict[Key, tuple[int, list[tuple[int, ...]]]] = {}
        """For which outputs, of how many examples, the layouts were last seen to fit."""
        self._here: dict[str, dict[str, Trained]] = {}
        """By path: parameters whose gradients come from calls of it in closed form, all of them."""
        self._inputs: dict[Key, list[Layout | None]] = {}
        self._spread: dict[Key | str, list[Layout | None]] = {}
        """Of calls, and of parameters by name, that are added to every example. All three were seen to give the right
        gradients on the batch that taught them."""
        self.listener = Listener(model, self._wanted)

    def close(self) -> None:
        """Take all hooks off the model."""
        self.listener.close()

    def forget(self) -> None:
        """Drop what was seen of forward passes that no backward pass followed."""
        self.listener.taken()

    def listen(self) -> None:
        """Begin to hear forward passes, and forget those before."""
        self.forget()
        self.listener.paused = False

    def rest(self) -> None:
        """Hear nothing more until `listen`: inputs of layers that nobody asks for would pile up."""
        self.listener.paused = True

    def _wanted(self, path: str, kind: str) -> bool:
        if kind == "layer":
            return closed_form(self._modules[path]) is not None and (self.is_learning or path in self._closed)
        if kind == "heard":
            return self.is_learning or path in self._closed
        return self.is_learning or path in self._units

    # -- one batch -----------------------------------------------------------------------------------------------------

    def gradients(self, losses: Tensor, *, shapes: Hashable = None, trace: Trace | None = None) -> PerExample:
        """The per-example gradients behind these losses; the graph is used up.

        With the `shapes` of the batch, only where examples were proved to stay apart: by a `trace` of this forward
        pass, or by one of the same shapes and the same graph before.
        """
        if self._is_refused:
            rule = "this trainer refused the model, or a loss, and what it knew of them is half undone"
            raise InvalidOperation(f"{rule}; make a new trainer")
        calls, count = self.listener.taken(), int(losses.shape[0])
        self._batches += 1
        for call in calls:
            call.check_unchanged()
        if count == 1:
            return self._alone(losses)
        graph = 0 if shapes is None else structure(losses)
        if trace is not None:
            self._check_apart(losses, calls, trace.of_losses(losses, self.model), count)
        elif shapes is not None and (shapes, graph) not in self._proved:
            raise Unproved
        found = self._together_or_learned(losses, calls, count, graph)
        if trace is not None:
            self._check_layouts(calls, count)
            self._proved.add((shapes, graph))
            self._shapes.add(shapes)
        self._graphs.add(graph)
        return found

    def is_proved(self, shapes: Hashable) -> bool:
        """Whether a batch of these shapes was followed before."""
        return shapes in self._shapes

    def _check_apart(self, losses: Tensor, calls: list[ModuleCall], found: Domain, count: int) -> None:
        """Losses must be of one example each; where they are mixed for sure, and not only maybe, they are refused."""
        if found == ExampleRows(0, 1):
            return
        whole = [call for call in calls if call.path == "" and call.kind == "unit"]
        if all(isinstance(each, ExampleRows | Same) for call in calls for each in call.proved) or whole:
            edges = [edge for call in whole or calls for edge in call.edges]
            searches, _ = self._probed(losses, edges, gradients(losses.sum(), edges, keep=True), count)
            if any(search.mixed for search in searches):
                self._is_refused = True
                raise _mixed()
            for call in whole:
                with self.listener.quiet():
                    check_alone(self.model, call, [search.found for search in searches], count, TOLERANCE)
        why = found.why if isinstance(found, MixedExamples) else "losses that do not lie example by example"
        raise Alone(why, is_lasting=True)

    def _check_layouts(self, calls: list[ModuleCall], count: int) -> None:
        """Where the examples were taken to be is where they are, in this very batch."""
        for call in calls:
            if call.key in self._spread:
                known = all(isinstance(each, Same) for each in call.proved)
            else:
                checked = zip(call.proved, self._layouts[call.key], call.shapes, strict=True)
                known = all(layout is None or layout.is_of(each, shape, count) for each, layout, shape in checked)
            if not known:
                raise Alone(f"examples in another order at {shown(call.path)}", is_lasting=True)

    def _check_graph(
        self, losses: Tensor, calls: list[ModuleCall], asked: dict[Any, list[GradientEdge]], count: int
    ) -> None:
        """What was learnt must be right for a graph that is new, too: a parameter may be used in one more way."""
        edges = [edge for listed in asked.values() for edge in listed]
        grads = gradients(losses, edges, keep=True, times=self.scale)[::-1]
        pulled: Pulled = {key: [grads.pop() for _ in listed] for key, listed in asked.items()}
        probed = sorted({0, 1, count - 1})
        truth = _Truth(self, losses, probed, TOLERANCE[_coarsest(calls)])
        if truth.denies(set(self.parameters), self._gathered(calls, pulled, count, None), count):
            raise Alone("a parameter that is used in other ways than before", is_lasting=True)

    def _together_or_learned(self, losses: Tensor, calls: list[ModuleCall], count: int, graph: int) -> PerExample:
        if self.is_learning or not all(self._still_fits(call, count) for call in calls):
            return self._learned(losses, calls, count)
        spread = self._additions(losses, calls, set(self._spread))
        if set(spread) != set(self._spread) or any(len(spread[key]) != len(self._spread[key]) for key in spread):
            return self._learned(losses, calls, count)
        self._look_again(losses, calls, count)
        # Of what was added to every example, only the places where it was are asked about.
        asked: dict[Any, list[GradientEdge]] = {call.key: call.edges for call in calls if call.key not in self._spread}
        asked |= {("spread", key): listed for key, listed in spread.items()}
        if graph and graph not in self._graphs:
            self._check_graph(losses, calls, asked, count)
        # Where no gradient was when the layouts were learnt, one may come up now; then they are learnt again.
        unlearnt = [call for call in calls if call.key not in self._spread and None in self._layouts[call.key]]
        edges = [edge for listed in asked.values() for edge in listed]
        grads = gradients(losses, edges, keep=bool(unlearnt), times=self.scale)[::-1]
        pulled: Pulled = {key: [grads.pop() for _ in listed] for key, listed in asked.items()}
        for call in unlearnt:
            for grad, layout in zip(pulled[call.key], self._layouts[call.key], strict=True):
                if layout is None and _is_something(grad):
                    return self._learned(losses, calls, count)
        families: list[Family] = []
        gathered = self._gathered(calls, pulled, count, None, families)
        return PerExample(self.parameters, gathered, count, scale=self.scale, families=families)

    def _look_again(self, losses: Tensor, calls: list[ModuleCall], count: int) -> None:
        """Now and then: the loss of one example must still reach no other, however large the batch has become."""
        if self._batches < self._next_look:
            return
        self._next_look *= AGAIN[1]
        known = [
            (edge, layout)
            for call in calls
            for edge, layout in zip(call.edges, self._layouts[call.key], strict=True)
            if layout is not None
        ]
        example = self._batches % count
        found = gradients(losses[example], [edge for edge, _ in known], keep=True)
        for grad, (_, layout) in zip(found, known, strict=True):
            if grad is not None and bool(layout.touched(_numbers(grad), count).nonzero().ne(example).any()):
                self._is_refused = True
                raise _mixed()

    def _additions(
        self, losses: Tensor, calls: list[ModuleCall], wanted: set[Key | str] | None
    ) -> dict[Key | str, list[GradientEdge]]:
        """Where closed-form layers and bare parameters are added to something larger."""
        nodes: dict[Key | str, object] = {
            call.key: call.edges[0].node
            for call in calls
            if (wanted is None or call.key in wanted) and call.kind == "layer"
        }
        for name, each in self.parameters.items():
            if (wanted is None or name in wanted) and (each.unit is not None or each.is_spread):
                nodes[name] = get_gradient_edge(each.tensor).node
        if not nodes:
            return {}
        found = additions(losses, nodes.values())
        return {key: found[node] for key, node in nodes.items() if node in found}

    def _still_fits(self, call: ModuleCall, count: int) -> bool:
        """Whether what was learnt of a call is of outputs like these."""
        asked = (count, call.shapes)
        if self._fitting.get(call.key) == asked:
            return True
        known = self._layouts.get(call.key)
        if known is None or len(known) != len(call.shapes):
            return False
        for layout, shape in zip(known, call.shapes, strict=True):
            if layout is not None and not layout.fits(shape, count):
                return False
        self._fitting[call.key] = asked
        return True

    def _alone(self, losses: Tensor) -> PerExample:
        """One example: its gradient is the gradient."""
        edges = [get_gradient_edge(each.tensor) for each in self.parameters.values()]
        found = zip(self.parameters, gradients(losses.sum(), edges, keep=False), strict=True)
        gathered: Gathered = {
            name: {all_rows(grad): [Vectors(grad.to(counted(grad.dtype)).unsqueeze(0))]}
            for name, grad in found
            if grad is not None
        }
        return PerExample(self.parameters, gathered, 1)

    def _gathered(
        self,
        calls: list[ModuleCall],
        pulled: Pulled,
        count: int,
        names: set[str] | None,
        families: list[Family] | None = None,
    ) -> Gathered:
        """Captures of these parameters, or of all, from all calls; where `families` are asked for, layers alike are
        worked on together, and those of their weights are put there."""
        found: Gathered = defaultdict(lambda: defaultdict(list))
        alone = calls
        if families is not None:
            alone = self._by_families(calls, pulled, count, found, families)
        for call in alone:
            spread = call.key in self._spread
            grads = pulled["spread", call.key] if spread else pulled[call.key]
            if not any(grad is not None for grad in grads):
                continue
            layouts = self._spread[call.key] if spread else self._layouts[call.key]
            for name, rows, capture in self._captured(call, grads, layouts, count, names):
                found[name][rows].append(capture)
        for name, each in self.parameters.items():
            if each.is_spread and (names is None or name in names):
                for grad, layout in zip(pulled["spread", name], self._spread[name], strict=True):
                    if grad is not None and layout is not None:
                        values = narrowed(layout.split(grad, count), tuple(each.tensor.shape))
                        found[name][all_rows(each.tensor)].append(Vectors(values.to(counted(each.tensor.dtype))))
        return found

    def _by_families(
        self, calls: list[ModuleCall], pulled: Pulled, count: int, found: Gathered, families: list[Family]
    ) -> list[ModuleCall]:
        """Those of the calls that have no others like them; of the rest, the captures are put into `found`."""
        if is_quick(next(iter(self.parameters.values())).tensor):
            return calls
        in_order = [call for call in calls if call.kind == "layer" and self._layouts[call.key][0] in IN_ORDER]
        in_order = [call for call in in_order if pulled[call.key][0] is not None]
        done: set[Key] = set()
        for group in alike(in_order):
            done |= {call.key for call in group}
            grads = [grad for call in group for grad in pulled.pop(call.key) if grad is not None]
            captures, whole = put_together(group, grads, count)
            weights: dict[str, Capture] = {}
            for call, each in zip(group, captures, strict=True):
                closed = self._closed_at(call.path, None)
                for local, capture in each.items():
                    if local in closed:
                        found[closed[local].name][all_rows(closed[local].tensor)].append(capture)
                        if local == "weight":
                            weights[closed[local].name] = capture
            if whole is not None and len(weights) == len(group):
                families.append(Family(whole, weights))
        return [call for call in calls if call.key not in done]

    def _captured(
        self,
        call: ModuleCall,
        grads: list[Tensor | None],
        layouts: list[Layout | None],
        count: int,
        names: set[str] | None,
    ) -> Iterator[tuple[str, Block, Capture]]:
        if call.kind == "unit":
            here = [self.parameters[name] for name in (self.parameters if names is None else names)]
            wanted = {each.name_in(call.path): each for each in here if each.unit == call.path and not each.is_spread}
            if wanted:
                tensors = {local: each.tensor for local, each in wanted.items()}
                if call.key not in self._inputs:
                    self._inputs[call.key] = input_layouts(call, layouts, count)
                inputs = self._inputs[call.key]
                for local, capture in self._quietly(
                    lambda: rerun(call, tensors, grads, layouts, inputs, count)
                ).items():
                    yield wanted[local].name, all_rows(wanted[local].tensor), capture
            return
        closed = self._closed_at(call.path, names)
        if not closed or grads[0] is None or layouts[0] is None:
            return
        if call.key in self._spread:
            seen = spread_over(call.module, call.x, grads, layouts, call.shapes[0], count)
        else:
            seen = passed(call.module, call.x, grads[0], layouts[0], count)
        if call.kind == "heard":
            for local, (start, stop) in call.blocks.items():
                if local in closed:
                    whole = closed[local].tensor
                    shape = torch.Size((stop - start, *whole.shape[1:]))
                    made = outer_product(seen, shape) if whole.dim() == 2 else summed_to_last(seen)
                    yield closed[local].name, (start, stop), made
            return
        form = closed_form(call.module)
        assert form is not None
        for local, found_form in form(seen).items():
            if local in closed:
                yield closed[local].name, all_rows(closed[local].tensor), found_form

    def _closed_at(self, path: str, names: set[str] | None) -> dict[str, Trained]:
        """Which of these parameters, or of all, a module's calls give in closed form, by their names in it."""
        if names is None and path in self._here:
            return self._here[path]
        listed = self._by_path.get(path, ())
        found = {local: each for local, each in listed if each.unit is None and (names is None or each.name in names)}
        if names is None:
            self._here[path] = found
        return found

    def _quietly(self, work: Callable[[], dict[str, Vectors]]) -> dict[str, Vectors]:
        """Run a module again without the hooks hearing it."""
        with self.listener.quiet():
            return work()

    # -- the first batch -----------------------------------------------------------------------------------------------

    def _learned(self, losses: Tensor, calls: list[ModuleCall], count: int) -> PerExample:
        """As `gradients`, with everything compared with autograd for three examples."""
        edges = [edge for call in calls for edge in call.edges]
        spread = self._additions(losses, calls, None)
        more = [edge for listed in spread.values() for edge in listed]
        self._inputs.clear()
        self._fitting.clear()
        self._here.clear()
        own = [get_gradient_edge(each.tensor) for each in self.parameters.values()]
        (*plain,) = gradients(losses.sum(), [*edges, *more, *own], keep=True)
        if not all(each is None or bool(torch.isfinite(each).all()) for each in (losses.detach(), *plain)):
            raise Alone("an example is no number: 0 times NaN would hide the others from autograd", is_lasting=False)
        del plain[len(edges) + len(more) :]
        searches, probed = self._probed(losses, [*edges, *more], plain, count)
        grads = gradients(losses.sum(), [*edges, *more], keep=True, times=SCALE)
        self.scale = SCALE
        if not all(_is_times(SCALE, before, grad) for before, grad in zip(plain, grads, strict=True)):
            self.scale, grads = 1.0, plain
        place = 0
        pulled: Pulled = {}
        for call in calls:
            stop = place + len(call.edges)
            pulled[call.key] = grads[place:stop]
            self._layouts[call.key] = [search.found for search in searches[place:stop]]
            if call.path == "" and call.kind == "unit" and any(search.mixed for search in searches[place:stop]):
                self._is_refused = True
                raise _mixed()
            place = stop
        self._spread = {}
        for key, listed in spread.items():
            stop = place + len(listed)
            pulled["spread", key] = grads[place:stop]
            known = [search.found for search in searches[place:stop]]
            wanted = isinstance(key, str) or self._layouts[key][0] is None
            if wanted and all(layout is not None for layout in known):
                self._spread[key] = known
                if isinstance(key, str):
                    self.parameters[key].is_spread = True
            place = stop
        for call in calls:
            if call.path == "" and call.kind == "unit" and self.is_learning:
                with self.listener.quiet():
                    check_alone(self.model, call, self._layouts[call.key], count, TOLERANCE)
        gathered = self._settle(calls, pulled, _Truth(self, losses, probed, TOLERANCE[_coarsest(calls)]), count)
        self.is_learning = False
        self._closed = {path for each in self.parameters.values() if each.unit is None for path in sources(each)}
        self._units = {each.unit for each in self.parameters.values() if each.unit is not None and not each.is_spread}
        self.listener.listen_only_to(self._closed | self._units)
        return PerExample(self.parameters, gathered, count, scale=self.scale)

    def _settle(self, calls: list[ModuleCall], pulled: Pulled, truth: _Truth, count: int) -> Gathered:
        """Captures that agree with the truth, each parameter from the smallest module for which they do."""
        called = {call.path for call in calls if call.kind == "unit"}
        gathered: Gathered = {}
        open_names = set(self.parameters)
        while open_names:
            now: Gathered = {}
            for names in self._together(open_names):
                try:
                    now |= self._gathered(calls, pulled, count, names)
                except (RuntimeError, ValueError, IndexError, AssertionError, TypeError):
                    continue  # it cannot be worked out from there
            wrong = truth.denies(open_names, now, count)
            gathered |= {name: blocks for name, blocks in now.items() if name not in wrong}
            for name in wrong:
                self._climb(self.parameters[name], called)
            open_names = wrong
        return gathered

    def _together(self, names: set[str]) -> list[set[str]]:
        """Parameters that are worked out together, so that one that cannot be does not take others with it."""
        by_unit: dict[str | None, set[str]] = defaultdict(set)
        for name in names:
            each = self.parameters[name]
            by_unit[None if each.is_spread else each.unit].add(name)
        closed = by_unit.pop(None, set())
        return [*({name} for name in closed), *by_unit.values()] if closed else list(by_unit.values())

    def _climb(self, parameter: Trained, called: set[str]) -> None:
        """Try the next larger module for this parameter."""
        if parameter.is_spread:
            parameter.is_spread = False
            self._spread.pop(parameter.name, None)
            return
        if parameter.unit == "":
            rule = (
                "gradients of single examples cannot be told apart here: the loss or the forward pass mixes examples, "
                "draws random numbers inside a module that has to be run again, or uses the parameter outside of the "
                "model's forward pass"
            )
            remedy = (
                "keep examples apart, use layers where they can be (nn.Dropout beside an LSTM, not its dropout=), and "
                "the optimizer's weight_decay= for a penalty on weights"
            )
            self._is_refused = True
            raise InvalidParameter("model", parameter.name, rule, remedy)
        start = common_path([owner for owner, _ in parameter.owners]) if parameter.unit is None else parameter.unit
        if parameter.unit is None and len(parameter.owners) == 1 and closed_form(self._modules[start]) is None:
            parameter.unit = start
            if start in called:
                return
        while True:
            start = start.rpartition(".")[0]
            if start in called or start == "":
                parameter.unit = start
                return

    def _probed(
        self, losses: Tensor, edges: list[GradientEdge], plain: list[Tensor | None], count: int
    ) -> tuple[list[Search], list[int]]:
        """Where the examples are at each edge, and which were asked about.

        Three are, or as many as it takes to see a gradient wherever there is one.
        """
        blind = {at for at, grad in enumerate(plain) if _is_something(grad)}
        searches, probed, usual = [Search(count) for _ in edges], [], (0, 1, count - 1)
        for example in sorted(range(count), key=lambda e: (e not in usual, e)):
            if example not in usual and not blind:
                break
            for search, grad in zip(searches, gradients(losses[example], edges, keep=True), strict=True):
                search.see(example, grad)
            probed.append(example)
            blind = {at for at in blind if searches[at].is_blind}
        return searches, probed


@final
class _Truth:
    """What autograd says about single examples, one at a time so that little has to be held."""

    def __init__(self, book: Bookkeeping, losses: Tensor, probed: list[int], tolerance: float) -> None:
        self._book, self._losses, self._probed, self._tolerance = book, losses, probed, tolerance
        self._own = [get_gradient_edge(each.tensor) for each in book.parameters.values()]

    def denies(self, names: set[str], gathered: Gathered, count: int) -> set[str]:
        """Those of the names whose gathered gradients are not autograd's."""
        wrong: set[str] = set()
        for example in self._probed:
            found = gradients(self._losses[example], self._own, keep=True)
            expected = dict(zip(self._book.parameters, found, strict=True))
            length = math.sqrt(sum(float(grad.norm()) ** 2 for grad in found if grad is not None))
            for name in names - wrong:
                if not self._agrees(name, gathered, expected[name], example, length, count):
                    wrong.add(name)
        return wrong

    def _agrees(
        self, name: str, gathered: Gathered, expected: Tensor | None, example: int, length: float, count: int
    ) -> bool:
        try:
            found = {name: gathered[name]} if gathered.get(name) else {}
            mine = PerExample(self._book.parameters, found, count, scale=self._book.scale)
            squared = mine.squared(self._losses)[example] if found else None
            seen = mine.each(name, example, example + 1)
        except (RuntimeError, ValueError, IndexError):
            return False
        if expected is None or not _is_something(expected):
            return seen is None or float(seen.norm()) <= 1e-6
        own = float(expected.norm())
        allowed = self._tolerance * (own + 1e-3 * length)
        if seen is None or squared is None or float((seen[0] - expected).norm()) > allowed:
            return False
        # Lengths are worked out in other ways than gradients; they may be longer, and no number counts as infinite.
        return not float(squared) < max(own - allowed, 0.0) ** 2


def _coarsest(calls: list[ModuleCall]) -> torch.dtype:
    order = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    used = {dtype for call in calls for dtype in call.dtypes if dtype in order}
    return max(used or {torch.float32}, key=order.index)


def _mixed() -> InvalidParameter:
    rule = "losses[i] depends on the model's answers for other examples than i"
    return InvalidParameter("losses", NOTHING, rule, "give each example a loss of its own: reduction='none'")


def _is_times(times: float, before: Tensor | None, after: Tensor | None) -> bool:
    """Whether a backward pass is as linear as it should be. Half precision has no room for it, and a hook may clip."""
    if before is None or after is None:
        return before is after
    expected = before.double() * times
    return bool((after.double() - expected).norm() <= 1e-2 * expected.norm()) and bool(torch.isfinite(after).all())


def _numbers(grad: Tensor) -> Tensor:
    """0 where there is none: the gradient of one example at another one that is NaN is 0 times NaN."""
    return grad.nan_to_num(0.0, 0.0, 0.0)


def _is_something(grad: Tensor | None) -> bool:
    return grad is not None and bool(grad.ne(0).any())
