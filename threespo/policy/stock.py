"""Sampling through the stock forward of any ``transformers`` causal language model, with its own growing cache.

Architectures differ in what they make of padding, positions and caches, and few of them complain. So a model is tried
before it is sampled: each way must give a response the probabilities that one plain forward over it gives.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from threespo.errors import InputError
from threespo.policy.draw import Responses
from threespo.policy.model import read_vocabulary_size, text_config

Tokens = Sequence[Sequence[int]]

Generator = Callable[[nn.Module, Tokens, Tokens, Responses], None]
"""Samples all rows to their ends: of a model, token ids of each prompt and numbers of the rows that answer it."""

_GAP = {torch.bfloat16: 0.1, torch.float16: 0.1}
"""Mean difference of log-probabilities that is rounding, with weights of few bits."""

_SMALL_GAP = 1e-3
"""With all other weights."""

_STATES = ("past_key_values", "cache_params", "state", "mems")
"""What architectures call that which a token leaves for the next one."""


def choose_generator(model: nn.Module, source: str) -> Generator:
    """Return the fastest way of sampling a model that draws from the model's own distribution.

    Args:
        model: a ``transformers`` causal language model whose weights are whole.
        source: what messages call it.

    Raises:
        InputError: if there is none: the model does not predict a token from those before it alone.
    """
    allowed = rounding_tolerance(model)
    fault = ""
    for respond in (generate_batch, generate_prompt_by_prompt):
        try:
            gap = _gap(model, respond)
        except torch.OutOfMemoryError:
            raise
        # Whatever an architecture that has no such cache, or does not know such an argument, leads to.
        except Exception as error:
            words = str(error).strip().splitlines() or [""]
            fault = f"{type(error).__name__}: {words[0][:160]}"
            continue
        if gap <= allowed:
            return respond
        fault = f"token by token its log-probabilities are others than in one forward, by {gap:.2g}"
    kind = text_config(_any(model).config).model_type
    raise InputError(
        f"{source}: {kind} models cannot be sampled here ({fault}). Choose a decoder model that "
        "predicts each token from those before it, or set sampler: vllm if that has it."
    )


def rounding_tolerance(model: nn.Module) -> float:
    """Return the mean difference of log-probabilities that is rounding, where two ways of computing are the same."""
    return _GAP.get(next(model.parameters()).dtype, _SMALL_GAP)


@torch.inference_mode()
def _gap(model: nn.Module, respond: Generator) -> float:
    """Return by how much a way of sampling differs from one forward over prompt and response, in log-probabilities."""
    size, device = read_vocabulary_size(_any(model).config), next(model.parameters()).device
    # Of different lengths, one with several rows; the first tokens of a vocabulary may be of a special kind.
    prompts = [[token % size for token in prompt] for prompt in ((5, 9, 6), (7, 5, 12, 8, 6, 10, 9))]
    responses = Responses(np.linspace(0.1, 0.9, 12).reshape(3, 4), (-1,), 1.0, device)
    respond(model, prompts, [[0], [1, 2]], responses)

    training, stock = model.training, _any(model)
    model.eval()
    differences = []
    for prompt, row in ((prompts[0], 0), (prompts[1], 1), (prompts[1], 2)):
        tokens = responses.tokens[row]
        whole = torch.cat((torch.tensor(prompt, device=device), tokens))[None]
        logits = stock(input_ids=whole, use_cache=False).logits[0, len(prompt) - 1 : -1].double()
        expected = logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        differences.append(expected - responses.logprobs[row])
    model.train(training)
    return float(torch.stack(differences).abs().mean().nan_to_num(torch.inf))


def generate_batch(
    model: nn.Module, prompts: Tokens, rows_of_prompt: Tokens, responses: Responses
) -> None:
    """Sample the rows of all prompts side by side.

    Args:
        model: a ``transformers`` causal language model.
        prompts: token ids of each prompt.
        rows_of_prompt: numbers of the rows that answer each prompt.
        responses: where tokens are drawn and kept.
    """
    # Under gradient checkpointing a model that trains keeps no cache.
    training = model.training
    model.eval()
    try:
        _together(model, prompts, rows_of_prompt, responses)
    finally:
        model.train(training)


def generate_prompt_by_prompt(
    model: nn.Module, prompts: Tokens, rows_of_prompt: Tokens, responses: Responses
) -> None:
    """Sample one prompt's rows after another's, without padding and without touching what the model remembers.

    Slower than ``generate_batch``, and right for models whose states cannot be reordered, or whose positions count the padding.

    Args:
        model: a ``transformers`` causal language model.
        prompts: token ids of each prompt.
        rows_of_prompt: numbers of the rows that answer each prompt.
        responses: where tokens are drawn and kept.
    """
    training = model.training
    model.eval()
    try:
        for prompt, rows in zip(prompts, rows_of_prompt, strict=True):
            if rows:
                _apart(model, prompt, rows, responses)
    finally:
        model.train(training)


def _apart(
    model: nn.Module, prompt: Sequence[int], numbers: Sequence[int], responses: Responses
) -> None:
    stock, device = _any(model), responses.lengths.device
    rows = torch.tensor(numbers, device=device)
    seen = torch.tensor([prompt], device=device).expand(len(rows), -1)
    output = stock(input_ids=seen, use_cache=True)
    going_on = torch.ones(len(rows), dtype=torch.bool, device=device)

    for position in range(responses.limit):
        going_on[going_on.clone()] = responses.extend(
            rows[going_on], position, output.logits[going_on, -1]
        )
        if not bool(going_on.any()):
            return
        # Rows that have ended go on reading: their states stay in the batch, and nothing is drawn for them.
        new = responses.tokens[rows, position][:, None]
        seen = torch.cat((seen, new), dim=1)
        state = {name: kept for name in _STATES if (kept := getattr(output, name, None)) is not None}
        # Without a state, all is read anew.
        output = stock(input_ids=new if state else seen, use_cache=True, **state)


def _together(model: nn.Module, prompts: Tokens, rows_of_prompt: Tokens, responses: Responses) -> None:
    stock = _any(model)
    device = responses.lengths.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    width = int(lengths.max())
    # Padded at the left, so that all prompts end in one column and the cache grows by one column for all rows.
    tokens = torch.tensor([[*[0] * (width - len(prompt)), *prompt] for prompt in prompts], device=device)
    mask = (torch.arange(width, device=device) >= width - lengths[:, None]).long()

    output = stock(
        input_ids=tokens,
        attention_mask=mask,
        position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
        use_cache=True,
        logits_to_keep=1,
    )
    cache, logits = output.past_key_values, output.logits[:, -1]

    prompt_of_row = [prompt for prompt, rows in enumerate(rows_of_prompt) for _ in rows]
    keep = torch.tensor(prompt_of_row, device=device)
    rows = torch.tensor([row for rows in rows_of_prompt for row in rows], device=device)
    # Each prompt is read once; from here on every row has a copy of its prompt's cache.
    cache.batch_select_indices(keep)
    mask, lengths, logits = mask[keep], lengths[keep], logits[keep]

    for position in range(responses.limit):
        going_on = responses.extend(rows, position, logits)
        if not bool(going_on.all()):
            rows, mask, lengths = rows[going_on], mask[going_on], lengths[going_on]
            if not len(rows):
                return
            cache.batch_select_indices(going_on.nonzero()[:, 0])
        mask = torch.cat((mask, mask.new_ones(len(rows), 1)), dim=1)
        logits = _step(stock, responses.tokens[rows, position], mask, lengths + position, cache)


def _step(stock: Any, tokens: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
    output = stock(
        input_ids=tokens[:, None],
        attention_mask=mask,
        position_ids=positions[:, None],
        past_key_values=cache,
        use_cache=True,
    )
    logits: Tensor = output.logits[:, -1]
    return logits


def _any(model: nn.Module) -> Any:
    """Return a model as a value of no type: what its forward takes is its own affair."""
    return model
