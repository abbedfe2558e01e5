"""lightning.Trainer with a plan: the same run as without it, and settings that would break it are refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("lightning", reason="lightning is not installed: make test-all brings it")
KINDS = ("DeprecationWarning", "FutureWarning", "UserWarning")
WARNED = [*(f"ignore:.*:{kind}" for kind in KINDS), "error:each example is computed alone"]
pytestmark = [pytest.mark.torch, pytest.mark.slow, *map(pytest.mark.filterwarnings, WARNED)]

import lightning  # noqa: E402
import pytorch_lightning  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch.adapters.lightning_callback import PrivateSteps  # noqa: E402
from tests.learn.runs import data, net, run  # noqa: E402
from tests.learn.runs import made as trainer_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)
PLAN = learn.DPSGD(clip=1.0, rate=0.25, steps=10, noise=1.0)
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def module(package=lightning, schedule=None):
    class Net(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, batch_idx):
            losses = F.cross_entropy(self.net(batch[0]), batch[1], reduction="none")
            self.log("train", losses.mean())
            return losses

        def validation_step(self, batch, batch_idx):
            self.log("validation", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            if schedule is None:
                return optimizer
            halving = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            return [optimizer], [{"scheduler": halving, "interval": schedule}]

    return Net()


def fitted(private, own, package=lightning, ckpt_path=None, **more):
    host = package.Trainer(**({"max_epochs": -1, "callbacks": [private], "enable_checkpointing": False} | QUIET | more))
    host.fit(own, private.loader, DataLoader(TensorDataset(*data(8)), batch_size=8), ckpt_path=ckpt_path)
    return host


@pytest.mark.parametrize("package", [lightning, pytorch_lightning], ids=["lightning", "pytorch_lightning"])
def test_a_run_is_that_of_a_plain_loop(package):
    """Same coins, same noise: against a loop over the trainer."""
    reference = trainer_of(net(), PLAN, physical_batch=6, entropy=noise.ReplayEntropy(7))
    run(reference)
    own = module(package)
    step = type(own).training_step
    private = PrivateSteps(PLAN, data(), physical_batch=6, entropy=noise.ReplayEntropy(7))
    host = fitted(private, own, package)
    assert host.global_step == private.run.steps_taken == PLAN.steps
    assert private.run.one_by_one is None
    for mine, theirs in zip(own.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert "validation" in host.callback_metrics
    assert "train" not in host.callback_metrics
    assert own.training_step.__func__ is step
    with worded(InvalidOperation):
        fitted(private, own, package)


@pytest.mark.parametrize(("schedule", "halved"), [("step", 10), ("epoch", 3)])
def test_schedules_go_on_by_their_interval(schedule, halved):
    private = PrivateSteps(PLAN, data())
    host = fitted(private, module(schedule=schedule), precision="bf16-mixed")
    assert host.current_epoch == 3  # steps of 10 among 40 records: an epoch has 4
    assert host.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**halved)


def test_a_run_continues_from_a_checkpoint_only_if_its_steps_were_counted(tmp_path):
    saved = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=3, save_top_k=-1)
    private = PrivateSteps(PLAN, data(), checkpoint=tmp_path / "run.pt")
    fitted(private, module(), callbacks=[private, saved], enable_checkpointing=True, max_steps=4)
    assert private.run.steps_taken == 4
    place = next(tmp_path.glob("*.ckpt"))
    uncounted = PrivateSteps(PLAN, data())
    with worded(InvalidParameter, parameter="ckpt_path"):
        fitted(uncounted, module(), ckpt_path=place)
    again = PrivateSteps(PLAN, data(), checkpoint=tmp_path / "run.pt")
    fitted(again, module(), ckpt_path=place)
    assert again.run.finished
    assert len(again.run.history.average) == 6  # steps 5 to 10; the fourth was spent by the first run


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 1.0},
        {"precision": "16-true"},
        {"overfit_batches": 1},
    ],
)
def test_settings_that_would_break_the_promise_are_refused_by_name(settings):
    with worded(InvalidParameter, parameter=next(iter(settings))):
        fitted(PrivateSteps(PLAN, data()), module(), **settings)


def test_other_loaders_and_several_optimizers_are_refused():
    own = module()
    host = lightning.Trainer(callbacks=[PrivateSteps(PLAN, data())], max_epochs=1, enable_checkpointing=False, **QUIET)
    with pytest.raises(InvalidParameter, match="drawn independently"):
        host.fit(own, DataLoader(TensorDataset(*data()), batch_size=8), DataLoader(TensorDataset(*data(8))))
    two = module()
    two.automatic_optimization = False
    two.configure_optimizers = lambda: [torch.optim.SGD(each.parameters(), lr=0.1) for each in (two.net[0], two.net[2])]
    with pytest.raises(InvalidParameter, match="one optimizer"):
        fitted(PrivateSteps(PLAN, data()), two)


def test_a_scaler_is_refused_with_its_reason():
    from types import SimpleNamespace

    from deniable.learn.torch.adapters import lightning_callback
    from deniable.learn.torch.adapters.step_numbers import check_settings

    host = SimpleNamespace(accumulate_grad_batches=1, gradient_clip_val=None, precision="16-mixed")
    with pytest.raises(InvalidParameter, match="GradScaler"):  # Lightning has this precision on accelerators only
        check_settings(lightning_callback._settings(host))
