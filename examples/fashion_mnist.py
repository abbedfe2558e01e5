"""Fashion-MNIST with a private linear classifier on scattering features, at (3, 10⁻⁵).

    pip install ".[torch,cli]"                   # training, and a bar that shows how far it is
    apt install dataset-fashion-mnist            # Debian and Ubuntu
    python examples/fashion_mnist.py             # five seeds
    python examples/fashion_mnist.py --seeds 1 --epsilon 1

Features are fixed functions of one picture: two layers of wavelets (Bruna & Mallat 2013), brought to mean 0 and
variance 1 in groups of channels of that same picture. No statistic of the data is used, so that none has to be paid
for; what is learnt privately is one linear layer. The recipe is that of Tramèr & Boneh, *Differentially private
learning needs better features (or much more data)*, 2021; the learning rate was chosen on 10,000 of the training
pictures, which is not paid for. A seed sets where the linear layer starts; coins and noise have none.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from deniable import learn
from deniable.learn.torch import Trainer

FOLDER = Path("/usr/share/datasets/fashion-mnist")
SCALES, ANGLES, BORDER = 2, 8, 4
GROUPS = 27
"""Groups of the 81 channels that are normalised together."""


def pictures(folder: Path, which: str) -> tuple[Tensor, Tensor]:
    """Pictures in [0, 1] and their labels, from the files of the dataset."""
    raw = gzip.decompress((folder / f"{which}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{which}-labels-idx1-ubyte.gz").read_bytes())
    x = torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=16).view(-1, 28, 28).float().div_(255)
    return x, torch.frombuffer(bytearray(labels), dtype=torch.uint8, offset=8).long()


def wavelet(size: int, width: float, angle: float, frequency: float, slant: float) -> Tensor:
    """A Gabor function on a torus of size × size, as complex numbers."""
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    curve = turn @ torch.diag(torch.tensor([1.0, slant**2], dtype=torch.float64)) @ turn.T / (2 * width**2)
    one = torch.arange(-2 * size, 3 * size, dtype=torch.float64)
    x, y = torch.meshgrid(one, one, indexing="ij")
    bell = torch.exp(-(curve[0, 0] * x**2 + 2 * curve[0, 1] * x * y + curve[1, 1] * y**2))
    wave = torch.polar(bell, frequency * (x * math.cos(angle) + y * math.sin(angle)))
    return wave.view(5, size, 5, size).sum((0, 2)) * slant / (2 * math.pi * width**2)


def morlet(size: int, scale: int, angle: float) -> Tensor:
    """The Fourier transform of a Morlet wavelet: a Gabor function without its mean. It is real."""
    width, frequency, slant = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale, 4 / ANGLES
    wave, bell = (wavelet(size, width, angle, each, slant) for each in (frequency, 0.0))
    return torch.fft.fft2(wave - bell * (wave.sum() / bell.sum())).real.float()


class Scattering:
    """81 channels of 7 × 7 from a picture of 28 × 28: its averages, those of |x * ψ|, and those of ||x * ψ| * ψ'|."""

    def __init__(self) -> None:
        size = 28 + 2 * BORDER
        turns = [math.pi * k / ANGLES for k in range(ANGLES)]
        self.waves = [torch.stack([morlet(size, scale, turn) for turn in turns]) for scale in range(SCALES)]
        bell = wavelet(size, 0.8 * 2 ** (SCALES - 1), 0.0, 0.0, 1.0).real.sum(1)
        middle = torch.arange(BORDER, BORDER + 28, 2**SCALES)
        places = torch.arange(size)
        whole = bell[(middle.unsqueeze(1) - places) % size].float()
        half = bell[(middle.unsqueeze(1) - places[::2]) % size].float() * 2
        self.averages = {size: whole, size // 2: half}
        """From rows of full and of half resolution to the seven places that are kept; the same for columns."""

    def __call__(self, x: Tensor) -> Tensor:
        grown = F.pad(x.unsqueeze(1), [BORDER] * 4, mode="reflect")[:, 0]
        seen = torch.fft.fft2(grown)
        fine = torch.fft.ifft2(seen.unsqueeze(1) * self.waves[0]).abs()
        coarse = self._at_half(seen.unsqueeze(1) * self.waves[1]).abs()
        pairs = self._at_half(torch.fft.fft2(fine).unsqueeze(2) * self.waves[1]).abs().flatten(1, 2)
        return torch.cat([self._averaged(each) for each in (grown.unsqueeze(1), fine, coarse, pairs)], 1)

    def _at_half(self, seen: Tensor) -> Tensor:
        """Every other place of the inverse transform: frequencies half a turn apart fall together."""
        half = seen.shape[-1] // 2
        folded = seen.unflatten(-1, (2, half)).sum(-2).unflatten(-2, (2, half)).sum(-3)
        return torch.fft.ifft2(folded / 4)

    def _averaged(self, x: Tensor) -> Tensor:
        weights = self.averages[x.shape[-1]]
        return weights @ x @ weights.T


def features(x: Tensor, words: str) -> Tensor:
    """For each picture 3969 numbers, half precision to save room."""
    scattering, parts = Scattering(), []
    for part in track(x.split(500), description=words, console=Console(stderr=True), transient=True):
        parts.append(F.group_norm(scattering(part), GROUPS).flatten(1).half())
    return torch.cat(parts)


def prepared(folder: Path, cache: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Features and labels for training and test, made once."""
    made = {}
    for which in ("train", "t10k"):
        place = cache / f"{which}.pt"
        x, y = pictures(folder, which)
        if not place.exists():
            aside = place.with_suffix(f".{os.getpid()}")
            torch.save(features(x, f"features of {which}"), aside)
            aside.replace(place)
        made[which] = torch.load(place, weights_only=True, mmap=True), y
    return made


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        right = sum(
            int((model(a.float()).argmax(1) == b).sum()) for a, b in zip(x.split(1000), y.split(1000), strict=True)
        )
    return right / len(y)


def trained(plan: learn.DPSGD, x: Tensor, y: Tensor, seed: int, rate: float, size: int | None) -> nn.Module:
    """One linear layer, trained as the plan has it: the average of what it was in the last third of the steps.

    Averaging models that were private already costs nothing.
    """
    torch.manual_seed(seed)
    model = nn.Linear(x.shape[1], 10)
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def keep(trainer: Trainer) -> None:
        if 3 * trainer.steps_taken > 2 * plan.steps:
            averaged.update_parameters(model)

    trainer = Trainer(model, optimizer, plan, (x, y), physical_batch=size, after_step=keep)
    for inputs, labels in trainer:
        trainer.backward(F.cross_entropy(model(inputs.float()), labels, reduction="none"))
    trainer.close()
    return averaged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=5, help="how many runs, each a private run of its own (default %(default)s)"
    )
    parser.add_argument("--epsilon", type=float, default=3.0, help="of one run (default %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="of one run (default %(default)s)")
    parser.add_argument("--steps", type=int, default=293, help="steps of a run (default %(default)s)")
    parser.add_argument("--batch", type=int, default=8192, help="pictures in a step, on average (default %(default)s)")
    parser.add_argument("--rate", type=float, default=16.0, help="learning rate (default %(default)s)")
    parser.add_argument("--clip", type=float, default=0.1, help="longest gradient of one picture (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files of the dataset are")
    cache = Path(tempfile.gettempdir()) / "deniable-fashion-mnist"
    parser.add_argument(
        "--cache", type=Path, default=cache, help="where features are kept, 600 MB (default %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the processor")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if not given.folder.is_dir():
        parser.error(f"{given.folder} is not there; on Debian and Ubuntu: apt install dataset-fashion-mnist")
    if given.seeds < 1 or given.threads < 1:
        parser.error("--seeds and --threads must be at least 1")
    given.cache.mkdir(parents=True, exist_ok=True)
    start = time.process_time()
    data = prepared(given.folder, given.cache)
    (x, y), test = data["train"], data["t10k"]
    print(f"features: {x.shape[1]} for each of {len(x)} pictures, {time.process_time() - start:.0f} CPU s")
    plan = learn.DPSGD(clip=given.clip, batch_size=given.batch, records=len(x), steps=given.steps)
    plan = plan.calibrate(epsilon=given.epsilon, delta=given.delta)
    print(plan.explain(delta=given.delta))
    found = []
    for seed in range(given.seeds):
        start = time.process_time()
        model = trained(plan, x, y, seed, given.rate, 4096)
        found.append(100 * accuracy(model, *test))
        print(
            f"seed {seed}: {found[-1]:.2f} % of the test pictures, {time.process_time() - start:.0f} CPU s", flush=True
        )
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    print(
        f"mean over {len(found)} seeds: {statistics.fmean(found):.2f} %{spread} at ({given.epsilon:g}, {given.delta:g})"
    )


if __name__ == "__main__":
    main()
