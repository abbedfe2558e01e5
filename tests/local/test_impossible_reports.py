"""Reports that a protocol can never make are refused, whoever sent them: they would be counted as if they could be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from deniable import local
from deniable.errors import InvalidParameter
from deniable.local.rappor import CohortReports
from deniable.local.surveys import survey_command
from tests.wording import worded

SECRET = 77_077  # a number that appears in no rule, and hardly ever in an address

SUBSETS = local.SubsetSelection(categories=20, epsilon=1.0)
HASHING = local.LocalHashing(categories=90, epsilon=1.0, buckets=5)
MANY = local.KaryRandomizedResponse(categories=300, epsilon=1.0)
BLOOM = local.BloomRappor(bits=12, hashes=2, cohorts=3, f=0.5, p=0.25, q=0.75)
WITHOUT_CELLS = local.HybridMean(low=0, high=1, epsilon=0.5)
WITH_CELLS = local.HybridMean(low=0, high=1, epsilon=2.0)
DUCHI = local.DuchiMean(low=0, high=1, epsilon=1.0)
PIECEWISE = local.PiecewiseMean(low=0, high=1, epsilon=1.0)
RAPPOR = local.Rappor(categories=12, f=0.5, p=0.25, q=0.75)


def rows(*sets: set[int], categories: int = 20) -> Any:
    return np.array([[i in one for i in range(categories)] for one in sets], dtype=bool)


def cohorts(bits: Any, numbers: Any) -> CohortReports:
    return CohortReports(bits, numbers)


IMPOSSIBLE = {
    "all bits set": (SUBSETS, np.full((100, 3), [255, 255, 15], dtype=np.uint8)),
    "no bit set": (SUBSETS, np.zeros((100, 3), dtype=np.uint8)),
    "one bit too many in one of two rows": (SUBSETS, rows(set(range(5)), set(range(6)))),
    "one bit too few": (SUBSETS, rows(set(range(4)))),
    "one row with one bit too few": (SUBSETS, rows(set(range(4)))[0]),
    "a bit beyond the categories": (SUBSETS, np.array([[15, 0, 16]], dtype=np.uint8)),
    "bits beyond the categories of RAPPOR": (RAPPOR, np.array([[0, 16]], dtype=np.uint8)),
    "bits as integers": (RAPPOR, np.zeros((2, 12), dtype=np.int64)),
    "bits as floats": (RAPPOR, np.zeros((2, 12))),
    "one byte too many": (RAPPOR, np.zeros((2, 3), dtype=np.uint8)),
    "a negative category that looks like 255": (MANY, np.array([-1], dtype=np.int8)),
    "a negative category that looks like 65535": (
        local.KaryRandomizedResponse(categories=70_000, epsilon=1.0),
        np.array([-1, 3], dtype=np.int16),
    ),
    "a category out of range": (MANY, [300]),
    "a category that is no whole number": (MANY, [1.0]),
    "a category that is missing": (MANY, [float("nan")]),
    "a bucket out of range": (HASHING, [[1, 2, 5]]),
    "a hash out of range": (HASHING, [[2**31 - 1, 2, 3]]),
    "a negative hash": (HASHING, np.array([[1, -2, 3]])),
    "a hash that is missing": (HASHING, [[1.0, float("nan"), 3.0]]),
    "two reports of three numbers in one row": (HASHING, [[1, 2, 3, 1, 2, 3]]),
    "a third bit": (DUCHI, [2]),
    "a bit that is missing": (DUCHI, [float("nan")]),
    "a cell beyond the last": (PIECEWISE, [PIECEWISE.outcomes]),
    "a cell before the first": (PIECEWISE, [-1]),
    "a cell between two": (PIECEWISE, [0.5]),
    "a cell where only bits are reported": (WITHOUT_CELLS, [0]),
    "one of many a cell where only bits are reported": (
        WITHOUT_CELLS,
        [WITHOUT_CELLS.outcomes - 1] * 9 + [WITHOUT_CELLS.outcomes - 3],
    ),
    "beyond the two bits": (WITHOUT_CELLS, [WITHOUT_CELLS.outcomes]),
    "beyond cells and bits": (WITH_CELLS, [WITH_CELLS.outcomes]),
    "neither yes nor no": (local.RandomizedResponse(epsilon=1.0), [2]),
    "a yes that is a number": (local.TwoCoinSurvey(truth=0.5, yes=0.5), [1.0]),
    "a yes that is missing": (local.WarnerSurvey(p=0.75), [None]),
    "a negative no": (local.NuRandomizedResponse(nu=0.5), np.array([-1], dtype=np.int8)),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_report_that_cannot_be_was_estimated_from(what: str) -> None:
    protocol, reports = IMPOSSIBLE[what]
    for call in (protocol.estimate, protocol.encode):
        with worded(InvalidParameter, parameter="reports"):
            call(reports)


@pytest.mark.parametrize(
    "reports",
    [
        cohorts(np.zeros((1, 2), dtype=np.uint8), [3]),
        cohorts(np.zeros((1, 2), dtype=np.uint8), [-1]),
        cohorts(np.zeros((1, 2), dtype=np.uint8), [0, 1]),
        cohorts(np.zeros((1, 2), dtype=np.uint8), [0.0]),
        cohorts(np.array([[0, 16]], dtype=np.uint8), [0]),
        cohorts(np.zeros((1, 3), dtype=np.uint8), [0]),
        cohorts(np.zeros((1, 12)), [0]),
        np.zeros((1, 2), dtype=np.uint8),
    ],
)
def test_a_bloom_filter_that_cannot_be_was_estimated_from(reports: Any) -> None:
    with pytest.raises(InvalidParameter, match="reports"):
        BLOOM.estimate(reports, candidates=["a", "b"])
    with pytest.raises(InvalidParameter, match="reports"):
        BLOOM.encode(reports)


def test_a_refusal_tells_nothing_of_the_reports() -> None:
    sent = [
        (MANY, [SECRET + 777]),
        (HASHING, [[SECRET, SECRET, SECRET]]),
        (PIECEWISE, [-SECRET]),
        (SUBSETS, np.full((SECRET, 3), 255, dtype=np.uint8)),
    ]
    for protocol, reports in sent:
        with pytest.raises(InvalidParameter) as refused:
            protocol.estimate(reports)
        assert str(SECRET) not in f"{refused.value} {refused.value.__dict__}"


def test_negative_answers_of_short_integers_are_refused() -> None:
    """As unsigned bytes they are below 300, and so they passed for categories."""
    for protocol in (MANY, local.OptimizedUnary(categories=300, epsilon=1.0)):
        with pytest.raises(InvalidParameter, match="answers"):
            protocol.randomize(np.array([-1], dtype=np.int8))
        assert len(protocol.randomize(np.array([1, 127], dtype=np.int8))) == 2


MADE = [
    SUBSETS,
    *(local.SubsetSelection(categories=9, epsilon=1.0, size=size) for size in range(1, 9)),
    local.SymmetricUnary(categories=11, epsilon=1.0),
    local.OptimizedUnary(categories=11, epsilon=1.0),
    RAPPOR,
    HASHING,
    MANY,
    WITHOUT_CELLS,
    WITH_CELLS,
    DUCHI,
    PIECEWISE,
    local.RandomizedResponse(epsilon=1.0),
    local.TwoCoinSurvey(truth=0.5, yes=0.5),
    local.WarnerSurvey(p=0.25),
]


@pytest.mark.parametrize("protocol", MADE, ids=repr)
def test_what_a_protocol_makes_is_never_refused(protocol: local.Protocol) -> None:
    reports = protocol.randomize([0, 1] * 1000)
    assert protocol.estimate(reports).people == 2000
    assert protocol.estimate(protocol.decode(protocol.encode(reports))).people == 2000
    assert protocol.estimate(protocol.randomize(1)).people == 1


@pytest.mark.parametrize(
    ("protocol", "texts"),
    [
        (MANY, ["300"]),
        (MANY, ["-1"]),
        (MANY, ["1_0"]),
        (MANY, ["007"]),
        (MANY, [" 7"]),
        (MANY, ["+7"]),
        (MANY, ["٧"]),
        (WITHOUT_CELLS, ["0"]),
        (DUCHI, ["2"]),
        (SUBSETS, ["ffff0f"]),
        (SUBSETS, ["1f 00 00"]),
        (SUBSETS, ["1F0000"]),
        (SUBSETS, ["0f0010"]),
        (HASHING, ["1 2 5"]),
        (HASHING, ["1 2 +3"]),
        (HASHING, ["1 2 03"]),
        (HASHING, ["1 2 3 1 2 3"]),
        (HASHING, ["1 2", "3 1 2 3"]),
        (BLOOM, ["3 0000"]),
        (BLOOM, ["+1 0000"]),
        (BLOOM, ["1 0010"]),
        (BLOOM, ["1 00", "1 000000"]),
    ],
    ids=repr,
)
def test_texts_that_encode_never_writes_are_not_read(protocol: local.Protocol, texts: list[str]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        protocol.decode(texts)
    assert refused.value.parameter == "reports"


@pytest.mark.parametrize("line", ["ffff0f", "000000", "1f0000,1f0000", "1f0001"])
def test_a_file_with_one_impossible_report_is_not_estimated_from(line: str, tmp_path, capsys) -> None:
    design = local.surveys.Design("town", SUBSETS, tuple(f"town {i}" for i in range(20))).to_dict()
    good, bad = (tmp_path / name for name in ("good.csv", "bad.csv"))
    good.write_text(f"# {json.dumps(design)}\nreport\n1f0000\n", encoding="utf-8")
    bad.write_text(f"# {json.dumps(design)}\nreport\n1f0000\n{line}\n", encoding="utf-8")
    survey_command(estimate=good, as_json=True)
    assert json.loads(capsys.readouterr().out)["people"] == 1
    with pytest.raises(ValueError, match="reports") as refused:
        survey_command(estimate=bad, as_json=True)
    assert line not in str(refused.value)


def test_a_design_with_one_category_twice_is_not_read() -> None:
    record = local.surveys.Design("town", MANY, ("a", "b")).to_dict()
    record["parameters"]["categories"] = 2
    assert local.surveys.Design.from_dict(record).categories == ("a", "b")
    record["categories"] = ["a", "a"]
    with pytest.raises(ValueError, match="categories"):
        local.surveys.Design.from_dict(record)
