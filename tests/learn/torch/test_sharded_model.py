"""FSDP2: two processes with the model in shards do what one process does with the whole model."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidOperation, InvalidParameter  # noqa: E402
from tests.learn.runs import data, made, net, run  # noqa: E402

TOGETHER = learn.DPSGD(clip=0.3, rate=1.0, steps=4, noise=1e-7)


def _convolved(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Tanh(), net(9, seed))


def _caught(what):
    """The words of the error that a call raises."""
    try:
        what()
    except (InvalidParameter, InvalidOperation) as error:
        return str(error)
    return None


def _one_of_two(rank, place, results):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    mesh, model = init_device_mesh("cpu", (2,)), _convolved(0)
    fully_shard(model[1], mesh=mesh)
    fully_shard(model[4], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    words = [_caught(lambda: learn.torch.Trainer(model, optimizer, TOGETHER, data(21), progress=False))]
    group = torch.distributed.group.WORLD
    trainer = learn.torch.Trainer(
        model, optimizer, TOGETHER, data(21), progress=False, physical_batch=4, process_group=group
    )
    words += [_caught(lambda: trainer.save(f"{place}.pt")), _caught(lambda: trainer.load(f"{place}.pt"))]
    run(trainer)
    state = optimizer.state[model[1].weight]["exp_avg"]
    held = tuple(state.to_local().shape), tuple(state.shape)
    after = model(data(21)[0]).detach().numpy()  # by FSDP's own hooks, which are back
    results[rank] = [each.full_tensor().detach().numpy() for each in model.parameters()], held, after, words
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_a_model_in_shards_is_trained_like_a_whole_one(tmp_path):
    """Compared with one process and the whole model. Noise is negligible, and Adam's state is in shards."""
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        started = [context.Process(target=_one_of_two, args=(rank, tmp_path / "store", results)) for rank in (0, 1)]
        for each in started:
            each.start()
        for each in started:
            each.join(150)
        (first, held, after, words), (second, *_) = results[0], results[1]
    whole = _convolved(0)
    alone = run(
        learn.torch.Trainer(whole, torch.optim.Adam(whole.parameters(), lr=0.01), TOGETHER, data(21), progress=False)
    )
    for place, parameter in enumerate(alone.model.parameters()):
        assert np.array_equal(first[place], second[place])
        assert np.allclose(first[place], parameter.detach().numpy(), atol=1e-4)
    assert held[0][0] < held[1][0]
    assert np.allclose(after, whole(data(21)[0]).detach().numpy(), atol=1e-3)
    assert "no process group" in words[0]
    assert all("does not support a model that is sharded" in each for each in words[1:])


def test_a_whole_model_has_no_shards():
    trainer = made()
    run(trainer)
    assert trainer._shards._pieces == {}
