"""One loss for each example: what the model itself computes for that example alone. Masks: the same outputs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("transformers", reason="transformers is not installed: make test-all brings it")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

import transformers as tf  # noqa: E402

from deniable import learn  # noqa: E402
from deniable.errors import InvalidParameter  # noqa: E402
from deniable.learn.torch import Trainer  # noqa: E402
from deniable.learn.torch.adapters import example_losses  # noqa: E402
from deniable.learn.torch.adapters.attention_masks import Masks  # noqa: E402
from tests.wording import worded  # noqa: E402

torch.set_num_threads(1)
DISTIL = {"vocab_size": 40, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 8}
GPT2 = {
    "vocab_size": 40,
    "n_embd": 8,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 8,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
T5 = {
    "vocab_size": 40,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 16,
    "num_layers": 1,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
LLAMA = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = torch.tensor([[5, 6, 7, 8, 9], [3, 4, 2, 11, 1], [30, 31, 32, 33, 2]])
TOKENS = torch.tensor([[5, -100, 7, 8, 9], [3, 4, -100, -100, -100], [30, 31, 32, 33, 2]])
MODELS = {
    "GPT-2": (tf.GPT2LMHeadModel, tf.GPT2Config, GPT2, TOKENS),
    "Llama": (tf.LlamaForCausalLM, tf.LlamaConfig, LLAMA, TOKENS),
    "T5": (tf.T5ForConditionalGeneration, tf.T5Config, T5, TOKENS),
    "words under a mask": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, DISTIL, TOKENS),
    "classes of tokens": (tf.DistilBertForTokenClassification, tf.DistilBertConfig, DISTIL, TOKENS.clamp(max=1)),
    "classes": (tf.DistilBertForSequenceClassification, tf.DistilBertConfig, DISTIL, torch.tensor([0, 1, 1])),
    "several classes": (
        tf.DistilBertForSequenceClassification,
        tf.DistilBertConfig,
        DISTIL | {"num_labels": 3},
        torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 1, 1]]),
    ),
    "a number": (
        tf.DistilBertForSequenceClassification,
        tf.DistilBertConfig,
        DISTIL | {"num_labels": 1},
        torch.tensor([0.5, -1.0, 2.0]),
    ),
}


def made(name):
    kind, config, settings, labels = MODELS[name]
    torch.manual_seed(0)
    return kind(config(**settings)).eval(), labels


@pytest.mark.parametrize("name", MODELS)
def test_a_loss_is_the_models_own_for_that_example_alone(name):
    model, labels = made(name)
    more = {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)} if name == "T5" else {}
    found = example_losses.of_model(model, model(input_ids=WORDS, **more), labels)
    for place in range(3):
        alone = model(input_ids=WORDS[place : place + 1], labels=labels[place : place + 1]).loss
        assert torch.allclose(found[place], alone, atol=1e-5), place


def test_a_text_without_labelled_tokens_has_loss_zero():
    model, labels = made("words under a mask")
    labels = labels.clone()
    labels[1] = -100
    assert example_losses.of_model(model, model(input_ids=WORDS), labels)[1].item() == 0.0


def test_models_with_other_losses_are_refused():
    model, labels = made("classes")
    with worded(InvalidParameter, parameter="train_dataset"):
        example_losses.of_model(model, model(input_ids=WORDS), None)
    questions = tf.DistilBertForQuestionAnswering(tf.DistilBertConfig(**DISTIL))
    with worded(InvalidParameter, parameter="model"):
        example_losses.of_model(questions, {"logits": torch.zeros(3, 2)}, labels)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("name", "kind"), [("GPT-2", "causal"), ("Llama", "causal"), ("T5", "padding"), ("classes", "padding")]
)
def test_a_wider_mask_gives_the_same_losses_and_keeps_examples_apart(name, kind, attention):
    """The losses of three texts of different lengths, against those with the mask that transformers expects; then a
    step of training, which would warn if it had to compute examples alone."""
    model, labels = made(name)
    model.set_attn_implementation(attention)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    if labels.dim() == 2 and name != "T5":
        labels = torch.where(mask.bool(), labels, -100)
    masks = Masks(model)
    assert masks._kind == kind

    def losses(words, mask, labels):
        more = {"decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)} if name == "T5" else {}
        return example_losses.of_model(model, model(input_ids=words, attention_mask=mask, **more), labels)

    with torch.no_grad():
        assert torch.allclose(losses(WORDS, masks.wider(mask), labels), losses(WORDS, mask, labels), atol=1e-5)
    data = tuple(each.repeat(4, *[1] * (each.dim() - 1)) for each in (WORDS, mask, labels))
    plan = learn.DPSGD(clip=1.0, rate=0.9, steps=2, noise=1.0)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data, progress=False)
    for words, padding, wanted in trainer:
        trainer.backward(losses(words, masks.wider(padding), wanted))
    assert trainer.one_by_one is None


def test_a_model_without_tokens_keeps_its_mask():
    masks = Masks(torch.nn.Linear(2, 2))
    mask = torch.ones(2, 3)
    assert masks.wider(mask) is mask
    assert masks.wider(None) is None
