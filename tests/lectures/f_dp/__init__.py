"""The items of one course (f-dp.md), in its order."""

from __future__ import annotations

from tests.lectures.f_dp.kernels import KERNELS
from tests.lectures.f_dp.limits import BEYOND, LIMITS, MECHANISMS
from tests.lectures.f_dp.tradeoffs import GAUSSIAN, TRADEOFFS
from tests.lectures.item import Item

ITEMS: tuple[Item, ...] = KERNELS + TRADEOFFS + GAUSSIAN + LIMITS + MECHANISMS + BEYOND
