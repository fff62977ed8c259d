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

LAUNCHER_VARIABLES = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
RENDEZVOUS_VARIABLES = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

COLLECTIVE_TIMEOUT = timedelta(hours=2)
"""Longest wait in a collective operation: one rank may have a hundred gigabytes to write before it."""
CALL_TIMEOUT = timedelta(days=30)
"""Longest wait for rank 0's next call: it plays environments as long as it likes. The launcher notices a dead rank."""

# Python objects are exchanged by gloo over the network: NCCL would block the GPU as long as a rank
# waits.
_object_group: distributed.ProcessGroup | None = None


def start_engine(module: nn.Module, settings: "OptimSettings") -> Any:
    """Return a DeepSpeed engine around a module.

    The optimizer is ``torch.optim.AdamW``: DeepSpeed's own compiled Adam takes 40 s to build and does
    not resume bit-exactly.

    Args:
        module: what is trained; its parameters say on which device.
        settings: of the optimizer.
    """
    device = next(module.parameters()).device
    with _launcher_environment() as is_single_process:
        deepspeed = _import_deepspeed(device)
        _init_process_group(device, is_single_process)
        optimizer = _make_optimizer(module, settings, device)
        config = _deepspeed_config(settings, device)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = deepspeed.initialize(
                model=module, optimizer=optimizer, config=config, dist_init_required=False
            )[0]

    # Gradient checkpointing works in training mode only; policies have no dropout that it could turn on.
    engine.train()
    return engine


def _make_optimizer(
    module: nn.Module, settings: "OptimSettings", device: torch.device
) -> torch.optim.AdamW:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    # Fused: one pass over the state instead of a dozen. Not by default on a CPU, where it would change
    # the bytes of earlier runs.
    fused = device.type == "cuda" or settings.offload_optimizer
    return torch.optim.AdamW(
        trained,
        lr=settings.lr,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=fused or None,
    )


def _deepspeed_config(settings: "OptimSettings", device: torch.device) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": settings.zero_stage}
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": device.type == "cuda"}
    return {
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


def take_optimizer_step(engine: Any) -> float:
    """Take the optimizer step on the accumulated gradients; return their norm before clipping.

    If the norm is not finite the step is not taken, except with bfloat16 or at ZeRO 1 to 3: there the
    norm is known only after the step.
    """
    if engine.zero_optimization_stage() > 0 or engine.bfloat16_enabled():
        engine.step()
        return float(engine.get_global_grad_norm())

    # Before the step, since in float32 at stage 0 a step that would not be finite can still be refused.
    gradients = [
        parameter.grad for parameter in engine.module.parameters() if parameter.grad is not None
    ]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    if math.isfinite(norm):
        engine.step()
    return norm


def set_learning_rate(engine: Any, rate: float) -> None:
    """Take the next steps with this learning rate."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def join_process_group(cuda: bool) -> None:
    """Join the other processes that a launcher has started; each has the GPU of its number on this machine, if any."""
    global _object_group
    if cuda:
        _hide_other_gpus()
    # After hiding the others: CUDA reads the variable when it starts.
    device = torch.device("cuda" if cuda else "cpu")
    _import_deepspeed(device)
    _init_process_group(device, is_single_process=False)
    _object_group = distributed.new_group(backend="gloo", timeout=CALL_TIMEOUT)


def _hide_other_gpus() -> None:
    """Hide all GPUs but that of this rank: a vLLM engine within the process takes the first that it sees."""
    local_rank = int(os.environ["LOCAL_RANK"])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    own = visible.split(",")[local_rank].strip() if visible else str(local_rank)
    os.environ["CUDA_VISIBLE_DEVICES"] = own
    os.environ["LOCAL_RANK"] = "0"


def leave_process_group() -> None:
    """Leave the other processes; the backend's threads must not outlive the interpreter."""
    global _object_group
    distributed.barrier(group=_object_group)
    distributed.destroy_process_group()
    _object_group = None


def get_rank() -> int:
    """Return the number of this process."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def get_world_size() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share_of_rank(micro_batches: Sequence[T]) -> list[tuple[T, bool]]:
    """Return this rank's micro-batches, each with whether it counts.

    Every rank must do the same number of passes, since ZeRO communicates in each: ranks with fewer
    micro-batches repeat the first one without counting it.
    """
    # Rounded up.
    passes = -(-len(micro_batches) // get_world_size())
    own = [(micro_batch, True) for micro_batch in micro_batches[get_rank() :: get_world_size()]]
    filler = [(micro_batch, False) for micro_batch in micro_batches[:1]]
    return own + filler * (passes - len(own))


def accumulate_gradients(
    engine: Any,
    micro_batches: Sequence[T],
    compute_loss: Callable[[T], tuple[Tensor, Tensor]],
    device: torch.device,
) -> Tensor:
    """Accumulate the gradients of a batch's micro-batches, each rank doing its share.

    Args:
        engine: DeepSpeed's.
        micro_batches: the same on all ranks.
        compute_loss: returns a micro-batch's statistics (float64, on the CPU) and its share of the batch's loss.
        device: on which tensors are exchanged between ranks.

    Returns:
        The sum of the micro-batches' statistics over all ranks.
    """
    own_share = share_of_rank(micro_batches)
    total: Tensor | None = None
    for number, (micro_batch, counts) in enumerate(own_share):
        statistics, objective = compute_loss(micro_batch)
        if total is None:
            total = torch.zeros_like(statistics)
        if counts:
            total += statistics

        engine.set_gradient_accumulation_boundary(number + 1 == len(own_share))
        # DeepSpeed averages over ranks; the batch's loss is the sum of their shares.
        factor = get_world_size() if counts else 0.0
        engine.backward(objective * factor, scale_wrt_gas=False)

    assert total is not None, "a batch has at least one micro-batch"
    return sum_over_ranks(total, device)


def sum_over_ranks(values: Tensor, device: torch.device) -> Tensor:
    """Return the sum over all ranks of ``values``, which are on the CPU; they are exchanged on ``device``."""
    if get_world_size() == 1:
        return values
    # NCCL exchanges tensors on GPUs only.
    total = values.to(device)
    distributed.all_reduce(total)
    return total.cpu()


def gather_objects(value: T) -> list[T]:
    """Return the ``value`` of every rank."""
    if get_world_size() == 1:
        return [value]
    gathered: list[Any] = [None] * get_world_size()
    distributed.all_gather_object(gathered, value, group=_object_group)
    return gathered


def broadcast_object(value: T) -> T:
    """Return the ``value`` of rank 0."""
    if get_world_size() == 1:
        return value
    # The list is overwritten in place on the other ranks.
    objects = [value]
    distributed.broadcast_object_list(objects, group=_object_group)
    return objects[0]


@contextlib.contextmanager
def gather_parameters(engine: Any) -> Iterator[None]:
    """Make whole parameters readable inside the block on all ranks (they are partitioned at ZeRO 3).

    Inside the block each rank may call the modules as often as it likes.
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
    """Disable the hooks by which ZeRO 3 gathers and partitions a module's parameters, all ranks in one order."""
    saved = [
        (submodule, submodule._forward_pre_hooks, submodule._forward_hooks)
        for submodule in module.modules()
    ]
    for submodule, pre_hooks, hooks in saved:
        submodule._forward_pre_hooks = type(pre_hooks)()
        submodule._forward_hooks = type(hooks)()
    try:
        yield
    finally:
        for submodule, pre_hooks, hooks in saved:
            submodule._forward_pre_hooks = pre_hooks
            submodule._forward_hooks = hooks


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
    # DeepSpeed would compile this shared-memory all-reduce at start-up, for minutes; gloo does the same
    # without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


@contextlib.contextmanager
def _launcher_environment() -> Iterator[bool]:
    """Set the environment variables of a launcher for DeepSpeed; yield whether this is a single process without one.

    DeepSpeed reads them even where the process group exists. World size and rendezvous are removed after
    the block: processes started from this one would take them for a launcher's, and all ask for one
    port. The ranks stay: ZeRO reads them in every forward pass.
    """
    is_single_process = "WORLD_SIZE" not in os.environ
    missing = [name for name in LAUNCHER_VARIABLES if name not in os.environ]
    if is_single_process:
        os.environ.update({name: LAUNCHER_VARIABLES[name] for name in missing})
    try:
        yield is_single_process
    finally:
        if is_single_process:
            for name in RENDEZVOUS_VARIABLES:
                if name in missing:
                    del os.environ[name]


def _init_process_group(device: torch.device, is_single_process: bool) -> None:
    """Join the launcher's processes, or be a group of one without using the network."""
    import deepspeed

    backend = "nccl" if device.type == "cuda" else "gloo"
    if is_single_process and not distributed.is_initialized():
        distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    deepspeed.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=COLLECTIVE_TIMEOUT
    )
