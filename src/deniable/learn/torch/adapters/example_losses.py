"""One loss for each example, from the logits of a Hugging Face model.

The loss that such a model computes itself is a mean over all tokens of a batch, so that each example's share depends on
the lengths of the others. Here each example's loss is the mean over its own tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from deniable.errors import InvalidParameter, type_of

IGNORED = -100
"""The label of tokens that do not count, as in torch and transformers."""

WRITE = (
    "give PrivateTrainer(compute_loss_func=) a function (outputs, labels, num_items_in_batch) -> one loss per example"
)


def of_model(model: Any, outputs: Any, labels: Tensor | None) -> Tensor:
    """The losses of a model with known outputs; raises InvalidParameter for other models."""
    if labels is None:
        raise InvalidParameter("train_dataset", "labels", "has no labels, so no loss can be computed", WRITE)
    logits, kind = outputs["logits"], getattr(model, "loss_type", None)
    if getattr(model.config, "is_encoder_decoder", False) and logits.dim() == 3:
        return of_tokens(logits, labels)
    if kind in ("ForMaskedLM", "ForTokenClassification"):
        return of_tokens(logits, labels)
    if kind == "ForCausalLM" or (kind is None and "LMHead" in type(model).__name__):
        return of_tokens(logits[:, :-1], labels[:, 1:])
    if isinstance(kind, str) and kind.endswith("Classification"):
        return of_classes(logits, labels, getattr(model.config, "problem_type", None))
    rule = "computes a loss that the adapter does not know for single examples"
    raise InvalidParameter("model", type_of(model), rule, WRITE)


def of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, averaged over each example's own tokens whose label is not -100; 0 for an example without any."""
    each = F.cross_entropy(logits.transpose(1, 2).float(), labels, ignore_index=IGNORED, reduction="none")
    return each.sum(dim=1) / (labels != IGNORED).sum(dim=1).clamp(min=1)


def of_classes(logits: Tensor, labels: Tensor, problem: str | None) -> Tensor:
    """The loss of each example for a classifier or a regression, chosen as transformers does: cross-entropy for one
    class, binary cross-entropy for several labels at once, squared error for numbers.
    """
    if problem is None:
        whole = labels.dtype in (torch.long, torch.int)
        problem = "regression" if logits.shape[-1] == 1 else "single_label" if whole else "multi_label"
    logits = logits.float()
    if problem.startswith("single_label"):
        return F.cross_entropy(logits, labels, reduction="none")
    shaped = labels.to(logits.dtype).reshape(logits.shape)
    if problem.startswith("multi_label"):
        return F.binary_cross_entropy_with_logits(logits, shaped, reduction="none").mean(dim=1)
    return F.mse_loss(logits, shaped, reduction="none").mean(dim=1)
