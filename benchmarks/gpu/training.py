"""Private training beside plain training, vmap and Opacus on an accelerator: time and peak memory of a step, as ratios.

    python benchmarks/gpu/training.py --json out.json
    python benchmarks/gpu/training.py --dtype bf16 --compile    # autocast, beside plain training by torch.compile too
    python benchmarks/gpu/training.py --opacus DIR              # a folder from which `import opacus` works
    python benchmarks/gpu/training.py --tiny                    # a try, on whatever is there

A step is forward, backward, clipping, noise and an SGD step on one batch that is there already; sampling is left out,
for everyone. Noise is torch's on the device, for everyone (`DeviceNoise`, with the assumption that is printed). Matrix
products are TF32, or, with `--dtype bf16`, what autocast makes of them. Parameters are in single precision. Times are
medians over rounds in which contenders take turns; memory is the peak of what a step holds, model and batch included,
with all memory that a contender's CUDA graphs keep. "deniable" is a loop over the trainer, "deniable, run" is
`trainer.run`, whose steps are compiled.
Ratios are to the faster of plain training and compiled plain training, and to the memory of that one.

Needs torch, numpy and cryptography; a machine that cannot install it finds it by PYTHONPATH.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
if importlib.util.find_spec("deniable") is None:
    sys.path.insert(0, str(HERE.parents[2] / "src"))

from learn import CONTENDERS, Encoder, Step, cnn  # noqa: E402  # benchmarks/learn.py, found by the lines above


class Residual(nn.Module):
    """Two convolutions beside a shortcut, with group normalisation."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(ins, outs, 3, stride, padding=1, bias=False),
            nn.Conv2d(outs, outs, 3, padding=1, bias=False),
        )
        self.norms = nn.ModuleList([nn.GroupNorm(16, outs), nn.GroupNorm(16, outs)])
        same = stride == 1 and ins == outs
        self.short = nn.Identity() if same else nn.Conv2d(ins, outs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        return (inner + self.short(x)).relu()


def resnet18(width: int = 64) -> nn.Module:
    """ResNet-18 as it is used for 32×32 pictures, with GroupNorm."""
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.GroupNorm(16, width), nn.ReLU()]
    body = [
        Residual(width * 2 ** max(0, stage - (block == 0)), width * 2**stage, 2 if stage and block == 0 else 1)
        for stage in range(4)
        for block in range(2)
    ]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


class Autocast(nn.Module):
    """A model whose forward pass runs under autocast to bfloat16, and whose outputs are in single precision."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            out = self.inner(x)
        return out.float()


class LowRank(nn.Module):
    """A frozen linear map plus a trained one of low rank (LoRA)."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down, self.up = (
            nn.Linear(frozen.in_features, rank, bias=False),
            nn.Linear(rank, frozen.out_features, bias=False),
        )
        nn.init.normal_(self.up.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.up(self.down(x))


def low_rank(model: Encoder, rank: int) -> nn.Module:
    """The encoder with all linear maps of its blocks frozen and given a LoRA; its head is trained."""
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    for block in model.blocks:
        block.attend.mix, block.attend.out = LowRank(block.attend.mix, rank), LowRank(block.attend.out, rank)
        block.feed[0], block.feed[2] = LowRank(block.feed[0], rank), LowRank(block.feed[2], rank)
    return model


Model = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], int]


def words(examples: int, places: int, of: int = 50_257) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, of, (examples, places))


MODELS: dict[str, Model] = {
    "GPT-2-sized encoder, B 32": (lambda: Encoder(50_257, 768, 256, 12, 12, 2), words(32, 256), 2),
    "GPT-2-sized encoder, B 128": (lambda: Encoder(50_257, 768, 256, 12, 12, 2), words(128, 256), 2),
    "encoder 1.3 B, B 8": (lambda: Encoder(50_257, 2048, 512, 24, 16, 2), words(8, 512), 2),
    "encoder 1.3 B, LoRA 16, B 16": (
        lambda: low_rank(Encoder(50_257, 2048, 512, 24, 16, 2), 16),
        words(16, 512),
        2,
    ),
    "encoder 5.7 M, B 256": (lambda: Encoder(10_000, 256, 64, 4, 4, 2), lambda: torch.randint(0, 10_000, (256, 64)), 2),
    "CNN 1.2 M, B 1024": (cnn, lambda: torch.randn(1024, 1, 28, 28), 10),
    "ResNet-18, GroupNorm, B 512": (resnet18, lambda: torch.randn(512, 3, 32, 32), 10),
}
TINY: dict[str, Model] = {
    "GPT-2-sized encoder, B 32": (lambda: Encoder(500, 32, 16, 2, 2, 2), words(4, 16, 500), 2),
    "GPT-2-sized encoder, B 128": (lambda: Encoder(500, 32, 16, 2, 2, 2), words(8, 16, 500), 2),
    "encoder 1.3 B, B 8": (lambda: Encoder(500, 64, 16, 2, 2, 2), words(4, 16, 500), 2),
    "encoder 1.3 B, LoRA 16, B 16": (lambda: low_rank(Encoder(500, 64, 16, 2, 2, 2), 4), words(4, 16, 500), 2),
    "encoder 5.7 M, B 256": (lambda: Encoder(100, 16, 8, 1, 2, 2), lambda: torch.randint(0, 100, (8, 8)), 2),
    "CNN 1.2 M, B 1024": (cnn, lambda: torch.randn(8, 1, 28, 28), 10),
    "ResNet-18, GroupNorm, B 512": (lambda: resnet18(16), lambda: torch.randn(4, 3, 32, 32), 10),
}
GOALS = {  # time, memory
    "GPT-2-sized encoder, B 32": (1.25, 1.3),
    "GPT-2-sized encoder, B 128": (1.25, 1.3),
    "encoder 1.3 B, B 8": (1.3, math.nan),
    "encoder 1.3 B, LoRA 16, B 16": (1.15, math.nan),
    "encoder 5.7 M, B 256": (1.5, math.nan),
    "CNN 1.2 M, B 1024": (2.0, math.nan),
    "ResNet-18, GroupNorm, B 512": (1.5, math.nan),
}
COMPILED = "plain, compiled"
NAMES = {
    "plain": "plain",
    COMPILED: "plain",
    "deniable": "deniable, floating noise",
    "deniable, run": "deniable, compiled",
    "vmap": "vmap",
    "Opacus ghost": "Opacus ghost",
    "Opacus hooks": "Opacus hooks",
}


def built(model: Model, contender: str, device: torch.device, *, half: bool) -> Step:
    torch.manual_seed(0)
    make, inputs, classes = model
    net, x = make().to(device).train(), inputs().to(device)
    if contender.startswith("Opacus") and isinstance(net, Encoder):
        net.places_for_each = True  # it refuses layers that see no examples
    net = Autocast(net) if half else net
    if contender == COMPILED:
        net.compile()
    return CONTENDERS[NAMES[contender]](net, x, torch.randint(0, classes, (len(x),), device=device))


def settled(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def seconds(step: Step, times: int, device: torch.device) -> float:
    """Wall time of one step, the device's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def warmed(model: Model, name: str, device: torch.device, *, half: bool) -> tuple[Step, float]:
    """A contender's step, and the most megabytes that it holds, beyond what is there before."""
    settled(device)
    on_device = device.type == "cuda"
    before, kept_before = (torch.cuda.memory_allocated(), _kept_by_graphs()) if on_device else (0, 0)
    step = built(model, name, device, half=half)
    seconds(step, 3, device)  # the first may look at the model more closely
    if not on_device:
        return step, math.nan
    torch.cuda.reset_peak_memory_stats()
    seconds(step, 1, device)
    return step, (torch.cuda.max_memory_allocated() - before + _kept_by_graphs() - kept_before) / 2**20


def _kept_by_graphs() -> int:
    """Bytes of the memory of CUDA graphs that do not count as allocated."""
    graphs = [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) != (0, 0)]
    return sum(each["total_size"] - each["allocated_size"] for each in graphs)


def measured(
    model: Model, names: list[str], device: torch.device, rounds: int, times: int, *, half: bool
) -> dict[str, dict]:
    """Memory of each, then times in turns. Who fails, for want of memory or otherwise, is left out and named."""
    found: dict[str, dict] = {}
    steps: dict[str, Step] = {}
    for name in names:
        try:
            steps[name], peak = warmed(model, name, device, half=half)
            found[name] = {"MB": peak}
        except Exception as error:  # a contender's trouble is a result
            found[name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"}
            settled(device)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name in list(steps):
            try:
                taken[name].append(seconds(steps[name], times, device))
            except torch.OutOfMemoryError as error:
                found[name]["error"] = f"{type(error).__name__} beside the others"
                del steps[name]
                settled(device)
    for name, each in taken.items():
        if each:
            found[name] |= {"ms": 1000 * statistics.median(each), "least ms": 1000 * min(each)}
    return found


def shown(model: str, found: dict[str, dict]) -> None:
    plain = min(
        (found[name] for name in ("plain", COMPILED) if "ms" in found.get(name, ())), key=lambda each: each["ms"]
    )
    goal, room = GOALS[model]
    goals = [f"{what} {value:g} ×" for what, value in (("time", goal), ("memory", room)) if not math.isnan(value)]
    print(f"\n{model}: plain step {plain['ms']:.2f} ms, {plain['MB']:.0f} MB; goal {', '.join(goals) or 'none'}")
    for name, each in found.items():
        if "ms" in each:
            each["time ×"], each["memory ×"] = each["ms"] / plain["ms"], each["MB"] / plain["MB"]
            ratios = f"{each['time ×']:7.2f} × time  {each['memory ×']:6.2f} × memory"
            print(f"  {name:15s} {each['ms']:9.2f} ms  {each['MB']:8.0f} MB {ratios}")
        else:
            print(f"  {name:15s} {each['error']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small models, to see that everything runs")
    parser.add_argument("--opacus", type=Path, help="a folder with the package opacus, and what it needs")
    parser.add_argument("--dtype", choices=("tf32", "bf16"), default="tf32", help="precision of matrix products")
    parser.add_argument("--compile", action="store_true", help="plain training by torch.compile beside eager")
    parser.add_argument("--only", nargs="*", choices=MODELS, help="some of the models")
    parser.add_argument("--contenders", nargs="*", choices=NAMES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=5, help="steps in a round")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    parser.add_argument("--profile", type=Path, help="write where our time goes into this folder, for each model")
    given = parser.parse_args()
    if given.opacus:
        sys.path.insert(0, str(given.opacus.resolve()))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    names = given.contenders or [name for name in NAMES if name != COMPILED]
    names += [COMPILED] if given.compile and COMPILED not in names else []
    if importlib.util.find_spec("opacus") is None:
        names = [name for name in names if not name.startswith("Opacus")]
    names = names if "plain" in names else ["plain", *names]
    from deniable.learn.torch import DeviceNoise

    about = torch.cuda.get_device_name() if device.type == "cuda" else "no accelerator"
    print(
        f"{about}, torch {torch.__version__}; all noise is torch's. Ours then assumes: {DeviceNoise().assumptions[0]}"
    )
    models, found, half = TINY if given.tiny else MODELS, {}, given.dtype == "bf16"
    for model in given.only or MODELS:
        torch.compiler.reset()
        found[model] = measured(models[model], names, device, given.rounds, given.times, half=half)
        shown(model, found[model])
        if given.profile:
            profiled(models[model], model, device, given.profile, half=half)
        settled(device)
    if given.json:
        given.json.write_text(
            json.dumps({"device": about, "torch": torch.__version__, "dtype": given.dtype, "models": found}, indent=1)
        )


def profiled(model: Model, name: str, device: torch.device, folder: Path, *, half: bool) -> None:
    """A table of kernels for plain and for ours."""
    folder.mkdir(parents=True, exist_ok=True)
    on_device = device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * on_device
    for contender in ("plain", "deniable", "deniable, run"):
        step = built(model, contender, device, half=half)
        seconds(step, 3, device)
        with torch.profiler.profile(activities=kinds) as seen:
            seconds(step, 3, device)
        order = "self_cuda_time_total" if on_device else "self_cpu_time_total"
        place = folder / f"{''.join(c if c.isalnum() else '-' for c in name)}-{contender}.txt"
        place.write_text(seen.key_averages().table(sort_by=order, row_limit=40))


if __name__ == "__main__":
    main()
