"""Draws tokens: inverse-CDF on float64 probabilities, from uniforms that depend on counters only."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_MAX_CHUNK_VALUES = 2**24
"""Float64 probabilities in memory at a time: 128 MB, whatever the vocabulary."""


def draw_tokens(
    logits: Float[Tensor, "rows vocabulary"], uniforms: Float[Tensor, " rows"], temperature: float
) -> tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]:
    """Return one token per row and its natural-log probability under softmax(logits / temperature), in float64.

    Token k is drawn if the uniform lies in [F(k - 1), F(k)) of the cumulative distribution F.

    Args:
        logits: (rows, vocabulary), of any floating type.
        uniforms: a float64 number in [0, 1) for each row, (rows,).
        temperature: 0 means the most probable token, drawn with certainty (log-probability 0).
    """
    if temperature == 0.0:
        return logits.argmax(dim=-1), torch.zeros_like(uniforms)

    chunk_rows = max(1, _MAX_CHUNK_VALUES // logits.shape[-1])
    if len(logits) <= chunk_rows:
        return _draw_chunk(logits, uniforms, temperature)

    chunks = zip(logits.split(chunk_rows), uniforms.split(chunk_rows), strict=True)
    draws = [_draw_chunk(*chunk, temperature) for chunk in chunks]
    tokens, logprobs = zip(*draws, strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _draw_chunk(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    # In float64: rounding of a cumulative sum in float32 (6e-8) exceeds the probabilities of rare tokens.
    scaled = logits.double()
    if temperature != 1.0:
        scaled = scaled / temperature

    logprobs = scaled - scaled.logsumexp(dim=-1, keepdim=True)
    cumulative = logprobs.exp().cumsum(dim=-1)
    total = cumulative[:, -1:]

    # Below the total, so that rounding never leads to a token of probability zero at the end of the vocabulary.
    largest_target = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(uniforms[:, None] * total, largest_target)

    # ``right``: a uniform that equals F(k) draws a token behind k, so tokens of probability zero are never drawn.
    tokens = torch.searchsorted(cumulative, target, right=True)
    return tokens[:, 0], logprobs.gather(1, tokens)[:, 0]


class Responses:
    """The responses of one batch while they grow: R rows of at most S tokens.

    Row numbers are positions in ``uniforms``; samplers may reorder and drop rows at will.
    """

    def __init__(
        self, uniforms: np.ndarray, eos_ids: Sequence[int], temperature: float, device: torch.device
    ) -> None:
        """Begin R empty responses.

        Args:
            uniforms: number (r, t) draws token t of row r, (R, S), float64 in [0, 1).
            eos_ids: tokens that end a response.
            temperature: of sampling, 0 or more.
            device: where logits will be.
        """
        rows, self.limit = uniforms.shape
        self._uniforms = torch.from_numpy(uniforms).to(device)
        self._eos_ids = torch.tensor(sorted(eos_ids), device=device)
        self._temperature = temperature
        self.tokens = torch.zeros((rows, self.limit), dtype=torch.long, device=device)
        self.logprobs = torch.zeros((rows, self.limit), dtype=torch.float64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=device)

    def draw_next(
        self, rows: Int[Tensor, " m"], position: int, logits: Float[Tensor, "m vocabulary"]
    ) -> Tensor:
        """Draw one token of some rows; return which of them continue, as a boolean mask (m,).

        Args:
            rows: numbers of the rows, (m,).
            position: position of the token in the response, from 0.
            logits: after the row's prompt and its earlier tokens, (m, vocabulary).
        """
        tokens, logprobs = draw_tokens(logits, self._uniforms[rows, position], self._temperature)
        self.tokens[rows, position] = tokens
        self.logprobs[rows, position] = logprobs

        ended = torch.isin(tokens, self._eos_ids)
        self.lengths[rows] = position + 1
        self.finished[rows] = ended
        return ~ended if position + 1 < self.limit else torch.zeros_like(ended)
