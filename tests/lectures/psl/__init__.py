"""The items of Differential Privacy for Machine Learning (docs/course/psl.md), in its order."""

from __future__ import annotations

from itertools import chain

from tests.lectures.item import Item
from tests.lectures.psl import alternatives, approximate, continuous, definition, discrete, introduction

CHAPTERS = (introduction, definition, discrete, continuous, approximate, alternatives)

ITEMS: tuple[Item, ...] = tuple(chain.from_iterable(chapter.ITEMS for chapter in CHAPTERS))
