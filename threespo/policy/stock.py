"""Sampling through the stock forward of any ``transformers`` causal language model, with its own growing cache."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from threespo.policy.draw import Responses


def respond(
    model: nn.Module, prompts: Sequence[Sequence[int]], rows_of_prompt: Sequence[Sequence[int]], responses: Responses
) -> None:
    """Sample all rows to their ends.

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
        _respond(model, prompts, rows_of_prompt, responses)
    finally:
        model.train(training)


def _respond(
    model: nn.Module, prompts: Sequence[Sequence[int]], rows_of_prompt: Sequence[Sequence[int]], responses: Responses
) -> None:
    stock: Any = model
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
