"""The items of Differential Privacy Basics (docs/course/ucsb.md), in its order."""

from __future__ import annotations

from tests.lectures.item import Item
from tests.lectures.ucsb import basics, queries

ITEMS: tuple[Item, ...] = basics.ITEMS + queries.ITEMS
