"""What is written about training beside the code: the reference, and the example."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytestmark = pytest.mark.torch

from deniable import learn  # noqa: E402
from deniable.learn import torch as room  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.parametrize(("module", "skipped"), [(learn, {"sklearn", "torch"}), (room, set())], ids=["learn", "torch"])
def test_every_name_of_training_is_in_the_reference_with_its_own_words(module, skipped):
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    start = page.index(f"## Names in `{module.__name__}`\n")
    part = page[start : page.find("\n## ", start)]
    for name in set(module.__all__) - skipped:
        words = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        assert words, name
        assert f"| `{name}` | {words} |" in part, f"{name}; run: python docs/reference.py"


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("rich")
    found = importlib.util.spec_from_file_location("fashion_mnist", ROOT / "examples" / "fashion_mnist.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    torch.set_num_threads(1)
    return module


def test_scattering_is_two_layers_of_convolutions(example):
    """Against sums over the torus, written out without transforms, for one channel of each kind."""
    torch.manual_seed(0)
    x = torch.rand(2, 28, 28)
    found = example.Scattering()(x)
    assert found.shape == (2, 81, 7, 7)
    grown = torch.nn.functional.pad(x.unsqueeze(1), [4] * 4, mode="reflect")[:, 0].double()
    places = torch.arange(36)
    apart = (places.unsqueeze(1) - places) % 36

    def convolved(values, kernel):
        return torch.einsum("nij,kilj->nkl", values.to(kernel.dtype), kernel[apart][:, :, apart])

    def averaged(values):
        bell = example.wavelet(36, 1.6, 0.0, 0.0, 1.0).real
        return convolved(values, bell)[:, 4:32:4, 4:32:4]

    kernels = [[torch.fft.ifft2(wave.double()) for wave in waves] for waves in example.Scattering().waves]
    fine, coarse = convolved(grown, kernels[0][3]).abs(), convolved(grown, kernels[1][5]).abs()
    pair = convolved(fine, kernels[1][2]).abs()
    assert torch.allclose(found[:, 0].double(), averaged(grown), atol=1e-5)
    assert torch.allclose(found[:, 1 + 3].double(), averaged(fine), atol=1e-5)
    # Channels at half resolution are averaged over every other place: that is near the average over all of them.
    assert torch.allclose(found[:, 9 + 5].double(), averaged(coarse), atol=5e-3)
    assert torch.allclose(found[:, 17 + 3 * 8 + 2].double(), averaged(pair), atol=5e-3)


def test_features_of_a_picture_are_its_own(example):
    torch.manual_seed(0)
    x = torch.rand(3, 28, 28)
    together = example.features(x, "")
    assert torch.allclose(together[1:2].float(), example.features(x[1:2], "").float(), atol=1e-2)


@pytest.mark.skipif(not PACKAGE.is_dir(), reason="needs the package: apt install dataset-fashion-mnist")
def test_the_example_learns_from_real_pictures(example):
    x, y = (each[:300] for each in example.pictures(PACKAGE, "t10k"))
    made = example.features(x, "")
    plan = learn.DPSGD(clip=0.1, rate=0.9, steps=2, noise=0.01, records=300)
    model = example.trained(plan, made, y, 0, 1.0, 128)
    assert example.accuracy(model, made, y) > 0.2  # ten classes; noise 30,000 times smaller than the sum
