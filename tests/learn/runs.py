"""Tiny data, a tiny model, and a run over both."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from deniable import learn
from deniable.learn.torch import Trainer


def data(count=40, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    return x, (x.sum(1) > 0).long()


def net(width=4, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, 2))


def made(model=None, plan=None, dataset=None, *, lr=0.1, **more):
    model = net() if model is None else model
    plan = learn.DPSGD(clip=1.0, rate=0.3, steps=4, noise=1.0) if plan is None else plan
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return Trainer(model, optimizer, plan, data() if dataset is None else dataset, progress=False, **more)


def entropy_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def run(trainer, batches=None, losses=lambda each: each):
    for batch in trainer if batches is None else batches:
        trainer.backward(losses(entropy_loss(trainer.model, batch)))
    return trainer
