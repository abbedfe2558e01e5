"""Chance that repeats: a test draws the same noise in every run, and another test draws other noise.

Many tests ask something of noisy answers, which holds but for a small probability. With fresh noise in every run, tens
of thousands of such probabilities add up, and some run fails that nothing is wrong with. What a test draws depends on
its name alone: it passes always, or fails always and can be looked into.

Replayed are the keys of the process's noise (`os.urandom`), generators of numpy without a seed, and the generators of
the process that `random`, numpy and torch keep. Forked children and other processes draw fresh noise.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
from collections.abc import Iterator
from hashlib import sha256, shake_256
from typing import Any

import numpy as np

from deniable.noise import entropy

SALT = os.environ.get("DENIABLE_CHANCE", "")
IS_REPLAYED = SALT != "fresh"
FRESH = ("tests/noise/test_entropy", "tests/test_chance")
"""Tests of where noise comes from have it from there."""


@contextlib.contextmanager
def replayed(name: str) -> Iterator[None]:
    """Everything drawn inside depends on this name, on DENIABLE_CHANCE and on what was drawn before, and on no more."""
    if not IS_REPLAYED or name.startswith(FRESH):
        yield
        return
    process, numbers = os.getpid(), itertools.count()
    fresh_bytes, fresh_generator = os.urandom, np.random.default_rng

    def key() -> bytes:
        return sha256(f"{SALT} {name} {next(numbers)}".encode()).digest()

    def urandom(size: int, /) -> bytes:
        return fresh_bytes(size) if os.getpid() != process else shake_256(key()).digest(size)

    def default_rng(seed: Any = None) -> np.random.Generator:
        return fresh_generator(int.from_bytes(key(), "little") if seed is None else seed)

    os.urandom, np.random.default_rng = urandom, default_rng
    entropy.current().forget()
    start = int.from_bytes(key()[:4], "little")
    random.seed(start)
    np.random.seed(start)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(start)
    try:
        yield
    finally:
        os.urandom, np.random.default_rng = fresh_bytes, fresh_generator
        entropy.current().forget()
