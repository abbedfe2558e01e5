"""transformers.Trainer with a plan: the same run as without it, and settings that would break it are refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("transformers", reason="transformers is not installed: make test-all brings it")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")]

import transformers as tf  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.adapters import hugging_face  # noqa: E402
from deniable.learn.torch.adapters.hugging_face import FILE, PrivateTrainer  # noqa: E402
from deniable.learn.torch.adapters.step_numbers import check_settings, steps_in_epoch  # noqa: E402
from deniable.ledger import Budget, Ledger  # noqa: E402
from deniable.units import Unit  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)
PLAN = learn.DPSGD(clip=1.0, rate=0.25, steps=8, noise=1.0)


def texts(count=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "input_ids": torch.randint(1, 40, (7,), generator=generator),
            "attention_mask": (torch.arange(7) < 3 + number % 5).long(),
            "labels": torch.tensor(number % 2),
        }
        for number in range(count)
    ]


def classifier(dropout=0.0):
    torch.manual_seed(0)
    return tf.DistilBertForSequenceClassification(
        tf.DistilBertConfig(
            vocab_size=40, dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=8, dropout=dropout,
            attention_dropout=dropout, seq_classif_dropout=dropout,
        )
    )  # fmt: skip


def opened(folder, model=None, plan=PLAN, **more):
    settings = {name: more.pop(name) for name in list(more) if hasattr(tf.TrainingArguments, name)}
    settings = {"per_device_train_batch_size": 5, "logging_steps": 2, "save_steps": 3} | settings
    arguments = tf.TrainingArguments(output_dir=str(folder), report_to=[], use_cpu=True, disable_tqdm=True, **settings)
    return PrivateTrainer(
        model=classifier() if model is None else model, args=arguments, train_dataset=texts(), plan=plan, **more
    )


def plain(model, steps=None):
    """The same run without transformers' loop: one loop over deniable's Trainer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    options = {"collate": tf.default_data_collator, "physical_batch": 5, "entropy": noise.ReplayEntropy(7)}
    trainer = Trainer(model, optimizer, PLAN, texts(), progress=False, **options)
    for batch in trainer if steps is None else trainer.take(steps):
        labels = batch.pop("labels")
        trainer.backward(F.cross_entropy(model(**batch).logits, labels, reduction="none"))
    return trainer


@pytest.mark.filterwarnings("ignore:each example is computed alone")
def test_a_run_is_that_of_a_plain_loop_to_the_last_digit_of_single_precision(tmp_path):
    """Same coins, same noise: against a loop over the trainer, with the masks as they are given."""
    reference = classifier()
    plain(reference)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    trainer = opened(
        tmp_path, model, optimizers=(optimizer, constant), private={"entropy": noise.ReplayEntropy(7)}, save_strategy="no"
    )  # fmt: skip
    done = trainer.train()
    assert done.global_step == trainer.private.steps_taken == PLAN.steps
    assert trainer.private.one_by_one is None
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
    with worded(InvalidOperation):
        trainer.train()


def test_logs_have_no_training_loss_unless_the_owner_asks(tmp_path):
    trainer = opened(tmp_path / "quiet", save_strategy="no")
    done = trainer.train()
    assert math.isnan(done.training_loss)
    assert "train_loss" not in done.metrics
    assert not any("loss" in name or "norm" in name for line in trainer.state.log_history for name in line)
    owner = opened(tmp_path / "owner", losses="owner", save_strategy="no")
    done = owner.train()
    assert 0.3 < done.training_loss < 1.5
    assert any("loss" in line for line in owner.state.log_history)
    with pytest.raises(InvalidParameter, match="owner"):
        opened(tmp_path, losses="all")


def test_a_run_continues_from_a_checkpoint_and_counts_the_steps_after_it(tmp_path):
    """Checkpoint 3 of a finished run has no step left; a run that was stopped after checkpoint 3 has 5."""
    first = opened(tmp_path / "a")
    first.train()
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == ["checkpoint-3", "checkpoint-6", "checkpoint-8"]
    again = opened(tmp_path / "a")
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    assert again.private.finished
    assert again.private.history.average == []

    class Stop(tf.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 4

    stopped = opened(tmp_path / "b", callbacks=[Stop()])
    stopped.train()
    assert stopped.private.steps_taken == 4
    last = opened(tmp_path / "b")
    last.train(resume_from_checkpoint=True)
    assert len(last.private.history.average) == 4
    assert last.private.finished
    (tmp_path / "b" / "checkpoint-3" / FILE).unlink()
    with worded(InvalidParameter, parameter="resume_from_checkpoint"):
        opened(tmp_path / "b").train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-3"))


def test_evaluation_bfloat16_and_a_ledger_go_with_it(tmp_path):
    ledger = Ledger.open(budget=Budget(epsilon=50, delta=1e-5, keys_delta=5e-6), unit=Unit.row(), dataset="texts")
    trainer = opened(
        tmp_path, bf16=True, eval_strategy="epoch", eval_dataset=texts(9, 1), private={"ledger": ledger, "delta": 1e-6}
    )  # fmt: skip
    trainer.train()
    assert steps_in_epoch(PLAN, 40) == 4
    assert [line["step"] for line in trainer.state.log_history if "eval_loss" in line] == [4, 8]
    assert list(ledger.entries())[-1].state.name == "SEALED"
    assert Path(tmp_path / "checkpoint-8" / FILE).exists()


def test_a_loss_of_ones_own_has_a_value_for_each_example(tmp_path):
    def own(outputs, labels, num_items_in_batch):
        return F.cross_entropy(outputs.logits, labels, reduction="none")

    trainer = opened(tmp_path, compute_loss_func=own, save_strategy="no")
    trainer.train()
    assert trainer.private.finished
    mean = opened(tmp_path, compute_loss_func=lambda *given, **_: own(*given, None).mean(), save_strategy="no")
    with worded(InvalidParameter, parameter="losses"):
        mean.train()


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_accumulation_steps": 2},
        {"auto_find_batch_size": True},
        {"label_smoothing_factor": 0.1},
        {"neftune_noise_alpha": 5.0},
        {"torch_compile": True},
        {"optim": "galore_adamw_layerwise", "optim_target_modules": "all-linear"},
    ],
)
def test_settings_that_would_break_the_promise_are_refused_by_name(tmp_path, settings):
    with worded(InvalidParameter, parameter=next(iter(settings))):
        opened(tmp_path, **settings)


def test_half_precision_with_a_scaler_and_new_models_are_refused(tmp_path):
    arguments = tf.TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    arguments.push_to_hub, arguments.hub_strategy = True, "all_checkpoints"
    with worded(InvalidParameter, parameter="hub_strategy"):
        check_settings(hugging_face._settings(arguments))
    arguments.fp16 = True  # on a CPU transformers refuses it itself, when it opens accelerate's scaler
    with pytest.raises(InvalidParameter, match="GradScaler"):
        check_settings(hugging_face._settings(arguments))
    with worded(InvalidParameter, parameter="model_init"):
        PrivateTrainer(model_init=classifier, args=arguments, train_dataset=texts(), plan=PLAN)
    with worded(InvalidParameter, parameter="dataset"):
        PrivateTrainer(model=classifier(), args=tf.TrainingArguments(output_dir=str(tmp_path), max_steps=3), plan=PLAN)
