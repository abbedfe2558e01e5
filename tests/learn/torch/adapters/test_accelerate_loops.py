"""accelerate.Accelerator with a plan: the same run as without it, and settings that would break it are refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("accelerate", reason="accelerate is not installed: make test-all brings it")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

from torch.nn import functional as F  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from deniable import learn, noise  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from deniable.learn.torch.adapters.accelerate_loops import PrivateAccelerator, _settings  # noqa: E402
from deniable.learn.torch.adapters.step_numbers import check_settings  # noqa: E402
from tests.learn.runs import data, net, run  # noqa: E402
from tests.learn.runs import made as trainer_of  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)
PLAN = learn.DPSGD(clip=1.0, rate=0.25, steps=10, noise=1.0)


@pytest.fixture(autouse=True)
def alone():
    """accelerate keeps its state in the process."""
    from accelerate.state import AcceleratorState, GradientState

    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def loader(**more):
    return DataLoader(TensorDataset(*data()), batch_size=6, shuffle=True, **more)


def prepared(**more):
    accelerator = PrivateAccelerator(plan=PLAN, cpu=True, **more)
    model = net()
    return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader())


def test_a_run_is_that_of_a_plain_loop():
    """Same coins, same noise: against a loop over the trainer."""
    reference = trainer_of(net(), PLAN, physical_batch=6, entropy=noise.ReplayEntropy(7))
    run(reference)
    accelerator, model, optimizer, batches = prepared(private={"entropy": noise.ReplayEntropy(7), "progress": False})
    for x, y in batches:
        assert len(x) <= 6
        accelerator.backward(F.cross_entropy(model(x), y, reduction="none"))
        optimizer.step()
        optimizer.zero_grad()
    assert batches is accelerator.run
    assert batches.finished
    for mine, theirs in zip(model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_bfloat16_works_and_the_collate_function_of_the_loader_is_used():
    accelerator = PrivateAccelerator(plan=PLAN, cpu=True, mixed_precision="bf16", private={"progress": False})
    model = net()
    own = lambda rows: (torch.stack([x for x, _ in rows]), torch.stack([1 - y for _, y in rows]))  # noqa: E731
    given = model, torch.optim.SGD(model.parameters(), lr=0.1), loader(collate_fn=own)
    model, _, batches = accelerator.prepare(*given)
    x, y = data()
    labels = {tuple(row.tolist()): 1 - int(label) for row, label in zip(x, y, strict=True)}
    for features, wanted in batches:
        accelerator.backward(F.cross_entropy(model(features), wanted, reduction="none"))
        assert [labels[tuple(row.tolist())] for row in features] == wanted.tolist()
    assert batches.finished


def test_what_would_break_the_promise_is_refused():
    accelerator, model, optimizer, _ = prepared()
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        with worded(InvalidOperation):
            getattr(accelerator, name)(model.parameters(), 1.0)
    for name in ("save_state", "load_state"):
        with worded(InvalidOperation):
            getattr(accelerator, name)("folder")
    with worded(InvalidOperation):
        accelerator.prepare(model, optimizer, loader())
    with worded(InvalidParameter, parameter="prepare"):
        accelerator.prepare(model, optimizer, loader(), torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1))


def test_settings_that_would_break_the_promise_are_refused_by_name():
    with worded(InvalidParameter, parameter="gradient_accumulation_steps"):
        PrivateAccelerator(plan=PLAN, cpu=True, gradient_accumulation_steps=2)


def test_a_scaler_is_refused_with_its_reason():
    from types import SimpleNamespace

    from accelerate.utils import DistributedType

    one = {"gradient_accumulation_steps": 1, "distributed_type": DistributedType.NO}
    with pytest.raises(InvalidParameter, match="GradScaler"):  # accelerate has this precision on accelerators only
        check_settings(_settings(SimpleNamespace(mixed_precision="fp16", **one)))
    other = one | {"distributed_type": DistributedType.DEEPSPEED}
    with pytest.raises(InvalidParameter, match="DeepSpeed"):
        check_settings(_settings(SimpleNamespace(mixed_precision="no", **other)))


def test_backward_needs_prepare():
    with pytest.raises(InvalidOperation, match="call prepare"):
        PrivateAccelerator(plan=PLAN, cpu=True).backward(torch.zeros(3))


TWO = """
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
from deniable import learn
from deniable.learn.torch.adapters.accelerate_loops import PrivateAccelerator
from tests.learn.runs import data, net

accelerator = PrivateAccelerator(plan=learn.DPSGD(clip=1.0, rate=0.5, steps=3, noise=1.0), cpu=True)
model = net(seed=accelerator.process_index)
model, optimizer, batches = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(*data()), batch_size=7)
)
for x, y in batches:
    accelerator.backward(F.cross_entropy(model(x), y, reduction="none"))
print("weights", accelerator.num_processes, [each.tolist() for each in model.parameters()])
accelerator.wait_for_everyone()
accelerator.end_training()
"""


def test_two_processes_end_with_the_same_model(tmp_path):
    """Each draws from its half of the data; the first adds the noise, and both take the same step."""
    script = tmp_path / "two.py"
    script.write_text(TWO)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(__file__).resolve().parents[4]
    set_ = {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    one = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, **set_, **one, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [each.communicate(timeout=300)[0] for each in started]
    assert [each.returncode for each in started] == [0, 0]
    lines = [next(line for line in each.splitlines() if line.startswith("weights")) for each in said]
    assert lines[0].startswith("weights 2 ")
    assert lines[0] == lines[1]
