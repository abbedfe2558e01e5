"""What modules remember in plain attributes: a forward pass must not carry one example over to another.

Buffers and parameters are for `forward_watch`. Attributes that a forward pass sets are put back when its batch is
over, so that every batch, or every example alone, begins with the same ones. A counter, which one forward pass moves
by 1, goes on from step to step, and not inside of one: there it would tell how many came before. Containers, arrays,
generators, plain objects, functions and classes that an attribute leads to are looked into. What is kept in classes
and globals is for `outside_state`. Objects without a `__dict__` are not looked into, and what is written through
`.data` into a large tensor is not seen.
"""

from __future__ import annotations

import operator
from typing import Any, Final, final

from torch import nn

from deniable.learn.torch.guards.forward_watch import parts_of
from deniable.learn.torch.guards.object_snapshots import PLAIN, Snapshot

INTERNAL: Final = frozenset(nn.Module().__dict__) | {"_flat_weights", "_flat_weight_refs"}
"""What torch keeps in every module, and in recurrent layers; parameters and buffers are for `forward_watch`."""

_trains: Final = operator.itemgetter("training")


@final
class ModuleState:
    """The attributes of a model's modules, as they were at the last `begin`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._tables: list[dict[str, Any]] = []
        self._training: list[bool] = []
        """Whether each module trains, or evaluates."""
        self._seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._snapshot: Snapshot | None = None
        self.taken = 0
        """How often something was not what it was, so that all of it was walked through."""

    def begin(self) -> None:
        """From now on."""
        if self._snapshot is None or not self._snapshot.is_still():
            self._snapshot = self._taken()
            self.taken += 1
        self._training = list(map(_trains, self._tables))
        self._snapshot.copy_numbers()

    def _taken(self) -> Snapshot:
        self._seen, self._tables, snapshot = [], [], Snapshot(functions=True)
        for module in parts_of(self._model):
            own = module.__dict__
            before = snapshot.add(own, module, left_alone=INTERNAL)
            self._seen.append((own, before))
            self._tables.append(own)
            for name, value in before.items():
                if name not in INTERNAL and type(value) not in PLAIN:
                    snapshot.look_into(name, value)
                elif name.endswith("_hooks"):
                    for hook in value.values():
                        snapshot.look_into(name, hook)
            snapshot.add(module._modules, left_alone=None)
            for held in (module._buffers, module._parameters):
                for name, tensor in snapshot.add(held, left_alone=None).items():
                    if tensor is not None and not snapshot.has_reached(tensor.__dict__):
                        for value in snapshot.add(tensor.__dict__, tensor).values():
                            snapshot.look_into(name, value)
        return snapshot

    def changed(self) -> list[tuple[str, bool]]:
        """Attributes that are others than at `begin`, and whether they are counters; what was written into a tensor is
        refused."""
        snapshot = self._snapshot
        is_other = list(map(_trains, self._tables)) != self._training
        if snapshot is None or (not is_other and not snapshot.has_numbers and snapshot.is_still()):
            return []
        snapshot.check_tensors()
        found = [("training", False)] if is_other else []
        return found + snapshot.changes() + [(kind, False) for kind in snapshot.changed_inside()]

    def counters(self) -> list[tuple[dict[str, Any], str, int]]:
        """All counters that moved: where they are, and where they stand."""
        moved = [(own, name) for own, before in self._seen for name in own if own[name] is not before.get(name)]
        return [(own, name, own[name]) for own, name in moved if name not in INTERNAL and type(own[name]) is int]

    def restore(self) -> None:
        """As it was at `begin`."""
        if self._snapshot is not None:
            self._snapshot.restore()
        for own, was in zip(self._tables, self._training, strict=True):
            own["training"] = was
