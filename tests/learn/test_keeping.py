"""What a run spends, keeps, shares and proves: ledgers, checkpoints, several processes, audits."""

from __future__ import annotations

import os
import shutil
import signal
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import BudgetExceeded, InvalidOperation, InvalidParameter, UnreadableRecord  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.ledger import Budget, Ledger, State  # noqa: E402
from deniable.units import Unit  # noqa: E402
from tests.learn.runs import data, entropy_loss, made, net, run  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)

# -- the ledger --------------------------------------------------------------------------------------------------------


def test_a_ledger_is_charged_before_the_first_step_and_sealed_after_the_last():
    budget = Budget(epsilon=8, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=2.0)
    with Ledger.open(budget=budget, unit=Unit.row(), dataset="letters") as ledger:
        trainer = made(plan=plan, ledger=ledger, delta=1e-6)
        assert ledger.charged.units == 0
        assert any("than its unit says" in words for words in trainer.guarantee.assumptions)
        for batch in trainer:
            assert ledger.charged == plan.price(budget, unit=Unit.row(), delta=1e-6)
            trainer.backward(entropy_loss(trainer.model, batch))
        states = [entry.state for entry in ledger.entries()]
        assert states == [State.RESERVED, State.SEALED]
        trainer.close()
        assert len(list(ledger.entries())) == 2


def test_training_that_does_not_fit_into_the_budget_does_not_begin():
    with Ledger.open(budget=Budget(epsilon=0.1, delta=1e-6), unit=Unit.row(), dataset="letters") as ledger:
        model = net()
        weight = model[0].weight.detach().clone()
        with worded(BudgetExceeded) as said:
            run(made(model, ledger=ledger, delta=1e-8))
        assert "ask" not in said.value.remedy
        assert said.value.left == ledger.remaining.describe_rest(ledger.budget)
        assert torch.equal(weight, model[0].weight)
        with worded(InvalidParameter, parameter="delta"):
            run(made(net(), ledger=ledger))


def test_a_session_pays_for_training_and_for_questions_from_one_budget():
    pd, dn = pytest.importorskip("pandas"), pytest.importorskip("deniable")
    pytest.importorskip("duckdb")
    frame = pd.DataFrame({"sort": ["a", "b"] * 20})
    budget = Budget(epsilon=5, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=4, noise=1.5)
    price = plan.price(budget, unit=Unit.row(), delta=1e-6)
    with dn.session({"letters": frame}, unit=Unit.row(), budget=budget) as session:
        trainer = made(plan=plan, session=session, delta=1e-6)
        run(trainer, trainer.take(1))
        assert session.ledger.charged == price
        trainer.close()
        session.sql("SELECT COUNT(*) AS n FROM letters", epsilon=0.5)
        assert session.ledger.charged.units > price.units
        refused = 0
        for _ in range(3):
            try:
                run(made(plan=plan, session=session, delta=1e-9))
            except BudgetExceeded:
                refused += 1
        assert refused > 0
        with worded(InvalidParameter):
            made(plan=plan, session=session, ledger=session.ledger, delta=1e-9)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_resumed_run_goes_on_where_it_was(tmp_path):
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    first = made(plan=plan)
    run(first, first.take(3))
    first.save(tmp_path / "model.pt")
    second = made(net(seed=9), plan)
    second.load(tmp_path / "model.pt")
    assert second.steps_taken == 3
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    run(second)
    assert second.finished


def test_steps_after_a_checkpoint_are_not_forgotten(tmp_path):
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    first = made(plan=plan)
    run(first, first.take(2))
    first.save(tmp_path / "model.pt")
    run(first, first.take(3))  # and then the machine goes down
    second = made(plan=plan)
    second.load(tmp_path / "model.pt")
    assert second.steps_taken == 5
    assert second.epsilon(delta=1e-5) == first.epsilon(delta=1e-5)
    first.load(tmp_path / "model.pt")  # going back does not give anything back
    assert first.steps_taken == 5


def test_a_step_is_noted_beside_every_checkpoint_of_the_run(tmp_path):
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    first = made(plan=plan)
    first.save(tmp_path / "old.pt")
    run(first, first.take(1))
    first.save(tmp_path / "new.pt")
    run(first, first.take(1))
    second = made(plan=plan)
    second.load(tmp_path / "new.pt")
    run(second, second.take(2))
    third = made(plan=plan)
    third.load(tmp_path / "old.pt")
    assert third.steps_taken == 4


@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_saving_crashing_and_going_back_gives_a_step_back(tmp_path, seed):
    """One run, at most one trainer at work, three checkpoints that are written and read in any order."""
    chance = np.random.default_rng(seed)
    plan = learn.DPSGD(clip=1.0, rate=0.2, steps=12, noise=1.0)
    released = []
    trainer = made(plan=plan, after_step=lambda _: released.append(1))
    paths = [tmp_path / f"{name}.pt" for name in "abc"]
    trainer.save(paths[0])
    begun = 0
    for _ in range(25):
        what, path = chance.integers(5), paths[chance.integers(3)]
        if what == 0:
            trainer.save(path)
        elif what == 1 and path.exists():  # the machine went down; somebody goes on from some checkpoint
            trainer = made(net(seed=3), plan, after_step=lambda _: released.append(1))
            trainer.load(path)
        elif what == 2 and path.exists():
            trainer.load(path)
        elif what == 3:  # killed in the middle of a step
            for _ in trainer.take(1):
                begun += 1
                break
            else:
                begun = max(begun, trainer.steps_taken)
        else:
            before = len(released)
            run(trainer, trainer.take(int(chance.integers(1, 3))))
            begun += len(released) - before
        begun = max(begun, len(released))
        assert len(released) <= trainer.steps_taken <= plan.steps
        assert trainer.steps_taken >= begun or trainer.finished


def test_a_step_that_was_begun_is_spent(tmp_path):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.9, steps=6, noise=1.0))
    trainer.save(tmp_path / "model.pt")
    for _ in trainer:
        break
    assert trainer.steps_taken == 1
    other = made(plan=trainer.plan)
    other.load(tmp_path / "model.pt")
    assert other.steps_taken == 1


def test_checkpoints_of_other_plans_runs_and_ledgers_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    trainer = made()
    run(trainer, trainer.take(1))
    trainer.save(path)
    with pytest.raises(InvalidParameter, match="another plan"):
        made(plan=learn.DPSGD(clip=1.0, rate=0.3, steps=400, noise=1.0)).load(path)
    with pytest.raises(InvalidParameter, match="another run"):
        run(made()).load(path)
    with worded(InvalidParameter):
        made().load(tmp_path / "other.pt")
    (tmp_path / "broken.pt").write_bytes(b"no checkpoint")
    with pytest.raises(UnreadableRecord):
        made().load(tmp_path / "broken.pt")
    (tmp_path / "model.pt.steps").unlink()
    with worded(InvalidParameter, parameter="path"):
        made().load(path)


def test_a_resumed_run_is_not_charged_twice_and_needs_its_ledger(tmp_path):
    budget = Budget(epsilon=20, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=4, noise=2.0)
    with Ledger.open(tmp_path / "ledger.db", budget=budget, unit=Unit.row(), dataset="letters") as ledger:
        first = made(plan=plan, ledger=ledger, delta=1e-6)
        run(first, first.take(2))
        first.save(tmp_path / "model.pt")
        with worded(InvalidParameter):
            made(plan=plan).load(tmp_path / "model.pt")
        second = made(plan=plan, ledger=ledger, delta=1e-6)
        second.load(tmp_path / "model.pt")
        charged = ledger.charged
        run(second)
        assert ledger.charged == charged
    with Ledger.open(budget=budget, unit=Unit.row(), dataset="letters") as other:
        third = made(plan=plan, ledger=other, delta=1e-6)
        with worded(InvalidParameter, parameter="ledger"):
            third.load(tmp_path / "model.pt")


def _paid(tmp_path, steps=20):
    """A ledger in a file, a plan that it can pay for, and how many steps were released on it by any trainer."""
    budget = Budget(epsilon=20, delta=1e-5, keys_delta=5e-6)
    plan = learn.DPSGD(clip=1.0, rate=0.2, steps=steps, noise=4.0)
    ledger = Ledger.open(tmp_path / "ledger.db", budget=budget, unit=Unit.row(), dataset="letters")
    released = []

    def new(**more):
        return made(net(), plan, ledger=ledger, delta=1e-6, after_step=lambda _: released.append(1), **more)

    return ledger, plan, new, released


def test_a_sealed_run_is_not_repeated_from_a_copy_of_its_checkpoint(tmp_path):
    """One charge paid for 76 steps of a plan of 20: each copy, out of reach of the journals, began anew at step 1."""
    ledger, plan, new, released = _paid(tmp_path)
    with ledger:
        first = new()
        run(first, first.take(1))
        (tmp_path / "run").mkdir()
        first.save(tmp_path / "run" / "model.pt")
        copies = [tmp_path / f"copy{each}" for each in range(3)]
        for copy in copies:
            shutil.copytree(tmp_path / "run", copy)
        run(first)
        assert first.finished
        shutil.move(tmp_path / "run", tmp_path / "elsewhere")
        for copy in copies:
            with worded(InvalidOperation):
                new().load(copy / "model.pt")
        shutil.move(tmp_path / "elsewhere", tmp_path / "run")
        with worded(InvalidOperation):
            new().load(tmp_path / "run" / "model.pt")
        assert len(released) == plan.steps


@pytest.mark.parametrize("steps", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_copies_of_a_checkpoint_share_the_steps_that_one_charge_paid_for(tmp_path, steps):
    """Nothing is sealed yet, and no copy reaches the journal of another."""
    ledger, plan, new, released = _paid(tmp_path, steps)
    with ledger:
        first = new()
        run(first, first.take(1))
        for each in range(4):
            place = tmp_path / f"copy{each}"
            place.mkdir()
            first.save(place / "model.pt")
            record = torch.load(place / "model.pt", weights_only=True)
            torch.save({**record, "journals": []}, place / "model.pt")
        trainers, places = {}, [None, *range(4)]
        while places:
            for place in list(places):
                try:
                    if place not in trainers:  # whoever was refused loads its own copy again
                        trainers[place] = first if place is None else new()
                        if place is not None:
                            trainers[place].load(tmp_path / f"copy{place}" / "model.pt")
                    run(trainers[place], trainers[place].take(1))
                    if trainers[place].finished:
                        places.remove(place)
                except InvalidOperation as refused:
                    trainers.pop(place)
                    if place is None or "has sealed" in str(refused):
                        places.remove(place)
        assert len(released) <= plan.steps
        assert len(released) >= plan.steps - 2 * -(-plan.steps // 64)  # and next to none of them is lost
        assert len([each for each in ledger.entries() if each.cost.units]) == 2  # reserved and sealed: one charge


def test_a_run_that_was_saved_goes_on_without_losing_a_step(tmp_path):
    """150 steps are given in blocks of 3; after a crash the rest of a block is lost, after saving it is not."""
    ledger, _, new, released = _paid(tmp_path, 150)
    with ledger:
        trainer = new()
        for stop in (4, 5, 9, 9, 11):
            if stop > trainer.steps_taken:
                run(trainer, trainer.take(stop - trainer.steps_taken))
            trainer.save(tmp_path / "model.pt")
            trainer.save(tmp_path / "twin.pt")
            trainer = new()
            trainer.load(tmp_path / "model.pt")
            assert trainer.steps_taken == stop == len(released)
        run(trainer, trainer.take(2))
        crashed = new()
        crashed.load(tmp_path / "twin.pt")
        assert crashed.steps_taken == 15


def test_a_run_that_was_saved_before_its_first_step_is_charged_once(tmp_path):
    """The checkpoint knew of no charge, so that whoever went on from it after a crash paid a second time."""
    ledger, plan, new, released = _paid(tmp_path)
    with ledger:
        first = new()
        first.save(tmp_path / "model.pt")
        shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("ledger*"))
        run(first, first.take(2))
        charged = ledger.charged
        second = new()
        second.load(tmp_path / "model.pt")
        assert second.steps_taken == 2
        run(second)
        assert second.finished
        assert ledger.charged == charged
        assert len(released) == plan.steps
        with worded(InvalidOperation):
            new().load(tmp_path / "copy" / "model.pt")


def test_copies_from_before_the_first_step_share_one_charge(tmp_path):
    ledger, _, new, released = _paid(tmp_path)
    with ledger:
        first = new()
        first.save(tmp_path / "model.pt")
        (tmp_path / "copy").mkdir()
        shutil.copy(tmp_path / "model.pt", tmp_path / "copy" / "model.pt")
        shutil.copy(tmp_path / "model.pt.steps", tmp_path / "copy" / "model.pt.steps")
        record = torch.load(tmp_path / "copy" / "model.pt", weights_only=True)
        torch.save({**record, "journals": []}, tmp_path / "copy" / "model.pt")
        second = new()
        second.load(tmp_path / "copy" / "model.pt")  # nobody has begun, nobody has paid
        assert ledger.charged.units == 0
        run(second, second.take(3))
        charged = ledger.charged
        with worded(InvalidOperation):
            run(first, first.take(1))
        assert ledger.charged == charged
        assert len(released) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_of_a_paid_trainer_is_refused_and_does_not_hang(tmp_path):
    """The child took the same steps as its parent, on one charge; or it waited for ever for torch's threads."""
    ledger, plan, new, released = _paid(tmp_path)
    with ledger:
        trainer = new()
        run(trainer, trainer.take(2))
        batches = iter(trainer)
        batch = next(batches)
        losses = entropy_loss(trainer.model, batch)
        asked = [
            lambda: next(iter(trainer)), lambda: trainer.backward(losses), lambda: trainer.save(tmp_path / "child.pt"),
            lambda: trainer.load(tmp_path / "child.pt"), lambda: trainer.public_step(losses.sum()), trainer.close,
            lambda: next(batches),
        ]  # fmt: skip
        child = os.fork()
        if child == 0:
            refused = 0
            for each in asked:
                try:
                    each()
                except InvalidOperation as error:
                    refused += "forked" in str(error)
                except BaseException:  # counted below: not refused
                    pass
            os._exit(refused)
        deadline = time.monotonic() + 60
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(done[1]) == len(asked)
        trainer.backward(losses)
        run(trainer, batches)
        assert trainer.finished
        assert len(released) == plan.steps


def test_a_checkpoint_whose_journal_is_moved_away_does_not_forget_steps(tmp_path):
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0))
    trainer.save(tmp_path / "model.pt")
    run(trainer, trainer.take(1))
    shutil.move(tmp_path / "model.pt.steps", tmp_path / "away")
    with pytest.raises(InvalidOperation, match="was removed"):
        run(trainer, trainer.take(1))
    shutil.move(tmp_path / "away", tmp_path / "model.pt.steps")
    run(trainer, trainer.take(1))
    other = made(plan=trainer.plan)
    other.load(tmp_path / "model.pt")
    assert other.steps_taken == trainer.steps_taken == 2
    assert any("reaches the journal" in words for words in other.guarantee.assumptions)


def test_a_checkpoint_whose_journal_was_emptied_does_not_forget_steps(tmp_path):
    """The run went on, and noted its steps nowhere."""
    trainer = made(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0))
    trainer.save(tmp_path / "model.pt")
    run(trainer, trainer.take(1))
    os.truncate(tmp_path / "model.pt.steps", 0)
    with pytest.raises(InvalidOperation, match="emptied"):
        run(trainer, trainer.take(1))
    with worded(InvalidParameter, parameter="path"):
        made(plan=trainer.plan).load(tmp_path / "model.pt")
    (tmp_path / "model.pt").unlink()  # as was said
    trainer.save(tmp_path / "model.pt")
    run(trainer, trainer.take(1))
    other = made(plan=trainer.plan)
    other.load(tmp_path / "model.pt")
    assert other.steps_taken == trainer.steps_taken == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.pt", "model.pt.steps"]


def test_correlated_noise_goes_on_from_a_checkpoint_or_not_at_all(tmp_path):
    plan = learn.DPFTRL(clip=10.0, batch_size=5, records=40, epochs=2, bands=4, noise=1e-7)
    whole = run(made(plan=plan))
    first = made(plan=plan)
    run(first, first.take(5))
    first.save(tmp_path / "model.pt")
    second = made(net(seed=4), plan)
    second.load(tmp_path / "model.pt")
    run(second)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    lost = made(plan=plan)
    lost.save(tmp_path / "lost.pt")
    run(lost, lost.take(1))
    with worded(InvalidParameter, parameter="path"):
        made(plan=plan).load(tmp_path / "lost.pt")


@pytest.mark.parametrize("where", ["model.pt", "copies/model.pt"])
def test_one_checkpoint_does_not_pay_for_two_runs(tmp_path, where):
    """At once or one after the other, from the file itself or from a copy of it and of its journal."""
    plan = learn.DPSGD(clip=1.0, rate=0.5, steps=6, noise=1.0)
    released = []
    trainers = [made(plan=plan, after_step=lambda _: released.append(1)) for _ in range(3)]
    first, second, third = trainers
    run(first, first.take(2))
    first.save(tmp_path / "model.pt")
    (tmp_path / "copies").mkdir()
    for name in ("model.pt", "model.pt.steps"):
        shutil.copy(tmp_path / name, tmp_path / "copies" / name)
    second.load(tmp_path / where)
    run(second, second.take(1))
    third.load(tmp_path / where)
    assert third.steps_taken == 3
    for each in (first, second):
        with pytest.raises(InvalidOperation, match="another trainer"):
            run(each)
        with pytest.raises(InvalidOperation, match="another trainer"):
            each.save(tmp_path / "other.pt")
    run(third)
    assert len(released) == plan.steps
    with pytest.raises(InvalidOperation, match="another trainer"):
        run(second, second.take(1))


def test_a_run_whose_checkpoint_was_written_over_goes_on(tmp_path):
    first, other = made(), made()
    first.save(tmp_path / "model.pt")
    other.save(tmp_path / "model.pt")
    run(first)
    made().load(tmp_path / "model.pt")
    (tmp_path / "model.pt.steps").write_text("another run\n1\n")
    with worded(InvalidParameter, parameter="path"):
        made().load(tmp_path / "model.pt")


def test_a_checkpoint_is_of_its_plan_to_the_last_digit(tmp_path):
    plans = [learn.DPSGD(clip=1.0, rate=rate, steps=4, noise=1.0) for rate in (0.13653331, 0.13653349)]
    assert repr(plans[0]) == repr(plans[1])
    made(plan=plans[0]).save(tmp_path / "model.pt")
    with pytest.raises(InvalidParameter, match="another plan"):
        made(plan=plans[1]).load(tmp_path / "model.pt")


# -- several processes, and audits -------------------------------------------------------------------------------------


def _one_of_two(rank, place, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    group = torch.distributed.group.WORLD
    trainer = made(_convolved(rank), TOGETHER, data(21), process_group=group, physical_batch=4)
    run(trainer)
    some = made(net(), TOGETHER, data(21), process_group=group, canaries=data(64, seed=1))
    results[rank] = [p.detach().numpy() for p in trainer.model.parameters()], some._canaries.included
    torch.distributed.destroy_process_group()


TOGETHER = learn.DPSGD(clip=0.3, rate=1.0, steps=4, noise=1e-7)


def _convolved(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Tanh(), net(9, seed))


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        started = [context.Process(target=_one_of_two, args=(rank, tmp_path / "store", results)) for rank in (0, 1)]
        for each in started:
            each.start()
        for each in started:
            each.join(120)
        (first, coins), (second, other_coins) = results[0], results[1]
    alone = run(made(_convolved(0), TOGETHER, data(21)))
    for place, parameter in enumerate(alone.model.parameters()):
        assert np.array_equal(first[place], second[place])
        assert np.allclose(first[place], parameter.detach().numpy(), atol=1e-5)
    assert np.array_equal(coins, other_coins)  # by chance once in 2⁶⁴ runs


def _with_canaries(noise_level):
    """Each canary has a direction of its own, so that without noise it is known by its loss."""
    x, y = data(40, 240)
    x[:, :200] = 0
    torch.manual_seed(0)
    model = nn.Linear(240, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    plan = learn.DPSGD(clip=1.0, rate=0.9, steps=20, noise=noise_level, records=140)
    canaries = (3 * torch.eye(200, 240), torch.ones(200, dtype=torch.long))
    return run(Trainer(model, optimizer, plan, (x, y), canaries=canaries, progress=False))


def test_audits_of_a_trained_model_stay_below_the_claim():
    """At confidence 1 - 1e-9: a false alarm once in 10⁹ runs."""
    trainer = _with_canaries(8.0)
    found = trainer.audit(entropy_loss, delta=1e-5, confidence=1 - 1e-9)
    assert found.epsilon <= trainer.curve.epsilon(delta=1e-5)
    assert found.canaries == 200
    # The audit can see: with next to no noise every canary is known (unless one that is in was never drawn: 0.1²⁰), and
    # there are 30 that are in and 30 that are out to be guessed but for a chance of 1e-23.
    assert _with_canaries(1e-3).audit(entropy_loss, delta=1e-5, confidence=0.99, guesses=60).epsilon > 1
    with pytest.raises(InvalidOperation, match="canaries"):
        made().audit(entropy_loss, delta=1e-5, confidence=0.9)
