"""Sampling with the direct forward: rows in a grid of slots (a prompt each) by lanes (its responses).

The prompt's keys and values are stored once per slot. Response token t of lane w lies in cache column
``prompt + t * lanes + w``, so that a step writes one contiguous block; a mask lets each lane see its own columns
only. When enough rows have finished, the grid is laid out anew without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from threespo.policy.draw import Responses

if TYPE_CHECKING:
    from threespo.policy.decode import DirectModel

_PREFILL_TOKENS = 2048
"""Prompt tokens read at once: enough to amortise the overhead, little enough to stay in the processor's cache."""

_REPACK_BELOW = 0.7
"""The grid is laid out anew when fewer than this share of its cells are in use."""

_PREFIX_FROM = 16
"""Common first tokens of all prompts that are worth reading apart."""

_WIDTHS = (1, 2, 4, 8, 16, 32)
"""Numbers of lanes that are tried."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which row is in which cell: ``cells[g][w]`` is a row number or -1; slot g belongs to prompt ``prompts[g]``."""

    prompts: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]

    @property
    def lanes(self) -> int:
        """Cells of each slot."""
        return len(self.cells[0])


def plan_layout(rows_of_prompt: Sequence[tuple[int, Sequence[int]]]) -> Layout:
    """Lay out rows in the grid with the least work.

    A step's work is about one unit per cell (the weights' products) and one per slot (reading the prompt's cache).

    Args:
        rows_of_prompt: pairs of a prompt's number and the numbers of its rows, of which there is at least one.
    """
    counts = [len(rows) for _, rows in rows_of_prompt]

    def work(width: int) -> tuple[int, int]:
        slots = sum(-(-count // width) for count in counts)
        return slots * width + slots, width

    # A single width cannot suit all: rows of a prompt with more responses than lanes take several slots.
    width = min({*_WIDTHS, min(max(counts), _WIDTHS[-1])}, key=work)
    prompts: list[int] = []
    cells: list[tuple[int, ...]] = []
    for prompt, rows in rows_of_prompt:
        for start in range(0, len(rows), width):
            part = tuple(rows[start : start + width])
            prompts.append(prompt)
            cells.append(part + (-1,) * (width - len(part)))
    return Layout(tuple(prompts), tuple(cells))


class Grid:
    """A layout with its cache. Shapes as in ``decode``: G slots, W lanes, C = prompt columns + S * W for S steps."""

    def __init__(
        self, model: "DirectModel", layout: Layout, lengths: Sequence[int], steps: int, total_rows: int
    ) -> None:
        """Make an empty cache.

        Args:
            model: the forward.
            layout: which row is in which cell.
            lengths: tokens of every prompt, by its number.
            steps: response tokens that can be read (S).
            total_rows: rows of the batch, those that are no longer in the layout included.
        """
        device, dtype = model.embedding.device, model.embedding.dtype
        self.model, self.layout, self.steps = model, layout, steps
        self.lengths = torch.tensor([lengths[prompt] for prompt in layout.prompts], device=device)
        self.prompt_columns = max(lengths[prompt] for prompt in layout.prompts)

        slots, lanes = len(layout.prompts), layout.lanes
        columns = self.prompt_columns + steps * lanes
        shape = (slots, model.kv_heads, columns, model.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in model.layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in model.layers]

        cells = torch.tensor(layout.cells, device=device).view(-1)
        self.used = (cells >= 0).nonzero()[:, 0]
        self.rows = cells[self.used]
        self._cell_of_row = torch.zeros(total_rows, dtype=torch.long, device=device)
        self._cell_of_row[self.rows] = self.used
        self.mask = self._mask(columns, lanes, device, dtype)

    def _mask(self, columns: int, lanes: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        column = torch.arange(columns, device=device)
        in_prompt = column < self.lengths[:, None]
        # Columns of one response token lie side by side, one for each lane.
        own = (column - self.prompt_columns) % lanes == torch.arange(lanes, device=device)[:, None]
        visible = in_prompt[:, None] | (own & (column >= self.prompt_columns))
        mask = torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(
            ~visible, float("-inf")
        )
        return mask.repeat(1, self.model.heads // self.model.kv_heads, 1)[:, None]

    def step(
        self, tokens: Int[Tensor, " m"], position: int, rope: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "m V"]:
        """Read one response token of the used cells and return the logits after it, (m, V).

        Args:
            tokens: the token of each used cell, (m,).
            position: its place in the response, from 0.
            rope: cosines and sines by position, each (positions, D).
        """
        slots, lanes = len(self.layout.prompts), self.layout.lanes
        fed = torch.zeros(slots * lanes, dtype=torch.long, device=tokens.device)
        fed[self.used] = tokens

        start = self.prompt_columns + position * lanes
        where = self.lengths + position

        logits = self.model.step(
            fed.view(slots, lanes),
            (rope[0][where], rope[1][where]),
            self.keys,
            self.values,
            (start, start + lanes),
            self.mask[..., : start + lanes],
        )
        return logits.view(slots * lanes, -1)[self.used]

    def retain(self, going_on: Tensor) -> None:
        """Forget the used cells where ``going_on`` (m,) is false."""
        self.used, self.rows = self.used[going_on], self.rows[going_on]

    def is_sparse(self) -> bool:
        """Return whether laying out anew would save work."""
        return len(self.rows) < _REPACK_BELOW * len(self.layout.prompts) * self.layout.lanes

    def repacked(self, lengths: Sequence[int], position: int) -> "Grid":
        """Return a grid with the remaining rows only, their caches copied.

        Args:
            lengths: tokens of every prompt, by its number.
            position: response tokens that have been read so far.
        """
        lanes = self.layout.lanes
        rows_of_prompt: dict[int, list[int]] = {}
        slot_of_prompt: dict[int, int] = {}
        for cell, row in zip(self.used.tolist(), self.rows.tolist(), strict=True):
            prompt = self.layout.prompts[cell // lanes]
            rows_of_prompt.setdefault(prompt, []).append(row)
            slot_of_prompt[prompt] = cell // lanes

        layout = plan_layout(list(rows_of_prompt.items()))
        grid = Grid(self.model, layout, lengths, self.steps, len(self._cell_of_row))

        device = self.used.device
        from_slot = torch.tensor([slot_of_prompt[prompt] for prompt in layout.prompts], device=device)
        rows = torch.tensor(layout.cells, device=device).clamp(min=0)
        from_cell = self._cell_of_row[rows]

        for old, new in zip(self.keys + self.values, grid.keys + grid.values, strict=True):
            new[:, :, : grid.prompt_columns] = old[from_slot, :, : grid.prompt_columns]
            block = old[:, :, self.prompt_columns : self.prompt_columns + position * lanes]
            block = block.unflatten(2, (position, lanes))[from_cell // lanes, :, :, from_cell % lanes]
            end = grid.prompt_columns + position * layout.lanes
            # (G, W, K, t, D) -> (G, K, t, W, D)
            new[:, :, grid.prompt_columns : end] = block.permute(0, 2, 3, 1, 4).flatten(2, 3)
        return grid


def generate_batch(
    model: "DirectModel",
    prompts: Sequence[list[int]],
    rows_of_prompt: Sequence[Sequence[int]],
    responses: Responses,
) -> None:
    """Sample all rows to their ends.

    Args:
        model: the forward.
        prompts: token ids of each prompt, sorted by length.
        rows_of_prompt: numbers of the rows that answer each prompt.
        responses: where tokens are drawn and kept.
    """
    lengths = [len(prompt) for prompt in prompts]
    layout = plan_layout(list(enumerate(rows_of_prompt)))
    grid = Grid(model, layout, lengths, responses.limit - 1, len(responses.lengths))

    logits = _prefill(grid, prompts)
    slot = grid.used // layout.lanes
    # The prompt's last token predicts the first one of the response, so no step is needed for that.
    grid.retain(responses.draw_next(grid.rows, 0, logits[slot]))

    rope = model.rope_tables(max(lengths) + responses.limit)
    for position in range(1, responses.limit):
        if not len(grid.rows):
            return
        if grid.is_sparse():
            grid = grid.repacked(lengths, position - 1)
        logits = grid.step(responses.tokens[grid.rows, position - 1], position - 1, rope)
        grid.retain(responses.draw_next(grid.rows, position, logits))


class _Prefix:
    """What all prompts of a batch begin with (a template's first words), read once."""

    def __init__(self, model: "DirectModel", prompts: Sequence[list[int]]) -> None:
        # Prompts differ first where the least and the greatest of them differ. Each keeps a token of its own to read.
        least, greatest, shortest = min(prompts), max(prompts), min(map(len, prompts))
        unlike = (
            index for index, pair in enumerate(zip(least, greatest, strict=False)) if pair[0] != pair[1]
        )
        common = min(next(unlike, shortest), shortest - 1)
        self.length = common if len(prompts) > 1 and common >= _PREFIX_FROM else 0

        shape = (1, model.kv_heads, self.length, model.head_dim)
        self.cache = [model.embedding.new_empty(shape) for _ in range(2 * model.layers_count)]
        if self.length:
            tokens = torch.tensor([least[: self.length]], device=model.embedding.device)
            whole, half = torch.tensor([self.length], device=tokens.device), model.layers_count
            model.prefill(tokens, whole, self.cache[:half], self.cache[half:])


def _prefill(grid: Grid, prompts: Sequence[list[int]]) -> Float[Tensor, "G V"]:
    """Read each distinct prompt once into the grid's cache; return the logits after it, for every slot."""
    order = grid.layout.prompts
    firsts = [slot for slot, prompt in enumerate(order) if slot == 0 or order[slot - 1] != prompt]
    device, prefix = grid.lengths.device, _Prefix(grid.model, prompts)

    outputs: list[Tensor] = []
    start = 0
    while start < len(firsts):
        # Prompts come sorted by length, so the last one of a chunk is its longest.
        end = start + 1
        while (
            end < len(firsts) and (end + 1 - start) * len(prompts[order[firsts[end]]]) <= _PREFILL_TOKENS
        ):
            end += 1

        chunk = [prompts[order[slot]][prefix.length :] for slot in firsts[start:end]]
        width = max(len(prompt) for prompt in chunk)
        tokens = torch.tensor(
            [[*prompt, *[0] * (width - len(prompt))] for prompt in chunk], device=device
        )
        lengths = torch.tensor([len(prompt) for prompt in chunk], device=device)
        shape = (len(chunk), grid.model.kv_heads, prefix.length + width, grid.model.head_dim)

        parts = [grid.keys[0].new_empty(shape) for _ in prefix.cache]
        for part, known in zip(parts, prefix.cache, strict=True):
            part[:, :, : prefix.length] = known

        half = len(grid.keys)
        outputs.append(grid.model.prefill(tokens, lengths, parts[:half], parts[half:], prefix.length))

        into = torch.tensor(firsts[start:end], device=device)
        for cache, part in zip(grid.keys + grid.values, parts, strict=True):
            cache[into, :, : prefix.length + width] = part
        start = end

    logits = torch.cat(outputs)
    first_of_slot = (
        torch.tensor([slot in set(firsts) for slot in range(len(order))], device=device).cumsum(0) - 1
    )

    if len(firsts) < len(order):
        source = torch.tensor(firsts, device=device)[first_of_slot]
        for cache in grid.keys + grid.values:
            cache[:, :, : grid.prompt_columns] = cache[source, :, : grid.prompt_columns]
    return logits[first_of_slot]
