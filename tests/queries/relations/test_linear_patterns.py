"""Patterns that are taken are matched soon on any text, and alike with and without giving back."""

from __future__ import annotations

import random
import re
import time

import pytest

from deniable.queries.relations.linear_patterns import UnfitPattern, pattern
from deniable.tables.kinds import LONGEST


@pytest.mark.parametrize("text", ["(a|a)*b", "(a|ab)*c", "(a|a){50}b", "(a?a){50}b", "(x(ab)?a){9}", "(a(b|)){9}"])
def test_a_repeated_group_leaves_no_choice(text: str) -> None:
    """(a|a)*b took for ever on forty letters in Python, and (a|ab)*c found other matches on Spark than on DuckDB."""
    with pytest.raises(UnfitPattern):
        pattern(text)


@pytest.mark.parametrize(
    "text", ["(ab|cd)*e", "(a|b){3}c", "^(\\d{3}-)+$", "^[a-z]+(-[a-z]{2,3})?$", "(foo|bar)+", "(a|ab)c"]
)
def test_ordinary_patterns_are_taken(text: str) -> None:
    assert pattern(text)


def test_random_patterns_are_matched_soon_and_alike() -> None:
    """Independent answer: Python's possessive repetitions, which are those of Java, beside its usual ones."""
    chance, taken, found, began = random.Random(5), 0, 0, time.process_time()
    for _ in range(3000):
        try:
            made = pattern(drawn(chance, 2))
        except UnfitPattern:
            continue
        taken += 1
        possessive = re.compile(
            re.sub(r"\\x\{([0-9A-F]+)\}", spelled, made.text(gives_back=False)).replace("\\z", "\\Z")
        )
        for text in ("a" * LONGEST, "ab" * (LONGEST // 2)):
            made.python.search(text)
        for _ in range(4):
            text = "".join(chance.choices("abc", k=chance.randrange(12)))
            one, other = made.python.search(text), possessive.search(text)
            found += one is not None
            assert (one and one.span()) == (other and other.span()), (made.text(), text)
    assert taken > 200
    assert found > 200
    assert time.process_time() - began < 20  # one pattern that is tried in 2**50 ways would never end


def spelled(code: re.Match[str]) -> str:
    return f"\\U{int(code[1], 16):08x}"


def drawn(chance: random.Random, depth: int) -> str:
    parts = []
    for _ in range(chance.randrange(1, 4)):
        if depth and chance.random() < 0.4:
            part = "(" + "|".join(drawn(chance, depth - 1) for _ in range(chance.randrange(1, 3))) + ")"
        else:
            part = chance.choice(["a", "b", "c", "[ab]"])
        parts.append(part + chance.choice(["", "", "", "?", "*", "+", "{2}", "{0,3}", "{30}"]))
    return "".join(parts)
