"""Private training beside plain training, Opacus and vmap, all in one process: CPU time and peak memory, as ratios.

    python benchmarks/learn.py                 # all contenders that are installed, on four models
    python benchmarks/learn.py --steps 3 --only "CNN 26 k" --threads 1

A step is forward, backward, clipping, noise and an SGD step on one batch that exists already; sampling is left out for
all contenders. Times are medians over several rounds in which contenders take turns; memory is the largest growth of
what the process holds over one step, libraries left out, each contender in a process of its own.

Our trainer runs with exact noise, the default, and with floating-point noise like the other libraries, which adds an
assumption to the guarantee; it is printed. Both run in a loop over the trainer, and by `trainer.run`, which follows no
operations in Python.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

SIGMA, CLIP = 1.0, 1.0


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.mix, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.attend, self.second = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.first(x))
        return x + self.feed(self.second(x))


class Encoder(nn.Module):
    """Positions by an embedding that is called with (1, T): it sees no examples, unless `places_for_each` is set."""

    places_for_each = False

    def __init__(self, words: int, width: int, places: int, blocks: int, heads: int, classes: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.words(ids) + self.places(places.repeat(len(ids), 1) if self.places_for_each else places)
        return self.head(self.norm(self.blocks(x)).mean(1))


def small_cnn() -> nn.Module:
    body = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU()]
    return nn.Sequential(*body, nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    body = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]] = {
    "CNN 26 k": (small_cnn, lambda: torch.randn(256, 1, 28, 28), 10),
    "CNN 1.2 M": (cnn, lambda: torch.randn(256, 1, 28, 28), 10),
    "MLP 670 k": (mlp, lambda: torch.randn(256, 1, 28, 28), 10),
    "encoder 5.7 M": (lambda: Encoder(10_000, 256, 64, 4, 4, 2), lambda: torch.randint(0, 10_000, (32, 64)), 2),
}
TARGETS = {"CNN 26 k": 1.15, "CNN 1.2 M": 1.15, "MLP 670 k": 1.5, "encoder 5.7 M": 1.3}

Step = Callable[[], None]


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _ours(noise_of: Callable[[], object]) -> Callable[[nn.Module, torch.Tensor, torch.Tensor], Step]:
    def ours(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
        from deniable import learn
        from deniable.learn.torch import Trainer

        learn.DPSGD.drawn = lambda plan, records, step, entropy: records  # at rate 1 everybody; sampling is left out
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        plan = learn.DPSGD(clip=CLIP, rate=1.0, steps=10**6, noise=SIGMA)
        trainer = Trainer(model, optimizer, plan, (x, y), noise=noise_of(), progress=False)

        fetched = trainer._records.batch
        trainer._records.batch = lambda places, device: [x, y] if len(places) == len(x) else fetched(places, device)
        batches = iter(trainer)

        def one_batch() -> None:
            batch = next(batches)  # it first takes the step of the batch before
            trainer.backward(F.cross_entropy(model(batch[0]), batch[1], reduction="none"))

        def step() -> None:
            # It ends behind a backward pass: while a batch is out, the trainer follows what torch does in this thread,
            # and refuses the transforms of torch.func that another contender uses.
            before = trainer.steps_taken
            while trainer.steps_taken == before:
                one_batch()

        one_batch()
        return step

    return ours


def exact(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    from deniable.learn.torch import ExactNoise

    return _ours(ExactNoise)(model, x, y)


def floating(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    from deniable.learn.torch import DeviceNoise

    return _ours(DeviceNoise)(model, x, y)


def _run(noise_of: Callable[[], object]) -> Callable[[nn.Module, torch.Tensor, torch.Tensor], Step]:
    """Ours by `trainer.run`, in place of a loop over the trainer."""

    def run(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
        from deniable import learn
        from deniable.learn.torch import Trainer

        learn.DPSGD.drawn = lambda plan, records, step, entropy: records
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        plan = learn.DPSGD(clip=CLIP, rate=1.0, steps=10**6, noise=SIGMA)
        trainer = Trainer(model, optimizer, plan, (x, y), noise=noise_of(), progress=False, physical_batch=len(x))
        fetched = trainer._records.batch
        trainer._records.batch = lambda places, device: [x, y] if len(places) == len(x) else fetched(places, device)

        def losses(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

        return lambda: trainer.run(losses, steps=1)

    return run


def exact_run(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    from deniable.learn.torch import ExactNoise

    return _run(ExactNoise)(model, x, y)


def compiled(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    from deniable.learn.torch import DeviceNoise

    return _run(DeviceNoise)(model, x, y)


def with_vmap(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    from torch.func import functional_call, grad, vmap

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    parameters = dict(model.named_parameters())

    def loss(given, one, label):
        return F.cross_entropy(functional_call(model, given, (one.unsqueeze(0),)), label.unsqueeze(0))

    each = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        grads = each({name: value.detach() for name, value in parameters.items()}, x, y)
        squared = sum(value.flatten(1).square().sum(1) for value in grads.values())
        factors = (CLIP / squared.sqrt()).clamp(max=1.0)
        for name, value in grads.items():
            total = torch.tensordot(factors, value, 1)
            parameters[name].grad = (total + torch.randn_like(total) * SIGMA * CLIP) / len(x)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _opacus(mode: str) -> Callable[[nn.Module, torch.Tensor, torch.Tensor], Step]:
    def opacus(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        if isinstance(model, Encoder):
            model.places_for_each = True  # it refuses layers that see no examples
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        engine = PrivacyEngine(accountant="rdp")
        given = {
            "module": model,
            "optimizer": optimizer,
            "data_loader": DataLoader(TensorDataset(x, y), batch_size=len(x)),
            "noise_multiplier": SIGMA,
            "max_grad_norm": CLIP,
            "poisson_sampling": False,
        }
        if mode == "hooks":
            private, optimizer, _ = engine.make_private(**given)
            criterion = nn.CrossEntropyLoss()
        else:
            private, optimizer, criterion, _ = engine.make_private(
                **given, criterion=nn.CrossEntropyLoss(), grad_sample_mode="ghost"
            )

        def step() -> None:
            criterion(private(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return opacus


CONTENDERS = {
    "plain": plain,
    "deniable, exact noise": exact,
    "deniable, floating noise": floating,
    "deniable, run, exact noise": exact_run,
    "deniable, compiled": compiled,
    "vmap": with_vmap,
    "Opacus ghost": _opacus("ghost"),
    "Opacus hooks": _opacus("hooks"),
}


def contenders() -> list[str]:
    there = importlib.util.find_spec("opacus") is not None
    return [name for name in CONTENDERS if there or not name.startswith("Opacus")]


def built(model: str, contender: str) -> Step:
    torch.manual_seed(0)
    make, inputs, classes = MODELS[model]
    net, x = make(), inputs()
    return CONTENDERS[contender](net.train(), x, torch.randint(0, classes, (len(x),)))


def times(model: str, names: list[str], rounds: int) -> dict[str, float]:
    """The median CPU time of a step, contenders taking turns."""
    steps = {}
    for name in names:
        try:
            steps[name] = built(model, name)
            steps[name]()
        except Exception as error:  # a contender's trouble is a result
            print(f"  {name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
            steps.pop(name, None)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            if taken[name] and taken[name][0] > 20 * taken["plain"][0]:  # one measurement of what takes long is enough
                continue
            gc.collect()
            start = time.process_time()
            step()
            taken[name].append(time.process_time() - start)
    return {name: statistics.median(each) for name, each in taken.items()}


def memory(model: str, name: str) -> float:
    """Megabytes that a step needs beyond what is there before it; in a process of its own."""
    command = [sys.executable, __file__, "--measure", model, name, "--threads", str(torch.get_num_threads())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout)["peak"]) if done.returncode == 0 else math.nan


def measured(model: str, name: str) -> float:
    step = built(model, name)
    for _ in range(2):
        step()
    forget_the_peak()
    step()
    return peak()


def forget_the_peak() -> None:
    """What was held while the model was built, libraries were loaded and kernels compiled is not what a step needs."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # elsewhere than on Linux, it stays in


def peak() -> float:
    """The most megabytes that this process held. Where there is /proc, without what its parent held before it began,
    and without pages of files: libraries, which are the same whatever the model."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return (int(lines["VmHWM"].split()[0]) - int(lines["RssFile"].split()[0])) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="rounds of one step each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=MODELS, help="one model")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.measure:
        empty = peak()
        print(json.dumps({"peak": measured(*given.measure) - empty}))
        return
    names = given.contenders or contenders()
    names = names if "plain" in names else ["plain", *names]
    from deniable.learn.torch import DeviceNoise

    print(f"with floating noise, ours assumes: {DeviceNoise().assumptions[0]}")
    found = {}
    for model in [given.only] if given.only else MODELS:
        best = times(model, names, given.steps)
        peaks = {} if given.no_memory else {name: memory(model, name) for name in best}
        print(f"\n{model}: plain step {best['plain'] * 1000:.1f} ms CPU; we must reach {TARGETS[model]:g}")
        for name, each in best.items():
            held = f"  memory {peaks[name] / peaks['plain']:6.2f} ×" if peaks else ""
            print(f"  {name:24s} {each / best['plain']:7.2f} × time{held}")
        found[model] = {"time": best, "memory": peaks}
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
