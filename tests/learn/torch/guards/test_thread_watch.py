"""Threads that a forward pass starts, and tensors without strides: what torch is not followed through, goes alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from deniable.learn.torch.guards.thread_watch import Threads  # noqa: E402
from tests.learn.test_backward_hooks import _moved  # noqa: E402

torch.set_num_threads(1)


def in_a_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x.detach().mean(0)))
    thread.start()
    thread.join()
    return found[0]


def in_an_executor(x):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: x.mean().item()).result()


def outlier():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, 4, generator=generator), torch.randn(16, 1, generator=generator)
    x[0] *= 50
    return x, y


@pytest.mark.parametrize("mean", [in_a_thread, in_an_executor])
def test_what_a_thread_makes_of_the_batch_reached_other_examples(mean):
    """One record moved the sum by up to 15 clipping norms: modes of torch are for one thread."""
    moved, why = _moved(lambda: nn.Linear(4, 1), *outlier(), 0, prepare=lambda x: x - mean(x))
    assert moved <= 1.001
    assert "a thread that was started" in why


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    "mean",
    [
        lambda x: x.to_sparse().to_dense().mean(0),
        lambda x: torch.sparse.sum(x.to_sparse(), 0).to_dense(),
        lambda x: x.to_sparse_csr().to_dense().mean(0),
        lambda x: (torch.eye(4).to_sparse() @ x.T).T.sort(0).values[-1],
    ],
)
def test_a_sparse_tensor_of_the_batch_was_a_bare_error(mean):
    moved, why = _moved(lambda: nn.Linear(4, 1), *outlier(), 0, prepare=lambda x: x - mean(x))
    assert moved <= 1.001
    assert why is not None


def test_new_threads_are_heard_of_and_their_profiler_is_left_as_it_was():
    def start():
        thread = threading.Thread(target=len, args=("",))
        thread.start()
        thread.join()

    told, before = [], threading.getprofile()
    threading.setprofile(lambda *_: told.append(threading.get_ident()))
    try:
        theirs = threading.getprofile()
        one, other = Threads(), Threads()
        one.begin()
        other.begin()
        assert not one.end()
        start()
        assert other.end()
        assert told  # somebody else's profiler was called as well
        assert threading.getprofile() is theirs
        start()
        other.begin()
        assert not other.end()
    finally:
        threading.setprofile(before)
