"""Plain attributes of modules: a forward pass must not carry information from one example to another in them.

Attributes that a forward pass sets are restored after its batch, so that every batch, or every single example, starts
from the same state. A counter, which a forward pass changes by 1, advances from step to step but not within a step,
where it would reveal the number of earlier batches. Containers, arrays, generators, plain objects, functions and
classes that are reachable from an attribute are compared as well. Buffers and parameters that a forward pass adds
are removed; `forward_watch` covers the others, `outside_state` classes and globals. Not detected: objects without a
`__dict__` or slots, and writes through `.data` into large tensors.
"""

from __future__ import annotations

import operator
from typing import Any, Final, final

from torch import nn

from deniable.learn.torch.guards.forward_watch import parts_of
from deniable.learn.torch.guards.object_snapshots import PLAIN, Snapshot

INTERNAL: Final = frozenset(nn.Module().__dict__) | {"_flat_weights", "_flat_weight_refs"}
"""Attributes that torch itself has in every module, and in recurrent layers."""

_trains: Final = operator.itemgetter("training")


@final
class ModuleState:
    """The attributes of a model's modules, as they were at the last `begin`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._tables: list[dict[str, Any]] = []
        self._training: list[bool] = []
        """The training flag of each module."""
        self._kinds: list[tuple[nn.Module, type]] = []
        """Each module with its class, which code may replace."""
        self._seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._holders: list[tuple[dict[str, Any], dict[Any, Any]]] = []
        """The buffers and the parameters of each module, now and before. `forward_watch` watches those that were there.
        """
        self._snapshot: Snapshot | None = None
        self.taken = 0
        """How many snapshots were taken: more than one only if something changed between batches."""

    def begin(self) -> None:
        """Record the current state."""
        if self._snapshot is None or not self._is_still(self._snapshot):
            self._snapshot = self._taken()
            self.taken += 1
        self._training = list(map(_trains, self._tables))
        self._snapshot.copy_numbers()

    def _is_still(self, snapshot: Snapshot) -> bool:
        return snapshot.is_still() and all(type(module) is kind for module, kind in self._kinds)

    def _taken(self) -> Snapshot:
        self._seen, self._tables, self._kinds, self._holders = [], [], [], []
        snapshot = Snapshot(functions=True)
        for module in parts_of(self._model):
            self._kinds.append((module, type(module)))
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
            snapshot.add(module._modules)
            for held in (module._buffers, module._parameters):
                there = snapshot.add(held, left_alone=None)
                self._holders.append((held, there))
                for name, tensor in there.items():
                    if tensor is not None and not snapshot.has_reached(tensor.__dict__):
                        for value in snapshot.add(tensor.__dict__, tensor).values():
                            snapshot.look_into(name, value)
        return snapshot

    def changed(self) -> list[tuple[str, bool]]:
        """Attributes that changed since `begin`, and whether they are counters. Raises if a tensor was overwritten."""
        snapshot = self._snapshot
        found = [("training", False)] if list(map(_trains, self._tables)) != self._training else []
        if snapshot is None or (not found and not snapshot.has_numbers and self._is_still(snapshot)):
            return []
        snapshot.check_tensors()
        found += [("__class__", False) for module, kind in self._kinds if type(module) is not kind]
        found += [(name, False) for _, _, name in self._added()]
        return found + snapshot.changes() + [(kind, False) for kind in snapshot.changed_inside()]

    def _added(self) -> list[tuple[dict[str, Any], dict[Any, Any], str]]:
        """Buffers and parameters that were not there before, or were None."""
        return [
            (held, before, name)
            for held, before in self._holders
            for name, each in held.items()
            if each is not None and before.get(name) is None
        ]

    def counters(self) -> list[tuple[dict[str, Any], str, int]]:
        """(table, name, current value) of all counters that changed."""
        moved = [(own, name) for own, before in self._seen for name in own if own[name] is not before.get(name)]
        return [(own, name, own[name]) for own, name in moved if name not in INTERNAL and type(own[name]) is int]

    def restore(self) -> None:
        """Restore the state of the last `begin`."""
        if self._snapshot is not None:
            self._snapshot.restore()
        for held, before, name in self._added():
            if name in before:
                held[name] = None
            else:
                del held[name]
        for own, was in zip(self._tables, self._training, strict=True):
            own["training"] = was
        for module, kind in self._kinds:
            if type(module) is not kind:
                module.__class__ = kind
