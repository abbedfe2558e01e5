"""The compiled kernel for convolutions, beside torch in double precision; and training with it and without."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("llvmlite", reason="llvmlite is not installed: pip install llvmlite==0.50.0")
pytestmark = pytest.mark.torch

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402

from deniable.learn.torch.gradients import convolutions, gradient_captures  # noqa: E402
from deniable.learn.torch.gradients.bookkeeping import Bookkeeping  # noqa: E402
from deniable.learn.torch.gradients.convolutions import Convolution  # noqa: E402
from deniable.learn.torch.gradients.gradient_captures import Factors  # noqa: E402
from deniable.learn.torch.gradients.gradient_check import checked  # noqa: E402
from deniable.learn.torch.kernels import convolution_kernel, llvm_kernels  # noqa: E402
from tests.learn.zoo import losses_of  # noqa: E402

torch.set_num_threads(1)

EPS = float(torch.finfo(torch.float32).eps)


@pytest.fixture
def threads():
    """Set how many; afterwards there is one again."""
    yield torch.set_num_threads
    torch.set_num_threads(1)


@pytest.fixture(params=["compiled", "unfolded"])
def path(request, monkeypatch):
    """Both ways of making gradients."""
    if request.param == "unfolded":
        monkeypatch.setattr(convolution_kernel, "kernel", lambda write: None)
    return request.param


def flat(count, outs, places, taps, seed=0):
    """Numbers for the kernel itself: taps and places anywhere in x, in no order."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    size = 3 * (taps + places)
    where = rng.integers(0, size, taps), rng.integers(0, size, places)
    return torch.randn(count, outs, places), torch.randn(count, 2 * size), *where


def right(out, g, x, taps, places):
    """Whether these are the products, and zeros beside them; rounding errors are at most those of one long sum."""
    seen = x.double()[:, torch.from_numpy(taps)[:, None] + torch.from_numpy(places)]
    truth = torch.einsum("etp,eop->eto", seen, g.double())
    most = torch.einsum("etp,eop->eto", seen.abs(), g.double().abs())
    outs = g.shape[1]
    assert not out[..., outs:].any()
    return bool(((out[..., :outs] - truth).abs() <= EPS * (convolution_kernel.BLOCK + places.size) * most).all())


@pytest.mark.parametrize("outs", [8, 15, 16, 17, 32, 40])
@pytest.mark.parametrize("taps", [1, 5, 6, 7, 12, 27])
def test_every_tile_and_block_is_multiplied_out(outs, taps):
    for count in (1, 2, 5):
        for places in (1, 2, 255, 256, 257, 512, 600):
            given = flat(count, outs, places, taps)
            out = convolution_kernel.products(*given)
            assert out.shape == (count, taps, convolution_kernel.columns(outs))
            assert right(out, *given), (count, places)


def test_rounding_errors_grow_with_the_blocks_not_with_the_places():
    """A million equal terms: added up one by one, the sum would be off by a percent."""
    g, x = torch.full((1, 16, 2**20), 0.1), torch.ones(1, 1)
    out = convolution_kernel.products(g, x, np.zeros(1, np.int64), np.zeros(2**20, np.int64))
    expected = 2**20 * float(g[0, 0, 0])
    assert out[0, 0].tolist() == pytest.approx([expected] * 16, rel=2**-12)


@pytest.mark.parametrize("outs", [1, 7])
def test_too_few_columns_for_a_tile_are_left_to_torch(outs):
    assert convolution_kernel.products(*flat(2, outs, 4, 3)) is None


def test_what_the_kernel_cannot_read_is_left_to_torch():
    g, x, taps, places = flat(2, 16, 4, 3)
    assert convolution_kernel.products(g.double(), x.double(), taps, places) is None
    assert convolution_kernel.products(g, x.double(), taps, places) is None
    assert convolution_kernel.products(g, x.bfloat16(), taps, places) is None
    assert convolution_kernel.products(g.to("meta"), x, taps, places) is None
    assert convolution_kernel.products(g[:0], x[:0], taps, places) is None
    assert convolution_kernel.products(g[..., :0], x, taps, places[:0]) is None


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("count", [2, 7, 16])
def test_threads_change_nothing(threads, monkeypatch, number, count):
    given = flat(count, 24, 300, 13)
    alone = convolution_kernel.products(*given)
    begun = []
    pool = convolution_kernel.ThreadPoolExecutor
    monkeypatch.setattr(convolution_kernel, "ThreadPoolExecutor", lambda many: begun.append(many) or pool(many))
    monkeypatch.setattr(convolution_kernel, "WORTH_A_THREAD", 1)
    threads(number)
    assert torch.equal(convolution_kernel.products(*given), alone)
    assert begun == ([] if number == 1 else [min(number, count)])


def test_a_thread_that_is_not_worth_it_is_not_begun(threads, monkeypatch):
    monkeypatch.setattr(convolution_kernel, "ThreadPoolExecutor", None)
    threads(3)
    given = flat(2, 16, 10, 6)
    assert right(convolution_kernel.products(*given), *given)


def test_several_may_call_and_even_compile_it_at_once():
    given = [flat(8, 32, 300, 20, seed) for seed in range(4)]
    alone = [convolution_kernel.products(*each) for each in given]
    llvm_kernels.kernel.cache_clear()
    start, found = threading.Barrier(4), [None] * 4

    def work(place):
        start.wait()
        for _ in range(5):
            found[place] = convolution_kernel.products(*given[place])

    workers = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert all(torch.equal(*both) for both in zip(found, alone, strict=True))


def _in_a_child(given, answers):
    torch.set_num_threads(2)
    answers.put(convolution_kernel.products(*given).numpy())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_goes_on_with_it(threads, monkeypatch):
    monkeypatch.setattr(convolution_kernel, "WORTH_A_THREAD", 1)
    threads(2)
    given = flat(8, 16, 300, 9)
    here = convolution_kernel.products(*given)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch has threads of its own
        child = context.Process(target=_in_a_child, args=(given, answers))
        child.start()
    there = answers.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert np.array_equal(there, here.numpy())


LAYERS = {
    "1-D": (lambda: nn.Conv1d(3, 16, 5, stride=2), (3, 41)),
    "1-D dilated": (lambda: nn.Conv1d(2, 9, 3, dilation=4), (2, 30)),
    "2-D": (lambda: nn.Conv2d(3, 16, 3), (3, 9, 8)),
    "2-D, many blocks": (lambda: nn.Conv2d(2, 20, (3, 2)), (2, 26, 27)),
    "2-D, strided, dilated, uneven": (
        lambda: nn.Conv2d(2, 17, (3, 2), stride=(2, 1), dilation=(1, 3)),
        (2, 11, 10),
    ),
    "2-D, windows apart": (lambda: nn.Conv2d(3, 16, 2, stride=3), (3, 12, 13)),
    "2-D, one tap": (lambda: nn.Conv2d(5, 16, 1), (5, 6, 6)),
    "2-D, grouped": (lambda: nn.Conv2d(6, 32, 3, groups=2), (6, 9, 9)),
    "2-D, grouped, padded columns": (lambda: nn.Conv2d(6, 27, 3, stride=2, groups=3), (6, 15, 15)),
    "2-D, one channel a group": (lambda: nn.Conv2d(4, 40, 3, groups=4), (4, 8, 8)),
    "3-D": (lambda: nn.Conv3d(2, 16, (2, 3, 2), stride=(1, 2, 1), dilation=(2, 1, 1)), (2, 7, 9, 6)),
    "3-D, grouped": (lambda: nn.Conv3d(4, 16, 2, groups=2), (4, 5, 5, 5)),
}


def _plain(x, g):
    return x, g


def _channels_last(x, g):
    return tuple(each.movedim(1, -1).contiguous().movedim(-1, 1) for each in (x, g))


def _turned(x, g):
    return tuple(each.transpose(0, -1).contiguous().transpose(0, -1) for each in (x, g))


def _inside(x, g):
    """Parts of larger tensors, that begin somewhere."""
    return tuple(torch.cat((each, each, each), 1)[:, each.shape[1] : 2 * each.shape[1]] for each in (x, g))


def _same_input(x, g):
    return x[:1].expand_as(x), g


def _same_gradient(x, g):
    """As a mean over all places hands it back."""
    return x, g[:, :, *[slice(1)] * (g.dim() - 2)].expand_as(g)


WAYS = [_plain, _channels_last, _turned, _inside, _same_input, _same_gradient]


def convolution(name, way, count=5):
    """What was captured of a layer, and its gradients in double precision, one example at a time."""
    torch.manual_seed(1)
    make, shape = LAYERS[name]
    layer = make()
    x = torch.randn(count, *shape)
    x, g = way(x, torch.randn_like(layer(x)))
    each = layer.double().weight
    truth = [torch.autograd.grad(layer(a[None].double()), each, b[None].double())[0] for a, b in zip(x, g, strict=True)]
    more = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    return Convolution(g, x, each.shape, **more), torch.stack(truth)


def close(mine, truth):
    return float((mine.double() - truth).norm()) <= 1e-5 * float(truth.norm())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_captures_agree_with_single_examples(name, way, path, monkeypatch):
    """In any order in memory; and held as one, as the lengths are of what is summed."""
    made = []
    products = convolution_kernel.products
    monkeypatch.setattr(convolutions, "products", lambda *given: made.append(products(*given)) or made[-1])
    capture, truth = convolution(name, way)
    assert close(capture.squared(), truth.flatten(1).square().sum(1))
    assert [each is not None for each in made] == [path == "compiled"]
    assert capture._kept is not None
    factors = torch.rand(5)
    assert close(capture.summed(Factors(factors)), torch.tensordot(factors.double(), truth, 1))
    assert close(capture.each(1, 4), truth[1:4])


@pytest.mark.parametrize("name", ["2-D", "2-D, grouped"])
def test_examples_come_in_chunks_where_windows_are_laid_out(name, monkeypatch):
    monkeypatch.setattr(convolution_kernel, "kernel", lambda write: None)
    capture, truth = convolution(name, _plain)
    places, ins, outs = capture.g[0, 0].numel(), capture.shape[1:].numel(), capture.shape[0] // capture.groups
    monkeypatch.setattr(gradient_captures, "CPU_ROOM", 2 * capture.groups * places * (ins + outs))
    chunks, unfolded = [], Convolution._unfolded
    monkeypatch.setattr(Convolution, "_unfolded", lambda *given: chunks.append(given[1:]) or unfolded(*given))
    assert close(capture.squared(), truth.flatten(1).square().sum(1))
    assert chunks == [(0, 2), (2, 4), (4, 5)]
    factors = torch.rand(5)
    assert close(capture.summed(Factors(factors)), torch.tensordot(factors.double(), truth, 1))


@pytest.mark.parametrize("groups", [1, 2])
def test_several_inputs_of_an_example_are_left_to_torch(groups, path):
    """(B·m, ...): the gradients are sums over m calls in one."""
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 32, 3, groups=groups)
    x = torch.randn(4, 3, 4, 7, 7)
    g = torch.randn(4, 3, 32, 5, 5)
    flat = g.flatten(0, 1), x.flatten(0, 1)
    capture = Convolution(*flat, layer.weight.shape, stride=(1, 1), dilation=(1, 1), groups=groups, images=3)
    layer = layer.double()
    truth = torch.stack(
        [torch.autograd.grad(layer(a.double()), layer.weight, b.double())[0] for a, b in zip(x, g, strict=True)]
    )
    assert capture._multiplied() is None
    assert close(capture.squared(), truth.flatten(1).square().sum(1))
    assert close(capture.summed(Factors(torch.ones(4))), truth.sum(0))


@pytest.mark.parametrize(("places", "held"), [(4, None), (5, 9), (7, 9), (8, 16)])
def test_columns_of_zeros_count_as_memory(places, held):
    """Nine columns would be held as sixteen: where that is more than may be held, torch makes nine."""
    x, g = torch.randn(3, 30, places + 2), torch.randn(3, 9, places)
    capture = Convolution(g, x, torch.Size((9, 30, 3)), stride=(1,), dilation=(1,), groups=1)
    capture.squared()
    assert (None if capture._kept is None else capture._kept.shape[-1]) == held


def test_what_new_tensors_are_made_on_is_of_no_matter():
    """Tables of places that lay on another device would be read from nowhere."""
    capture, truth = convolution("2-D", _plain)
    with torch.device("meta"):
        squares = capture.squared()
    assert close(squares, truth.flatten(1).square().sum(1))


def test_no_example_is_an_empty_answer(path):
    layer = nn.Conv2d(3, 16, 3)
    x, g = torch.randn(0, 3, 9, 9), torch.randn(0, 16, 7, 7)
    capture = Convolution(g, x, layer.weight.shape, stride=(1, 1), dilation=(1, 1), groups=1)
    assert capture.squared().shape == (0,)


NETS = {
    "2-D": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 24, 3, stride=2, groups=2), nn.Flatten()
        ),
        (3, 8, 8),
    ),
    "circular, channels last": (
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, padding_mode="circular"), nn.Flatten()).to(
            memory_format=torch.channels_last
        ),
        (3, 6, 7),
    ),
    "mean at once": (lambda: nn.Sequential(nn.Conv2d(3, 20, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (3, 8, 8)),
    "1-D": (lambda: nn.Sequential(nn.Conv1d(3, 16, 4, dilation=2), nn.Tanh(), nn.Flatten()), (3, 20)),
    "3-D": (lambda: nn.Sequential(nn.Conv3d(2, 16, 2, stride=2), nn.Tanh(), nn.Flatten()), (2, 6, 6, 6)),
}


@pytest.mark.parametrize("name", NETS)
def test_models_agree_with_vmap(name, path):
    torch.manual_seed(0)
    make, shape = NETS[name]
    model = nn.Sequential(make(), nn.LazyLinear(3))
    x, y = torch.randn(6, *shape), torch.randint(0, 3, (6,))
    model(x)
    book = Bookkeeping(model)
    found = checked(model, book, [x, y], lambda run, batch: losses_of(run, *batch))
    assert found.worst < 1e-5, str(found)
    book.close()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_halves_are_counted_in_single(half, path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16 * 36, 3))
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4,))
    book = Bookkeeping(model)
    with torch.autocast("cpu", half):
        losses = losses_of(model, x, y)
        found = book.gradients(losses)
        squares = found.squared(losses)
    each = torch.cat([found.each(key, 0, 4).flatten(1) for key, _ in model.named_parameters()], 1)
    assert each.dtype == torch.float32
    assert close(squares, each.double().square().sum(1))
    book.close()


def test_where_no_thread_can_begin_one_does_it_all(monkeypatch):
    def refused(many):
        raise RuntimeError("can't start new thread")

    given = flat(7, 16, 9, 5)
    alone = convolution_kernel.products(*given)
    monkeypatch.setattr(convolution_kernel, "ThreadPoolExecutor", refused)
    monkeypatch.setattr(convolution_kernel, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(convolution_kernel.products(*given), alone)


@pytest.mark.parametrize("layer", [lambda: nn.Conv2d(3, 16, 3), lambda: nn.Conv1d(3, 16, 3)], ids=["2-D", "1-D"])
def test_what_is_negative_by_a_mark_alone_is_read_as_such(layer):
    """torch negates a conjugate's imaginary part only when somebody looks at it."""
    torch.manual_seed(0)
    model = layer()
    shape = (5, 3, 8, 8)[: 2 + len(model.kernel_size)]
    book = Bookkeeping(model)
    for _ in range(2):
        x = torch.randn(shape, dtype=torch.complex64).conj().imag
        assert x.is_neg()
        book.forget()
        losses = model(x).flatten(1).square().sum(1)
        found = book.gradients(losses)
        found.squared(losses)
        sums = {name: part for name, part, _ in found.summed(torch.ones(5))}
        truth = torch.autograd.grad(model(x.clone()).square().sum(), list(model.parameters()))
        for (name, _), grad in zip(model.named_parameters(), truth, strict=True):
            assert close(sums[name], grad), name
    book.close()


@pytest.fixture
def fresh():
    """Nothing was compiled yet; and afterwards neither."""
    llvm_kernels.kernel.cache_clear()
    yield
    llvm_kernels.kernel.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_without_a_compiler_nothing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert convolution_kernel.products(*flat(2, 16, 4, 3)) is None


@pytest.mark.usefixtures("fresh")
def test_a_compiler_that_fails_is_told_once(monkeypatch):
    def failing(writer):
        raise RuntimeError("no such processor")

    monkeypatch.setattr(llvm_kernels, "_compiled", failing)
    with pytest.warns(RuntimeWarning, match="takes longer: no such processor"):
        assert convolution_kernel.products(*flat(2, 16, 4, 3)) is None
    assert convolution_kernel.products(*flat(2, 16, 4, 3)) is None  # a second warning would be an error here


HARDENED = """
import ctypes, warnings
import llvmlite.binding, torch
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE: nothing that was written may be run
    raise SystemExit(77)
from deniable.learn.torch.kernels import normal_kernel as gaussians, convolution_kernel as windows
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    assert windows.kernel(windows._written) is None
    assert gaussians.pairs_kernel() is None
assert all("does not let programs run code" in str(each.message) for each in told)
assert told
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_hardened_machine_does_without():
    """There LLVM's code would crash."""
    done = subprocess.run([sys.executable, "-c", HARDENED], capture_output=True, text=True, timeout=120)
    if done.returncode == 77:
        pytest.skip("this Linux is too old to be hardened like that")
    assert done.returncode == 0, done.stderr
