"""Rates of a device: six times for a model of one shape, from a data sheet or measured (``threespo plan --measure``)."""

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from threespo.errors import InputError
from threespo.files import read_json, write_json
from threespo.scaling.shapes import ModelShape
from threespo.settings import Settings


@dataclass(frozen=True, slots=True)
class GpuDataSheet:
    """Numbers of a device's data sheet."""

    memory: float
    """Bytes."""
    matrix: float
    """Dense bfloat16 operations per second."""
    bandwidth: float
    """Bytes per second of its memory."""
    link: float
    """Bytes per second to a neighbour, one way."""
    power: float
    """Watts of the board."""


GPUS = {
    "a100-40": GpuDataSheet(40e9, 312e12, 1.56e12, 300e9, 400),
    "a100-80": GpuDataSheet(80e9, 312e12, 2.04e12, 300e9, 400),
    "l40s-48": GpuDataSheet(48e9, 362e12, 0.86e12, 32e9, 350),
    "h100-80": GpuDataSheet(80e9, 989e12, 3.35e12, 450e9, 700),
    "h200-141": GpuDataSheet(141e9, 989e12, 4.8e12, 450e9, 700),
    "b200-180": GpuDataSheet(180e9, 2250e12, 7.7e12, 900e9, 1000),
}
"""By name and gigabytes."""

MATRIX_EFFICIENCY = 0.8
"""Share of the data sheet's rate that a large matrix product reaches: 798 of 989 TFLOP/s, measured once on an H100."""

BANDWIDTH_EFFICIENCY = 0.9
"""Likewise of the memory's bandwidth: 3.0 of 3.35 TB/s."""

UPDATE_UTILISATION = 0.4
"""Share of the reached matrix rate that an update reaches: assumed, the project's own requirement on a GPU."""

PROMPT_UTILISATION = 0.5
"""Likewise of reading prompts: assumed."""

STEP_SECONDS = {"vllm": 2e-3, "torch": 25e-3}
"""Seconds of a sampler's step on a GPU besides the device's own work: assumed (CUDA graphs; a Python step)."""

UPDATE_SECONDS = 10e-3
"""Likewise of an optimizer step: assumed."""

ADAM_BYTES = 30
"""Bytes that AdamW moves for a parameter: gradient, master weight and two moments are read (4 x 4), the last three and the
bfloat16 weight written (3 x 4 + 2)."""

CORE_FLOPS = 2.5e10
"""Operations per second of one CPU core in float32, for shapes that were never measured: assumed."""


class Rates(Settings):
    """Seconds of the parts of a run on one device (on a CPU: processor seconds of one core)."""

    origin: str
    """Source of the numbers."""
    read: float = Field(ge=0)
    """Of a prompt token that the sampler reads."""
    step: float = Field(ge=0)
    """Of one step of the sampler, however many rows it has."""
    draw: float = Field(ge=0)
    """Of a response token, besides its step."""
    update: float = Field(ge=0)
    """Of an optimizer step, besides its tokens."""
    learn: float = Field(ge=0)
    """Of a pack's token in one forward pass; a backward pass takes twice as long."""
    head: float = Field(ge=0)
    """Of a response token's logits in one forward pass."""


def _core(read: float, step: float, draw: float, update: float, learn: float, head: float) -> Rates:
    origin = "measured on one core of an AMD EPYC, float32"
    return Rates(origin=origin, read=read, step=step, draw=draw, update=update, learn=learn, head=head)


CORES: Mapping[tuple[int, bool], Rates] = {
    (128, False): _core(26.2e-6, 1.55e-3, 47.0e-6, 17.7e-3, 34.4e-6, 4.4e-6),
    (128, True): _core(23.4e-6, 1.76e-3, 76.9e-6, 16.7e-3, 38.0e-6, 16.5e-6),
    (256, False): _core(60.0e-6, 2.79e-3, 109.1e-6, 33.2e-3, 80.9e-6, 5.3e-6),
}
"""Rates of the tiny policies, by hidden size and whether the vocabulary has more than a thousand tokens (``threespo plan
--measure`` on a machine with other work)."""


def data_sheet_rates(shape: ModelShape, gpu: GpuDataSheet, sampler: str, context: float) -> Rates:
    """Return the rates of a GPU by its data sheet (formula ``roofline``).

    Args:
        shape: of the model, in bfloat16.
        gpu: the device.
        sampler: ``vllm`` or ``torch``.
        context: tokens that a drawn token attends to.
    """
    # Operations over the rate that is reached, or bytes over the bandwidth, whichever bounds the part.
    matrix = gpu.matrix * MATRIX_EFFICIENCY
    bandwidth = gpu.bandwidth * BANDWIDTH_EFFICIENCY
    forward = shape.forward_flops(1, 0, context)

    # Every step reads all weights once, in bfloat16, and every row its own keys and values.
    weight_seconds = 2 * (shape.body + shape.head) / bandwidth
    cache_seconds = shape.cache_bytes() * context / bandwidth
    return Rates(
        origin="data sheet and assumed shares",
        read=forward / (PROMPT_UTILISATION * matrix),
        step=weight_seconds + STEP_SECONDS[sampler],
        draw=shape.forward_flops(1, 1, context) / matrix + cache_seconds,
        update=ADAM_BYTES * shape.parameters / bandwidth + UPDATE_SECONDS,
        learn=forward / (UPDATE_UTILISATION * matrix),
        head=shape.forward_flops(0, 1, 0) / (UPDATE_UTILISATION * matrix),
    )


def processor_rates(shape: ModelShape, context: float) -> Rates:
    """Return the rates of one CPU core: measured once for tiny policies, by assumed operations a second for others."""
    has_large_vocabulary = shape.vocabulary > 1000
    known = CORES.get((shape.hidden, has_large_vocabulary)) or CORES.get((shape.hidden, False))
    # All tiny policies have three layers.
    if known and shape.layers == 3:
        return known
    forward = shape.forward_flops(1, 0, context) / CORE_FLOPS
    head = shape.forward_flops(0, 1, 0) / CORE_FLOPS
    return Rates(
        origin="assumed operations of a core",
        read=forward,
        step=5e-4 * shape.layers,
        draw=forward + head,
        update=20e-3 + 2e-9 * shape.parameters,
        learn=forward,
        head=head,
    )


def rates_file() -> Path:
    """Return the file of the rates measured on this machine, for all studies of this user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Homes are shared between the machines of a cluster, rates are not.
    host = re.sub("[^A-Za-z0-9]+", "-", platform.node()) or "here"
    return cache / "threespo" / f"rates-{host}.json"


def rates_key(device: str, shape: ModelShape) -> str:
    """Return the name of the rates of a shape on a device (``cpu``, or a GPU's name) in the store."""
    sizes = (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.mlp, shape.vocabulary)
    return f"{device}/{'-'.join(map(str, sizes))}"


def read_rates(file: Path | None = None) -> dict[str, Rates]:
    """Return the measured rates by :func:`rates_key`; none where nothing was measured.

    Raises:
        InputError: if the file exists and is not one of :func:`save_rates`.
    """
    file = file or rates_file()
    if not file.is_file():
        return {}
    # An earlier version may have written the file, or a user edited it.
    remedy = "Remove it, and measure again with threespo plan STUDY --measure."
    values: Any = read_json(file, remedy)
    try:
        return {str(name): Rates.model_validate(rates) for name, rates in values.items()}
    except (ValidationError, AttributeError) as error:
        raise InputError(
            f"{file}: not the rates of a machine ({str(error).splitlines()[0]}). {remedy}"
        ) from error


def save_rates(rates: Mapping[str, Rates], file: Path | None = None) -> Path:
    """Add measured rates to the file, replacing earlier ones of the same name; return the file."""
    # Rates of other shapes stay: each study measures only its own.
    file = file or rates_file()
    all_rates = {**read_rates(file), **rates}
    write_json(file, {name: value.model_dump() for name, value in all_rates.items()})
    return file
