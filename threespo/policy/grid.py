"""Sampling with the direct forward: rows in a grid of slots (a prompt each) by lanes (its responses).

The prompt's keys and values are stored once per slot. Response token t of lane w is in cache column
``prompt + t * lanes + w``, so that a step writes one contiguous block; a mask lets each lane see its own columns
only. When enough rows have finished, the grid is repacked without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from threespo.policy.decode import DirectModel
from threespo.policy.draw import Responses

_MAX_PREFILL_TOKENS = 2048
"""Prompt tokens read at a time: enough to amortise the overhead, few enough to stay in the processor's cache."""

_MIN_USED_SHARE = 0.7
"""The grid is repacked when a smaller share of its cells is in use."""

_MIN_PREFIX_TOKENS = 16
"""A shorter common prefix of all prompts is not worth a forward of its own."""

_WIDTHS = (1, 2, 4, 8, 16, 32)
"""Numbers of lanes that are tried."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which row is in which cell: ``cells[g][w]`` is a row number or -1; slot g belongs to prompt ``prompts[g]``."""

    prompts: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]

    @property
    def slots(self) -> int:
        return len(self.prompts)

    @property
    def lanes(self) -> int:
        """Cells of each slot."""
        return len(self.cells[0])


def plan_layout(rows_of_prompt: Mapping[int, Sequence[int]]) -> Layout:
    """Return the layout with the least work.

    A step's work is about one unit per cell (the weights' products) and one per slot (reading the prompt's cache).

    Args:
        rows_of_prompt: numbers of the rows, at least one, that answer a prompt, by the prompt's number.
    """
    counts = [len(rows) for rows in rows_of_prompt.values()]

    def estimate_work(width: int) -> tuple[int, int]:
        slots = sum(-(-count // width) for count in counts)
        # Of equal work the narrower grid.
        return slots * width + slots, width

    # A single width cannot suit all: rows of a prompt with more responses than lanes take several slots.
    width = min({*_WIDTHS, min(max(counts), _WIDTHS[-1])}, key=estimate_work)
    prompts: list[int] = []
    cells: list[tuple[int, ...]] = []
    for prompt, rows in rows_of_prompt.items():
        for start in range(0, len(rows), width):
            slot_rows = tuple(rows[start : start + width])
            prompts.append(prompt)
            cells.append(slot_rows + (-1,) * (width - len(slot_rows)))
    return Layout(tuple(prompts), tuple(cells))


class Grid:
    """A layout with its cache. Shapes as in ``decode``: G slots, W lanes, C = prompt columns + S * W for S steps."""

    def __init__(
        self, model: DirectModel, layout: Layout, lengths: Sequence[int], steps: int, total_rows: int
    ) -> None:
        """Make an empty cache.

        Args:
            model: the forward.
            layout: which row is in which cell.
            lengths: tokens of every prompt, by its number.
            steps: response tokens that can be read (S).
            total_rows: rows of the batch, those that are no longer in the layout included.
        """
        device = model.embedding.device
        dtype = model.embedding.dtype
        self.model = model
        self.layout = layout
        self.steps = steps
        self.lengths = torch.tensor([lengths[prompt] for prompt in layout.prompts], device=device)
        self.prompt_columns = max(lengths[prompt] for prompt in layout.prompts)

        columns = self.prompt_columns + steps * layout.lanes
        shape = (layout.slots, model.kv_heads, columns, model.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in model.layers]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in model.layers]

        cells = torch.tensor(layout.cells, device=device).view(-1)
        self.used_cells = (cells >= 0).nonzero()[:, 0]
        self.rows = cells[self.used_cells]
        # On the device, so that ``repack`` finds the rows' old caches without a copy to the host.
        self._cell_of_row = torch.zeros(total_rows, dtype=torch.long, device=device)
        self._cell_of_row[self.rows] = self.used_cells
        self.mask = self._make_mask(columns, device, dtype)

    def _make_mask(self, columns: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        lanes = self.layout.lanes
        column = torch.arange(columns, device=device)
        in_prompt = column < self.lengths[:, None]
        # The columns of one response token are adjacent, one for each lane.
        lane = (column - self.prompt_columns) % lanes
        in_response = column >= self.prompt_columns
        own_response = (lane == torch.arange(lanes, device=device)[:, None]) & in_response
        visible = in_prompt[:, None] | own_response

        mask = torch.zeros(visible.shape, dtype=dtype, device=device)
        mask.masked_fill_(~visible, float("-inf"))
        # One row for each pair of a head of the group and a lane, in the order of ``decode_step``.
        return mask.repeat(1, self.model.heads // self.model.kv_heads, 1)[:, None]

    def step(
        self, tokens: Int[Tensor, " m"], position: int, rope: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "m V"]:
        """Read one response token of the used cells and return the logits after it, (m, V).

        Args:
            tokens: the token of each used cell, (m,).
            position: its position in the response, from 0.
            rope: cosines and sines by position, each (positions, D).
        """
        slots = self.layout.slots
        lanes = self.layout.lanes
        # Unused cells read token 0; their logits are dropped.
        cell_tokens = torch.zeros(slots * lanes, dtype=torch.long, device=tokens.device)
        cell_tokens[self.used_cells] = tokens

        start = self.prompt_columns + position * lanes
        sequence_positions = self.lengths + position
        cos, sin = rope
        logits = self.model.decode_step(
            cell_tokens.view(slots, lanes),
            (cos[sequence_positions], sin[sequence_positions]),
            self.keys,
            self.values,
            (start, start + lanes),
            self.mask[..., : start + lanes],
        )
        return logits.view(slots * lanes, -1)[self.used_cells]

    def keep_cells(self, continuing: Tensor) -> None:
        """Drop the used cells where ``continuing`` (m,) is false."""
        self.used_cells = self.used_cells[continuing]
        self.rows = self.rows[continuing]

    def is_sparse(self) -> bool:
        """Return whether a repacked grid would save work."""
        return len(self.rows) < _MIN_USED_SHARE * self.layout.slots * self.layout.lanes

    def repack(self, lengths: Sequence[int], position: int) -> "Grid":
        """Return a grid with the remaining rows only, their caches copied.

        Args:
            lengths: tokens of every prompt, by its number.
            position: response tokens that have been read so far.
        """
        lanes = self.layout.lanes
        rows_of_prompt: dict[int, list[int]] = {}
        slot_of_prompt: dict[int, int] = {}
        for cell, row in zip(self.used_cells.tolist(), self.rows.tolist(), strict=True):
            slot = cell // lanes
            prompt = self.layout.prompts[slot]
            rows_of_prompt.setdefault(prompt, []).append(row)
            slot_of_prompt[prompt] = slot

        layout = plan_layout(rows_of_prompt)
        grid = Grid(self.model, layout, lengths, self.steps, len(self._cell_of_row))

        device = self.used_cells.device
        old_slots = torch.tensor([slot_of_prompt[prompt] for prompt in layout.prompts], device=device)
        # Empty cells, -1, copy from any row: their contents are never read.
        rows = torch.tensor(layout.cells, device=device).clamp(min=0)
        old_cells = self._cell_of_row[rows]

        # Response columns are interleaved by lane, (t, W): each row's are picked from its old cell and interleaved again
        # with the new number of lanes.
        old_end = self.prompt_columns + position * lanes
        new_end = grid.prompt_columns + position * layout.lanes
        for old, new in zip(self.keys + self.values, grid.keys + grid.values, strict=True):
            new[:, :, : grid.prompt_columns] = old[old_slots, :, : grid.prompt_columns]
            block = old[:, :, self.prompt_columns : old_end].unflatten(2, (position, lanes))
            block = block[old_cells // lanes, :, :, old_cells % lanes]
            # (G, W, K, t, D) -> (G, K, t, W, D)
            block = block.permute(0, 2, 3, 1, 4)
            new[:, :, grid.prompt_columns : new_end] = block.flatten(2, 3)
        return grid


def generate_batch(
    model: DirectModel,
    prompts: Sequence[list[int]],
    rows_of_prompt: Sequence[Sequence[int]],
    responses: Responses,
) -> None:
    """Sample all rows to their ends.

    Args:
        model: the forward.
        prompts: token ids of each prompt, sorted by length.
        rows_of_prompt: numbers of the rows that answer each prompt.
        responses: where tokens are drawn and stored.
    """
    lengths = [len(prompt) for prompt in prompts]
    layout = plan_layout(dict(enumerate(rows_of_prompt)))
    # The last token of a response is drawn and never read, hence limit - 1 steps.
    grid = Grid(model, layout, lengths, responses.limit - 1, len(responses.lengths))

    # The prompt's last token predicts the first one of the response, so no step is needed for that.
    logits = _prefill(grid, prompts)
    slots = grid.used_cells // layout.lanes
    grid.keep_cells(responses.draw_next(grid.rows, 0, logits[slots]))

    rope = model.rope_tables(max(lengths) + responses.limit)
    for position in range(1, responses.limit):
        if not len(grid.rows):
            return
        if grid.is_sparse():
            grid = grid.repack(lengths, position - 1)
        logits = grid.step(responses.tokens[grid.rows, position - 1], position - 1, rope)
        grid.keep_cells(responses.draw_next(grid.rows, position, logits))


class _Prefix:
    """The common prefix of all prompts of a batch (a template's first words), read once."""

    def __init__(self, model: DirectModel, prompts: Sequence[list[int]]) -> None:
        self.length = _find_common_prefix(prompts)
        layers = len(model.layers)
        shape = (1, model.kv_heads, self.length, model.head_dim)
        self.cache = [model.embedding.new_empty(shape) for _ in range(2 * layers)]
        """Keys of all layers, then values."""
        if self.length:
            device = model.embedding.device
            tokens = torch.tensor([prompts[0][: self.length]], device=device)
            lengths = torch.tensor([self.length], device=device)
            model.prefill(tokens, lengths, self.cache[:layers], self.cache[layers:])


def _find_common_prefix(prompts: Sequence[list[int]]) -> int:
    """Return how many first tokens all prompts share; 0 if they are too few to be worth reading apart."""
    if len(prompts) < 2:
        return 0
    # In lexical order all other prompts are between the first and the last one, so they share what these two share.
    first = min(prompts)
    last = max(prompts)
    # Each prompt keeps at least one token of its own, after which its logits are computed.
    length = min(len(prompt) for prompt in prompts) - 1
    for index in range(length):
        if first[index] != last[index]:
            length = index
            break
    return length if length >= _MIN_PREFIX_TOKENS else 0


def _prefill(grid: Grid, prompts: Sequence[list[int]]) -> Float[Tensor, "G V"]:
    """Read each distinct prompt once into the grid's cache; return the logits after it, for every slot."""
    device = grid.lengths.device
    prompt_of_slot = grid.layout.prompts
    # The slots of a prompt are adjacent; only the first of them reads it.
    is_first = [
        slot == 0 or prompt_of_slot[slot - 1] != prompt for slot, prompt in enumerate(prompt_of_slot)
    ]
    first_slots = [slot for slot, first in enumerate(is_first) if first]

    chunks: list[list[int]] = [[]]
    for slot in first_slots:
        # Prompts come sorted by length, so the last one of a chunk is its longest.
        padded_tokens = (len(chunks[-1]) + 1) * len(prompts[prompt_of_slot[slot]])
        if chunks[-1] and padded_tokens > _MAX_PREFILL_TOKENS:
            chunks.append([])
        chunks[-1].append(slot)

    prefix = _Prefix(grid.model, prompts)
    logits = torch.cat([_prefill_chunk(grid, prefix, prompts, slots) for slots in chunks])

    index_of_prompt = torch.tensor(is_first, device=device).cumsum(0) - 1
    # A prompt with more responses than lanes has several slots: its cache is copied, which costs less than a forward.
    if len(first_slots) < len(prompt_of_slot):
        source = torch.tensor(first_slots, device=device)[index_of_prompt]
        for cache in grid.keys + grid.values:
            cache[:, :, : grid.prompt_columns] = cache[source, :, : grid.prompt_columns]
    return logits[index_of_prompt]


def _prefill_chunk(
    grid: Grid, prefix: _Prefix, prompts: Sequence[list[int]], slots: Sequence[int]
) -> Float[Tensor, "P V"]:
    """Read the prompts of some slots, without the common prefix, and return the logits after them."""
    device = grid.lengths.device
    chunk = [prompts[grid.layout.prompts[slot]][prefix.length :] for slot in slots]
    width = max(len(prompt) for prompt in chunk)
    padded = [[*prompt, *[0] * (width - len(prompt))] for prompt in chunk]
    tokens = torch.tensor(padded, device=device)
    lengths = torch.tensor([len(prompt) for prompt in chunk], device=device)

    # A cache for this chunk alone, which ends with the prompts: the grid's has columns for responses, too.
    shape = (len(chunk), grid.model.kv_heads, prefix.length + width, grid.model.head_dim)
    chunk_cache = [grid.keys[0].new_empty(shape) for _ in prefix.cache]
    for cache, prefix_cache in zip(chunk_cache, prefix.cache, strict=True):
        cache[:, :, : prefix.length] = prefix_cache
    layers = len(grid.keys)
    logits = grid.model.prefill(
        tokens, lengths, chunk_cache[:layers], chunk_cache[layers:], prefix.length
    )

    target_slots = torch.tensor(slots, device=device)
    for grid_cache, cache in zip(grid.keys + grid.values, chunk_cache, strict=True):
        grid_cache[target_slots, :, : prefix.length + width] = cache
    return logits
