"""The loss of behaviour cloning: beside the stock model's own loss on the same tokens."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from threespo.imitation.cloning import Cloner, TrainingExample
from threespo.imitation.curriculum import Stage

BATCH = [TrainingExample((5, 6, 7, 8, 9, 10, 11), 4, (5, 6)), TrainingExample((3, 2, 12, 13), 2, (3, 3))]


def _cloner():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    model = Qwen2ForCausalLM(
        Qwen2Config(vocab_size=20, num_attention_heads=2, num_key_value_heads=2, **sizes)
    )
    return model, Cloner(model, None, SimpleNamespace(recipe=SimpleNamespace(seed=0)))


@pytest.mark.parametrize("prompt_weight", [0.0, 1.0])
def test_the_loss_is_that_of_the_stock_model(prompt_weight):
    model, cloner = _cloner()
    stage = Stage(1, 1e-3, prompt_weight, 1.0, None, None)
    labels = torch.full((2, 7), -100)
    inputs = torch.zeros((2, 7), dtype=torch.long)
    for row, example in enumerate(BATCH):
        tokens = torch.tensor(example.tokens)
        inputs[row, : len(tokens)] = tokens
        start = 0 if prompt_weight else example.prompt_length
        labels[row, start : len(tokens)] = tokens[start:]
    wanted = model(input_ids=inputs, labels=labels).loss
    wanted.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss = cloner._loss(BATCH, stage)
    loss.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_deciding_tokens_weigh_what_the_stage_says():
    model, cloner = _cloner()
    (example,) = BATCH[:1]
    logits = model(input_ids=torch.tensor([example.tokens])).logits[0]
    likely = logits.log_softmax(-1)
    # Response tokens are those at 4, 5 and 6; the one at 5 decides.
    each = [-likely[place - 1, example.tokens[place]].item() for place in (4, 5, 6)]
    stage = Stage(1, 1e-3, 0.0, 6.0, None, None)
    assert cloner._loss([example], stage).item() == pytest.approx(
        (each[0] + 6 * each[1] + each[2]) / 8, rel=1e-5
    )
