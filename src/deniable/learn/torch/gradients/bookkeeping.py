"""Per-example gradients from one backward pass: the norms of all examples, then the clipped sum.

**The task.** DP-SGD needs Σ_i min(1, C/‖g_i‖)·g_i, where g_i is the gradient of example i's loss with respect to all
parameters. Autograd returns Σ_i g_i only, and B backward passes, or B copies of every gradient, are too expensive.

**The idea** (ghost clipping and book-keeping; Bu, Wang, Zha & Karypis 2023). Take a linear layer y = W x. Example i
contributes G_i = Σ_t g_it x_itᵀ to the gradient of W, where t runs over its places (tokens, pixels), x_it is the input
and g_it the gradient of the loss at the output. Inputs come from forward hooks (`forward_calls`). Output gradients come
from one backward pass that stops at the layers' outputs and computes no gradient of a parameter. From the pair (x, g)
a *capture* (`gradient_captures`) computes ‖G_i‖² and Σ_i c_i G_i, mostly without forming any G_i.

**One batch** (`Bookkeeping.gradients`), in this order:

1. Take the records of the forward pass: one `ModuleCall` for each call of a module.
2. Compute the gradients at the outputs of these calls (`pulled`, by the key of the call).
3. Find the examples in each tensor. A `Layout` says along which axis they lie.
4. Make captures (`_gathered`). A parameter has one of three sources:
       closed form   its layer has a formula in `layers` (`Trained.unit` is None)
       rerun         the module `Trained.unit` is run again for each example with vmap (`vmap_rerun`)
       spread        it is added to every example, like a position embedding (`broadcast_additions`)
5. Return them as `PerExample`, which has norms and weighted sums. The caller chooses the weights c_i.

**Learning.** Layouts and sources are learned from the first batch (`_learned`), and again from each batch whose calls
differ from the known ones. For three examples, the gradients and norms of each parameter are compared with autograd's
(`autograd_comparison`). If they differ (the parameter is also used outside its layer, or its layer sees no examples),
the next larger module becomes the source (`_climb`), up to the whole model. If that fails too, examples cannot be
separated, and training is refused. Later batches only check that shapes, calls and graphs are known.

**Proof.** Three examples are evidence, not a proof. With a `proof`, a batch is accepted only if it shows that each loss
depends on its own example alone, and if the layouts agree with it. Otherwise `Alone` asks the caller to process the
examples one at a time, where the question does not arise. Without a proof, the caller assumes that losses are separate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter
from deniable.learn.torch.gradients.autograd_comparison import (
    TOLERANCE,
    AutogradComparison,
    has_nonzero,
    is_multiple,
    tolerance_of,
)
from deniable.learn.torch.gradients.batch_layout import Layout, Search
from deniable.learn.torch.gradients.broadcast_additions import additions, narrowed
from deniable.learn.torch.gradients.forward_calls import Key, Listener, ModuleCall, gradients, shown
from deniable.learn.torch.gradients.gradient_captures import Capture, Vectors, counted, is_quick
from deniable.learn.torch.gradients.layers import closed_form, outer_product, passed, spread_over, summed_to_last
from deniable.learn.torch.gradients.parameters import Trained, common_path, names_at, sources, trained_parameters
from deniable.learn.torch.gradients.per_example import Block, Gathered, PerExample, all_rows
from deniable.learn.torch.gradients.reduced_norms import ReducedNorms
from deniable.learn.torch.gradients.stacked_layers import IN_ORDER, Family, alike, put_together, too_large
from deniable.learn.torch.gradients.vmap_rerun import input_layouts, rerun
from deniable.learn.torch.guards.backward_graphs import structure
from deniable.learn.torch.guards.single_example import check_alone
from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows, MixedExamples, Same

SCALE = 2.0**32
"""The backward pass enlarges gradients by this factor against underflow; see `per_example`. Exact: a power of two."""

AGAIN = (2, 16)
"""One example is probed again at batch 2, and then each time the number of batches has grown 16-fold."""

Pulled = dict[Any, list[Tensor | None]]
"""Gradients at the outputs of calls, by the key of the call; by ("spread", key) where a value was added to all
examples."""


@final
class Alone(Exception):
    """The examples of this batch cannot be separated: process them one at a time, from now on if `is_lasting`."""

    def __init__(self, why: str, *, is_lasting: bool) -> None:
        super().__init__(why)
        self.why, self.is_lasting = why, is_lasting


class Proof(Protocol):
    """A proof about a forward pass: a `Trace`, or a `ProgramComparison` with a trace."""

    def of_losses(self, losses: Tensor, model: nn.Module) -> Domain: ...


@final
class Bookkeeping:
    """Per-example gradients of an unmodified model. It has hooks on the model until `close`."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._modules = dict(model.named_modules())
        self.parameters = {each.name: each for each in trained_parameters(model, self._modules)}
        self._by_path: dict[str, list[tuple[str, Trained]]] = defaultdict(list)
        """Module path -> (name inside that module, parameter) for the parameters that calls of the module use."""
        for each in self.parameters.values():
            for path in sources(each):
                self._by_path[path] += [(local, each) for local in names_at(each, path)]
        self.is_learning = True
        self._batches, self._next_look = 0, AGAIN[0]
        self._graphs: set[int] = set()
        """Graphs for which the learned layouts and sources were compared with autograd."""
        self._has_proof = False
        """Whether the current batch was proved separate."""
        self._is_refused = False
        """A refusal is final, even if the caller catches the error and continues."""
        self.scale = 1.0
        """SCALE, or 1 if this model's backward pass is not linear at that scale."""
        self._closed: set[str] = set()
        """Paths of modules whose calls are needed for closed forms."""
        self._units: set[str] = set()
        """Paths of modules that are run again."""
        self._layouts: dict[Key, list[Layout | None]] = {}
        """Call -> layout of each output. None where no gradient arrived."""
        self._fitting: dict[Key, tuple[int, list[tuple[int, ...]]]] = {}
        """Call -> (batch size, output shapes) that its layouts fitted last: a cache of `_still_fits`."""
        self._here: dict[str, dict[str, Trained]] = {}
        """A cache of `_closed_at` for all parameters."""
        self._inputs: dict[Key, list[Layout | None]] = {}
        """Call of a module that is run again -> layout of each of its flattened inputs."""
        self._spread: dict[Key | str, list[Layout | None]] = {}
        """Call, or name of a parameter, whose value is added to every example -> layout at each such addition."""
        self.listener = Listener(model, self._wanted)

    def close(self) -> None:
        """Take all hooks off the model."""
        self.listener.close()

    def forget(self) -> None:
        """Drop the records of forward passes that no backward pass followed."""
        self.listener.forget()

    def listen(self) -> None:
        """Start recording forward passes. Drops earlier records."""
        self.forget()
        self.listener.paused = False

    def rest(self) -> None:
        """Stop recording until `listen`, so that the inputs of layers do not accumulate unused."""
        self.listener.paused = True

    def _wanted(self, path: str, kind: str) -> bool:
        if kind == "layer":
            return closed_form(self._modules[path]) is not None and (self.is_learning or path in self._closed)
        if kind == "projection":
            return self.is_learning or path in self._closed
        return self.is_learning or path in self._units

    # -- one batch -----------------------------------------------------------------------------------------------------

    def gradients(self, losses: Tensor, *, proof: Proof | None = None) -> PerExample:
        """The per-example gradients of these losses, one loss for each example. Frees the autograd graph.

        `proof` shows which losses of this forward pass are separate. Raises `Alone` if examples are not separate, and
        `InvalidParameter` if the model or the loss certainly mixes examples, before the first batch was accepted.
        """
        if self._is_refused:
            rule = "this trainer refused the model or a loss, and its records of them are incomplete"
            raise InvalidOperation(f"{rule}; make a new trainer")
        calls, count = self.listener.taken(), int(losses.shape[0])
        self._batches += 1
        if count == 1:
            return self._alone(losses)
        graph, self._has_proof = structure(losses), proof is not None
        if proof is not None:
            self._check_apart(proof.of_losses(losses, self.model))
        found = self._together_or_learned(losses, calls, count, graph)
        if proof is not None:
            self._check_layouts(calls, count)
        self._graphs.add(graph)
        return found

    def _check_apart(self, found: Domain) -> None:
        """Return if the proof shows that the losses are separate. Otherwise raise: an error that refuses the model if
        the losses combine examples, or `Alone`, so that examples are computed one by one. The choice depends on the
        operations, not on the data, because an error is an output as well.
        """
        if found == ExampleRows(0, 1):
            return
        if isinstance(found, MixedExamples) and found.is_combined:
            raise self._refused(_mixed(found.why))
        why = found.why if isinstance(found, MixedExamples) else "losses that do not lie example by example"
        raise Alone(why, is_lasting=True)

    def _check_layouts(self, calls: list[ModuleCall], count: int) -> None:
        """The learned layouts must agree with the trace of this batch."""
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
        """Compare with autograd for a graph that is new: it may use a parameter in one more way."""
        edges = [edge for listed in asked.values() for edge in listed]
        grads = gradients(losses, edges, keep=True, times=self.scale)[::-1]
        pulled: Pulled = {key: [grads.pop() for _ in listed] for key, listed in asked.items()}
        probed = sorted({0, 1, count - 1})
        truth = AutogradComparison(self.parameters, self.scale, losses, probed, tolerance_of(calls))
        if truth.denies(set(self.parameters), self._gathered(calls, pulled, count, None), count):
            raise Alone("a parameter that is used in other ways than before", is_lasting=True)

    def _together_or_learned(self, losses: Tensor, calls: list[ModuleCall], count: int, graph: int) -> PerExample:
        if self.is_learning or not all(self._still_fits(call, count) for call in calls):
            return self._learned(losses, calls, count)
        asked = self._asked(losses, calls)
        if asked is None:
            return self._learned(losses, calls, count)
        self._look_again(losses, calls, count)
        if graph not in self._graphs:
            self._check_graph(losses, calls, asked, count)
        # An output that had no gradient on the learning batch may have one now; then layouts are learned again.
        unlearnt = [call for call in calls if call.key not in self._spread and None in self._layouts[call.key]]
        reduced = ReducedNorms([call for call in too_large(calls) if call.key in asked], asked, self._layouts, count)
        edges = [edge for listed in asked.values() for edge in listed]
        with reduced.during():
            grads = gradients(losses, edges, keep=bool(unlearnt), times=self.scale)[::-1]
        pulled: Pulled = {key: [grads.pop() for _ in listed] for key, listed in asked.items()}
        for call in unlearnt:
            for grad, layout in zip(pulled[call.key], self._layouts[call.key], strict=True):
                if layout is None and has_nonzero(grad):
                    return self._learned(losses, calls, count)
        families: list[Family] = []
        gathered = self._gathered(
            [each for each in calls if each.key not in reduced.keys], pulled, count, None, families
        )
        for path, local, capture in reduced.captures:
            trained = self._closed_at(path, None).get(local)
            if trained is not None:
                gathered[trained.name][all_rows(trained.tensor)].append(capture)
        return PerExample(self.parameters, gathered, count, scale=self.scale, families=families)

    def _asked(self, losses: Tensor, calls: list[ModuleCall]) -> dict[Any, list[GradientEdge]] | None:
        """The edges at which captures need gradients, by their keys in `Pulled`: for a value that is added to every
        example, at the additions. None if the edges differ from the known ones."""
        spread = self._additions(losses, calls, set(self._spread))
        if set(spread) != set(self._spread) or any(len(spread[key]) != len(self._spread[key]) for key in spread):
            return None
        asked: dict[Any, list[GradientEdge]] = {call.key: call.edges for call in calls if call.key not in self._spread}
        return asked | {("spread", key): listed for key, listed in spread.items()}

    def fixed(self, losses: Tensor) -> tuple[list[ModuleCall], Gathered]:
        """The recorded calls and their captures, if nothing has to be learned or run again for them; else `Alone`."""
        calls, count = self.listener.taken(), int(losses.shape[0])
        is_known = structure(losses) in self._graphs and all(self._still_fits(call, count) for call in calls)
        asked = self._asked(losses, calls) if is_known and not self.is_learning and not self._units else None
        if asked is None:
            raise Alone("a graph that was not compared with autograd", is_lasting=False)
        edges = [edge for listed in asked.values() for edge in listed]
        grads = gradients(losses, edges, keep=False, times=self.scale)[::-1]
        pulled: Pulled = {key: [grads.pop() for _ in listed] for key, listed in asked.items()}
        for call in calls:
            at_edges = zip(pulled.get(call.key, ()), self._layouts[call.key], strict=False)
            if any(layout is None and grad is not None for grad, layout in at_edges):
                raise Alone("a layer whose examples were not found", is_lasting=False)
        return calls, self._gathered(calls, pulled, count, None)

    def layouts_of(self, call: ModuleCall) -> list[Layout | None] | None:
        """Where the examples lie in each output of a call; None if its output is added to every example."""
        return None if call.key in self._spread else self._layouts[call.key]

    def _look_again(self, losses: Tensor, calls: list[ModuleCall], count: int) -> None:
        """At growing intervals, check for one example that its loss has zero gradient at all other examples."""
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
            # Another example that is NaN gives 0 · NaN here, which is not evidence of mixing: count it as 0.
            if grad is not None and bool(layout.touched(grad.nan_to_num(0, 0, 0), count).nonzero().ne(example).any()):
                raise self._refused(_mixed())

    def _additions(
        self, losses: Tensor, calls: list[ModuleCall], wanted: set[Key | str] | None
    ) -> dict[Key | str, list[GradientEdge]]:
        """Call or parameter -> the additions that broadcast its value over the examples (`broadcast_additions`)."""
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
        """Whether the layouts learned for this call fit the shapes of its outputs now."""
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
        """A batch of one example: autograd's gradient is the per-example gradient."""
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
        """Captures of the parameters in `names` (None: all) from all calls. With `families`, equal layers are computed
        together, and the list receives their weights."""
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
        """Add the captures of groups of equal layers to `found`. Returns the remaining calls."""
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
        """(parameter, its rows, capture) for each parameter in `names` that this call is a source of."""
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
        if call.kind == "projection":
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
        """Name inside the module -> parameter, for those in `names` (None: all) whose closed form is at this module."""
        if names is None and path in self._here:
            return self._here[path]
        listed = self._by_path.get(path, ())
        found = {local: each for local, each in listed if each.unit is None and (names is None or each.name in names)}
        if names is None:
            self._here[path] = found
        return found

    def _quietly(self, work: Callable[[], dict[str, Vectors]]) -> dict[str, Vectors]:
        """Run a module again without recording it."""
        with self.listener.quiet():
            return work()

    # -- learning ------------------------------------------------------------------------------------------------------

    def _learned(self, losses: Tensor, calls: list[ModuleCall], count: int) -> PerExample:
        """The same as `gradients`, after learning layouts and sources anew and comparing them with autograd."""
        spread = self._additions(losses, calls, None)
        edges = [edge for call in calls for edge in call.edges]
        edges += [edge for listed in spread.values() for edge in listed]
        self._inputs.clear()
        self._fitting.clear()
        self._here.clear()
        unscaled = self._finite_gradients(losses, edges)
        searches, probed = self._probed(losses, edges, unscaled, count)
        grads = gradients(losses.sum(), edges, keep=True, times=SCALE)
        self.scale = SCALE
        if not all(is_multiple(SCALE, before, grad) for before, grad in zip(unscaled, grads, strict=True)):
            self.scale, grads = 1.0, unscaled
        pulled = self._learn_layouts(calls, spread, grads, searches)
        coarse = tolerance_of(calls)  # a model may convert what it computed in half precision
        for call in calls:
            if call.is_whole_model and self.is_learning and not self._has_proof:
                with self.listener.quiet():
                    check_alone(self.model, call, self._layouts[call.key], count, dict.fromkeys(TOLERANCE, coarse))
        truth = AutogradComparison(self.parameters, self.scale, losses, probed, coarse)
        gathered = self._settle(calls, pulled, truth, count)
        self.is_learning = False
        self._closed = {path for each in self.parameters.values() if each.unit is None for path in sources(each)}
        self._units = {each.unit for each in self.parameters.values() if each.unit is not None and not each.is_spread}
        self.listener.listen_only_to(self._closed | self._units)
        return PerExample(self.parameters, gathered, count, scale=self.scale)

    def _finite_gradients(self, losses: Tensor, edges: list[GradientEdge]) -> list[Tensor | None]:
        """The gradients of the summed losses at these edges. Raises `Alone` if a loss or a gradient is not finite."""
        own = [get_gradient_edge(each.tensor) for each in self.parameters.values()]
        found = gradients(losses.sum(), [*edges, *own], keep=True)
        if not all(each is None or bool(torch.isfinite(each).all()) for each in (losses.detach(), *found)):
            raise Alone("an example is not finite, and 0 times NaN would hide the others", is_lasting=False)
        return found[: len(edges)]

    def _learn_layouts(
        self,
        calls: list[ModuleCall],
        spread: Mapping[Key | str, Sequence[GradientEdge]],
        grads: list[Tensor | None],
        searches: list[Search],
    ) -> Pulled:
        """Set `_layouts` and `_spread` from the searches, which have the order of the edges of `calls`, then of
        `spread`. Returns the gradients by call."""
        pulled: Pulled = {}
        at_edges = zip(grads, searches, strict=True)
        for call in calls:
            here = list(islice(at_edges, len(call.edges)))
            pulled[call.key] = [grad for grad, _ in here]
            self._layouts[call.key] = [search.found for _, search in here]
            if call.is_whole_model and any(search.mixed for _, search in here):
                raise self._refused(_mixed())
        self._spread = {}
        for key, listed in spread.items():
            here = list(islice(at_edges, len(listed)))
            pulled["spread", key] = [grad for grad, _ in here]
            known = [search.found for _, search in here]
            wanted = isinstance(key, str) or self._layouts[key][0] is None
            if wanted and all(layout is not None for layout in known):
                self._spread[key] = known
                if isinstance(key, str):
                    self.parameters[key].is_spread = True
        return pulled

    def _settle(self, calls: list[ModuleCall], pulled: Pulled, truth: AutogradComparison, count: int) -> Gathered:
        """Per-example gradients that agree with autograd, each from the smallest module whose captures agree."""
        called = {call.path for call in calls if call.kind == "unit"}
        gathered: Gathered = {}
        open_names = set(self.parameters)
        while open_names:
            now: Gathered = {}
            for names in self._together(open_names):
                try:
                    now |= self._gathered(calls, pulled, count, names)
                except (RuntimeError, ValueError, IndexError, AssertionError, TypeError):
                    continue  # this source cannot compute them; the comparison below moves on to the next
            wrong = truth.denies(open_names, now, count)
            gathered |= {name: blocks for name, blocks in now.items() if name not in wrong}
            for name in wrong:
                self._climb(self.parameters[name], called)
            open_names = wrong
        return gathered

    def _together(self, names: set[str]) -> list[set[str]]:
        """Groups of parameters to compute together, so that a failure of one source affects only its own group."""
        by_unit: dict[str | None, set[str]] = defaultdict(set)
        for name in names:
            each = self.parameters[name]
            by_unit[None if each.is_spread else each.unit].add(name)
        closed = by_unit.pop(None, set())
        return [*({name} for name in closed), *by_unit.values()] if closed else list(by_unit.values())

    def _climb(self, parameter: Trained, called: set[str]) -> None:
        """Make the next larger module the source of this parameter. Refuse the model if there is none."""
        if parameter.is_spread:
            parameter.is_spread = False
            self._spread.pop(parameter.name, None)
            return
        if parameter.unit == "":
            rule = (
                "its per-sample gradients cannot be separated: the loss or the forward pass mixes examples, "
                "draws random numbers inside a module that has to be run again, or uses the parameter outside of the "
                "model's forward pass"
            )
            remedy = (
                "keep examples apart, use layers that keep them apart (nn.Dropout beside an LSTM, not its dropout=), "
                "and the optimizer's weight_decay= for a penalty on weights"
            )
            raise self._refused(InvalidParameter("model", parameter.name, rule, remedy))
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

    def _refused(self, error: InvalidParameter) -> Exception:
        """The error on the first batch. Later, a refusal would reveal something about the data: `Alone`."""
        if self._graphs:
            return Alone("examples that turned out to be mixed", is_lasting=True)
        self._is_refused = True
        return error

    def _probed(
        self, losses: Tensor, edges: list[GradientEdge], summed: list[Tensor | None], count: int
    ) -> tuple[list[Search], list[int]]:
        """The search for the examples at each edge, and the numbers of the probed examples.

        Probes three examples, then more until each edge with a nonzero gradient in `summed` had one from some example.
        """
        blind = {at for at, grad in enumerate(summed) if has_nonzero(grad)}
        searches, probed, usual = [Search(count) for _ in edges], [], (0, 1, count - 1)
        for example in sorted(range(count), key=lambda e: (e not in usual, e)):
            if example not in usual and not blind:
                break
            for search, grad in zip(searches, gradients(losses[example], edges, keep=True), strict=True):
                search.see(example, grad)
            probed.append(example)
            blind = {at for at in blind if searches[at].is_blind}
        return searches, probed


def _mixed(why: str | None = None) -> InvalidParameter:
    rule = "losses[i] depends on other examples of the batch than i"
    rule = rule if why is None else f"{rule}, because of {why}"
    return InvalidParameter("losses", NOTHING, rule, "give each example a loss of its own: reduction='none'")
