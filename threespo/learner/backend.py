"""What is particular to DeepSpeed: start-up without a launcher, ranks, and the optimizer step."""

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import HashStore

if TYPE_CHECKING:
    from threespo.learner.optim import OptimSettings

T = TypeVar("T")

_LAUNCHER = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
_MEETING = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""How far apart ranks may come to a common operation: one may have a hundred gigabytes to write before it."""
CALL_TIMEOUT = timedelta(days=30)
"""How long ranks wait for a call: rank 0 plays environments as long as it likes. Their launcher notices a dead one."""

# Objects travel between hosts: through the network and not through GPUs, which would be blocked as long as a rank waits.
_objects: distributed.ProcessGroup | None = None


def start_engine(module: nn.Module, settings: "OptimSettings") -> Any:
    """Return a DeepSpeed engine around a module.

    The optimizer is ``torch.optim.AdamW``: DeepSpeed's own compiled Adam takes 40 s to build and does not resume
    bit-exactly.

    Args:
        module: what is trained; its parameters say on which device.
        settings: of the optimizer.
    """
    device = next(module.parameters()).device
    with _launched() as alone:
        return _start(module, settings, device, alone)


def _start(module: nn.Module, settings: "OptimSettings", device: torch.device, alone: bool) -> Any:
    deepspeed = _import_deepspeed(device)
    _join(device, alone)
    decayed = [parameter for parameter in module.parameters() if parameter.requires_grad]
    # One pass over the state instead of a dozen. Not on a CPU by default, where it would change the bytes of earlier runs.
    fused = device.type == "cuda" or settings.offload_optimizer
    optimizer = torch.optim.AdamW(
        decayed,
        lr=settings.lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=fused or None,
    )

    zero: dict[str, Any] = {"stage": settings.zero_stage}
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": device.type == "cuda"}
    config = {
        # A batch is what a request holds; the engine never counts it.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.grad_clip,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        # Without this, bfloat16's three digits lose 1.6 % of a gradient over 50 micro-batches.
        "data_types": {"grad_accum_dtype": "fp32"},
        "steps_per_print": 2**31,
    }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = deepspeed.initialize(
            model=module, optimizer=optimizer, config=config, dist_init_required=False
        )[0]
    # Gradient checkpointing works in this mode only; policies have no dropout that it could turn on.
    engine.train()
    return engine


def take_optimizer_step(engine: Any) -> float:
    """Take the optimizer step on the accumulated gradients; return their norm before clipping.

    If the norm is not finite the step is not taken, except with bfloat16 or at ZeRO 1 to 3: there the norm is known only
    after the step.
    """
    plain = engine.zero_optimization_stage() == 0 and not engine.bfloat16_enabled()
    if plain:
        gradients = [
            parameter.grad for parameter in engine.module.parameters() if parameter.grad is not None
        ]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if math.isfinite(norm):
            engine.step()
        return norm
    engine.step()
    return float(engine.get_global_grad_norm())


def set_learning_rate(engine: Any, rate: float) -> None:
    """Take the next steps with this learning rate."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def join_process_group(cuda: bool) -> None:
    """Join the other processes that a launcher has started; each has the GPU of its number on this machine, if any."""
    global _objects
    if cuda:
        _see_own_gpu()
    device = torch.device("cuda" if cuda else "cpu")
    _import_deepspeed(device)
    _join(device, alone=False)
    _objects = distributed.new_group(backend="gloo", timeout=CALL_TIMEOUT)


def _see_own_gpu() -> None:
    """Hide all GPUs but that of this rank: a vLLM engine within the process takes the first that it sees."""
    number = int(os.environ["LOCAL_RANK"])
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[number].strip() if seen else str(number)
    os.environ["LOCAL_RANK"] = "0"


def leave_process_group() -> None:
    """Part from the other processes; the backend's threads must not outlive the interpreter."""
    global _objects
    distributed.barrier(group=_objects)
    distributed.destroy_process_group()
    _objects = None


def get_rank() -> int:
    """Return the number of this process."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def get_world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share_of_rank(parts: Sequence[T]) -> list[tuple[T, bool]]:
    """Return this rank's parts, each with whether it counts.

    Every rank must do the same number of passes, since ZeRO communicates in each: those with fewer parts repeat the
    first one without counting it.
    """
    passes = -(-len(parts) // get_world_size())
    own = [(part, True) for part in parts[get_rank() :: get_world_size()]]
    return own + [(part, False) for part in parts[:1]] * (passes - len(own))


def accumulate_gradients(
    engine: Any, parts: Sequence[T], loss_of: Callable[[T], tuple[Tensor, Tensor]], device: torch.device
) -> Tensor:
    """Add up the gradients of a batch's parts, each rank doing its share.

    Args:
        engine: DeepSpeed's.
        parts: the micro-batches, the same on all ranks.
        loss_of: returns a part's statistics (float64, on the CPU) and its share of the batch's loss.
        device: where tensors are that ranks exchange.

    Returns:
        The sum of the parts' statistics over all ranks.
    """
    shares = share_of_rank(parts)
    total: Tensor | None = None
    for number, (part, counts) in enumerate(shares):
        sums, objective = loss_of(part)
        total = torch.zeros_like(sums) if total is None else total
        if counts:
            total += sums
        engine.set_gradient_accumulation_boundary(number + 1 == len(shares))
        # DeepSpeed averages over ranks; the batch's loss is the sum of their shares.
        engine.backward(objective * (get_world_size() if counts else 0.0), scale_wrt_gas=False)

    assert total is not None, "a batch has at least one part"
    return sum_over_ranks(total, device)


def sum_over_ranks(values: Tensor, device: torch.device) -> Tensor:
    """Return the sum over all ranks of ``values``, which are on the CPU; they are exchanged on ``device``."""
    if get_world_size() == 1:
        return values
    total = values.to(device)
    distributed.all_reduce(total)
    return total.cpu()


def gather_objects(value: T) -> list[T]:
    """Return the ``value`` of every rank."""
    if get_world_size() == 1:
        return [value]
    box: list[Any] = [None] * get_world_size()
    distributed.all_gather_object(box, value, group=_objects)
    return box


def broadcast_object(value: T) -> T:
    """Return the ``value`` of rank 0."""
    if get_world_size() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, group=_objects)
    return box[0]


@contextlib.contextmanager
def gather_parameters(engine: Any) -> Iterator[None]:
    """Make whole parameters readable inside the block on all ranks (they are scattered at ZeRO 3).

    Ranks may call the modules as often as each likes there.
    """
    if engine.zero_optimization_stage() < 3:
        yield
        return
    from deepspeed.runtime.zero import GatheredParameters

    with GatheredParameters(list(engine.module.parameters())), _without_hooks(engine.module):
        yield


def gather_one_by_one(engine: Any, named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters one by one, each whole until the next is asked for: all at once may be more than memory holds."""
    if engine.zero_optimization_stage() < 3:
        yield from named
        return
    from deepspeed.runtime.zero import GatheredParameters

    for name, parameter in named:
        with GatheredParameters([parameter]):
            yield name, parameter


@contextlib.contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """Switch off the hooks by which ZeRO 3 gathers and scatters a module's parameters, all ranks in one order."""
    kept = [(part, part._forward_pre_hooks, part._forward_hooks) for part in module.modules()]
    for part, before, after in kept:
        part._forward_pre_hooks, part._forward_hooks = type(before)(), type(after)()
    try:
        yield
    finally:
        for part, before, after in kept:
            part._forward_pre_hooks, part._forward_hooks = before, after


def _import_deepspeed(device: torch.device) -> Any:
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import deepspeed
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # At every call of ZeRO 3, of functions that DeepSpeed calls by their old names.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.c10d_logger")
    # DeepSpeed would compile this shared-memory all-reduce at start-up, for minutes; gloo does the same without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


@contextlib.contextmanager
def _launched() -> Iterator[bool]:
    """Set the variables of a launcher for DeepSpeed; yield whether there is no launcher.

    DeepSpeed reads them even where the process group exists. World size and meeting place are removed again after the
    block: processes started from this one would take them for a launcher's, and all ask for one port. The ranks stay:
    ZeRO reads them in every forward pass.
    """
    lent = {name: value for name, value in _LAUNCHER.items() if name not in os.environ}
    alone = "WORLD_SIZE" in lent
    os.environ.update(lent if alone else {})
    try:
        yield alone
    finally:
        for name in _MEETING if alone else ():
            if name in lent:
                del os.environ[name]


def _join(device: torch.device, alone: bool) -> None:
    """Join the launcher's processes, or be a group of one without using the network."""
    import deepspeed

    backend = "nccl" if device.type == "cuda" else "gloo"
    if alone and not distributed.is_initialized():
        distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    deepspeed.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=COLLECTIVE_TIMEOUT
    )
