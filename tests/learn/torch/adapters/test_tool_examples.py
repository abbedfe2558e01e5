"""The example of each tool runs, and says what it promises."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
KINDS = ("DeprecationWarning", "FutureWarning", "UserWarning")
WARNED = [*(f"ignore:.*:{kind}" for kind in KINDS), "error:each example is computed alone"]
pytestmark = [pytest.mark.torch, pytest.mark.slow, *map(pytest.mark.filterwarnings, WARNED)]

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
torch.set_num_threads(1)


def example(name, package):
    pytest.importorskip(package, reason=f"{package} is not installed: make test-all brings it")
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_hugging_face(tmp_path):
    module = example("hugging_face_trainer", "transformers")
    trainer = module.trained(60, 1, str(tmp_path))
    text = module.report(trainer).to_markdown()
    assert trainer.private.finished
    assert "(ε, δ)-differentially private with ε = 3 at δ = 10⁻⁵" in text
    assert "loss on public texts" in text


def test_lightning():
    private, accuracy = example("lightning_module", "lightning").trained(60, 1)
    assert private.run.finished
    assert 0 <= accuracy <= 1


def test_accelerate():
    trainer = example("accelerate_loop", "accelerate").trained(60, 1)
    assert trainer.finished
    assert "ε = 3 at δ = 10⁻⁵" in " ".join(str(trainer.report(delta=1e-5)).split())
