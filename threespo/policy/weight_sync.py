"""Copies a policy's weights into the model of an inference engine, in place, and compares the bits afterwards.

An engine stores weights its own way: projections fused, vocabularies padded. Its loader knows how. The loader is run once,
on tensors without data, and the copies that it makes are written down; later syncs repeat these copies and nothing else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

NamedTensors = Iterator[tuple[str, Tensor]]

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by width in bytes: equal bits, also where a number is NaN or a zero has a sign."""


class SyncError(RuntimeError):
    """The engine's weights are not, or cannot be made, those of the policy: nothing may be sampled from them."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A part of a policy's tensor, and where it lies in the engine."""

    target: Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Elements from the beginning of the policy's tensor."""

    def source(self, whole: Tensor) -> Tensor:
        """Return the part of the policy's tensor ``whole``, where the engine's is."""
        part = whole.as_strided(self.size, self.stride, whole.storage_offset() + self.offset)
        return part.to(self.target.device)


class CopyPlan:
    """Which part of which tensor of a policy lies where in an engine's model; made once, used at every sync."""

    def __init__(self, model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Let the engine's loader show where each tensor belongs. Nothing is copied yet.

        Args:
            model: the engine's; its method ``load_weights`` takes pairs of a name and a tensor.
            tensors: all that will be copied at a sync; only names, shapes and types are read.

        Raises:
            SyncError: if the loader does more than copy, or a tensor of either side has no counterpart.
        """
        self._model = model
        self._places = _places(model)
        # Without data: the plan needs no second copy of the weights, and no ZeRO 3 parameter is gathered for it.
        stand_ins = {
            name: torch.empty(_shape(tensor), dtype=tensor.dtype, device="meta")
            for name, tensor in tensors
        }
        recorder = _Recorder(stand_ins)
        loader: Any = model
        try:
            with recorder, torch.no_grad():
                loader.load_weights(iter(stand_ins.items()))
        except SyncError:
            raise
        # Loaders are of many models and check little: names, attributes, or that a weight has data, may be what fails.
        except Exception as error:
            raise SyncError(f"the engine's loader fails ({type(error).__name__}: {error})") from error
        self._copies, self._shapes = (
            recorder.copies,
            {name: one.shape for name, one in stand_ins.items()},
        )
        self._check(recorder.filled)

    def sync(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy all tensors, then compare every bit of what the engine computes with to what it was to get.

        Raises:
            SyncError: if a bit differs, a tensor is missing or new, or the engine has moved a weight since.
        """
        if _places(self._model) != self._places:
            raise SyncError(
                "the engine has put weights elsewhere since the copy plan was made; make a new sampler"
            )
        waiting, different = set(self._copies), []
        with torch.no_grad():
            for name, tensor in tensors:
                if tensor.shape != self._shapes.get(name) or not tensor.is_contiguous():
                    raise SyncError(
                        f"{name}: {tuple(tensor.shape)} is not as the copy plan has it; make a new sampler"
                    )
                waiting.discard(name)
                for copy in self._copies[name]:
                    source = copy.source(tensor)
                    copy.target.copy_(source)
                    different.append((_bits(copy.target) != _bits(source)).any())
        if waiting:
            raise SyncError(
                f"{min(waiting)} and {len(waiting) - 1} more of the policy's weights were not given"
            )

        # One transfer for all tensors: on a GPU each would wait for the device.
        wrong = int(torch.stack(different).sum())
        if wrong:
            raise SyncError(
                f"{wrong} of {len(different)} weights of the engine differ from the policy's after the sync"
            )

    def _check(self, filled: dict[int, int]) -> None:
        """Every element of both sides must have its counterpart; the engine may fill up what it pads."""
        for name, shape in self._shapes.items():
            if sum(copy.target.numel() for copy in self._copies[name]) != shape.numel():
                raise SyncError(
                    f"{name}: the engine's loader does not copy this weight, or not as it is"
                )

        covered = dict(filled)
        for copies in self._copies.values():
            for copy in copies:
                covered[_storage(copy.target)] = (
                    covered.get(_storage(copy.target), 0) + copy.target.numel()
                )
        for name, (place, size) in self._places.items():
            found = covered.get(place, 0)
            if found < size:
                raise SyncError(
                    f"{name}: the policy has {found} of the {size} numbers of this weight of the engine"
                )


class _Recorder(TorchDispatchMode):
    """Writes down copies of stand-ins (which have no data) into real tensors instead of making them."""

    def __init__(self, stand_ins: dict[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {one.untyped_storage()._cdata: name for name, one in stand_ins.items()}
        self.copies: dict[str, list[_Copy]] = {name: [] for name in stand_ins}
        self.filled: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default and args[1].is_meta and not args[0].is_meta:
            self._record(*args[:2])
            return args[0]
        if func in (torch.ops.aten.fill_.Scalar, torch.ops.aten.zero_.default):
            place = _storage(args[0])
            self.filled[place] = self.filled.get(place, 0) + args[0].numel()
        return func(*args, **(kwargs or {}))

    def _record(self, target: Tensor, part: Tensor) -> None:
        name = self._names.get(part.untyped_storage()._cdata)
        if name is None:
            raise SyncError(
                "the engine's loader computes with weights before it copies them; only copies can be repeated"
            )
        if target.shape != part.shape or target.dtype != part.dtype:
            kinds = [f"{tuple(one.shape)} of {one.dtype}" for one in (part, target)]
            raise SyncError(f"{name}: {kinds[0]} in the policy, {kinds[1]} in the engine")
        self.copies[name].append(
            _Copy(target.detach(), tuple(part.shape), part.stride(), int(part.storage_offset()))
        )


def _places(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return where the data of every weight of the engine lie, and how many numbers they are."""
    return {name: (_storage(one), one.numel()) for name, one in model.named_parameters()}


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _shape(tensor: Tensor) -> torch.Size:
    # At ZeRO 3 a parameter is empty between passes and keeps its shape beside it.
    return torch.Size(getattr(tensor, "ds_shape", tensor.shape))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_BITS[tensor.element_size()])
