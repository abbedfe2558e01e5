"""Levels of separation, refusals that do not depend on the data, the progress bar, and audits of a ragged model."""

from __future__ import annotations

import io
import math
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from deniable import audit, learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import ExactNoise  # noqa: E402
from deniable.learn.torch.gradients import bookkeeping  # noqa: E402
from deniable.learn.torch.guards import forward_programs  # noqa: E402
from deniable.learn.torch.guards.sum_comparison import SumComparison  # noqa: E402
from tests.learn.mixing_models import MIXING, Ragged, Sorted, losses_on, padded, ragged, records  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.learn.torch.guards.test_one_record import Told, moved  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

PLAN = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
ALL = learn.DPSGD(clip=0.05, rate=1.0, steps=3, noise=1.0, records=40)


def _trained(trainer):
    for batch in trainer:
        trainer.backward(losses_on(trainer.model, batch))


def _sums(separation, model=None):
    told = Told()
    trainer = run(made(net() if model is None else model, ALL, noise=told, lr=0.0, separation=separation))
    return trainer, torch.stack(told.sums)


def test_each_level_is_named_and_all_give_the_same_sums():
    """Compared with each other: one backward pass for all, and one for each example."""
    found = {level: _sums(level) for level in (None, "proved", "isolated", "assumed")}
    for level, (trainer, sums) in found.items():
        assert trainer.separation == (level or "proved")
        assert any(f"separation is {level or 'proved'}" in words for words in trainer.guarantee.assumptions)
        assert torch.allclose(sums, found["isolated"][1], atol=1e-6)
    assert found["isolated"][0].one_by_one == "separation='isolated'"


def test_isolated_hands_out_one_example_at_a_time_without_a_warning():
    trainer, sizes = made(separation="isolated"), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in trainer:
            sizes.append(len(batch[0]))
            trainer.backward(entropy_loss(trainer.model, batch))
    assert set(sizes) == {1}


def test_what_cannot_be_proved_is_refused_if_a_proof_was_asked_for():
    model = Sorted()
    trainer = made(model, PLAN, records(20), collate=padded, separation="proved")
    with worded(InvalidParameter, parameter="separation"):
        _trained(trainer)


@pytest.mark.parametrize("given", ["proven", 1, True])
def test_other_levels_are_refused(given):
    with worded(InvalidParameter, parameter="separation"):
        made(separation=given)


def test_gradients_that_are_wrong_are_found_where_separation_is_assumed(monkeypatch):
    """The second pass sees every example, where learning saw a few."""
    monkeypatch.setattr(bookkeeping, "check_alone", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_check_graph", lambda *_: None)
    monkeypatch.setattr(bookkeeping.Bookkeeping, "_look_again", lambda *_: None)
    monkeypatch.setattr(SumComparison, "is_due", lambda self: True)
    model = Sorted()
    plan = learn.DPSGD(clip=0.01, rate=1.0, steps=1, noise=1.0, records=60)
    trainer = made(model, plan, records(60), collate=padded, physical_batch=20, separation="assumed")
    with pytest.warns(UserWarning, match="alone.*differ from autograd's in a random batch"):
        _trained(trainer)
    assert trainer.separation == "isolated"
    assert any("before, separation is assumed" in words for words in trainer.guarantee.assumptions)


def test_every_batch_runs_a_program_that_was_proved(monkeypatch):
    """Later batches were believed if shapes and graph were those of an earlier one."""
    matched = []
    has_run = forward_programs.ProgramComparison.has_run
    monkeypatch.setattr(
        forward_programs.ProgramComparison,
        "has_run",
        lambda self, losses: matched.append(has_run(self, losses)) or matched[-1],
    )
    trainer = run(made(plan=learn.DPSGD(clip=1.0, rate=1.0, steps=5, noise=1.0)))
    assert trainer.separation == "proved"
    assert matched.count(True) >= 4


# -- an error is an output ---------------------------------------------------------------------------------------------


def _features(x, y):
    x[7] = math.nan
    return x, y


def _infinite(x, y):
    x[7] = math.inf
    return x, y


def _far(x, y):
    x[7] = 3e38
    return x, y


@pytest.mark.parametrize("separation", [None, "isolated", "assumed"])
@pytest.mark.parametrize("spoil", [_features, _infinite, _far])
def test_runs_with_a_record_that_is_no_number_end_like_runs_without_it(spoil, separation):
    """20 of 20 runs stopped with the record, and 0 of 20 without it."""
    outcomes = []
    for number in range(20):
        x, y = data()
        if number % 2:
            x, y = spoil(x, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trainer = run(made(plan=PLAN, dataset=(x, y), separation=separation))
        outcomes.append((trainer.finished, trainer.separation, bool(torch.isfinite(trainer.model[0].weight).all())))
    assert set(outcomes) == {(True, separation or "proved", True)}


def test_overflow_in_half_precision_does_not_stop_a_run():
    x, y = data()
    x[7] = 6e4
    model = net().half()
    trainer = run(made(model, PLAN, (x.half(), y), lr=1e-4))
    assert trainer.finished
    assert trainer.separation == "proved"


def test_whether_a_model_is_refused_does_not_depend_on_the_data():
    """It did: the first five records decided whether a model that moves examples was refused or computed alone."""
    for listed in (records(12), [(rows * 0, x * 0, label) for rows, x, label in records(12)]):
        model = MIXING["rolled"]()
        trainer = made(model, PLAN, listed, collate=padded)
        with pytest.warns(UserWarning, match="alone.*aten::roll"):
            _trained(trainer)


# -- the bar -----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("progress", "has_steps", "has_loss"), [(True, 1, 0), ("owner", 1, 1), (False, 0, 0)])
def test_the_bar_shows_losses_to_the_owner_only(progress, has_steps, has_loss, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    model = net()
    trainer = learn.torch.Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), PLAN, data(), progress=progress)
    run(trainer)
    said = sys.stderr.getvalue()
    assert ("of 6" in said) == bool(has_steps)
    assert ("loss" in said) == bool(has_loss)


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_other_values_of_progress_are_refused(given):
    model = net()
    with worded(InvalidParameter, parameter="progress"):
        learn.torch.Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), PLAN, data(), progress=given)


# -- audits ------------------------------------------------------------------------------------------------------------


def _released(separation):
    """60 000 releases of one step of a ragged model with exact noise, with and without a record, along the difference
    of their sums: all that an attacker who knows everything else can use. Promised: μ = 0.25."""
    listed, told = records(60), []
    for rows in (listed, listed[:30] + listed[31:]):
        torch.manual_seed(0)
        model, noise = Ragged(), Told()
        plan = learn.DPSGD(clip=0.01, rate=1.0, steps=1, noise=4.0, records=60)
        trainer = made(model, plan, rows, lr=0.0, collate=ragged, noise=noise, physical_batch=20, separation=separation)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="each example is computed alone")
            _trained(trainer)
        told.append(noise.sums[0])
    along = (told[0] - told[1]) / (told[0] - told[1]).norm()
    exact = ExactNoise()
    exact.open(plan, len(along))
    wide = [sums.repeat(60_000, 1) for sums in told]
    return plan, [(exact.add([each])[0] @ along).numpy() for each in wide]


@pytest.mark.slow
def test_an_audit_of_a_ragged_model_does_not_refute_its_promise(monkeypatch):
    """A white-box audit certified μ >= 2.02 for a step where 0.25 was promised. False alarms: 1e-9."""
    plan, answers = _released(None)
    finding = audit.compare(*answers, claim=plan.curve, confidence=1 - 1e-9)
    assert not finding.refuted
    # The audit can see: the same step with a fifth of the noise is refuted.
    quiet = [np.asarray(each) * 0.2 + np.mean(each) * 0.8 for each in answers]
    assert audit.compare(*quiet, claim=plan.curve, confidence=1 - 1e-9).refuted


@pytest.mark.slow
def test_the_largest_batches_move_by_one_norm_too():
    trainer, most = moved(Ragged, 800, steps=1, places=(400,))
    assert trainer.separation == "isolated"
    assert most <= 1.001
