"""People with many rows: a plan draws people, and all rows of one person count as one example.

**Why this protects a person.** A step draws each person with probability `rate`. The loss of a person is the mean of
the losses of their rows, so its gradient is the mean of the rows' gradients; it is clipped once, to the plan's norm.
With or without a person, however many rows they have, the sum of the clipped gradients differs by one clipped vector.
So the curve for people is the curve of a sampled Gaussian, as for rows (user-level DP: McMahan, Ramage, Talwar & Zhang
2018).

**Computed alone.** The rows of one person are one batch of the trainer, and the gradient of its mean loss is autograd's
own. Rows of one person may depend on each other in any way, and no other person is in the same forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import Tensor

from deniable import noise as chance
from deniable.errors import NOTHING, InvalidParameter, type_of
from deniable.learn.torch.guards import training_checks

if TYPE_CHECKING:
    from deniable.learn.epoch_batches import Places
    from deniable.learn.plans import Plan
    from deniable.learn.torch.batch_sampling import Records

ONE_EXAMPLE = "the plan's unit: the rows of a person are one example, which is computed alone"


def check_people(plan: Plan, people: Any, canaries: Any) -> None:
    """Raise unless ids are given exactly if the plan protects people."""
    if people is None and plan.unit.column is not None:
        rule = f"is needed, because the plan's unit is {plan.unit!r}"
        raise InvalidParameter("people", NOTHING, rule, "give Trainer(people=) the id of the person of each row")
    if people is not None and plan.unit.column is None:
        rule = "is for a plan whose unit is a person"
        raise InvalidParameter("people", NOTHING, rule, "write DPSGD(..., unit=Unit.person(column, rows=))")
    if people is not None and canaries is not None:
        raise InvalidParameter("canaries", NOTHING, "belong to no person, but this plan draws people", "leave them out")


@final
class PeopleRows:
    """The rows of a dataset by person. Has the methods of `Records`, with people in place of records."""

    def __init__(
        self, rows: Records, people: Any, most: int, share: tuple[int, int], entropy: chance.Entropy | None
    ) -> None:
        self._rows, self._most, self._entropy = rows, most, entropy
        self._places = _by_person(people, rows.count)
        self.count = len(self._places)
        rank, processes = share
        self.mine: Places = np.arange(rank, self.count, processes, dtype=np.int64)
        self._handed_out = 0
        """How many rows the last batch has."""

    def check_length(self) -> None:
        """Raises InvalidParameter if the number of rows has changed since the start of the run."""
        self._rows.check_length()

    def batch(self, places: Places, device: torch.device) -> Any:
        """The rows of one person, collated: at most as many as the unit allows, chosen anew each time."""
        (person,) = places
        mine = self._places[person]
        if len(mine) > self._most:
            mine = mine[np.sort(chance.permutation(len(mine), entropy=self._entropy)[: self._most])]
        self._handed_out = len(mine)
        return self._rows.batch(mine, device)

    def losses(self, losses: Any, count: int) -> Tensor:
        """The loss of the person: the mean of the losses of the rows, one for each."""
        return training_checks.check_losses(losses, self._handed_out).mean().unsqueeze(0)


def _by_person(people: Any, count: int) -> Sequence[Places]:
    """The places of each person's rows, people in the order of their first row. No id appears in an error."""
    if isinstance(people, Tensor | np.ndarray):
        people = people.tolist()
    if isinstance(people, str | bytes) or not isinstance(people, Collection):
        raise InvalidParameter("people", type_of(people), "must be a list or an array with one id for each row")
    if len(people) != count:
        rule = f"has {len(people)} ids, but the dataset has {count} rows"
        raise InvalidParameter("people", NOTHING, rule, "give the id of the person of each row")
    found: dict[Hashable, list[int]] = {}
    for place, person in enumerate(people):
        # NaN differs from itself: each such row would count as a person of its own.
        if person is None or not isinstance(person, Hashable) or person != person:
            rule = "has an id that is missing or cannot be compared"
            raise InvalidParameter("people", NOTHING, rule, "give every row the id of a person, a number or a text")
        found.setdefault(person, []).append(place)
    return [np.array(places, dtype=np.int64) for places in found.values()]
