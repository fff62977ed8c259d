"""Sampling through the stock forward of any ``transformers`` causal language model, with its own growing cache.

Architectures differ in how they treat padding, positions and caches, and few of them raise an error. So a model is tried
before it is sampled: a generator must give a response the probabilities that one plain forward over it gives.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from threespo.errors import InputError
from threespo.policy.draw import Responses
from threespo.policy.model import read_vocabulary_size, text_config

TokenLists = Sequence[Sequence[int]]

Generator = Callable[[nn.Module, TokenLists, TokenLists, Responses], None]
"""Samples all rows to their ends.

Its arguments: a ``transformers`` causal language model, the token ids of each prompt, the numbers of the rows that answer
each prompt, and the responses, where tokens are drawn and stored."""

_LOW_PRECISION_TOLERANCE = 0.1
_TOLERANCE = 1e-3

_STATE_NAMES = ("past_key_values", "cache_params", "state", "mems")
"""How architectures name the state that a token leaves for the next one."""


def choose_generator(model: nn.Module, source: str) -> Generator:
    """Return the fastest generator that draws from the model's own distribution.

    Args:
        model: a ``transformers`` causal language model whose weights are complete.
        source: the policy's name in messages.

    Raises:
        InputError: if there is none: the model does not predict a token from those before it alone.
    """
    tolerance = rounding_tolerance(model)
    reason = ""
    for generate in (generate_batch, generate_prompt_by_prompt):
        try:
            difference = _compare_with_forward(model, generate)
        except torch.OutOfMemoryError:
            raise
        # Any exception: an architecture may have no such cache, or not know such an argument.
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            reason = f"{type(error).__name__}: {lines[0][:160]}"
            continue
        if difference <= tolerance:
            return generate
        reason = (
            f"token by token its log-probabilities are others than in one forward, by {difference:.2g}"
        )

    model_type = text_config(_untyped(model).config).model_type
    raise InputError(
        f"{source}: {model_type} models cannot be sampled here ({reason}). Choose a decoder model that "
        "predicts each token from those before it, or set sampler: vllm if that has it."
    )


def rounding_tolerance(model: nn.Module) -> float:
    """Return the mean difference of log-probabilities that rounding may cause between two equivalent computations."""
    dtype = next(model.parameters()).dtype
    return _LOW_PRECISION_TOLERANCE if dtype in (torch.bfloat16, torch.float16) else _TOLERANCE


@torch.inference_mode()
def _compare_with_forward(model: nn.Module, generate: Generator) -> float:
    """Return the mean difference of log-probabilities between a generator and one forward over prompt and response."""
    stock = _untyped(model)
    vocabulary_size = read_vocabulary_size(stock.config)
    device = next(model.parameters()).device

    # Prompts of different lengths, one with several rows; the first tokens of a vocabulary may be special ones.
    token_ids = ((5, 9, 6), (7, 5, 12, 8, 6, 10, 9))
    prompts = [[token % vocabulary_size for token in prompt] for prompt in token_ids]
    uniforms = np.linspace(0.1, 0.9, 12).reshape(3, 4)
    responses = Responses(uniforms, eos_ids=(-1,), temperature=1.0, device=device)
    generate(model, prompts, [[0], [1, 2]], responses)

    differences = []
    with _evaluation_mode(model):
        for prompt, row in ((prompts[0], 0), (prompts[1], 1), (prompts[1], 2)):
            tokens = responses.tokens[row]
            sequence = torch.cat((torch.tensor(prompt, device=device), tokens))[None]
            logits = stock(input_ids=sequence, use_cache=False).logits[0]
            # The prompt's last token predicts the first one of the response.
            response_logits = logits[len(prompt) - 1 : -1].double()
            expected = response_logits.log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
            differences.append(expected - responses.logprobs[row])
    return float(torch.stack(differences).abs().mean().nan_to_num(torch.inf))


def generate_batch(
    model: nn.Module, prompts: TokenLists, rows_of_prompt: TokenLists, responses: Responses
) -> None:
    """Sample the rows of all prompts in one batch (``Generator``)."""
    stock = _untyped(model)
    device = responses.lengths.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    width = int(lengths.max())
    # Padded at the left, so that all prompts end in one column and the cache grows by one column for all rows.
    padded = [[*[0] * (width - len(prompt)), *prompt] for prompt in prompts]
    tokens = torch.tensor(padded, device=device)
    mask = (torch.arange(width, device=device) >= width - lengths[:, None]).long()

    with _evaluation_mode(model):
        output = stock(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        logits = output.logits[:, -1]

        # Each prompt is read once; from here on every row has a copy of its prompt's cache.
        prompt_of_row = [prompt for prompt, rows in enumerate(rows_of_prompt) for _ in rows]
        selected = torch.tensor(prompt_of_row, device=device)
        cache.batch_select_indices(selected)
        mask = mask[selected]
        lengths = lengths[selected]
        logits = logits[selected]

        rows = torch.tensor([row for rows in rows_of_prompt for row in rows], device=device)
        for position in range(responses.limit):
            continuing = responses.draw_next(rows, position, logits)
            if not bool(continuing.all()):
                rows = rows[continuing]
                mask = mask[continuing]
                lengths = lengths[continuing]
                if not len(rows):
                    return
                cache.batch_select_indices(continuing.nonzero()[:, 0])

            mask = torch.cat((mask, mask.new_ones(len(rows), 1)), dim=1)
            output = stock(
                input_ids=responses.tokens[rows, position][:, None],
                attention_mask=mask,
                position_ids=(lengths + position)[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            logits = output.logits[:, -1]


def generate_prompt_by_prompt(
    model: nn.Module, prompts: TokenLists, rows_of_prompt: TokenLists, responses: Responses
) -> None:
    """Sample the rows of one prompt after another, without padding and without reordering the model's state.

    Slower than ``generate_batch``; right for models whose state cannot be reordered or whose positions count the padding.
    """
    with _evaluation_mode(model):
        for prompt, rows in zip(prompts, rows_of_prompt, strict=True):
            if rows:
                _generate_rows(model, prompt, rows, responses)


def _generate_rows(
    model: nn.Module, prompt: Sequence[int], row_numbers: Sequence[int], responses: Responses
) -> None:
    stock = _untyped(model)
    device = responses.lengths.device
    rows = torch.tensor(row_numbers, device=device)
    sequences = torch.tensor([prompt], device=device).expand(len(rows), -1)
    output = stock(input_ids=sequences, use_cache=True)
    continuing = torch.ones(len(rows), dtype=torch.bool, device=device)

    for position in range(responses.limit):
        logits = output.logits[continuing, -1]
        continuing[continuing.clone()] = responses.draw_next(rows[continuing], position, logits)
        if not bool(continuing.any()):
            return

        # Rows that have ended are still read: their states stay in the batch, and nothing is drawn for them.
        new_tokens = responses.tokens[rows, position][:, None]
        sequences = torch.cat((sequences, new_tokens), dim=1)
        state = {name: getattr(output, name, None) for name in _STATE_NAMES}
        state = {name: value for name, value in state.items() if value is not None}
        # A model without a state reads the whole sequences again.
        output = stock(input_ids=new_tokens if state else sequences, use_cache=True, **state)


@contextlib.contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a while: in training with gradient checkpointing it keeps no cache."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _untyped(model: nn.Module) -> Any:
    """Return a model as ``Any``, since the arguments of its forward depend on the architecture."""
    return model
