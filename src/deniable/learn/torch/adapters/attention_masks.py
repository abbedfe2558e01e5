"""Padding masks in the form that keeps the examples of a batch apart.

transformers checks whether a mask of shape (examples, tokens) hides no token of the whole batch, and if so takes
another code path. So the path of one example depends on the others, and the trainer would have to run each example
alone. A mask of shape (examples, 1, queries, keys) is used without this check. `Masks` tests once, on made-up tokens,
whether a model gives the same outputs with such a mask.
"""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor, nn

from deniable.learn.torch.guards.forward_watch import parts_of

TOKENS: Final = 6
TOLERANCE: Final = 1e-4


@final
class Masks:
    """Widens the padding masks of one model, if the model's outputs stay the same."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._kind = model, _tried(model)

    def wider(self, mask: Any) -> Any:
        """The mask for this model. Masks of other shapes than (examples, tokens) stay as they are."""
        if not isinstance(mask, Tensor) or mask.dim() != 2 or self._kind == "as given":
            return mask
        return _four(mask, self._kind, self._model)


def _four(mask: Tensor, kind: str, model: nn.Module) -> Tensor:
    """A mask of shape (examples, 1, 1 or queries, keys): boolean, or added to the scores by eager attention."""
    allowed = mask.bool()[:, None, None, :]
    if kind == "causal":
        allowed = allowed & torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool, device=mask.device).tril()
    if getattr(model.config, "_attn_implementation", None) != "eager":
        return allowed
    return torch.where(allowed, 0.0, torch.finfo(torch.float32).min)


def _tried(model: nn.Module) -> str:
    """The form of mask with which the model gives the same outputs as with a plain mask, tested on two made-up texts of
    different length: "padding", "causal", or "as given" if the outputs differ with both.
    """
    training = [each.training for each in parts_of(model)]
    model.eval()
    try:
        with torch.no_grad():
            plain = _logits(model, None)
            return next((kind for kind in ("padding", "causal") if _agrees(model, kind, plain)), "as given")
    except Exception:  # a model without tokens, or with other inputs: whatever it raises, its mask stays as it is
        return "as given"
    finally:
        for module, was in zip(parts_of(model), training, strict=True):
            module.training = was


def _agrees(model: nn.Module, kind: str, plain: Tensor) -> bool:
    try:
        return bool(torch.allclose(_logits(model, kind), plain, atol=TOLERANCE, rtol=TOLERANCE))
    except Exception:  # a model that does not take such a mask
        return False


def _logits(model: Any, kind: str | None) -> Tensor:
    """The logits of the tokens that are not masked."""
    device = next(model.parameters()).device
    tokens = (torch.arange(2 * TOKENS, device=device).view(2, TOKENS) + 3) % model.config.get_text_config().vocab_size
    mask = torch.ones(2, TOKENS, dtype=torch.long, device=device)
    mask[1, TOKENS // 2 :] = 0
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    found = model(input_ids=tokens, attention_mask=mask if kind is None else _four(mask, kind, model), **more)["logits"]
    made: Tensor = found[mask.bool()] if found.dim() == 3 and not more else found
    return made.float()
