"""A zoo of models: every kind of layer that is handled, and every awkward way to use one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.mix, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.feed(self.second(x))


class Encoder(nn.Module):
    """The positions are an embedding that sees no examples: it is called once for all of them."""

    def __init__(self, words=30, width=8, places=6, blocks=2, heads=2, classes=3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class BareParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 5))
        self.places = nn.Parameter(torch.randn(4, 5))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        return self.head(self.scale * torch.tanh(self.inner(x))).mean(1)


class TiedLanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 6)
        self.inner = nn.Linear(6, 6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.inner(self.words(ids)))).mean(1)


class FunctionalTie(nn.Module):
    """Uses a layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(12, 6), nn.Linear(6, 6)

    def forward(self, ids):
        return F.linear(torch.tanh(self.inner(self.words(ids))), self.words.weight).mean(1)


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same, self.norm, self.head = nn.Linear(5, 5), nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, x):
        for _ in range(3):
            x = self.norm(torch.tanh(self.same(x)))
        return self.head(x)


class ReusedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.same(torch.relu(self.same(x))).mean((2, 3)))


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.3)
        self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.3)

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


class Recurrent(nn.Module):
    def __init__(self, kind, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.core = kind(4, 5, num_layers=2, batch_first=batch_first, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        if self.batch_first:
            return self.head(self.core(x)[0].mean(1))
        return self.head(self.core(x.transpose(0, 1))[0].mean(0))


class Attending(nn.Module):
    """torch's own attention; across two inputs, or of one to itself."""

    def __init__(self, batch_first: bool, cross: bool, **more) -> None:
        super().__init__()
        self.batch_first, self.cross = batch_first, cross
        self.attend = nn.MultiheadAttention(6, 2, batch_first=batch_first, **more)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = x if self.batch_first else x.transpose(0, 1)
        other = torch.sin(x) if self.cross else x
        y, _ = self.attend(x, other, other, need_weights=False)
        return self.head(y.mean(1 if self.batch_first else 0))


class Folded(nn.Module):
    """Views of an example are folded into the batch, places first or examples first, and out again."""

    def __init__(self, examples_first: bool) -> None:
        super().__init__()
        self.examples_first = examples_first
        self.inner, self.norm, self.head = nn.Linear(5, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)

    def forward(self, x):
        count, places = x.shape[:2]
        flat = x.flatten(0, 1) if self.examples_first else x.transpose(0, 1).flatten(0, 1)
        y = self.norm(self.inner(flat))
        back = (
            y.unflatten(0, (count, places)).mean(1) if self.examples_first else y.unflatten(0, (places, count)).mean(0)
        )
        return self.head(back)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


class Twice(nn.Module):
    """A model that compares two looks at each example: the loss calls it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x):
        return self.inner(x) * self.inner(-x)


class Subclass(nn.Linear):
    """Not what its type says: closed forms must not be used."""

    def forward(self, x):
        return F.linear(x, self.weight * 2.0) + self.bias**2


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 5))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        return self.head(checkpoint(self.inner, x, use_reentrant=False))


class DictOutput(nn.Module):
    """As Hugging Face models answer: keyword inputs, a dict of outputs, some of them unused."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.body = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, *, input_ids, attention_mask):
        x = self.body(self.words(input_ids), src_key_padding_mask=~attention_mask)
        return {"logits": self.head(x[:, 0]), "hidden": x}


def _normed(kind):
    return lambda: nn.Sequential(nn.Linear(5, 6), kind(), nn.Linear(6, 3))


def _seeded(*shape):
    return lambda count: torch.randn(count, *shape)


def _ids(most, places):
    return lambda count: torch.randint(0, most, (count, places))


def _parametrized():
    return nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.Tanh(), nn.Linear(6, 3))


def _convolutions(layer, *, head=True):
    return lambda: nn.Sequential(layer(), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


ZOO = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)), _seeded(5)),
    "linear on places": (
        lambda: nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 3), nn.Flatten()),
        _seeded(2, 5),
    ),
    "linear on many places": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3), nn.Flatten()),
        _seeded(9, 3),
    ),
    "linear without bias": (lambda: nn.Sequential(nn.Linear(5, 3, bias=False)), _seeded(5)),
    "conv1d": (_convolutions(lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1)), _seeded(3, 11)),
    "conv2d": (_convolutions(lambda: nn.Conv2d(2, 4, 3, padding=1)), _seeded(2, 6, 6)),
    "conv2d few places": (_convolutions(lambda: nn.Conv2d(6, 12, 3)), _seeded(6, 4, 4)),
    "conv2d strided, dilated, uneven": (
        _convolutions(lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(2, 1))),
        _seeded(2, 8, 7),
    ),
    "conv2d grouped": (_convolutions(lambda: nn.Conv2d(4, 8, 3, groups=2)), _seeded(4, 5, 5)),
    "conv2d depthwise": (
        _convolutions(lambda: nn.Conv2d(4, 4, 3, groups=4, padding="same", bias=False)),
        _seeded(4, 5, 5),
    ),
    "conv2d grouped, few places": (_convolutions(lambda: nn.Conv2d(8, 16, 3, groups=2)), _seeded(8, 4, 3)),
    "conv2d circular": (
        _convolutions(lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")),
        _seeded(2, 5, 5),
    ),
    "conv3d": (_convolutions(lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1))), _seeded(2, 4, 4, 3)),
    "transposed convolution": (_convolutions(lambda: nn.ConvTranspose2d(2, 3, 2)), _seeded(2, 4, 4)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3)), _ids(9, 5)),
    "embedding with padding": (
        lambda: nn.Sequential(nn.Embedding(4, 4, padding_idx=2), nn.Flatten(), nn.Linear(20, 3)),
        _ids(4, 5),
    ),
    "layer norm": (_normed(lambda: nn.LayerNorm(6)), _seeded(5)),
    "layer norm on places": (_normed(lambda: nn.LayerNorm((4, 6))), _seeded(2, 4, 5)),
    "rms norm": (_normed(lambda: nn.RMSNorm(6)), _seeded(3, 5)),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.Flatten(), nn.Linear(54, 3)),
        _seeded(2, 5, 5),
    ),
    "group norm without places": (_normed(lambda: nn.GroupNorm(2, 6)), _seeded(5)),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 2), nn.InstanceNorm1d(4, affine=True), nn.Flatten(), nn.Linear(24, 3)),
        _seeded(2, 7),
    ),
    "prelu": (_normed(lambda: nn.PReLU()), _seeded(5)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(5, 6), Squared(6)), _seeded(5)),
    "encoder": (Encoder, _ids(30, 6)),
    "encoder, as many places as examples": (lambda: Encoder(places=5), _ids(30, 5)),
    "bare parameters": (BareParameters, _seeded(3, 5)),
    "tied": (TiedLanguageModel, _ids(12, 4)),
    "tied without a call": (FunctionalTie, _ids(12, 4)),
    "reused": (Reused, _seeded(5)),
    "reused convolution": (ReusedConvolution, _seeded(3, 5, 5)),
    "lora": (lambda: nn.Sequential(LoRA(nn.Linear(5, 6), 2), nn.Tanh(), LoRA(nn.Linear(6, 3), 1)), _seeded(5)),
    "lstm": (lambda: Recurrent(nn.LSTM, True), _seeded(6, 4)),
    "lstm, places first": (lambda: Recurrent(nn.LSTM, False), _seeded(6, 4)),
    "gru": (lambda: Recurrent(nn.GRU, True), _seeded(6, 4)),
    "attention": (lambda: Attending(True, False), _seeded(4, 6)),
    "attention, places first": (lambda: Attending(False, False), _seeded(4, 6)),
    "attention across": (lambda: Attending(True, True), _seeded(4, 6)),
    "attention with bias rows": (lambda: Attending(True, False, add_bias_kv=True), _seeded(4, 6)),
    "transformer layer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, batch_first=True), nn.Flatten(), nn.Linear(24, 3)
        ),
        _seeded(4, 6),
    ),
    "folded, examples first": (lambda: Folded(True), _seeded(4, 5)),
    "folded, places first": (lambda: Folded(False), _seeded(4, 5)),
    "in place": (InPlace, _seeded(5)),
    "twice": (Twice, _seeded(5)),
    "subclass": (lambda: nn.Sequential(Subclass(5, 6), nn.Tanh(), nn.Linear(6, 3)), _seeded(5)),
    "weight norm": (_parametrized, _seeded(5)),
    "checkpointed": (Checkpointed, _seeded(5)),
    "partly frozen": (
        lambda: _frozen(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))),
        _seeded(5),
    ),
}


class Squared(nn.Module):
    def __init__(self, width) -> None:
        super().__init__()
        self.both = nn.Bilinear(width, width, 3)

    def forward(self, x):
        return self.both(x, x)


def _frozen(model):
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def built(name: str, count: int = 5, seed: int = 0, dtype=torch.float64):
    """A model of the zoo, its inputs and its targets; double precision, so that only real mistakes are left."""
    torch.manual_seed(seed)
    make, inputs = ZOO[name]
    model, x, y = make(), inputs(count), torch.randint(0, 3, (count,))
    model(x)  # lazy layers find their sizes
    return model.to(dtype), x.to(dtype) if x.is_floating_point() else x, y


def losses_of(model, x, y):
    out = model(x)
    return F.cross_entropy(out.flatten(1), y, reduction="none") if out.dim() > 1 else out
