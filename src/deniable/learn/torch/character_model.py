"""A small character-level language model, trained on text with a planted secret.

`Planted` is the opponent of `attacks.SecretExtraction`. It trains a model on lines of text that include a secret,
without privacy or under a plan, and returns a function that scores candidate secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from deniable.curves import Curve, curve_arguments
from deniable.errors import NOTHING, InvalidParameter
from deniable.learn.plans import Plan
from deniable.learn.torch.trainer import Trainer

ALPHABET: Final = " abcdefghijklmnopqrstuvwxyz0123456789.,"
CONTEXT: Final = 8
"""Number of preceding characters that predict the next one."""
WIDTH: Final = 64
AT_ONCE: Final = 1000
"""Number of texts that are scored at a time."""

_NAMES: Final = ("ada", "ben", "cem", "dora", "emil", "finn", "greta", "hana", "ines", "jan", "kim", "lea")
_THINGS: Final = ("tea", "bread", "stamps", "rice", "a book", "soap", "milk", "a pen")


def sample_lines(*, count: int, seed: int) -> list[str]:
    """`count` lines of made-up text about purchases, reproducible from the seed.

    >>> sample_lines(count=1, seed=1)
    ['finn paid 5606 for milk.']
    """
    chance = np.random.default_rng(curve_arguments.integer("seed", seed, 0))
    return [
        f"{chance.choice(_NAMES)} paid {chance.integers(1000, 10_000)} for {chance.choice(_THINGS)}."
        for _ in range(curve_arguments.integer("count", count, 1))
    ]


@final
class CharacterModel(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Predicts a character from the `CONTEXT` characters before it: an embedding, one hidden layer, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET) + 1, 8)
        self.hidden = nn.Linear(8 * CONTEXT, WIDTH)
        self.out = nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, windows: Tensor) -> Tensor:
        """Logits of the next character: (lines, places, context) -> (lines, places, alphabet)."""
        return self.out(torch.tanh(self.hidden(self.embedding(windows).flatten(-2))))

    def losses(self, windows: Tensor, following: Tensor) -> Tensor:
        """The log-perplexity of each line: -log of the probability that the model assigns to its characters."""
        return _log_perplexity(self(windows), following)

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The log-perplexity of each text; a smaller value means a likelier text.

        Computed in double precision: for a model that has learned little, thousands of candidates are nearly equally
        likely, and single precision would tie or reorder some of them.
        """
        windows, following = encoded(texts)
        exact = {name: weight.double() for name, weight in self.state_dict().items()}
        parts = []
        with torch.no_grad():
            for start in range(0, len(texts), AT_ONCE):
                some = slice(start, start + AT_ONCE)
                parts.append(_log_perplexity(functional_call(self, exact, windows[some]), following[some]))
        return torch.cat(parts).numpy()  # type: ignore[no-any-return]  # torch has no types here


def _log_perplexity(scores: Tensor, following: Tensor) -> Tensor:
    """-log of the probability of each line, from the logits of its characters."""
    return cross_entropy(scores.transpose(1, 2), following, reduction="none", ignore_index=-1).sum(dim=1)


def encoded(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(windows of `CONTEXT` characters, next characters) of each line. Shorter lines are padded with -1."""
    known = {character: i for i, character in enumerate(ALPHABET)}
    if any(character not in known for text in texts for character in text):
        raise InvalidParameter("texts", NOTHING, f"must be written in the characters {ALPHABET!r}")
    longest = max((len(text) for text in texts), default=0)
    before = np.full((len(texts), longest + CONTEXT), len(ALPHABET), dtype=np.int64)
    following = np.full((len(texts), longest), -1, dtype=np.int64)
    for row, text in enumerate(texts):
        codes = [known[character] for character in text]
        before[row, CONTEXT : CONTEXT + len(codes)] = codes
        following[row, : len(codes)] = codes
    windows = np.lib.stride_tricks.sliding_window_view(before[:, :-1], CONTEXT, axis=1)
    return torch.from_numpy(windows.copy()), torch.from_numpy(following)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Trains a `CharacterModel` on `lines` and on `copies` lines with the secret, and returns a scorer of candidates.

    With a `plan` the training is private, with one record per line, and `curve` bounds the leakage about all lines with
    the secret together: it is the plan's curve for a group of `copies`. Without a plan, training is `epochs` steps of
    Adam on all lines, without privacy.
    """

    lines: Sequence[str]
    plan: Plan | None = None
    prefix: str = "my code is "
    copies: int = 1
    epochs: int = 300
    rate: float = 0.01
    """Adam's learning rate."""

    def __post_init__(self) -> None:
        curve_arguments.integer("copies", self.copies, 1)
        curve_arguments.integer("epochs", self.epochs, 1)
        curve_arguments.positive("rate", self.rate)

    @property
    def curve(self) -> Curve | None:
        """The curve with respect to all lines with the secret; None without a plan."""
        if self.plan is None:
            return None
        return self.plan.curve if self.copies == 1 else self.plan.curve.group(size=self.copies)

    def __call__(self, secret: str) -> Any:
        data = encoded([*self.lines, *[self.prefix + secret] * self.copies])
        model = CharacterModel()
        optimizer = torch.optim.Adam(model.parameters(), lr=self.rate)
        if self.plan is None:
            for _ in range(self.epochs):
                optimizer.zero_grad()
                model.losses(*data).mean().backward()
                optimizer.step()
        else:
            trainer = Trainer(model, optimizer, self.plan, data, progress=False)
            for windows, following in trainer:
                trainer.backward(model.losses(windows, following))
        return lambda candidates: model.scores([self.prefix + candidate for candidate in candidates])
