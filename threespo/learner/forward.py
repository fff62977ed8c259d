"""Log-probabilities of responses: rows of one prompt share its forward pass, and nothing is padded.

A *pack* is one sequence ``[prompt, response 1, ..., response n, prompt, response 1, ...]``. Positions
restart at each prompt, and each response's continue from its prompt. The stock model is called once on
it; ``attention`` keeps the groups apart. A response's last token predicts nothing, so it is not in the
pack.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from threespo.errors import InputError
from threespo.learner import attention
from threespo.learner.attention import GroupSpan
from threespo.policy import linear
from threespo.policy.model import read_vocabulary_size, text_config
from threespo.policy.stock import rounding_tolerance


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its responses, as token ids. ``rows`` are the responses' numbers in the batch."""

    prompt: tuple[int, ...]
    responses: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that the group takes in a pack."""
        return len(self.prompt) + sum(len(response) - 1 for response in self.responses)


@dataclass(frozen=True, slots=True)
class Pack:
    """Groups in one sequence of T tokens with N response tokens, in the order of ``rows``."""

    tokens: Int[Tensor, "1 T"]
    positions: Int[Tensor, "1 T"]
    spans: tuple[GroupSpan, ...]
    predictors: Int[Tensor, " N"]
    """Index of the token whose logits predict each response token."""
    targets: Int[Tensor, " N"]
    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    """Response tokens of each row."""


def group_by_prompt(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[Group]:
    """Gather rows with equal prompts, in the order in which the prompts first occur.

    Args:
        prompts: token ids of each row's prompt.
        responses: token ids of each row's response.
    """
    # Dictionaries keep the order of insertion: the prompts' first occurrences.
    rows_of_prompt: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_of_prompt.setdefault(tuple(prompt), []).append(row)
    return [
        Group(prompt, tuple(tuple(responses[row]) for row in rows), tuple(rows))
        for prompt, rows in rows_of_prompt.items()
    ]


def cut_micro_batches(groups: Sequence[Group], max_tokens: int) -> list[list[Group]]:
    """Cut groups into micro-batches.

    A group that does not fit alone is split, its prompt repeated; a single row over the limit is a micro-batch of its own.

    Args:
        groups: the rows of a batch.
        max_tokens: most packed tokens of a micro-batch.
    """
    micro_batches: list[list[Group]] = []
    # As if a full micro-batch came before: the first group opens a new one.
    used = max_tokens
    for whole_group in groups:
        for group in _split_group(whole_group, max_tokens):
            if used + group.tokens > max_tokens:
                micro_batches.append([])
                used = 0
            micro_batches[-1].append(group)
            used += group.tokens
    return micro_batches


def balance_micro_batches(groups: Sequence[Group], max_tokens: int, ranks: int) -> list[list[Group]]:
    """Cut groups into micro-batches for several ranks, as even as possible.

    No rank makes more passes than with ``cut_micro_batches``. A single prompt's responses are spread
    too, the prompt repeated. With fewer rows than ranks some ranks have nothing.

    Args:
        groups: the rows of a batch.
        max_tokens: most packed tokens of a micro-batch.
        ranks: that take the micro-batches in turn.
    """
    micro_batches = cut_micro_batches(groups, max_tokens)
    if ranks == 1 or not micro_batches:
        return micro_batches
    # As many as make the same number of passes: rounded up to a multiple of the ranks.
    max_count = ranks * -(-len(micro_batches) // ranks)

    # Bisection: the smallest limit that does not take more micro-batches has the most even ones.
    largest = max(sum(group.tokens for group in micro_batch) for micro_batch in micro_batches)
    low = 1
    high = min(max_tokens, largest)
    while low < high:
        middle = (low + high) // 2
        finer = cut_micro_batches(groups, middle)
        if len(finer) <= max_count:
            micro_batches = finer
            high = middle
        else:
            low = middle + 1
    return micro_batches


def _split_group(group: Group, max_tokens: int) -> list[Group]:
    """Return the group in parts of at most ``max_tokens`` tokens, each with the prompt and at least one response."""
    parts: list[Group] = []
    for response, row in zip(group.responses, group.rows, strict=True):
        if parts and parts[-1].tokens + len(response) - 1 <= max_tokens:
            last = parts[-1]
            parts[-1] = replace(last, responses=(*last.responses, response), rows=(*last.rows, row))
        else:
            parts.append(Group(group.prompt, (response,), (row,)))
    return parts


def pack_groups(groups: Sequence[Group], device: torch.device, dtype: torch.dtype) -> Pack:
    """Lay groups out in one sequence.

    Args:
        groups: of one micro-batch.
        device: where the model is.
        dtype: that of the model, which the attention masks must have.
    """
    tokens: list[int] = []
    positions: list[int] = []
    predictors: list[int] = []
    targets: list[int] = []
    for group in groups:
        start = len(tokens)
        prompt_length = len(group.prompt)
        tokens += group.prompt
        positions += range(prompt_length)
        for response in group.responses:
            # A response's positions follow its prompt's, and its first token is predicted by the
            # prompt's last one. Its own last token predicts nothing, so it is left out.
            response_start = len(tokens)
            inputs = len(response) - 1
            tokens += response[:-1]
            positions += range(prompt_length, prompt_length + inputs)
            predictors.append(start + prompt_length - 1)
            predictors += range(response_start, response_start + inputs)
            targets += response

    return Pack(
        tokens=torch.tensor([tokens], device=device),
        positions=torch.tensor([positions], device=device),
        spans=tuple(_make_span(group, device, dtype) for group in groups),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor(targets, device=device),
        rows=tuple(row for group in groups for row in group.rows),
        lengths=tuple(len(response) for group in groups for response in group.responses),
    )


def _make_span(group: Group, device: torch.device, dtype: torch.dtype) -> GroupSpan:
    prompt = len(group.prompt)
    total = group.tokens
    inputs = [len(response) - 1 for response in group.responses]
    if len(inputs) == 1 or total == prompt:
        return GroupSpan(prompt, total - prompt, None)

    # A response token sees the whole prompt, and of the responses its own up to itself. Only the owners,
    # one number a token, are copied from the host; what has a row for each token is made where the model
    # is.
    owner = torch.repeat_interleave(torch.arange(len(inputs)), torch.tensor(inputs)).to(device)
    visible = (owner[:, None] == owner).tril_()
    mask = torch.zeros(len(owner), total, dtype=dtype, device=device)
    mask[:, prompt:].masked_fill_(~visible, float("-inf"))
    return GroupSpan(prompt, total - prompt, mask)


class ResponseScorer(nn.Module):
    """Log-probability and entropy of every response token of a pack under a causal language model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        attention.install_attention(model)
        linear.use_onednn(model)
        self.model = model
        check_packed_logprobs(self)

    def forward(
        self, packed: Pack, temperature: float, entropy_gradient: bool = False
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Return log-probabilities (with gradient) and entropies of softmax(logits / temperature), (N,) each.

        Args:
            packed: the responses with their prompts.
            temperature: at which the responses were sampled, above 0.
            entropy_gradient: whether entropies have a gradient too, which takes a second tensor of the logits' size.
        """
        stock: Any = self.model
        output = stock(
            input_ids=packed.tokens,
            position_ids=packed.positions,
            # A mask in its final form is passed on untouched; ours is in the spans.
            attention_mask=packed.tokens.new_zeros((1, 1, 1, 1)),
            use_cache=False,
            logits_to_keep=packed.predictors,
            spans=packed.spans,
        )

        logits = output.logits[0].float()
        # Not at 1, where a division would only make another copy of the logits.
        if temperature != 1.0:
            logits = logits / temperature
        normalizer = logits.logsumexp(dim=-1)
        logprobs = logits.gather(1, packed.targets[:, None])[:, 0] - normalizer
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            # Entropy = log Z - E[logit]: no second softmax, and no infinite logarithm of a probability
            # that is 0.
            entropy = normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(dim=-1)
        return logprobs, entropy


def check_packed_logprobs(scorer: ResponseScorer) -> None:
    """Check that a model gives responses in a pack the log-probabilities that it gives each alone.

    Few architectures complain of positions, masks or groups that they do not know; they would learn from others' tokens.

    Raises:
        InputError: if it does not.
    """
    stock: Any = scorer.model
    was_training = scorer.training
    fault = ""
    scorer.eval()
    try:
        difference = _packing_difference(scorer)
        if not difference <= rounding_tolerance(stock):
            fault = f"log-probabilities in a pack are others than alone, by {difference:.2g}"
    except torch.OutOfMemoryError:
        raise
    # Whatever an architecture that does not know such an argument leads to.
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        fault = lines[0][:200]
    finally:
        scorer.train(was_training)
    if fault:
        raise InputError(
            f"{text_config(stock.config).model_type}: models of this kind cannot be trained here ({fault}). Choose one with "
            "full attention in all layers and positions that are given (Qwen2, Qwen2.5, Qwen3, Llama 3)."
        )


@torch.no_grad()
def _packing_difference(scorer: ResponseScorer) -> float:
    """Return the mean difference of log-probabilities between a pack of three responses and plain forwards."""
    stock: Any = scorer.model
    vocabulary_size = read_vocabulary_size(stock.config)
    weight = next(scorer.model.parameters())

    # Two prompts of different lengths, of which the second has two responses: what can go wrong in a
    # pack.
    short_prompt = [5, 9, 6, 8]
    long_prompt = [7, 5, 12, 8, 6, 10, 9]
    rows = [(short_prompt, [11, 6, 7]), (long_prompt, [6, 13]), (long_prompt, [9, 9, 5, 7])]
    prompts = [[token % vocabulary_size for token in prompt] for prompt, _ in rows]
    responses = [[token % vocabulary_size for token in response] for _, response in rows]

    packed = pack_groups(group_by_prompt(prompts, responses), weight.device, weight.dtype)
    packed_logprobs = scorer(packed, 1.0)[0]
    plain_logprobs = torch.cat(
        [_plain_logprobs(stock, prompts[row], responses[row], weight.device) for row in packed.rows]
    )
    return float((packed_logprobs - plain_logprobs).abs().mean().nan_to_num(torch.inf))


def _plain_logprobs(
    stock: Any, prompt: list[int], response: list[int], device: torch.device
) -> Float[Tensor, " n"]:
    """Return the log-probabilities of a response from one plain forward."""
    tokens = torch.tensor([[*prompt, *response]], device=device)
    all_logits = stock(input_ids=tokens, use_cache=False).logits[0]
    # The token before each response token predicts it; in float32 as in ``ResponseScorer``.
    logits = all_logits[len(prompt) - 1 : -1].float()
    targets = tokens[0, len(prompt) :, None]
    logprobs: Tensor = logits.log_softmax(dim=-1).gather(1, targets)[:, 0]
    return logprobs
