"""Bad parameters are refused with the parameter's name; bad answers with the public rule, and nothing of the answers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from deniable import local
from deniable.errors import InvalidParameter
from tests.table import every_row
from tests.wording import worded


class Nameless:
    """Something that is nothing else, and prints the same in every process."""

    def __repr__(self) -> str:
        return "Nameless()"


BAD_EPSILONS = [-1, 0, -0.0, 1e-7, 51, 1e308, math.nan, math.inf, -math.inf, "1", True, None, [1.0], 1j]
BY_EPSILON = [
    lambda e: local.RandomizedResponse(epsilon=e),
    lambda e: local.NuRandomizedResponse(epsilon=e),
    lambda e: local.KaryRandomizedResponse(categories=3, epsilon=e),
    lambda e: local.SymmetricUnary(categories=3, epsilon=e),
    lambda e: local.OptimizedUnary(categories=3, epsilon=e),
    lambda e: local.LocalHashing(categories=3, epsilon=e),
    lambda e: local.SubsetSelection(categories=3, epsilon=e),
    lambda e: local.DuchiMean(low=0, high=1, epsilon=e),
    lambda e: local.PiecewiseMean(low=0, high=1, epsilon=e),
    lambda e: local.HybridMean(low=0, high=1, epsilon=e),
]


@every_row((make, epsilon) for make in BY_EPSILON for epsilon in BAD_EPSILONS)
def test_an_epsilon_that_means_nothing_is_refused(make, epsilon) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        make(epsilon)


@every_row(
    (make, epsilon) for make in BY_EPSILON for epsilon in (1, 1.0, np.float32(1), np.int64(1), Fraction(1), Decimal(1))
)
def test_any_kind_of_number_is_an_epsilon(make, epsilon) -> None:
    assert make(epsilon) == make(1.0)
    assert make(epsilon).curve.epsilon(delta=0.0) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("make", BY_EPSILON)
@pytest.mark.parametrize("epsilon", [1e-6, 50.0])
def test_the_smallest_and_the_largest_epsilon_work(make, epsilon) -> None:
    protocol = make(epsilon)
    assert protocol.curve.epsilon(delta=0.0) == pytest.approx(epsilon, rel=1e-4)
    estimate = protocol.estimate(protocol.randomize([0, 1, 1, 0] * 10))
    assert np.all(np.isfinite(estimate.value))
    assert np.all(np.asarray(estimate.standard_error) >= 0)
    low, high = estimate.interval(confidence=0.95)
    assert np.all(low <= high)


@pytest.mark.parametrize("p", [0, 1, 0.5, 0.3, -1, 2, math.nan, "0.7", True, None, Fraction(1, 2) + Fraction(1, 10**9)])
def test_the_chance_of_the_truth_lies_above_one_half(p) -> None:
    with pytest.raises(InvalidParameter):
        local.RandomizedResponse(p=p)


@pytest.mark.parametrize("p", [0, 1, 0.5, -1, 2, math.nan, "0.7", True, None])
def test_a_spinner_may_lie_on_either_side_of_one_half(p) -> None:
    with pytest.raises(InvalidParameter):
        local.WarnerSurvey(p=p)


def test_exactly_one_way_to_say_how_private() -> None:
    for make in (
        lambda: local.RandomizedResponse(),
        lambda: local.RandomizedResponse(p=0.7, epsilon=1.0),
        lambda: local.NuRandomizedResponse(),
        lambda: local.NuRandomizedResponse(nu=0.5, epsilon=1.0),
        lambda: local.KaryRandomizedResponse(categories=3),
        lambda: local.OptimizedUnary(categories=3, epsilon=1.0, odds=3),
    ):
        with worded(InvalidParameter):
            make()
    with pytest.raises(TypeError):
        local.RandomizedResponse(0.7)


@pytest.mark.parametrize("odds", [1, 0, -3, 0.5, math.nan, math.inf, "3", 10**30, True])
def test_odds_favour_the_truth(odds) -> None:
    with pytest.raises(InvalidParameter, match="odds"):
        local.OptimizedUnary(categories=3, odds=odds)


def test_odds_of_a_symmetric_encoding_have_a_rational_root() -> None:
    with pytest.raises(InvalidParameter, match="square"):
        local.SymmetricUnary(categories=3, odds=3)
    assert local.SymmetricUnary(categories=3, odds=Fraction(9, 4)).support.other == Fraction(2, 5)


@pytest.mark.parametrize("categories", [1, 0, -5, 2.5, "3", True, None, 2**25])
def test_categories_are_at_least_two(categories) -> None:
    for kind in (local.KaryRandomizedResponse, local.OptimizedUnary, local.LocalHashing, local.SubsetSelection):
        with pytest.raises(InvalidParameter, match="categories"):
            kind(categories=categories, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="categories"):
        local.recommended(categories=categories, epsilon=1.0)


@pytest.mark.parametrize("value", [0, -1, 1.5, 5, 10**9, True])
def test_sizes_and_buckets_fit(value) -> None:
    with pytest.raises(InvalidParameter, match="size"):
        local.SubsetSelection(categories=5, epsilon=1.0, size=value)
    if value != 5:
        with pytest.raises(InvalidParameter, match="buckets"):
            local.LocalHashing(categories=5, epsilon=1.0, buckets=value)


@pytest.mark.parametrize(
    ("low", "high"), [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), ("0", 1), (0, 1e200), (0, 1e-200), (None, 1)]
)
def test_bounds_are_finite_and_in_order(low, high) -> None:
    for kind in (local.DuchiMean, local.PiecewiseMean, local.HybridMean):
        with pytest.raises(InvalidParameter):
            kind(low=low, high=high, epsilon=1.0)


# -- answers -----------------------------------------------------------------------------------------------------------

SECRET = "314159"
ODD_SHAPES = [
    [[0, 1], [1, 0]],
    np.zeros((2, 2, 2), dtype=int),
    [[0], [1, 0]],
    None,
    "01",
    b"01",
    {"a": 1},
    Nameless(),
    [None],
    ["x"],
    1j,
]


NOT_ANSWERS = [*ODD_SHAPES, [0, 314159], [-314159], 314159, [0.5], [math.nan], np.array(["yes", "no"])]
OF_CATEGORIES = [
    local.RandomizedResponse(epsilon=1.0),
    local.TwoCoinSurvey(truth=0.5, yes=0.5),
    local.KaryRandomizedResponse(categories=4, epsilon=1.0),
    local.OptimizedUnary(categories=4, epsilon=1.0),
    local.LocalHashing(categories=4, epsilon=1.0),
    local.SubsetSelection(categories=4, epsilon=1.0),
    local.Rappor(categories=4, f=0.5, p=0.2, q=0.8),
]


@every_row((protocol, answers) for protocol in OF_CATEGORIES for answers in NOT_ANSWERS)
def test_answers_that_break_the_rule_are_refused_in_its_words(protocol, answers) -> None:
    with pytest.raises(InvalidParameter) as refused:
        protocol.randomize(answers)
    assert refused.value.parameter == "answers"
    assert SECRET not in f"{refused.value} {refused.value.__dict__}"


@pytest.mark.parametrize("answers", [*ODD_SHAPES, [math.nan, 314159.0], [314159, "x"], [1 + 314159j]], ids=repr)
def test_numbers_that_are_none_are_refused(answers) -> None:
    for kind in (local.DuchiMean, local.PiecewiseMean, local.HybridMean):
        with pytest.raises(InvalidParameter) as refused:
            kind(low=0, high=1, epsilon=1.0).randomize(answers)
        assert SECRET not in f"{refused.value} {refused.value.__dict__}"


@pytest.mark.parametrize("answers", [[], np.array([]), np.zeros(0, dtype=int), ()])
def test_nobody_gives_no_reports_and_no_estimate(answers) -> None:
    for make in BY_EPSILON:
        protocol = make(1.0)
        reports = protocol.randomize(answers)
        assert len(reports) == 0
        with worded(InvalidParameter, parameter="reports"):
            protocol.estimate(reports)


def test_numbers_are_clipped_to_the_bounds() -> None:
    """Infinities, subnormals and -0 too: the reports are those of the nearest bound or point."""
    protocol = local.PiecewiseMean(low=0, high=1, epsilon=50.0)  # hardly any noise
    for answer, near in ((math.inf, 1), (-math.inf, 0), (1e308, 1), (-5, 0), (5e-324, 0), (-0.0, 0), (0.5, 0.5)):
        assert protocol.estimate(protocol.randomize([answer] * 10)).value == pytest.approx(near, abs=1e-4)


@pytest.mark.parametrize("reports", [[2], [-1], [0.5], None, "1", [[0, 1]], ["x"]])
def test_reports_that_cannot_be_are_refused(reports) -> None:
    for protocol in (
        local.RandomizedResponse(epsilon=1.0),
        local.KaryRandomizedResponse(categories=2, epsilon=1.0),
        local.DuchiMean(low=0, high=1, epsilon=1.0),
    ):
        with pytest.raises(InvalidParameter, match="reports"):
            protocol.estimate(reports)


@pytest.mark.parametrize(
    "reports",
    [
        np.zeros((3, 2), dtype=np.uint8),
        np.full((3, 1), 255, dtype=np.uint8),
        np.zeros((3, 5), dtype=np.int64),
        np.zeros((3, 4), dtype=bool),
        np.zeros((1, 1, 1), dtype=np.uint8),
        None,
        "x",
        [[1, 2], [3]],
    ],
    ids=repr,
)
def test_rows_of_bits_that_cannot_be_are_refused(reports) -> None:
    for protocol in (local.OptimizedUnary(categories=5, epsilon=1.0), local.SubsetSelection(categories=5, epsilon=1.0)):
        with pytest.raises(InvalidParameter, match="reports"):
            protocol.estimate(reports)


@pytest.mark.parametrize(
    "reports", [[[0, 0]], [[0, 0, 9]], [[-1, 0, 0]], [[2**31, 0, 0]], [[0.5, 0, 0]], [0, 0], None, "abc"]
)
def test_hashes_that_cannot_be_are_refused(reports) -> None:
    with pytest.raises(InvalidParameter, match="reports"):
        local.LocalHashing(categories=5, epsilon=1.0, buckets=4).estimate(reports)


def test_texts_that_no_protocol_wrote_are_refused() -> None:
    for protocol in (
        local.RandomizedResponse(epsilon=1.0),
        local.OptimizedUnary(categories=5, epsilon=1.0),
        local.LocalHashing(categories=5, epsilon=1.0),
    ):
        for texts in (["x"], ["1.5"], [""], ["1 2 x"], ["0000", "-"], ["99999999999999999999"]):
            with pytest.raises(InvalidParameter, match="reports"):
                protocol.decode(texts)


def test_unpacked_rows_are_accepted_as_they_are() -> None:
    protocol = local.OptimizedUnary(categories=11, epsilon=1.0)
    reports = protocol.randomize([1, 2, 3, 10])
    rows = protocol.unpacked(reports)
    assert rows.shape == (4, 11)
    assert protocol.estimate(rows).value.tolist() == protocol.estimate(reports).value.tolist()


EVERY = [
    local.RandomizedResponse(epsilon=1.0),
    local.KaryRandomizedResponse(categories=4, epsilon=1.0),
    local.OptimizedUnary(categories=4, epsilon=1.0),
    local.LocalHashing(categories=4, epsilon=1.0),
    local.SubsetSelection(categories=4, epsilon=1.0),
    local.Rappor(categories=4, f=0.5, p=0.25, q=0.75),
    local.DuchiMean(low=0, high=10, epsilon=1.0),
    local.HybridMean(low=0, high=10, epsilon=1.0),
]


@pytest.mark.parametrize("protocol", EVERY, ids=repr)
def test_what_lies_under_a_mask_is_not_taken_for_an_answer(protocol) -> None:
    some, none = (np.ma.array([1, 0, 1], mask=mask) for mask in ([False, True, False], False))
    for call in (protocol.randomize, protocol.estimate, protocol.encode):
        with pytest.raises(InvalidParameter, match="must"):
            call(some)
    assert len(protocol.randomize(none)) == 3


@pytest.mark.parametrize("protocol", EVERY, ids=repr)
@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_columns_with_missing_answers_are_refused_and_full_ones_are_not(protocol, name) -> None:
    series = pytest.importorskip(name).Series
    assert len(protocol.randomize(series([1, 0, 1]))) == 3
    with pytest.raises(InvalidParameter, match="answers"):
        protocol.randomize(series([1, None, 0]))
    if name == "pandas":
        assert len(protocol.randomize(series([1, 0], dtype="Int64"))) == 2
        with pytest.raises(InvalidParameter, match="answers"):
            protocol.randomize(series([1, None], dtype="Int64"))


def test_numbers_of_any_kind_are_answers() -> None:
    """Objects are looked at one by one: Python's own numbers count, whatever array they came in."""
    kary, mean = EVERY[1], EVERY[-1]
    assert len(kary.randomize(np.array([1, 0, True], dtype=object))) == 3
    for answers in ([Fraction(1, 2)], [Decimal("2.5"), Decimal(-3)], [10**400, -(10**400)], [2**70, 1]):
        assert len(mean.randomize(answers)) == len(answers)
    for answers in ([10**400], [Fraction(1, 2)], np.array([1, None], dtype=object), [Decimal("NaN")]):
        with pytest.raises(InvalidParameter, match="answers"):
            kary.randomize(answers)
    for answers in ([Decimal("NaN")], [Decimal("sNaN")], [None, 1], [Fraction(1), "2"]):
        with pytest.raises(InvalidParameter, match="answers"):
            mean.randomize(answers)


@every_row((protocol, entropy) for protocol in EVERY for entropy in (0, 7, "x", np.int64(7), Nameless(), [1]))
def test_a_seed_is_no_entropy(protocol, entropy) -> None:
    with pytest.raises(InvalidParameter, match="entropy"):
        protocol.randomize([1, 0], entropy=entropy)


@every_row(
    (protocol, reports)
    for protocol in EVERY
    for reports in (None, "1", b"1", ["1"], [-1], [2**64], [math.nan], [10**30], {}, 1j)
)
def test_reports_that_cannot_be_are_not_written(protocol, reports) -> None:
    with pytest.raises(InvalidParameter, match="reports"):
        protocol.encode(reports)


@every_row((protocol, texts) for protocol in EVERY for texts in (None, 1, "11", b"11", [1], [None], [b"1"], [["1"]]))
def test_what_is_no_list_of_texts_is_not_read(protocol, texts) -> None:
    with pytest.raises(InvalidParameter, match="reports"):
        protocol.decode(texts)


@pytest.mark.parametrize("people", [0, -1, 1.0, 10**400, math.nan, "1", None, True], ids=lambda n: repr(n)[:9])
def test_an_error_is_that_of_some_people(people) -> None:
    shares, mean = EVERY[1], EVERY[-1]
    for call in (
        lambda: shares.variance(share=0.5, people=people),
        lambda: shares.population_variance(share=0.5, people=people),
        lambda: shares.error(people=people, confidence=0.9),
        lambda: mean.variance(answer=5, people=people),
    ):
        with pytest.raises(InvalidParameter, match="people"):
            call()


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, "1", None, [0.5, 2], [math.nan], Fraction(3, 2), 10**400, 1j])
def test_a_share_lies_between_nothing_and_all(share) -> None:
    for call in (EVERY[1].variance, EVERY[1].population_variance):
        with pytest.raises(InvalidParameter, match="share"):
            call(share=share, people=10)


def test_shares_may_be_an_array_and_stay_exact_as_fractions() -> None:
    protocol = local.KaryRandomizedResponse(categories=4, odds=3)
    assert protocol.variance(share=Fraction(1, 3), people=2) == Fraction(19, 24)
    assert protocol.variance(share=np.array([0.0, 1.0]), people=1) == pytest.approx([1.25, 2.25])
    assert protocol.variance(share=[0.0, 1], people=np.int64(1)) == pytest.approx([1.25, 2.25])


def test_an_expected_answer_is_cut_to_the_bounds_as_a_given_one_is() -> None:
    protocol = local.DuchiMean(low=0, high=10, epsilon=1.0)
    assert protocol.variance(answer=10**400, people=7) == protocol.variance(answer=10, people=7)
    for answer in (math.nan, "1", None, [5]):
        with pytest.raises(InvalidParameter, match="answer"):
            protocol.variance(answer=answer, people=7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: local.WarnerSurvey(p=5e-324),
        lambda: local.TwoCoinSurvey(truth=0.5, yes=1e-320),
        lambda: local.Rappor(categories=4, f=5e-324, p=0.25, q=0.75),
        lambda: local.KaryRandomizedResponse(categories=4, odds=10**400),
        lambda: local.SymmetricUnary(categories=4, odds=Fraction(10) ** 400),
        lambda: local.DuchiMean(low=10**400, high=10, epsilon=1),
    ],
)
def test_numbers_beyond_all_floats_are_refused_like_any_other(make) -> None:
    with pytest.raises(InvalidParameter, match="must"):
        make()


def test_a_filter_is_that_of_a_text_in_a_cohort() -> None:
    protocol = local.BloomRappor(bits=8, hashes=2, cohorts=2, f=0.5, p=0.25, q=0.75)
    for answer in (1, None, b"a", ["a"]):
        with pytest.raises(InvalidParameter, match="answer"):
            protocol.filter_of(answer, cohort=0)
    for cohort in (2, -1, 0.0, "0", None):
        with pytest.raises(InvalidParameter, match="cohort"):
            protocol.filter_of("a", cohort=cohort)


def test_a_text_with_half_of_a_pair_is_a_text() -> None:
    """It had no bytes, and the error about that carried the answer."""
    protocol = local.BloomRappor(bits=32, hashes=2, cohorts=8, f=0.25, p=0.25, q=0.75)
    assert len(protocol.randomize(["a", "\ud800x"])) == 2
    assert protocol.filter_of("é", cohort=0).tolist() == protocol.filter_of("\u00e9", cohort=0).tolist()


@pytest.mark.parametrize("size", [10**400, -(10**400), Fraction(10**400), "1e400"], ids=["up", "down", "ratio", "text"])
def test_a_number_beyond_all_floats_is_beyond_the_bounds(size) -> None:
    done = local.survey({"x": [1, size]}, question="x", epsilon=1.0, low=0, high=1)
    assert len(done) == 2
