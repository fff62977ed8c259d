"""Log-probabilities of responses: rows of one prompt share its forward pass, and nothing is padded.

A *pack* is one sequence ``[prompt, response 1, ..., response n, prompt, response 1, ...]`` with position ids that
start anew after each prompt. The stock model is called once on it; ``attention`` keeps the groups apart. A response's
last token is read by nobody, so it is not in the pack.
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
    rows_of_prompt: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows_of_prompt.setdefault(tuple(prompt), []).append(row)
    return [
        Group(prompt, tuple(tuple(responses[row]) for row in rows), tuple(rows))
        for prompt, rows in rows_of_prompt.items()
    ]


def cut_micro_batches(groups: Sequence[Group], limit: int) -> list[list[Group]]:
    """Cut groups into micro-batches.

    A group that does not fit alone is split, its prompt repeated; a single row over the limit stands alone.

    Args:
        groups: the rows of a batch.
        limit: most packed tokens of a micro-batch.
    """
    batches: list[list[Group]] = []
    # As if a full micro-batch came before: the first group opens a new one.
    used = limit
    for group in (part for whole in groups for part in _split(whole, limit)):
        if used + group.tokens > limit:
            batches.append([])
            used = 0
        batches[-1].append(group)
        used += group.tokens
    return batches


def balance_micro_batches(groups: Sequence[Group], limit: int, ranks: int) -> list[list[Group]]:
    """Cut groups into micro-batches for several ranks: as even as possible, and no more passes than ``cut_micro_batches`` makes them do.

    A single prompt's responses are spread too, the prompt repeated. With fewer rows than ranks some have nothing.

    Args:
        groups: the rows of a batch.
        limit: most packed tokens of a micro-batch.
        ranks: that take the micro-batches in turn.
    """
    batches = cut_micro_batches(groups, limit)
    if ranks == 1 or not batches:
        return batches
    most = ranks * -(-len(batches) // ranks)
    # The smallest limit that does not take more of them has the most even ones.
    low, high = 1, min(limit, max(sum(group.tokens for group in batch) for batch in batches))
    while low < high:
        middle = (low + high) // 2
        finer = cut_micro_batches(groups, middle)
        if len(finer) <= most:
            batches, high = finer, middle
        else:
            low = middle + 1
    return batches


def _split(group: Group, limit: int) -> list[Group]:
    parts: list[Group] = []
    for response, row in zip(group.responses, group.rows, strict=True):
        if parts and parts[-1].tokens + len(response) - 1 <= limit:
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
        start, prompt = len(tokens), len(group.prompt)
        tokens += group.prompt
        positions += range(prompt)
        for response in group.responses:
            # Every response goes on from the prompt: its positions follow it, and its first token is predicted by the
            # prompt's last one. Its own last token predicts nothing, so it is left out.
            begin = len(tokens)
            tokens += response[:-1]
            positions += range(prompt, prompt + len(response) - 1)
            predictors += (start + prompt - 1, *range(begin, begin + len(response) - 1))
            targets += response

    return Pack(
        tokens=torch.tensor([tokens], device=device),
        positions=torch.tensor([positions], device=device),
        spans=tuple(_span(group, device, dtype) for group in groups),
        predictors=torch.tensor(predictors, device=device),
        targets=torch.tensor(targets, device=device),
        rows=tuple(row for group in groups for row in group.rows),
        lengths=tuple(len(response) for group in groups for response in group.responses),
    )


def _span(group: Group, device: torch.device, dtype: torch.dtype) -> GroupSpan:
    prompt, total = len(group.prompt), group.tokens
    inputs = [len(response) - 1 for response in group.responses]
    if len(inputs) == 1 or total == prompt:
        return GroupSpan(prompt, total - prompt, None)

    # A response token sees the whole prompt, and of the responses its own up to itself. Only the owners, one number a token,
    # come from the host; what has a row for each token is made where the model is.
    owner = torch.repeat_interleave(torch.arange(len(inputs)), torch.tensor(inputs)).to(device)
    mask = torch.zeros(len(owner), total, dtype=dtype, device=device)
    mask[:, prompt:].masked_fill_(~(owner[:, None] == owner).tril_(), float("-inf"))
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
        if temperature != 1.0:
            logits = logits / temperature
        normalizer = logits.logsumexp(dim=-1)
        logprobs = logits.gather(1, packed.targets[:, None])[:, 0] - normalizer
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            # Entropy = log Z - E[logit]: no second softmax, and no infinite logarithm of a probability that is 0.
            entropy = normalizer - ((logits - normalizer[:, None]).exp() * logits).sum(dim=-1)
        return logprobs, entropy


def check_packed_logprobs(scorer: ResponseScorer) -> None:
    """Check that a model gives responses in a pack the log-probabilities that it gives each alone.

    Few architectures complain of positions, masks or groups that they do not know; they would learn from others' tokens.

    Raises:
        InputError: if it does not.
    """
    stock: Any = scorer.model
    training = scorer.training
    scorer.eval()
    try:
        gap = _gap(scorer)
        fault = (
            ""
            if gap <= rounding_tolerance(stock)
            else f"log-probabilities in a pack are others than alone, by {gap:.2g}"
        )
    except torch.OutOfMemoryError:
        raise
    # Whatever an architecture that does not know such an argument leads to.
    except Exception as error:
        fault = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    finally:
        scorer.train(training)
    if fault:
        raise InputError(
            f"{text_config(stock.config).model_type}: models of this kind cannot be trained here ({fault}). Choose one with "
            "full attention in all layers and positions that are given (Qwen2, Qwen2.5, Qwen3, Llama 3)."
        )


@torch.no_grad()
def _gap(scorer: ResponseScorer) -> float:
    """Return the mean difference of log-probabilities between a pack of three responses and plain forwards."""
    stock: Any = scorer.model
    size, like = read_vocabulary_size(stock.config), next(scorer.model.parameters())
    few, more = [5, 9, 6, 8], [7, 5, 12, 8, 6, 10, 9]
    rows = [(few, [11, 6, 7]), (more, [6, 13]), (more, [9, 9, 5, 7])]
    prompts = [[token % size for token in prompt] for prompt, _ in rows]
    responses = [[token % size for token in response] for _, response in rows]

    packed = pack_groups(group_by_prompt(prompts, responses), like.device, like.dtype)
    found = scorer(packed, 1.0)[0]
    alone = torch.cat([_alone(stock, prompts[row], responses[row], like.device) for row in packed.rows])
    return float((found - alone).abs().mean().nan_to_num(torch.inf))


def _alone(
    stock: Any, prompt: list[int], response: list[int], device: torch.device
) -> Float[Tensor, " n"]:
    """Return the log-probabilities of a response from one plain forward."""
    tokens = torch.tensor([[*prompt, *response]], device=device)
    logits = stock(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    logprobs: Tensor = logits.log_softmax(dim=-1).gather(1, tokens[0, len(prompt) :, None])[:, 0]
    return logprobs
